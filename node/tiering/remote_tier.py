"""The remote tier of a node: makes the steps of all its partitions that have one, a few at a time.

Invariants:
  1. A partition whose step fails waits, longer each time; the others go on.
  2. A leader that is fenced copies and deletes nothing more in its leader epoch. If it still leads after a minute, no
     election has passed it over, and only an operator can help: that is told again and again.
  3. Copies together are slower than the limit, and each takes at most half of a thread's time: small batches are judged
     by code that other threads wait for.
  4. Partitions without work cost a few comparisons, in turns of a bounded number: a node may have thousands.
Not here: the steps (tiered_partition.py), reads (node/replicas/remote_reads.py).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from node.coordinators.object_remover import StoreCalls
from node.replicas.remote_reads import RemoteReads
from node.replicas.replica import CopyFailure, Replica
from node.replicas.replica_manager import ReplicaManager
from node.runtime.failure_log import FailureLog
from node.tiering.orphan_sweep import OrphanSweep
from node.tiering.remote_log_client import RemoteLogClient
from node.tiering.tiered_partition import FOLLOW_MS, CopyMeter, Superseded, TieredPartition, TierServices
from replication.coordination.remote_log_requests import FOLLOWED_MAX, ListRemoteSegments, RemoteSegmentsPage
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain
from tidelog.clock import Clock
from tidelog.errors import (
    ConnectionFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    NodeShuttingDown,
    NotCoordinator,
    RequestTimedOut,
    TidelogError,
    UnknownTopicId,
)
from tidelog.tiering.remote_errors import STORE_ERRORS
from tidelog.types import REMOTE_LOG_METADATA_TOPIC, Buffer, Millis, PartitionIndex, PartitionKey
from tidelog.values import dataclass

_log = logging.getLogger("node.tiering")

COPIES_AT_ONCE: Final = 2
"""Partitions that are copied at the same time. What others have in the tier is listed beside that: a new leader answers
no read from the store before."""

LISTS_AT_ONCE: Final = 4
"""Requests of followers: a coordinator that does not answer delays those of a few others."""

TICK_MS: Final = 500
"""How often a leader looks for closed segments."""

LOOKS_PER_TURN: Final = 500
"""Partitions in one turn of the loop, a few milliseconds."""

PAUSE_MS_MIN: Final = 1_000
PAUSE_MS_MAX: Final = 60_000
"""Pauses of a partition after an error, doubled each time."""

FENCED_MS: Final = 60_000
"""A fenced leader that is not replaced in this time has an older leader epoch than the coordinator knows: cluster
metadata that were restored from an older copy give epochs out a second time."""
FENCED_AGAIN_MS: Final = 3_600_000
"""How often that is told."""

_PASSING: Final = (
    ConnectionFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    RequestTimedOut,
    UnknownTopicId,
)
"""Errors of each failover."""


@dataclass(frozen=True, slots=True)
class TierFigures:
    """For the metrics."""

    copied: CopyMeter
    waiting_segments: int
    """Closed segments of led partitions that may be copied."""
    waiting_bytes: int
    failing: int
    """Partitions whose last step has failed."""
    missing: int
    """Offsets of led partitions that neither a node nor the tier has."""
    lost: int = 0
    """Segments of led partitions that are of a lost leader epoch, and are not deleted yet."""
    read_errors: int = 0
    cached_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    read_bytes: int = 0
    """What reads took from the object store."""
    starts: int = 0
    """Logs of followers that went on behind the remote tier."""
    start_errors: int = 0
    """Attempts of these that failed."""
    orphans_removed: int = 0
    foreign_objects: int = 0
    doubtful_objects: int = 0
    """Of the last sweep, as of `SweptObjects`."""


@dataclass(slots=True, eq=False)
class _Entry:
    partition: TieredPartition
    due: Millis
    pause_ms: int = 0
    """After the last error; 0: there was none since the last success."""
    is_busy: bool = False
    fenced: str = ""
    """Why the coordinator has fenced this leader; empty: it has not."""


class RemoteTier:
    """The partitions of one node."""

    def __init__(
        self,
        replicas: ReplicaManager,
        client: RemoteLogClient,
        calls: StoreCalls,
        *,
        clock: Clock,
        rng: random.Random,
        pause_ms: Callable[[int], None],
    ) -> None:
        """pause_ms: waits on the calling thread."""
        self._replicas, self._clock = replicas, clock
        self._rate, self._pause_ms = max(1, client.config.copy_rate // COPIES_AT_ONCE), pause_ms
        self._services = TierServices(
            me=replicas.node_id,
            client=client,
            store=calls.store,
            executor=calls.executor,
            clock=clock,
            new_id=lambda: UUID(int=rng.getrandbits(128), version=4),
            pace=self._paced,
            log_start_moved=replicas.log_start_moved,
        )
        self.sweep = OrphanSweep(client, calls, clock=clock, rng=rng, image=lambda: replicas.image)
        self._entries: dict[PartitionKey, _Entry] = {}
        self._copying: asyncio.Queue[_Entry] = asyncio.Queue()
        self._loading: asyncio.Queue[_Entry] = asyncio.Queue()
        self._following: asyncio.Queue[list[_Entry]] = asyncio.Queue()
        self._stopping = False
        self._failures = FailureLog(_log, clock, common=(*STORE_ERRORS, *_PASSING))

    async def run(self) -> None:
        """Copy until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            try:
                tasks.create_task(self.sweep.run())
                for queue in (*[self._copying] * COPIES_AT_ONCE, self._loading):
                    tasks.create_task(self._lead(queue))
                for _ in range(LISTS_AT_ONCE):
                    tasks.create_task(self._follow())
                while True:
                    await self._look()
                    await self._clock.sleep_ms(TICK_MS)
            finally:
                self._stopping = True

    def figures(self, reads: RemoteReads | None) -> TierFigures:
        """The present state, with that of the reads."""
        waiting = [each for entry in self._entries.values() for each in entry.partition.waiting()]
        failing = sum(entry.pause_ms > 0 or bool(entry.fenced) for entry in self._entries.values())
        size = sum(each.segment.size for each in waiting)
        found = TierFigures(
            self._services.meter,
            len(waiting),
            size,
            failing,
            sum(entry.partition.missing for entry in self._entries.values()),
            lost=sum(entry.partition.lost for entry in self._entries.values()),
            orphans_removed=self.sweep.removed,
            foreign_objects=self.sweep.last.foreign,
            doubtful_objects=len(self.sweep.last.doubtful),
        )
        if (starts := self._replicas.remote_starts) is not None:
            found = replace(found, starts=starts.found, start_errors=starts.failed)
        if reads is None:
            return found
        return replace(
            found,
            read_errors=reads.reads.errors,
            cached_bytes=reads.cache.size,
            cache_hits=reads.cache.hits,
            cache_misses=reads.cache.misses,
            read_bytes=reads.cache.missed_bytes,
        )

    async def _look(self) -> None:
        """Know of the replicas that have a remote tier now, and queue what is due."""
        seen: set[PartitionKey] = set()
        followers: dict[PartitionIndex, list[_Entry]] = {}
        for number, replica in enumerate(list(self._replicas.partitions()), 1):
            if number % LOOKS_PER_TURN == 0:
                await self._clock.sleep_ms(0)
            if not _is_tiered(replica):
                continue
            seen.add(replica.key)
            now, entry = self._clock.monotonic_ms(), self._entries.get(replica.key)
            if entry is None or not (entry.is_busy or entry.partition.is_current):
                entry = self._entries[replica.key] = _Entry(TieredPartition(replica, self._services), now)
            if entry.is_busy or entry.due > now or entry.partition.is_idle:
                continue
            if entry.partition.leads:
                self._queue(entry)
                continue
            try:
                followers.setdefault(self._services.client.coordinator_of(replica.key), []).append(entry)
            except CoordinatorNotAvailable:  # no leader has copied anything yet
                entry.due = Millis(now + TICK_MS)
        for entries in followers.values():
            for first in range(0, len(entries), FOLLOWED_MAX):
                together = entries[first : first + FOLLOWED_MAX]
                for entry in together:
                    entry.is_busy = True
                self._following.put_nowait(together)
        for key in [key for key, entry in self._entries.items() if key not in seen and not entry.is_busy]:
            del self._entries[key]

    def _queue(self, entry: _Entry) -> None:
        if entry.fenced:
            entry.due = Millis(self._clock.monotonic_ms() + FENCED_AGAIN_MS)
            _tell_fenced(entry)
            return
        entry.is_busy = True
        (self._copying if entry.partition.may_copy else self._loading).put_nowait(entry)

    async def _lead(self, queue: asyncio.Queue[_Entry]) -> None:
        """Make the steps of leaders, one after the other."""
        while True:
            entry = await queue.get()
            has_more = entry.partition.is_current and await self._made([entry], entry.partition.step, pause=TICK_MS)
            entry.is_busy = False
            if has_more:
                self._queue(entry)

    async def _follow(self) -> None:
        """Ask for what was copied of partitions that this node follows: one request for all with one coordinator."""
        while True:
            entries = await self._following.get()
            current = [entry for entry in entries if entry.partition.is_current]
            asked = [entry.partition.next_list() for entry in current]
            pages: list[RemoteSegmentsPage] = []

            async def ask(lists: Sequence[ListRemoteSegments] = asked, answer: Any = pages) -> None:
                answer += await self._services.client.first_pages(lists)

            if current:
                await self._made(current, ask, pause=FOLLOW_MS)
            for entry, request, page in zip(current, asked, pages, strict=False):  # no page: it failed
                await self._made([entry], partial(entry.partition.follow, request, page), pause=FOLLOW_MS)
            for entry in entries:
                entry.is_busy = False

    async def _made(self, entries: Sequence[_Entry], step: Callable[[], Awaitable[object]], *, pause: int) -> bool:
        """Make a step of these partitions. Returns True if more is to be done at once. pause: if not."""
        first = entries[0].partition
        try:
            copied = self._services.meter.segments
            if await step():
                pause = 0
            if self._services.meter.segments > copied:
                self._failures.succeeded("the object store takes copies again")
            for entry in entries:
                entry.pause_ms = 0
                _note_failure(entry, None)
        except Superseded:
            pause = TICK_MS  # until a look has replaced it
        except FencedLeaderEpoch as error:
            for entry in entries:
                entry.fenced = error.message
                _note_failure(entry, error, self._clock.wall_ms())
            pause = FENCED_MS
            _log.info("%s: copies nothing more in this leader epoch: %s", first, error.message)
        except (TidelogError, OSError, BrokenChain, CorruptIndex) as error:
            self._services.meter.errors += 1
            for entry in entries:
                entry.pause_ms = min(max(2 * entry.pause_ms, PAUSE_MS_MIN), PAUSE_MS_MAX)
                _note_failure(entry, error, self._clock.wall_ms())
            pause = entries[0].pause_ms
            is_passing = isinstance(error, _PASSING) and pause < PAUSE_MS_MAX
            if is_passing:
                _log.debug("%s: the remote tier waits for %d s: %s", first, pause // 1_000, error)
            else:
                self._tell_failed(entries, error)
        due = Millis(self._clock.monotonic_ms() + pause)
        for entry in entries:
            entry.due = due
        return pause == 0

    def _tell_failed(self, entries: Sequence[_Entry], error: Exception) -> None:
        first = entries[0].partition

        def text() -> str:
            failing = sum(entry.pause_ms > 0 for entry in self._entries.values()) - len(entries)
            reason = error.message if isinstance(error, TidelogError) else str(error)
            others = f" and {len(entries) - 1} others" if len(entries) > 1 else ""
            others += f", beside {failing} that fail too" if failing else ""
            return (
                f"{first}{others}: the remote tier waits for {entries[0].pause_ms // 1_000} s, its segments stay on "
                f"this node: {reason}"
            )

        self._failures.failed(error, first, text)

    def _paced(self, parts: Iterable[Buffer]) -> Iterator[Buffer]:
        """On the executor."""
        source = iter(parts)
        while True:
            if self._stopping:
                raise NodeShuttingDown("the node is stopping: the next leader copies the segment")
            began = self._clock.monotonic_ms()
            part = next(source, None)
            if part is None:
                return
            worked = self._clock.monotonic_ms() - began
            yield part
            ahead = len(part) * 1_000 // self._rate - (self._clock.monotonic_ms() - began)
            if (pause := max(worked, ahead)) > 0:
                self._pause_ms(pause)


def _note_failure(entry: _Entry, error: Exception | None, now: Millis = Millis(0)) -> None:
    """For operators who ask for the progress of copies."""
    replica = entry.partition.replica
    if not entry.partition.is_current:
        return  # the error is of a role that has ended, and the replica may have another one
    if error is None:
        replica.copy_failure = None
        return
    since = now if replica.copy_failure is None else replica.copy_failure.since_ms
    message = error.message if isinstance(error, TidelogError) else str(error)
    replica.copy_failure = CopyFailure(f"{type(error).__name__}: {message}", since)


def _tell_fenced(entry: _Entry) -> None:
    _log.warning(
        "%s: still leads, and is fenced from the remote tier: %s. Either this node does not hear from the controller, "
        "or the metadata of the cluster were restored from a copy that is older than %s. Nothing is copied, and "
        "readers of what is only in the object store wait. Restore the newer metadata; or raise the leader epoch above "
        "the registered one: each restart of this node raises it",
        entry.partition,
        entry.fenced,
        REMOTE_LOG_METADATA_TOPIC,
    )


def _is_tiered(replica: Replica) -> bool:
    """Also a log whose topic has left the remote tier, while a part of it is there."""
    log = replica.log
    may_step = replica.role is not None and not log.closed and log.truncation is None
    return may_step and (log.config.remote_storage or log.local_log_start_offset > log.log_start_offset)
