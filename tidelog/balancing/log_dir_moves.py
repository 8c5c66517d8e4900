"""The part of a plan that moves replicas between the log directories of their nodes (KIP-113): begins the moves, and
waits until they are complete.

Invariants:
  1. Every step can be repeated: a move that has begun goes on, and a replica that is there already is complete.
  2. A move whose copy was seen and is gone, while the replica is where it was, was cancelled or has failed: it is not
     begun again. One without a copy may wait for its turn, or its node has restarted since, and is asked for again.

Not here: the moves themselves, which the nodes carry out and begin again after a restart (node/replicas/); the plan
(dir_planner.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from tidelog.balancing.cluster_balance import BATCH_MAX, REVIEW_MS, MoveProgress
from tidelog.client.admin import Admin
from tidelog.clock import Clock
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import DiskFull, NoReassignmentInProgress, ReplicaNotAvailable, Retry, TidelogError
from tidelog.types import NodeId, TopicPartition

_TRIES_MAX: Final = 20
_PAUSE_MS: Final = 500
"""As in Kafka's tool, a replica that was just added gets ten seconds until its node has its log."""

_MISSED_MAX: Final = 5
"""Reviews, one after the other, that do not find a copy, or the replica, before the move counts as ended: a copy of a
log that was truncated is made again."""

Places: TypeAlias = Mapping[NodeId, Mapping[TopicPartition, str]]
"""The log directories to which replicas move, by node."""


async def begin_log_dir_moves(admin: Admin, wanted: Places, clock: Clock) -> tuple[int, list[PartitionResult]]:
    """Begin to move the replicas of each node to these log directories. Returns how many have begun, or are there
    already, and the results of the others."""
    begun, refused = await _begin(admin, wanted, clock)
    return sum(map(len, begun.values())), refused


async def execute_log_dir_moves(
    admin: Admin,
    wanted: Places,
    sizes: Mapping[TopicPartition, int],
    clock: Clock,
    *,
    on_progress: Callable[[MoveProgress], None],
) -> tuple[int, list[PartitionResult]]:
    """Begin the moves, and wait until all are complete. Returns how many are, and the results of those that were
    refused, cancelled, or have failed. sizes: bytes of each replica.

    A node that does not answer is waited for once it has begun its moves."""
    begun, refused = await _begin(admin, wanted, clock)
    watch, began = _MoveWatch(admin, begun, sizes), clock.monotonic_ms()
    while not watch.ended:
        await watch.review()
        on_progress(watch.progress(clock.monotonic_ms() - began))
        if not watch.ended:
            await clock.sleep_ms(REVIEW_MS)
    return watch.done, [*refused, *watch.refused]


async def _begin(
    admin: Admin, wanted: Places, clock: Clock
) -> tuple[dict[NodeId, dict[TopicPartition, str]], list[PartitionResult]]:
    """The moves that have begun, and the results of the others."""
    begun: dict[NodeId, dict[TopicPartition, str]] = {}
    refused: list[PartitionResult] = []
    for node, places in sorted(wanted.items()):
        left = dict(places)
        for attempt in range(_TRIES_MAX):
            outcomes = await _outcomes(admin, node, left)
            waits = [each for each in outcomes if isinstance(each.error, ReplicaNotAvailable)]
            begun.setdefault(node, {}).update(
                (each.partition, left[each.partition]) for each in outcomes if each.error is None
            )
            refused += [each for each in outcomes if each.error is not None and each not in waits]
            left = {each.partition: left[each.partition] for each in waits}
            if not left:
                break
            if attempt == _TRIES_MAX - 1:
                refused += waits
            else:
                await clock.sleep_ms(_PAUSE_MS)
    return begun, refused


async def _outcomes(admin: Admin, node: NodeId, places: Mapping[TopicPartition, str]) -> list[PartitionResult]:
    """Ask the node, for a batch at a time."""
    named: list[tuple[TopicPartition | tuple[str, int], str]] = list(places.items())
    outcomes: list[PartitionResult] = []
    for first in range(0, len(named), BATCH_MAX):
        try:
            outcomes += await admin.move_replicas(node, dict(named[first : first + BATCH_MAX]))
        except TidelogError as error:
            outcomes += [PartitionResult(each, error) for each in list(places)[first:]]
            break
    return outcomes


