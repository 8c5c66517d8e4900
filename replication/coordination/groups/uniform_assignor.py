"""The uniform assignor: each member gets the same number of partitions, plus or minus one, and keeps what it has where
that allows. Source: KIP-848 (balance before stickiness), KIP-881 (racks).

If all members subscribe to the same topics, shares follow from a division. Else see mixed_assignor.py.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from uuid import UUID

from replication.coordination.groups.assignor import GroupAssignment, GroupSpec
from replication.coordination.groups.mixed_assignor import assign_mixed
from replication.coordination.groups.topic_catalog import Topic

Partition = tuple[UUID, int]


def assign_uniform(spec: GroupSpec) -> GroupAssignment:
    """Assign. Cost: proportional to the number of members and partitions, if all subscribe to the same topics."""
    return _Shares(spec).assign() if spec.is_homogeneous() else assign_mixed(spec)


class _Shares:
    """An assignment in the making. Members that have the most get the larger shares, so that the fewest move.

    What stays is handled by the set, and only what moves by the partition.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._kept: dict[str, Mapping[UUID, AbstractSet[int]]] = {}
        self._changed: dict[str, dict[UUID, set[int]]] = {}
        self._sizes: dict[str, int] = {}
        self._free: list[Partition] = []
        self._room: dict[str, int] = {}

    def assign(self) -> GroupAssignment:
        total = self._keep()
        self._trim(total)
        racks = {member.rack for member in self._spec.members.values() if member.rack}
        if racks and any(topic.racks for topic in self._spec.topics.values()):
            self._fill_near()
        self._fill()
        return {**self._kept, **self._changed}

    def _keep(self) -> int:
        """Find what members keep, and the free partitions. Returns the number of all partitions."""
        taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in self._spec.topics}
        for member_id, member in self._spec.members.items():
            kept: Mapping[UUID, AbstractSet[int]] = member.target
            for topic_id, partitions in member.target.items():
                topic = self._spec.topics.get(topic_id)
                stays: AbstractSet[int] = frozenset()
                if topic is not None:
                    stays = partitions
                    if max(partitions) >= topic.partitions or not taken[topic_id].isdisjoint(partitions):
                        stays = {each for each in partitions - taken[topic_id] if each < topic.partitions}
                    taken[topic_id] |= stays
                if len(stays) < len(partitions):
                    kept = {**kept, topic_id: stays}
            self._kept[member_id] = kept
            self._sizes[member_id] = sum(map(len, kept.values()))
        total = 0
        for topic_id, topic in self._spec.topics.items():
            total += topic.partitions
            owned = taken[topic_id]
            if len(owned) < topic.partitions:
                self._free += [(topic_id, partition) for partition in range(topic.partitions) if partition not in owned]
        return total

    def _trim(self, total: int) -> None:
        """Take from each member what exceeds its share; partitions in its own rack last."""
        share, larger = divmod(total, len(self._kept))
        by_most = sorted(self._kept, key=lambda member_id: (-self._sizes[member_id], member_id))
        for number, member_id in enumerate(by_most):
            quota = share + (number < larger)
            surplus = self._sizes[member_id] - quota
            if surplus > 0:
                self._take(member_id, surplus)
            elif surplus < 0:
                self._room[member_id] = -surplus

    def _take(self, member_id: str, surplus: int) -> None:
        rack = self._spec.members[member_id].rack
        having = [
            (topic_id, partition)
            for topic_id, partitions in self._kept[member_id].items()
            for partition in sorted(partitions)
        ]
        if rack:
            having.sort(key=lambda each: not _is_near(self._spec.topics[each[0]], each[1], rack))
        taken = having[len(having) - surplus :]
        self._free += taken
        changed = self._change(member_id)
        for topic_id, partition in taken:
            changed[topic_id].discard(partition)

    def _change(self, member_id: str) -> dict[UUID, set[int]]:
        """The assignment of a member, to be changed."""
        changed = self._changed.get(member_id)
        if changed is None:
            kept = self._kept[member_id]
            changed = self._changed[member_id] = {topic_id: set(partitions) for topic_id, partitions in kept.items()}
        return changed

    def _fill_near(self) -> None:
        """Give free partitions to members in a rack of one of their replicas."""
        by_rack: dict[str, deque[str]] = defaultdict(deque)
        for member_id in self._room:
            rack = self._spec.members[member_id].rack
            if rack:
                by_rack[rack].append(member_id)
        left: list[Partition] = []
        for topic_id, partition in self._free:
            racks = self._spec.topics[topic_id].racks
            near = [rack for rack in sorted(racks[partition]) if by_rack.get(rack)] if racks else []
            if not near:
                left.append((topic_id, partition))
                continue
            queue = by_rack[max(near, key=lambda rack: len(by_rack[rack]))]
            self._give(queue, (topic_id, partition))
        self._free = left

    def _fill(self) -> None:
        """Give the rest away in turns, so that each topic is spread over the members."""
        queue = deque(member_id for member_id, room in self._room.items() if room)
        for partition in self._free:
            self._give(queue, partition)

    def _give(self, queue: deque[str], partition: Partition) -> None:
        member_id = queue.popleft()
        topic_id, index = partition
        self._change(member_id).setdefault(topic_id, set()).add(index)
        self._room[member_id] -= 1
        if self._room[member_id]:
            queue.append(member_id)


def _is_near(topic: Topic, partition: int, rack: str) -> bool:
    return bool(topic.racks) and rack in topic.racks[partition]
