"""The reader of a Spark task for history: the batches of one offset range from the object of a segment, past the nodes.

While a read is decoded, the next one is under way on another thread.

Invariants:
  1. Each batch of the range is decoded once, in order. What the segment cannot give is an error, never a shorter
     result.
  2. With READ_COMMITTED, batches of aborted transactions have no records. The segment's transaction index tells those
     that end in it; its producer snapshot, whether others go on behind it, and only then a node is asked for these.
Not here: which segment has the range (remote_history.py), the bytes of the object
(tidelog/tiering/remote_segment_reader.py), the columns (range_batches.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from itertools import chain
from typing import Final, TypeVar

from tidelog.client.read_committed import hide_aborted
from tidelog.client.retries import Retries
from tidelog.errors import Retry, TidelogError, UnsupportedVersion
from tidelog.record_exchange import AbortedStart
from tidelog.records import RecordBatch
from tidelog.records.aborted_transaction import AbortedTransaction
from tidelog.records.batches import iter_batches
from tidelog.spark.ranges.planning import OffsetRange, RemoteSource
from tidelog.spark.ranges.reading import PLAN_AGAIN
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_errors import ObjectStoreRefused, RemoteObjectDamaged, RemoteObjectMissing
from tidelog.tiering.remote_segment_reader import RemoteRead
from tidelog.tiering.remote_segment_scan import RemoteSegmentScan
from tidelog.tiering.segment_manifest import segment_key
from tidelog.types import INT64_MAX, Isolation, Offset

T = TypeVar("T")
READ_BYTES_MIN: Final = 64 << 10
"""A read takes at least so much: what a range needs is estimated, from the mean of its segment."""
_THROUGH_NODES: Final = 'to read through the nodes instead, set "remoteStorage" to "off"'

AbortedBehind = Callable[[OffsetRange, Offset], Awaitable[Sequence[AbortedStart]]]
"""Asks a node for the aborted transactions that go on at an offset, or begin in its batch."""


class RemoteRangeReader:
    """Reads ranges that have a remote source, one after the other."""

    def __init__(
        self,
        open_store: Callable[[str], ObjectStore],
        cache: RemoteCache,
        aborted_behind: AbortedBehind,
        new_retries: Callable[[], Retries],
        *,
        read_bytes: int,
        isolation: Isolation,
    ) -> None:
        """open_store: by its URL. new_retries: for calls to the store. read_bytes: of one read; two are in memory."""
        self._open_store, self._cache, self._aborted_behind = open_store, cache, aborted_behind
        self._new_retries, self._read_bytes, self._isolation = new_retries, read_bytes, isolation

    async def read(self, wanted: OffsetRange, decode: Callable[[RecordBatch], bool]) -> AsyncGenerator[None, None]:
        """Decode the range's batches in order; yields whenever `decode` has returned True, and ends with the range.

        decode: as of `RangeReader.read`. Raises RemoteObjectMissing, RemoteObjectDamaged, ObjectStoreRefused,
        ObjectStoreUnavailable if the store does not answer for a minute, UnsupportedVersion without the library for
        stores, what `aborted_behind` raises, CorruptRecord.
        """
        source = wanted.remote
        assert source is not None, "the range has a remote source"
        try:
            reader = self._reader(wanted, source)
            aborted = await self._aborted(reader, wanted) if self._isolation is Isolation.READ_COMMITTED else []
        except TidelogError as error:
            raise _explained(error, wanted, wanted.start) from error
        offset = wanted.start
        reading = self._begin(reader, wanted, offset)
        try:
            while True:
                found = await reading
                following = found[-1].next_offset
                if following < wanted.end:
                    reading = self._begin(reader, wanted, following)
                here = [each for each in aborted if each.last_offset >= offset and each.first_offset < following]
                starts = [AbortedStart(each.producer_id, each.first_offset) for each in here]
                batches = tuple(chain.from_iterable(iter_batches(each.records) for each in found))
                for batch in hide_aborted(batches, starts):
                    if decode(batch):
                        yield
                if following >= wanted.end:
                    return
                offset = following
        except TidelogError as error:
            raise _explained(error, wanted, offset) from error
        finally:
            await asyncio.wait([reading])
            if not reading.cancelled():
                reading.exception()  # was raised above, or matters no more

    def _reader(self, wanted: OffsetRange, source: RemoteSource) -> RemoteSegmentScan:
        key = segment_key(wanted.topic_partition.topic, source.segment)
        return RemoteSegmentScan(self._open_store(source.store_url), self._cache, key, source.segment)

    def _begin(
        self, reader: RemoteSegmentScan, wanted: OffsetRange, offset: Offset
    ) -> asyncio.Task[Sequence[RemoteRead]]:
        segment = reader.segment
        share = segment.log_size * (wanted.end - offset) // (segment.end_offset - segment.start_offset)
        size = min(self._read_bytes, max(READ_BYTES_MIN, share + share // 8))
        return asyncio.create_task(self._call(lambda: reader.read_some(offset, size, until=wanted.end)))

    async def _call(self, call: Callable[[], T]) -> T:
        """Call the store on another thread, again and again while it does not answer."""
        retries, loop = self._new_retries(), asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(None, call)
            except TidelogError as error:
                if error.retry is not Retry.LATER:
                    raise
                await retries.pause(error)

    async def _aborted(self, reader: RemoteSegmentScan, wanted: OffsetRange) -> list[AbortedTransaction]:
        """The aborted transactions with records in the range; those that go on behind the segment without their
        end."""
        transactions, is_complete = await self._call(lambda: reader.aborted_transactions(wanted.start, wanted.end))
        found, behind = list(transactions), reader.segment.end_offset
        if not is_complete and await self._call(lambda: reader.leaves_open(wanted.end)):
            found += [
                AbortedTransaction(each.producer_id, each.first_offset, Offset(INT64_MAX), Offset(INT64_MAX))
                for each in await self._aborted_behind(wanted, behind)
                if each.first_offset < wanted.end
            ]
        return found


def _explained(error: TidelogError, wanted: OffsetRange, offset: Offset) -> TidelogError:
    """An error of the store in the terms of the query."""
    where = f"{wanted.topic_partition}, reading offsets {wanted.start} to {wanted.end} from the object store, now at "
    match error:
        case RemoteObjectMissing():
            todo = (
                "; if retention or a deletion of records has removed the segment after the query was planned, "
                f"{PLAN_AGAIN}"
            )
        case RemoteObjectDamaged():
            todo = ""  # the nodes would read the same object, unless they have the segment on their disks
        case ObjectStoreRefused():
            todo = f". Executors read history from the store: they need its URL and credentials; {_THROUGH_NODES}"
        case UnsupportedVersion():
            todo = f", on every executor; {_THROUGH_NODES}"
        case _:
            todo = f"; {_THROUGH_NODES}" if error.retry is Retry.LATER else ""
    return type(error)(f"{where}{offset}: {error.message}{todo}")