class _MoveWatch:
    """Moves that have begun, until they are complete."""

    def __init__(self, admin: Admin, begun: Places, sizes: Mapping[TopicPartition, int]) -> None:
        self._admin, self._sizes = admin, sizes
        self._waiting = {node: dict(places) for node, places in begun.items()}
        """In the order of the requests, in which the node copies them."""
        self._total = sum(map(len, begun.values()))
        self._total_bytes = sum(self._size(each) for places in begun.values() for each in places)
        self._copied: dict[NodeId, set[TopicPartition]] = {node: set() for node in begun}
        """Replicas of which a copy was seen since the node last failed to answer."""
        self._missed: Counter[tuple[NodeId, TopicPartition]] = Counter()
        self._running = 0
        self._waits_for = ""
        self.done, self._done_bytes = 0, 0
        self.refused: list[PartitionResult] = []

    @property
    def ended(self) -> bool:
        """Whether no move is left."""
        return not any(self._waiting.values())

    async def review(self) -> None:
        """Look what is complete, and ask again for what has no copy yet."""
        self._running, self._waits_for = 0, ""
        for node, places in self._waiting.items():
            if places:
                try:
                    await self._review(node, places)
                except TidelogError as error:
                    if error.retry is Retry.NEVER:
                        raise
                    self._copied[node].clear()  # it may restart: what had no copy there is then forgotten
                    self._waits_for = error.message

    async def _review(self, node: NodeId, places: dict[TopicPartition, str]) -> None:
        looked_at = list(places)[:BATCH_MAX]
        directories = (await self._admin.describe_log_dirs([node], looked_at))[node]
        if isinstance(directories, TidelogError):
            raise directories
        logs = [(directory.path, log) for directory in directories for log in directory.logs]
        present = {log.partition: path for path, log in logs if not log.is_future}
        copies = {log.partition for _, log in logs if log.is_future}
        self._running += len(copies.intersection(looked_at))
        unseen: dict[TopicPartition | tuple[str, int], str] = {}
        for partition in looked_at:
            if present.get(partition) == places[partition]:
                del places[partition]
                self.done += 1
                self._done_bytes += self._size(partition)
            elif partition in copies:
                self._copied[node].add(partition)
                self._missed.pop((node, partition), None)
            elif partition in present and partition not in self._copied[node]:
                unseen[partition] = places[partition]
            else:
                self._miss(node, partition, present.get(partition))
        for each in await self._admin.move_replicas(node, unseen) if unseen else ():
            if isinstance(each.error, ReplicaNotAvailable):
                self._miss(node, each.partition, present.get(each.partition))
            elif isinstance(each.error, DiskFull):
                self._waits_for = each.error.message  # copies of others have the space: it is still queued
            elif each.error is not None:
                self._refuse(node, each)

    def _miss(self, node: NodeId, partition: TopicPartition, path: str | None) -> None:
        self._missed[node, partition] += 1
        if self._missed[node, partition] > _MISSED_MAX:
            where = f"it is in {path}" if path else "the node has no such replica any more"
            error = NoReassignmentInProgress(
                f"the move to {self._waiting[node][partition]} of node {node} was cancelled, or failed, and {where}: "
                "the log of the node says why; run the command again for a new plan"
            )
            self._refuse(node, PartitionResult(partition, error))

    def _refuse(self, node: NodeId, result: PartitionResult) -> None:
        del self._waiting[node][result.partition]
        self.refused.append(result)

    def progress(self, elapsed_ms: int) -> MoveProgress:
        """How far the moves are. elapsed_ms: since they were begun."""
        left = self._total_bytes - self._done_bytes
        left_ms = elapsed_ms * left // self._done_bytes if self._done_bytes else None
        return MoveProgress(
            self.done, self._running, self._total, self._done_bytes, self._total_bytes, left_ms, self._waits_for
        )

    def _size(self, partition: TopicPartition) -> int:
        return self._sizes.get(partition, 0)
