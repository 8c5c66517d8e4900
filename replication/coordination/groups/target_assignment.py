"""The target assignment of a group: what each member is to have, computed for a group epoch (KIP-848)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
)
from replication.coordination.groups.assignments import NOTHING, AssignedTopics, as_sets, as_topics
from replication.coordination.groups.assignor import Assignor, GroupSpec, MemberSpec
from replication.coordination.groups.group_config import RANGE, UNIFORM
from replication.coordination.groups.member import MemberMetadata
from replication.coordination.groups.range_assignor import assign_range
from replication.coordination.groups.topic_catalog import Topic, TopicCatalog
from replication.coordination.groups.uniform_assignor import assign_uniform

ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniform, RANGE: assign_range}


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """targets: of each member. records: what is new about it. changed: the members for which it is new."""

    targets: Mapping[str, AssignedTopics]
    records: tuple[GroupRecord, ...]
    changed: tuple[str, ...]


def preferred_assignor(members: Sequence[MemberMetadata], assignors: tuple[str, ...]) -> str:
    """The assignor that most members ask for; of those with equal numbers the first of the settings. The first of the
    settings if no member asks for one that the settings have."""
    votes = Counter(member.server_assignor for member in members if member.server_assignor in assignors)
    return max(assignors, key=lambda name: votes[name])


def compute_targets(
    group_id: str,
    epoch: int,
    members: Mapping[str, MemberMetadata],
    topics_of: Callable[[str], Sequence[str]],
    targets: Mapping[str, AssignedTopics],
    catalog: TopicCatalog,
    assignors: tuple[str, ...],
) -> TargetAssignment:
    """Compute the target assignment of a group epoch.

    members: all of the group. topics_of: the topics that match a pattern. targets: what each member was to have.
    """
    spec = _spec(members, topics_of, targets, catalog)
    assign = ASSIGNORS[preferred_assignor(tuple(members.values()), assignors)]
    assigned = assign(spec) if spec.members else {}
    new: dict[str, AssignedTopics] = {}
    records: list[GroupRecord] = []
    changed: list[str] = []
    for member_id, member in spec.members.items():
        known, chosen = targets.get(member_id), assigned.get(member_id, NOTHING)
        target = new[member_id] = known if known is not None and chosen is member.target else as_topics(chosen)
        if known != target:
            changed.append(member_id)
            records.append(
                CoordinatorRecord(
                    ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
                    ConsumerGroupTargetAssignmentMemberValue(target),
                )
            )
    records.append(
        CoordinatorRecord(
            ConsumerGroupTargetAssignmentMetadataKey(group_id), ConsumerGroupTargetAssignmentMetadataValue(epoch)
        )
    )
    return TargetAssignment(new, tuple(records), tuple(changed))


def _spec(
    members: Mapping[str, MemberMetadata],
    topics_of: Callable[[str], Sequence[str]],
    targets: Mapping[str, AssignedTopics],
    catalog: TopicCatalog,
) -> GroupSpec:
    """Members with the same subscription share one set of topics."""
    topics: dict[str, Topic] = {}
    subscriptions: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id in sorted(members):
        member = members[member_id]
        subscription = member.subscribed_topic_names, member.subscribed_topic_regex
        ids = subscriptions.get(subscription)
        if ids is None:
            names = (*member.subscribed_topic_names, *topics_of(member.subscribed_topic_regex or ""))
            found = [topic for name in names if (topic := catalog.get(name)) is not None]
            topics.update((topic.name, topic) for topic in found)
            ids = subscriptions[subscription] = frozenset(topic.topic_id for topic in found)
        target = as_sets(targets.get(member_id, ()))
        specs[member_id] = MemberSpec(member.instance_id, member.rack_id, ids, target)
    return GroupSpec(specs, {topics[name].topic_id: topics[name] for name in sorted(topics)})
