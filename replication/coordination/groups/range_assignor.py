"""The range assignor: of each topic, each member gets a contiguous range of partitions.

Topics with the same subscribers and number of partitions are assigned alike (co-partitioned): partition 3 of one and
partition 3 of the other go to the same member. Source: KIP-848.
"""

from __future__ import annotations

from uuid import UUID

from replication.coordination.groups.assignor import GroupAssignment, GroupSpec


def assign_range(spec: GroupSpec) -> GroupAssignment:
    """Assign. Members with an instance id come first, by instance id, so that they keep their ranges when they restart
    with another member id; then the others by member id. The first members get one partition more if the division
    leaves a rest."""
    order = sorted(
        spec.members,
        key=lambda member_id: (
            (instance := spec.members[member_id].instance_id) is None,
            instance or "",
            member_id,
        ),
    )
    assignment: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in order}
    homogeneous = spec.is_homogeneous()
    for topic_id, topic in spec.topics.items():
        subscribers = order if homogeneous else [each for each in order if topic_id in spec.members[each].topics]
        share, rest = divmod(topic.partitions, len(subscribers))
        start = 0
        for number, member_id in enumerate(subscribers[: topic.partitions]):
            end = start + share + (number < rest)
            assignment[member_id][topic_id] = set(range(start, end))
            start = end
    return assignment
