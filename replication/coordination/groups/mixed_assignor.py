"""The uniform assignor for members with different subscriptions.

Each member keeps what it had. Free partitions go to the subscriber with the fewest, topics with few subscribers first.
Then partitions move from the subscriber of a topic with the most to the one with the fewest while these differ by two
or more. Source: KIP-848, KIP-54.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from replication.coordination.groups.assignor import GroupAssignment, GroupSpec

_ROUNDS_MAX: Final = 16
"""Each round about halves the difference between members; the limit bounds the cost for odd subscriptions."""


def assign_mixed(spec: GroupSpec) -> GroupAssignment:
    """Assign. The result is balanced as far as subscriptions allow, or nearly so after `_ROUNDS_MAX` rounds."""
    return _Balance(spec).assign()


class _Balance:
    """The computation of one assignment."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._assigned: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in spec.members}
        self._sizes = dict.fromkeys(spec.members, 0)
        """The number of partitions of each member."""
        self._subscribers: dict[UUID, list[str]] = {topic_id: [] for topic_id in spec.topics}
        for member_id, member in spec.members.items():
            for topic_id in member.topics:
                self._subscribers[topic_id].append(member_id)

    def assign(self) -> GroupAssignment:
        free = self._keep()
        # Topics with few subscribers first: their members cannot be relieved later by other topics' subscribers.
        by_subscribers = sorted(free, key=lambda topic_id: (len(self._subscribers[topic_id]), topic_id.int))
        for topic_id in by_subscribers:
            for partition in free[topic_id]:
                self._give(self._fewest(topic_id, partition), topic_id, partition)
        topics = [topic_id for topic_id, members in self._subscribers.items() if len(members) > 1]
        for _ in range(_ROUNDS_MAX):
            if not sum([self._balance(topic_id) for topic_id in topics]):
                break
        return self._assigned

    def _keep(self) -> dict[UUID, list[int]]:
        """Let each member keep its partitions of topics that it still subscribes to. Returns the other partitions."""
        taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in self._spec.topics}
        for member_id, member in self._spec.members.items():
            for topic_id, partitions in member.target.items():
                if topic_id not in member.topics:
                    continue
                topic = self._spec.topics[topic_id]
                kept = {each for each in partitions - taken[topic_id] if each < topic.partitions}
                if kept:
                    taken[topic_id] |= kept
                    self._assigned[member_id][topic_id] = kept
                    self._sizes[member_id] += len(kept)
        free = {
            topic_id: [each for each in range(topic.partitions) if each not in taken[topic_id]]
            for topic_id, topic in self._spec.topics.items()
        }
        return {topic_id: partitions for topic_id, partitions in free.items() if partitions}

    def _fewest(self, topic_id: UUID, partition: int) -> str:
        """The subscriber with the fewest partitions; among these one in a rack of the partition."""
        subscribers, sizes = self._subscribers[topic_id], self._sizes
        fewest = min(subscribers, key=sizes.__getitem__)
        racks = self._spec.topics[topic_id].racks
        if not racks:
            return fewest
        size = sizes[fewest]
        near = (
            each for each in subscribers if sizes[each] == size and self._spec.members[each].rack in racks[partition]
        )
        return next(near, fewest)

    def _balance(self, topic_id: UUID) -> bool:
        """Move partitions of a topic while its subscribers differ by two or more. Returns whether one has moved."""
        subscribers, sizes = self._subscribers[topic_id], self._sizes
        moved = False
        while True:
            fewest = min(subscribers, key=sizes.__getitem__)
            givers = [each for each in subscribers if self._assigned[each].get(topic_id)]
            most = max(givers, key=sizes.__getitem__, default=fewest)
            if sizes[most] - sizes[fewest] < 2:
                return moved
            partitions = self._assigned[most][topic_id]
            partition = max(partitions)  # any would do; the result must not depend on the order of a set
            partitions.remove(partition)
            sizes[most] -= 1
            self._give(fewest, topic_id, partition)
            moved = True

    def _give(self, member_id: str, topic_id: UUID, partition: int) -> None:
        self._assigned[member_id].setdefault(topic_id, set()).add(partition)
        self._sizes[member_id] += 1
