"""The lag of the groups that a node coordinates: how many offsets between those that they committed and the committed
ends of the partitions they have still to read, and how many were deleted before they read them.

Invariant: a lag that is not known is not a number. It is unknown where a member has a partition and the group has
committed nothing, or an offset beyond the end: the options of the member decide where it begins.

Collected when it is asked for, in particular when the metrics are read, at most once in `FRESH_MS`; otherwise it costs
nothing. Starts and ends of partitions that have a replica on this node are those of the replica; for others the leaders
are asked.

Limits: `GROUPS_MAX` groups and `OFFSETS_MAX` offsets, in the order of their names; what is beyond, and partitions whose
leader does not answer, are counted as unknown.
Not here: the text of the metrics (node/observability/metrics.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from node.api.offsets import ListOffsetsPartition, ListOffsetsRequest
from node.api.peers import Peers
from node.api.table import DATA_LIST_OFFSETS
from node.coordinators.runtime import CoordinatorRuntime
from node.replicas.replica_manager import ReplicaManager
from replication.controller.image import ClusterImage
from replication.coordination.group_requests import (
    NO_MEMBER_EPOCH,
    DescribeGroups,
    FetchedOffset,
    ListedGroup,
    ListGroups,
    OffsetFetch,
)
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    Isolation,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    PartitionKey,
    TopicId,
)

GROUPS_MAX: Final = 1_000
OFFSETS_MAX: Final = 10_000
FRESH_MS: Final = 5_000
ASK_MS: Final = 1_000
"""How long a leader may take; short, since a reader of the metrics waits."""
GROUPS_PER_TURN: Final = 50
_LATEST: Final = Millis(-1)
_EARLIEST: Final = Millis(-2)


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """A group. `lag` and `deleted` are summed over the partitions where they are known; None if they are known of
    none."""

    group: ListedGroup
    offsets: tuple[FetchedOffset, ...]
    """Committed."""
    lag: int | None
    """Offsets still to read."""
    deleted: int | None
    """Offsets that were deleted before the group read them."""
    unknown: int
    """The number of the other partitions."""


@dataclass(frozen=True, slots=True)
class GroupsCollected:
    """unknown: groups and offsets that are left out, and the unknown partitions of the others."""

    groups: tuple[GroupFigures, ...]
    unknown: int


NO_GROUPS: Final = GroupsCollected((), 0)
"""For a node that is starting."""


class GroupLag:
    """Collects the lag of groups."""

    def __init__(
        self,
        runtime: CoordinatorRuntime,
        replicas: ReplicaManager,
        *,
        image: Callable[[], ClusterImage],
        listener: str,
        clock: Clock,
        peers: Peers,
    ) -> None:
        """image: the newest image. listener: of the addresses for requests between nodes."""
        self._runtime, self._replicas, self._image, self._listener = runtime, replicas, image, listener
        self._clock, self._peers = clock, peers
        self._collecting = asyncio.Lock()
        self._latest = NO_GROUPS
        self._fresh_until = Millis(0)

    async def collect(self) -> GroupsCollected:
        """The groups of this node. Those of coordinators that are being loaded are missing."""
        async with self._collecting:
            if self._clock.monotonic_ms() >= self._fresh_until:
                self._latest = await self._collect()
                self._fresh_until = Millis(self._clock.monotonic_ms() + FRESH_MS)
            return self._latest

    async def _collect(self) -> GroupsCollected:
        listed, unknown = await self._groups()
        committed: list[tuple[ListedGroup, tuple[FetchedOffset, ...], set[PartitionKey]]] = []
        left = OFFSETS_MAX
        for number, (partition, group) in enumerate(listed, 1):
            offsets = await self._offsets(partition, group.group_id)
            committed.append((group, offsets[:left], await self._assigned(partition, group)))
            unknown += len(offsets[left:])
            left -= len(offsets[:left])
            if number % GROUPS_PER_TURN == 0:
                await self._clock.sleep_ms(0)
        image = self._image()
        keys = {key for _, offsets, _ in committed for each in offsets if (key := _key(image, each)) is not None}
        logs = await self._logs(image, keys)
        figures = [_figures(image, *each, logs) for each in committed]
        return GroupsCollected(tuple(figures), unknown + sum(each.unknown for each in figures))

    async def _groups(self) -> tuple[list[tuple[PartitionIndex, ListedGroup]], int]:
        """The groups, with the partitions of their coordinators, and the number of those that are left out."""
        found: list[tuple[PartitionIndex, ListedGroup]] = []
        for partition in self._runtime.partitions:
            try:
                answer = await self._runtime.submit(partition, ListGroups())
            except TidelogError:
                continue  # it is being loaded, or moves to another node
            found += [(partition, group) for group in answer.groups]
        found.sort(key=lambda each: each[1].group_id)
        return found[:GROUPS_MAX], max(0, len(found) - GROUPS_MAX)

    async def _offsets(self, partition: PartitionIndex, group_id: str) -> tuple[FetchedOffset, ...]:
        try:
            answer = await self._runtime.submit(partition, OffsetFetch(group_id, "", NO_MEMBER_EPOCH, None))
        except TidelogError:
            return ()
        return tuple(each for each in answer.partitions if each.error is None and each.offset >= 0)

    async def _assigned(self, partition: PartitionIndex, group: ListedGroup) -> set[PartitionKey]:
        """The partitions that members of the group have."""
        if not group.members:
            return set()
        try:
            answer = await self._runtime.submit(partition, DescribeGroups((group.group_id,)))
        except TidelogError:
            return set()
        return {
            PartitionKey(TopicId(topic.topic_id), index)
            for described in answer.groups
            for member in described.members
            for topic in member.assignment
            for index in topic.partitions
        }

    async def _logs(self, image: ClusterImage, keys: Iterable[PartitionKey]) -> dict[PartitionKey, _LogRange]:
        """The logs that are known here, or that leaders answer."""
        starts: dict[PartitionKey, Offset] = {}
        ends: dict[PartitionKey, Offset] = {}
        followers: set[PartitionKey] = set()
        elsewhere: dict[NodeId, list[PartitionKey]] = {}
        for key in sorted(keys):
            replica = self._replicas.registry.by_key.get(key)
            state = image.partition(key)
            if replica is not None and replica.role is not None:
                starts[key], ends[key] = replica.log.log_start_offset, replica.log.high_watermark
                if replica.leader is None:
                    followers.add(key)
            elif state is not None and state.leader != NO_NODE:
                elsewhere.setdefault(state.leader, []).append(key)
        async with asyncio.TaskGroup() as tasks:
            for node, wanted in sorted(elsewhere.items()):
                tasks.create_task(self._ask(image, node, wanted, _EARLIEST, starts))
                tasks.create_task(self._ask(image, node, wanted, _LATEST, ends))
        return {key: _LogRange(starts[key], end, key in followers) for key, end in ends.items() if key in starts}

    async def _ask(
        self,
        image: ClusterImage,
        node: NodeId,
        keys: list[PartitionKey],
        place: Millis,
        found: dict[PartitionKey, Offset],
    ) -> None:
        registration = image.nodes.get(node)
        endpoint = None if registration is None or registration.fenced else registration.listeners.get(self._listener)
        if endpoint is None:
            return
        questions = tuple(
            ListOffsetsPartition(key.topic_id.bytes, key.partition, NO_LEADER_EPOCH, place) for key in keys
        )
        request = ListOffsetsRequest(Isolation.READ_UNCOMMITTED, questions)
        try:
            answer = await self._peers.call(endpoint, DATA_LIST_OFFSETS, request, timeout_ms=ASK_MS)
        except TidelogError:
            return
        for key, listed in zip(keys, answer.partitions, strict=False):
            if listed.error is None:
                found[key] = listed.offset


@dataclass(frozen=True, slots=True)
class _LogRange:
    """is_follower: the end may be behind that of the leader."""

    start: Offset
    end: Offset
    is_follower: bool

    def has(self, offset: Offset) -> bool:
        """Whether a committed offset can be one of this log. One that was committed is not beyond the leader's end."""
        return offset <= self.end or self.is_follower


def _figures(
    image: ClusterImage,
    group: ListedGroup,
    offsets: tuple[FetchedOffset, ...],
    assigned: set[PartitionKey],
    logs: Mapping[PartitionKey, _LogRange],
) -> GroupFigures:
    """assigned: the partitions that members have."""
    committed = {key: each.offset for each in offsets if (key := _key(image, each)) is not None}
    known = [(offset, logs[key]) for key, offset in committed.items() if key in logs and logs[key].has(offset)]
    unknown = len(committed | dict.fromkeys(assigned)) - len(known)
    if not known:
        return GroupFigures(group, offsets, None, None, unknown)
    lag = sum(max(0, log.end - max(offset, log.start)) for offset, log in known)
    return GroupFigures(group, offsets, lag, sum(max(0, log.start - offset) for offset, log in known), unknown)


def _key(image: ClusterImage, offset: FetchedOffset) -> PartitionKey | None:
    """The partition for which the offset was committed; None if it does not exist any more."""
    topic = image.topic(offset.topic)
    if topic is None or offset.partition >= len(topic.partitions) or offset.topic_id not in (None, topic.topic_id):
        return None
    return PartitionKey(topic.topic_id, offset.partition)
