"""Reads of copied segments: a fetch below the local log start waits for the object store, as others wait for a disk.

    RemoteReads.try_read (owner's thread) -> RemoteTicket.run (any thread) -> try_read with the ticket, and so on

Invariants:
  1. The store is called on an executor, never on the loop. Its errors answer the fetch: nothing repeats the read on the
     loop. The fetch is answered without records if the store takes longer than `remote.fetch.max.wait.ms`; what is read
     then is in the cache for the next fetch.
  2. For decided records, the aborted transactions of both tiers are listed: a segment tells those that end in it, and
     its producer snapshot which transactions go on behind it.
  3. What a replica knows of the tier may be out of date while it is not whole: then nothing is told as lost, and no
     transaction as committed, because a segment is not known or gone.
  4. A read that ends at the local log goes on there without waiting for a disk on the loop.
Not here: which segments a replica believes (replication/coordination/tiering/remote_log.py), the readers' positions and
roles (replica.py), waiting (cold_reads.py), which of them are at the store (store_reads.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from node.replicas.store_reads import StoreReads
from replication.coordination.remote_log_requests import SegmentPlace
from replication.coordination.tiering.remote_log import RemoteLog
from storage.files.disk_executor import Executor
from storage.isolation import FetchIsolation
from storage.log.cold_read import ReadTicket, TransactionsRead
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.producers.aborted_transactions import Unverified
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain
from tidelog.clock import Clock
from tidelog.errors import OffsetNotAvailable, TidelogError
from tidelog.records.aborted_transaction import AbortedTransaction
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_errors import RemoteObjectMissing
from tidelog.tiering.remote_segment import CopyProgress, LostRemoteSegment, RemoteSegment
from tidelog.tiering.remote_segment_reader import RemoteRead, RemoteRecord, RemoteSegmentReader
from tidelog.tiering.segment_manifest import segment_key
from tidelog.types import REMOTE_LOG_METADATA_TOPIC, Millis, Offset

T = TypeVar("T")


class RemoteTicket:
    """A read from the store that a fetch needs. `run` it on any thread, and pass it to `try_read` again."""

    def __init__(
        self, reader: RemoteSegmentReader, offset: Offset, max_bytes: int, up_to: Offset, *, only_decided: bool
    ) -> None:
        self.wanted = self.offset = offset
        """The offset of the fetch, and where its records are read: no batch is left between."""
        self.found: RemoteRead | None = None
        self.error: TidelogError | None = None
        """Of the store."""
        self.aborted: list[AbortedTransaction] = []
        self.undecided_at: Offset | None = None
        """Where to look for the ends of transactions that the segments read so far leave open; None: nowhere."""
        self.local: ReadTicket | None = None
        """What of the local log is to be read next."""
        self.waits_on_loop = False
        """That failed: it is repeated on the loop, where errors of the disk are handled."""
        self._reader, self._max_bytes, self._up_to = reader, max_bytes, up_to
        self._only_decided = only_decided

    @property
    def object_key(self) -> str:
        """The key of the object that the next run reads."""
        return self._reader.key

    @property
    def segment(self) -> RemoteSegment:
        """The segment that the next run reads."""
        return self._reader.segment

    def go_on(self, reader: RemoteSegmentReader) -> None:
        """The next run looks for transactions in this segment."""
        self._reader = reader

    def skip_to(self, offset: Offset, reader: RemoteSegmentReader) -> None:
        """The next run reads from this offset on, in this segment."""
        self.release()
        self.local = None  # of a local segment that has left since: the next run would read it again, and not this one
        self.offset, self.found, self._reader = offset, None, reader

    def take_local(self) -> ReadTicket | None:
        """What was read of the local log: the caller releases it."""
        local, self.local = self.local, None
        return local

    def run(self) -> None:
        """Read. Errors wait for the owner."""
        if self.local is not None:
            try:
                self.local.run()
            except (OSError, BrokenChain, CorruptIndex):
                self.waits_on_loop = True
            return
        try:
            self._run(self._reader)
        except TidelogError as error:
            self.error = error

    def _run(self, reader: RemoteSegmentReader) -> None:
        if self.found is None:
            self.found = reader.read(self.offset, self._max_bytes, up_to=self._up_to)
        self.undecided_at = None
        if not self._only_decided or not len(self.found.records):
            return
        end = self.found.next_offset
        transactions, is_complete = reader.aborted_transactions(self.offset, end)
        self.aborted.extend(transactions)
        if not is_complete and reader.leaves_open(end):
            self.undecided_at = reader.segment.end_offset

    def release(self) -> None:
        """Close what a read of the local log has opened."""
        if self.local is not None:
            self.local.release()


class RemoteRange(NamedTuple):
    """The remote segments with the offsets of a range that are copied."""

    segments: tuple[RemoteSegment, ...]
    """By start offset."""
    next_offset: Offset
    """Complete below it."""
    store_url: str
    """Empty without a remote tier."""
    lost: tuple[LostRemoteSegment, ...] = ()
    """By start offset, if they were asked for."""
    progress: CopyProgress | None = None
    """With them."""


class _Call(Generic[T]):
    """What a caller reads from one object, with its result."""

    def __init__(self, object_key: str, work: Callable[[], T]) -> None:
        self.object_key, self._work = object_key, work
        self.error: TidelogError | None = None
        self.results: list[T] = []

    def run(self) -> None:
        try:
            self.results.append(self._work())
        except TidelogError as error:
            self.error = error


class RemoteReads:
    """The store of a node, with what was read from it."""

    def __init__(
        self, store: ObjectStore, cache: RemoteCache, executor: Executor, wait_ms: Millis, clock: Clock
    ) -> None:
        """executor: where the store is called. wait_ms: how long a fetch waits for it."""
        self._store, self.cache, self.wait_ms = store, cache, wait_ms
        self.reads = StoreReads(executor, cache, clock)

    @property
    def url(self) -> str:
        """Where the objects are."""
        return self._store.url

    def reader(self, log: Log, segment: RemoteSegment) -> RemoteSegmentReader:
        """A reader of a segment of this log. Raises RemoteObjectDamaged."""
        return RemoteSegmentReader(self._store, self.cache, segment_key(log.topic_partition.topic, segment), segment)

    def try_read(
        self,
        log: Log,
        remote: RemoteLog,
        offset: Offset,
        max_bytes: int,
        isolation: FetchIsolation,
        ready: RemoteTicket | None,
    ) -> LogRead | RemoteTicket:
        """As `Log.try_fetch`, for an offset between the log start and the local log start. Raises RemoteObjectMissing,
        RemoteObjectDamaged, and as the store and the log do."""
        if ready is None or ready.wanted != offset:
            only_decided = isolation is FetchIsolation.LAST_STABLE_OFFSET
            reader = self.reader(log, _segment_with(log, remote, offset))
            return RemoteTicket(reader, offset, max_bytes, log.end_for(isolation), only_decided=only_decided)
        if isinstance(ready.error, RemoteObjectMissing):
            if not remote.is_whole:
                raise _not_known(log, offset) from ready.error
            if ready.segment not in remote:  # the segments were listed again meanwhile
                return self.try_read(log, remote, offset, max_bytes, isolation, None)
        if ready.error is not None:
            raise ready.error
        found = ready.found
        if found is None:
            return ready
        if not len(found.records) and found.next_offset > ready.offset:  # no batch is left in the segment
            if found.next_offset >= log.local_log_start_offset:
                return _read_on(log, ready, found.next_offset, max_bytes, isolation)
            ready.skip_to(found.next_offset, self.reader(log, _segment_with(log, remote, found.next_offset)))
            return ready
        if ready.undecided_at is not None and not self._decide(log, remote, ready, ready.undecided_at):
            return ready
        aborted = tuple(sorted({*ready.aborted}, key=lambda each: each.first_offset))
        return LogRead(found.records, found.next_offset, log.epochs.over(offset, found.next_offset), aborted)

    async def find_time(self, log: Log, remote: RemoteLog, timestamp: int, up_to: Offset) -> RemoteRecord | None:
        """The first record at or after `timestamp` in the tier, from the log start up to `up_to`. Raises as the reader
        of a segment does."""
        start, after = log.log_start_offset, None
        # The segments may change while one is read: the next one is looked for behind its place.
        while (segment := remote.first_since(Millis(timestamp), after)) is not None and segment.start_offset < up_to:
            reader = self.reader(log, segment)
            found = await self.call(reader, partial(reader.find_timestamp, timestamp, start, up_to))
            if found is not None:
                return found
            after = SegmentPlace(segment.start_offset, segment.segment_id)
        return None

    async def find_largest(self, log: Log, remote: RemoteLog, at_least: int, up_to: Offset) -> RemoteRecord | None:
        """The first record with the largest timestamp in the tier, from the log start up to `up_to`; None if that is
        below `at_least`. Raises as `find_time`."""
        start = log.log_start_offset
        largest = max(remote.largest_timestamp(start, up_to), at_least - 1)
        for segment in remote.reaching_out(start, up_to):
            # Its largest timestamp may be that of a record below the log start, which no reader gets any more.
            if segment.max_timestamp > largest:
                reader = self.reader(log, segment)
                largest = max(largest, await self.call(reader, partial(reader.largest_timestamp, start, up_to)))
        return await self.find_time(log, remote, largest, up_to) if largest >= max(at_least, 0) else None

    async def call(self, reader: RemoteSegmentReader, work: Callable[[], T]) -> T:
        """Call a method of this reader when it has its turn at the store. Raises as the method does."""
        call = _Call(reader.key, work)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(defect: BaseException | None) -> None:
            if ended.done():
                return
            if defect is None:
                ended.set_result(None)
            else:
                ended.set_exception(defect)

        self.reads.submit(call, end, is_wanted=lambda: not ended.done())
        await ended
        if call.error is not None:
            raise call.error
        return call.results[0]

    def _decide(self, log: Log, remote: RemoteLog, ticket: RemoteTicket, at: Offset) -> bool:
        """Look for the ends of transactions from `at` on. Returns False if the ticket must run again."""
        if (local := ticket.take_local()) is not None:
            if isinstance(local, TransactionsRead) and log.is_current(local):
                log.finish_transactions_read(local)
        elif (behind := remote.segment_with(at)) is not None:
            ticket.go_on(self.reader(log, behind))
            return False
        elif at < log.local_log_start_offset and not remote.is_whole:
            raise _not_known(log, at)  # a transaction that is aborted there would be given as committed
        assert ticket.found is not None, "transactions are looked for behind records"
        start = max(at, log.local_log_start_offset)
        try:
            ticket.aborted.extend(log.aborted_transactions(start, ticket.found.next_offset, wait=ticket.waits_on_loop))
        except Unverified as unread:
            ticket.local = log.begin_transactions_read(unread.segment)
            return False
        return True


def _read_on(
    log: Log, ticket: RemoteTicket, offset: Offset, max_bytes: int, isolation: FetchIsolation
) -> LogRead | RemoteTicket:
    """As `Log.try_fetch`, where the tier ends for a fetch."""
    local = ticket.take_local()
    # What a failed read did not find is not missing: the log would count as damaged, or continue with the next segment.
    ready = None if ticket.waits_on_loop else local
    try:
        read = log.try_fetch(offset, max_bytes, isolation, ready, wait=ticket.waits_on_loop)
    finally:
        if local is not None:
            local.release()
    if isinstance(read, LogRead):
        return read
    ticket.local = read
    return ticket


def _not_known(log: Log, offset: Offset) -> OffsetNotAvailable:
    return OffsetNotAvailable(
        f"offset {offset} of {log.topic_partition} is in the remote tier, in no segment that this node knows so far, "
        "or in one that is gone meanwhile: ask the leader, or try again after a pause"
    )


def _segment_with(log: Log, remote: RemoteLog, offset: Offset) -> RemoteSegment:
    segment = remote.segment_with(offset)
    if segment is not None:
        return segment
    if not remote.is_whole or offset < remote.expired_below:
        raise _not_known(log, offset)
    end = remote.gaps(offset, log.local_log_start_offset)[0].end
    raise RemoteObjectMissing(
        f"no remote segment of {log.topic_partition} has the offsets {offset} to {end - 1}, and no node has them: "
        f"restore {REMOTE_LOG_METADATA_TOPIC}, or delete the records below offset {end} to read on"
    )
