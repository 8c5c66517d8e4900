"""The fetch of one partition that is not answered yet, the fetches of its stream by state, and the answers.

Invariants:
  1. A fetch is in the queue of its state and in no other queue. Only `FetchOutbox.move` changes the state.
  2. Fetches are tried in the order in which they became ready, but for those that are put before the others, and get
     disk places in the order in which they queued.
  3. At most `AT_ONCE` reads of a stream are called, in progress or unsent, since their results occupy memory. If a
     fetch ends while the disk reads it, its read keeps its place until the disk has answered. A read of the object
     store does not: a store that is down would take all places.

Not here: the states (fetch_state.py), what can be read (replica.py), reads from disk (cold_reads.py), messages
(node/requests/fetch_session.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from node.replicas.fetch_state import (
    CALLED,
    ENDED,
    MOVES,
    QUEUED,
    READ,
    READING,
    READY,
    SHORT,
    TRIED_NEXT,
    WAITING,
    FetchCause,
    FetchState,
)
from node.replicas.remote_reads import RemoteTicket
from node.runtime.memory_budget import Share
from node.runtime.request_meter import MeteredRequest
from replication.partition.leader_events import Session
from storage.isolation import FetchIsolation
from storage.log.cold_read import ReadTicket
from storage.log.log import Log
from storage.log.log_read import LogRead
from tidelog.epochs import divergence_for_reader
from tidelog.errors import OffsetMovedToTieredStorage, TidelogError
from tidelog.record_exchange import AbortedStart, FetchedPartition, TopicReference
from tidelog.types import NO_LEADER_EPOCH, NO_NODE, EpochEnd, Incarnation, LeaderEpoch, Millis, NodeId, Offset
from tidelog.values import dataclass

AT_ONCE: Final = 4
"""Disk places of one stream: enough to keep a disk busy, and some MiB at most."""

_AT_DISK: Final = (READING, READ)
_RECORDS: Final = FetchCause.RECORDS


@dataclass(frozen=True, slots=True)
class FollowerIdentity:
    """The follower that fetches, and the stream on which it does."""

    node_id: NodeId
    incarnation: Incarnation
    session: Session


class DiskResult(NamedTuple):
    """The result of a read from disk, and the memory that it occupies."""

    ticket: ReadTicket | RemoteTicket
    share: Share

    def release(self) -> None:
        """Discard the result."""
        self.ticket.release()
        self.share.release()


@dataclass(slots=True, eq=False)
class WaitingFetch:
    """The fetch of one partition."""

    outbox: FetchOutbox
    correlation_id: int
    topic_id: TopicReference
    index: int
    next_offset: Offset
    last_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch
    max_bytes: int
    min_bytes: int
    """Not above 0 once it must be answered with or without records."""
    deadline: Millis
    follower: FollowerIdentity | None
    isolation: FetchIsolation
    rack: str
    refused: bool
    """The reader found the bytes last sent from this offset on corrupt."""
    request: MeteredRequest | None
    """The meter of the stream message with this fetch; None for a call, which the listener measures."""
    state: FetchState = WAITING
    cold_tries: int = 0
    """The number of disk reads for this fetch."""
    store_until: Millis | None = None
    """Its last read was of the object store, and is waited for until then; None: of a disk, or there was none."""
    result: DiskResult | None = None
    """In state READ."""
    available: int = 0
    """In state SHORT: the bytes that could be read."""

    @property
    def topic(self) -> str:
        """The topic as it was named, as text."""
        return self.topic_id if isinstance(self.topic_id, str) else self.topic_id.hex()

    def is_due(self, now: Millis) -> bool:
        """True if it must be answered now, with or without records. `deadline` applies to consumers only."""
        return self.min_bytes <= 0 or (self.follower is None and now >= self.deadline)

    def is_filled_by(self, read: LogRead, up_to: Offset) -> bool:
        """True if `read` is an answer: it has `min_bytes`, or waiting cannot add to it. Then it ends below `up_to`, the
        readable end of the log: the next batch is in another segment, or exceeds `max_bytes` (Kafka's
        onOlderSegment)."""
        size = len(read.records)
        return size >= min(self.min_bytes, self.max_bytes) or (size > 0 and read.next_offset < up_to)

    def wake(self) -> bool:
        """Try the fetch again: there may be more to read. Returns False if it waits for a disk: it is not tried before,
        and the replica keeps it among those that it notifies and refuses."""
        self.outbox.move(self, _RECORDS)
        return self.state is not READING and self.state is not QUEUED

    def answer_anyway(self) -> None:
        """Answer it now, with or without records; one that waits for a disk, after that."""
        self.min_bytes = 0
        self.outbox.move(self, FetchCause.DUE)

    def wait(self) -> None:
        """Note that nothing can be read yet. The replica wakes it."""
        self.outbox.move(self, FetchCause.NOTHING)

    def fall_short(self, size: int) -> None:
        """Note that fewer than `min_bytes` can be read: `size` bytes."""
        self.available = size
        self.outbox.move(self, FetchCause.FEW)

    def send_update(self, update: FetchedPartition) -> None:
        """Send an update; the fetch keeps waiting."""
        self.outbox.add(update)

    def refuse(self, error: TidelogError) -> None:
        """Answer it with an error."""
        self.outbox.refuse(self, error)


class FetchOutbox:
    """The fetches of one stream or call by state, and the answers that wait to be sent."""

    def __init__(
        self,
        wake: Callable[[], None],
        charge: Callable[[int], Share],
        refuse: Callable[[WaitingFetch, TidelogError], None],
    ) -> None:
        """wake: called when a fetch is to be tried, an answer is complete or a disk place is free. charge: reserves the
        memory of an answer with this number of bytes of records. refuse: answers a fetch with an error."""
        self.wake, self.charge, self.refuse = wake, charge, refuse
        self.answers: list[FetchedPartition] = []
        self.ready: OrderedDict[WaitingFetch, None] = OrderedDict()
        """READY and CALLED."""
        self.short: OrderedDict[WaitingFetch, None] = OrderedDict()
        self.read: OrderedDict[WaitingFetch, None] = OrderedDict()
        """READ: in the next message, before those that are ready."""
        self._queue: OrderedDict[WaitingFetch, None] = OrderedDict()
        self._queues = {READY: self.ready, CALLED: self.ready, SHORT: self.short, QUEUED: self._queue, READ: self.read}
        self.reads = 0
        """Reads in progress or unsent: each has its memory."""
        self._called = 0

    @property
    def is_full(self) -> bool:
        """True if every disk place is taken."""
        return self.reads + self._called >= AT_ONCE

    @property
    def uses_disk(self) -> bool:
        """True if a fetch waits for a disk, has a place, or has records that were read from it."""
        return bool(self._queue or self._called or self.reads)

    @property
    def short_bytes(self) -> int:
        """The bytes that could be read by all fetches for which they are too few."""
        return sum(fetch.available for fetch in self.short)

    def add(self, answer: FetchedPartition) -> None:
        """Send this answer before those that are not complete yet."""
        self.answers.append(answer)
        self.wake()

    def move(self, fetch: WaitingFetch, cause: FetchCause) -> None:
        """Move a fetch to its next state, and to the queue of that state."""
        before = fetch.state
        after = MOVES[cause].get(before)
        assert after is not None, (
            f"fetch {fetch.correlation_id} of partition {fetch.topic}-{fetch.index}: {cause.name} in {before.name}"
        )
        if after is before:
            return
        fetch.state = after
        left, entered = self._queues.get(before), self._queues.get(after)
        if left is not None:
            del left[fetch]
        if entered is not None:
            entered[fetch] = None
        if before >= QUEUED or after >= QUEUED:
            self._count_places(fetch, before, after)
        if after in TRIED_NEXT:
            self.wake()

    def try_first(self, fetch: WaitingFetch) -> None:
        """Try a fetch before the others, if it is ready."""
        if fetch in self.ready:
            self.ready.move_to_end(fetch, last=False)

    def _count_places(self, fetch: WaitingFetch, before: FetchState, after: FetchState) -> None:
        if before is READ:
            assert fetch.result is not None, "a fetch that was read has its result"
            fetch.result.release()
            fetch.result = None
        self._called += (after is CALLED) - (before is CALLED)
        self.reads += (after in _AT_DISK) - (before in _AT_DISK)
        if before is READING and after is ENDED and fetch.store_until is None:
            self.reads += 1
        assert 0 <= self._called <= AT_ONCE - self.reads <= AT_ONCE, f"{self._called} called, {self.reads} reads"
        self._call_next()

    def read_abandoned(self) -> None:
        """Free the place of a read whose fetch has ended: the disk has answered."""
        self.reads -= 1
        self._call_next()

    def _call_next(self) -> None:
        """Give all free places to queued fetches."""
        if not self.is_full:
            self.wake()
            while self._queue and not self.is_full:
                self.move(next(iter(self._queue)), FetchCause.PLACE_FREE)


def wake_all(waiting: dict[WaitingFetch, None]) -> None:
    """Try all these fetches again. Those at the disk keep waiting."""
    fetches = list(waiting)
    waiting.clear()
    for fetch in fetches:
        if not fetch.wake():
            waiting[fetch] = None


def refuse_all(waiting: dict[WaitingFetch, None], error: TidelogError) -> None:
    """Answer all these fetches with an error."""
    for fetch in list(waiting):
        fetch.refuse(error)
    waiting.clear()


def read_answer(
    fetch: WaitingFetch,
    log: Log,
    leader_epoch: LeaderEpoch,
    read: LogRead,
    *,
    waits: bool = False,
    held_from: Offset = Offset(0),
    preferred: NodeId = NO_NODE,
) -> FetchedPartition:
    """The result of a read, possibly nothing. waits: the fetch keeps waiting. held_from: for a follower, as of
    `InSyncSet.held_from`. preferred: the consumer should fetch from this node instead."""
    return FetchedPartition(
        fetch.topic_id,
        fetch.index,
        leader_epoch,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        None,
        None,
        () if fetch.follower is None else read.epochs,
        tuple(AbortedStart(each.producer_id, each.first_offset) for each in read.aborted) if read.aborted else (),
        preferred,
        waits,
        held_from,
        read.records,
        fetch.correlation_id,
    )


def diverging_answer(fetch: WaitingFetch, log: Log, leader_epoch: LeaderEpoch, end: EpochEnd) -> FetchedPartition:
    """The logs diverge: neither records nor a high watermark."""
    return FetchedPartition(
        fetch.topic_id,
        fetch.index,
        leader_epoch,
        Offset(-1),
        Offset(-1),
        log.log_start_offset,
        diverging=end,
        correlation_id=fetch.correlation_id,
    )


def moved_answer(fetch: WaitingFetch, log: Log, leader_epoch: LeaderEpoch) -> FetchedPartition:
    """The records that a follower asks for are in the remote tier only: where the local log starts, and the epochs by
    which the follower tells remote segments of this log from those of a lost epoch."""
    offset, local = fetch.next_offset, log.local_log_start_offset
    error = OffsetMovedToTieredStorage(
        f"offset {offset} of {log.topic_partition} is in the remote tier: the local log starts at {local}"
    )
    return FetchedPartition(
        fetch.topic_id,
        fetch.index,
        leader_epoch,
        Offset(-1),
        Offset(-1),
        log.log_start_offset,
        error,
        epochs=log.epochs.entries,
        correlation_id=fetch.correlation_id,
        local_log_start_offset=local,
    )


def committed_divergence(log: Log, fetch: WaitingFetch) -> EpochEnd | None:
    """Where a consumer's position diverges from the committed part of a follower's log; None if it agrees, or is above
    the high watermark."""
    if fetch.last_epoch == NO_LEADER_EPOCH or fetch.next_offset > log.high_watermark:
        return None
    return divergence_for_reader(
        log.epochs.entries, log.log_start_offset, log.log_end_offset, fetch.next_offset, fetch.last_epoch
    )
