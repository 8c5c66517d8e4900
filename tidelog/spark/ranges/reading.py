"""The reader of a Spark task: the batches of one offset range, through the consumer's fetch core.

Invariants: each batch of the range is decoded once, in order; a partition that makes no progress for `patience_ms` is
an error with the cause, never a shorter result.
Not here: retries, leader changes, truncation checks, corrupt batches and memory bounds (client/fetch_core.py), its
effects (client/fetch_client.py), the columns (range_batches.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from tidelog.client.core_events import TimePassed
from tidelog.client.cursor import Cursor, FixedRange
from tidelog.client.fetch_client import FetchClient
from tidelog.client.fetch_events import FetchPolicy, Taken
from tidelog.client.offset_lookup import ensure_current
from tidelog.client.plausible import plausible_epoch
from tidelog.errors import (
    InconsistentTopicId,
    LogTruncated,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    Retry,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods
from tidelog.protocol.network import Transport
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import AbortedStart
from tidelog.records import RecordBatch
from tidelog.spark.ranges.planning import OffsetRange
from tidelog.types import NO_LEADER_EPOCH, Isolation, LeaderEpoch, Offset, TopicPartition

FETCH_WAIT_MS: Final = 500
"""How long a node may wait before it answers a fetch without records: a new leader may not have advanced its high
watermark yet."""
PATIENCE_MS: Final = 60_000
"""How long a range may make no progress before its task fails; Spark then runs the task again."""
REQUEST_TIMEOUT_MS: Final = 30_000
PLAN_AGAIN: Final = (
    "load the frame again (spark.read), since Spark plans a loaded frame only once, or start the streaming query again"
)
"""The next step after an error of a plan that is out of date."""


class RangeReader(FetchClient):
    """Reads ranges of partitions, one after the other. Use it inside `async with`."""

    def __init__(
        self,
        bootstrap: str,
        *,
        fetch_bytes: int,
        isolation: Isolation = Isolation.READ_COMMITTED,
        rack: str = "",
        patience_ms: int = PATIENCE_MS,
        transport: Transport | None = None,
    ) -> None:
        """fetch_bytes: most that one fetch returns, apart from a larger single batch. While one answer is decoded, the
        next one is fetched, so two are in memory. isolation: with READ_COMMITTED the batches of aborted transactions
        have no records, and a range that ends above the last stable offset waits for the transactions below its end
        to be decided. rack: where the executor runs; an in-sync replica there is read instead of a leader elsewhere
        (KIP-392). transport: None for one of its own, in plain text."""
        policy = FetchPolicy(
            buffer_bytes=2 * fetch_bytes,
            fetch_bytes=fetch_bytes,
            max_wait_ms=FETCH_WAIT_MS,
            request_timeout_ms=min(REQUEST_TIMEOUT_MS, patience_ms),
        )
        super().__init__(bootstrap, policy, isolation=isolation, rack=rack, transport=transport)
        self._patience_ms = patience_ms
        self._begun: dict[TopicPartition, tuple[OffsetRange, Cursor]] = {}
        """The ranges that are fetched before `read` is called for them."""

    def begin(self, ranges: Sequence[OffsetRange]) -> None:
        """Fetch these ranges at the same time, of each partition the first one; `read` decodes them one after the
        other. Leaders that are not known are asked for at once. Short ranges take two round trips together, instead of
        each."""
        for topic in dict.fromkeys(one.topic_partition.topic for one in ranges):
            if topic not in self._cluster.view.topics:
                self._cluster.request_refresh(topic)
        for one in ranges:
            if one.topic_partition not in self._core.cursors:
                self._begun[one.topic_partition] = one, self._add(one)

    def _add(self, wanted: OffsetRange) -> Cursor:
        planned = FixedRange(wanted.topic_id, wanted.start, wanted.end, wanted.planned_epoch)
        cursor = self._core.add_range(wanted.topic_partition, planned)
        if wanted.topic_partition.topic in self._cluster.view.topics:  # known since an earlier range
            self._handle(self._cluster.leader_known(wanted.topic_partition, None))
        self._handle(TimePassed(self._clock.monotonic_ms()))
        return cursor

    async def read(self, wanted: OffsetRange, decode: Callable[[RecordBatch], bool]) -> AsyncGenerator[None, None]:
        """Decode the range's batches in order; yields whenever `decode` has returned True, and ends with the range.

        decode: takes one batch, all of it or, where it raises a TidelogError, nothing; returns whether to yield. It
        must verify the checksum. A batch that it rejects is fetched again, and the node that sent it verifies its copy.
        The first and the last batch may hold offsets outside the range.
        Raises OffsetOutOfRange if records were deleted by retention since the query was planned, LogTruncated if the
        log lost some of them, UnknownTopicOrPartition or InconsistentTopicId if the topic was deleted or created again,
        CorruptRecord if a batch stays corrupt, RequestTimedOut if no batch arrived within `patience_ms`.
        """
        key = wanted.topic_partition
        begun, cursor = self._begun.pop(key, (None, None))
        if cursor is None or begun != wanted:
            self._core.remove((key,))
            cursor = self._add(wanted)
        progress_at = self._clock.monotonic_ms()
        try:
            while True:
                _ = self._cluster
                self._ready.clear()
                if cursor.error is not None:
                    raise _explained(cursor.error, wanted, cursor.position, cursor.leader_epoch) from cursor.error
                if cursor.batches:
                    position = cursor.position
                    if self._decode_some(cursor, decode):
                        yield
                    if cursor.position != position:
                        progress_at = self._clock.monotonic_ms()
                elif cursor.reached_end:
                    return
                else:
                    await self._wait(progress_at + self._patience_ms - self._clock.monotonic_ms(), wanted, cursor)
        finally:
            self._core.remove((key,))  # its share of the memory is that of the others from now on

    async def aborted_behind(self, wanted: OffsetRange, offset: Offset) -> Sequence[AbortedStart]:
        """The aborted transactions with records of the batch at `offset`, the end of the range's segment, or around
        it: one answer of a node has all that began before and go on there, wherever their markers are. Records of
        transactions are behind `offset`, and decided. Raises as `read`."""
        assert wanted.remote is not None, "the range has a remote source"
        epochs = wanted.remote.segment.leader_epochs
        retries = self._cluster.retries(self._patience_ms)
        epoch = NO_LEADER_EPOCH
        while True:
            try:
                await self._cluster.wait_topic(wanted.topic_partition.topic, timeout_ms=retries.left_ms)
                endpoint, partition = self._cluster.view.leader(wanted.topic_partition)
                epoch = partition.leader_epoch
                ensure_current(wanted.topic_partition, partition, wanted.planned_epoch)
                answer = await self._cluster.transport.call(
                    endpoint,
                    methods.DATA_FETCH,
                    _fetch_of_one_batch(wanted, offset, epoch, epochs[-1].epoch if epochs else NO_LEADER_EPOCH),
                    timeout_ms=min(REQUEST_TIMEOUT_MS, retries.left_ms),
                )
                [fetched] = answer.partitions
                if fetched.error is not None:
                    raise fetched.error
                if fetched.diverging is not None:
                    # Of another log: it knows nothing of transactions that were aborted in the lost one.
                    truncated = LogTruncated(f"the log does not have the records of the segment up to {offset}")
                    truncated.diverging = fetched.diverging
                    raise truncated
                if len(fetched.records):
                    return fetched.aborted
                raise OffsetNotAvailable(f"the node does not know yet that offset {offset} is decided: try again")
            except TidelogError as error:
                if error.retry is Retry.NEVER:
                    raise _explained(error, wanted, offset, epoch) from error
                await retries.pause(error)
            await self._cluster.refresh(wanted.topic_partition.topic)

    def _decode_some(self, cursor: Cursor, decode: Callable[[RecordBatch], bool]) -> bool:
        """Decode batches until none waits or `decode` returns True, then advance the position. Returns whether it did.
        A batch that is rejected ends this early."""
        done: RecordBatch | None = None
        is_due, rejected = False, None
        while cursor.batches and not is_due and rejected is None:
            batch = cursor.batches.popleft()
            cursor.buffered -= batch.size
            try:
                is_due = decode(batch)
            except TidelogError as error:
                rejected = error
            else:
                done = batch
        if done is not None:
            self._core.read(cursor)
            cursor.position_epoch = plausible_epoch(done, cursor.position_epoch, cursor.leader_epoch)
            cursor.position = done.next_offset
        if rejected is not None:
            self._refuse(cursor, batch, rejected)
        else:
            self._handle(Taken(cursor.topic_partition, self._clock.monotonic_ms()))
        return is_due

    async def _wait(self, left_ms: int, wanted: OffsetRange, cursor: Cursor) -> None:
        """Return when the cursor has data or an error. Raises RequestTimedOut after `left_ms`."""
        try:
            async with asyncio.timeout(max(left_ms, 0) / 1000):
                await self._ready.wait()
        except TimeoutError:
            raise RequestTimedOut(
                f"{wanted.topic_partition}: no batch from offset {cursor.position} on arrived within "
                f"{self._patience_ms} ms, the range ends at {wanted.end}" + _why_none(wanted, cursor)
            ) from cursor.failure
        await self._clock.sleep_ms(0)  # send the next fetch before the batches of this one are decoded

    def _how_to_skip(self, batch: RecordBatch) -> str:
        return (
            f"To read the rest, run one query with endingOffsets {batch.base_offset} and one with startingOffsets "
            f"{batch.next_offset} for this partition"
        )


def _fetch_of_one_batch(
    wanted: OffsetRange, offset: Offset, epoch: LeaderEpoch, epoch_before: LeaderEpoch
) -> data_pb2.FetchRequest:
    """epoch_before: of the record before `offset`, which the log must have."""
    return data_pb2.FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        isolation_level=data_pb2.ISOLATION_LEVEL_READ_COMMITTED,
        partitions=[
            data_pb2.FetchPartition(
                fetch_id=1,
                topic_id=wanted.topic_id.bytes,
                partition=wanted.topic_partition.partition,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=epoch_before,
                durable_offset=-1,
                log_start_offset=-1,
                max_bytes=1,
            )
        ],
    )


def _why_none(wanted: OffsetRange, cursor: Cursor) -> str:
    """The cause of a range without progress, and what to do: the end of an error."""
    if cursor.failure is None and cursor.readable_end < min(wanted.end, cursor.high_watermark):
        return (
            f": the records from offset {cursor.readable_end} on belong to transactions that are not decided yet, or "
            "lie behind one; find its producer with `tidelog partition who-holds-lso "
            f"{wanted.topic_partition}`"
        )
    cause = f" ({cursor.failure.message})" if cursor.failure else ""
    return f"{cause}; check the partition's leader with `tidelog cluster status`"


def _explained(
    error: TidelogError, wanted: OffsetRange, position: Offset | None, leader_epoch: LeaderEpoch
) -> TidelogError:
    """An error of the nodes in the terms of the query."""
    where = f"{wanted.topic_partition}, reading offsets {wanted.start} to {wanted.end}, now at {position}"
    match error:
        case OffsetOutOfRange():
            cause = error.__cause__.message if isinstance(error.__cause__, TidelogError) else error.message
            return OffsetOutOfRange(
                f"{where}: retention deleted records after the query was planned ({cause}); {PLAN_AGAIN}, "
                'or keep them longer ("retention.ms", "retention.bytes" of the topic)'
            )
        case LogTruncated(diverging=end) if end is not None:
            return LogTruncated(
                f"{where}: the log was truncated after the query was planned on leader epoch {wanted.planned_epoch} "
                f"(an unclean election): the log of leader epoch {leader_epoch} holds epoch {end.epoch} up to "
                f"offset {end.end_offset}; to read what is committed now, {PLAN_AGAIN}"
            )
        case InconsistentTopicId() | UnknownTopicOrPartition():
            return type(error)(
                f"{where}: the topic was deleted, or deleted and created again, after the query was planned on topic "
                f"id {wanted.topic_id}; {PLAN_AGAIN}"
            )
    return type(error)(f"{where}: {error.message}")
