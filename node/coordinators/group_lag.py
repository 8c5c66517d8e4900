"""The lag of the groups that a node coordinates: the number of offsets from the committed offset to the high watermark
of each partition, and the number of offsets that were deleted before the group read them.

Invariant: an unknown lag is reported as unknown, not as a number. It is unknown if a member has a partition and the
group has committed no offset, or one beyond the end: the options of the member decide where it begins.

The lag is collected on request, in particular when metrics are read, at most once in `FRESH_MS`; otherwise it costs
nothing. Starts and ends of partitions that have a replica on this node are those of the replica; for others the leaders
are queried.

Limits: `GROUPS_MAX` groups and `OFFSETS_MAX` offsets, in the order of their names. Those beyond, and partitions whose
leader does not answer, are counted as unknown.
Not here: the text of the metrics (node/observability/metrics.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final

from node.api.offsets import ListOffsetsPartition, ListOffsetsRequest
from node.api.peers import Peers
from node.api.table import DATA_LIST_OFFSETS
from node.coordinators.runtime import CoordinatorRuntime
from node.replicas.replica_manager import ReplicaManager
from replication.controller.image import ClusterImage
from replication.coordination.group_requests import DescribeGroups, FetchedOffset, ListGroups, OffsetFetch
from tidelog.clock import Clock
from tidelog.cluster_descriptions import GroupListing
from tidelog.errors import TidelogError
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_MEMBER_EPOCH,
    NO_NODE,
    Isolation,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    PartitionKey,
    TopicId,
)
from tidelog.values import dataclass

GROUPS_MAX: Final = 1_000
OFFSETS_MAX: Final = 10_000
FRESH_MS: Final = 5_000
ASK_MS: Final = 1_000
"""Timeout of a query to a leader; short, because the reader of the metrics waits for it."""
GROUPS_PER_TURN: Final = 50
_LATEST: Final = Millis(-1)
_EARLIEST: Final = Millis(-2)


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The lag of one group."""

    group: GroupListing
    offsets: tuple[FetchedOffset, ...]
    """The committed offsets."""
    lag: int | None
    """Offsets that the group has still to read, in all partitions where that is known; None if there is none."""
    deleted: int | None
    """Offsets that were deleted before the group read them; None as for `lag`."""
    unknown: int
    """The number of partitions whose lag is unknown."""
    lags: Mapping[tuple[str, PartitionIndex], int] = field(default_factory=dict)
    """The lag of each partition where it is known, by topic and index."""


@dataclass(frozen=True, slots=True)
class GroupsCollected:
    """The lag of all groups of this node."""

    groups: tuple[GroupFigures, ...]
    unknown: int
    """The number of groups and offsets that are left out, and of the partitions of the others whose lag is unknown."""


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
        """image: returns the newest image. listener: the name of the listener for requests between nodes."""
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
        committed: list[tuple[GroupListing, tuple[FetchedOffset, ...], set[PartitionKey]]] = []
        left = OFFSETS_MAX
        for number, (partition, group) in enumerate(listed, 1):
            offsets = await self._offsets(partition, group.group_id)
            if offsets is not None:
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

    async def _groups(self) -> tuple[list[tuple[PartitionIndex, GroupListing]], int]:
        """The groups, with the partitions of their coordinators, and the number of those that are left out."""
        found: list[tuple[PartitionIndex, GroupListing]] = []
        for partition in self._runtime.partitions:
            try:
                answer = await self._runtime.submit(partition, ListGroups())
            except TidelogError:
                continue  # it is being loaded, or moves to another node
            found += [(partition, group) for group in answer.groups]
        found.sort(key=lambda each: each[1].group_id)
        return found[:GROUPS_MAX], max(0, len(found) - GROUPS_MAX)

    async def _offsets(self, partition: PartitionIndex, group_id: str) -> tuple[FetchedOffset, ...] | None:
        """None if the coordinator no longer answers: the group must not be shown as one that has committed nothing."""
        try:
            answer = await self._runtime.submit(partition, OffsetFetch(group_id, "", NO_MEMBER_EPOCH, None))
        except TidelogError:
            return None
        return tuple(each for each in answer.partitions if each.error is None and each.offset >= 0)

    async def _assigned(self, partition: PartitionIndex, group: GroupListing) -> set[PartitionKey]:
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
        """The start and end of each log, from a replica on this node or from its leader."""
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
    """The extent of a partition's log."""

    start: Offset
    end: Offset
    is_follower: bool
    """The end is that of a follower: the leader's may be larger."""

    def has(self, offset: Offset) -> bool:
        """Whether a committed offset can lie in the leader's log."""
        return offset <= self.end or self.is_follower


def _figures(
    image: ClusterImage,
    group: GroupListing,
    offsets: tuple[FetchedOffset, ...],
    assigned: set[PartitionKey],
    logs: Mapping[PartitionKey, _LogRange],
) -> GroupFigures:
    """The lag of a group. assigned: the partitions that members have."""
    committed = {key: each for each in offsets if (key := _key(image, each)) is not None}
    known = [(each, logs[key]) for key, each in committed.items() if key in logs and logs[key].has(each.offset)]
    unknown = len(committed | dict.fromkeys(assigned)) - len(known)
    if not known:
        return GroupFigures(group, offsets, None, None, unknown)
    lags = {(each.topic, each.partition): max(0, log.end - max(each.offset, log.start)) for each, log in known}
    deleted = sum(max(0, log.start - each.offset) for each, log in known)
    return GroupFigures(group, offsets, sum(lags.values()), deleted, unknown, lags)


def _key(image: ClusterImage, offset: FetchedOffset) -> PartitionKey | None:
    """The partition for which the offset was committed; None if it does not exist any more."""
    topic = image.topic(offset.topic)
    if topic is None or offset.partition >= len(topic.partitions) or offset.topic_id not in (None, topic.topic_id):
        return None
    return PartitionKey(topic.topic_id, offset.partition)
