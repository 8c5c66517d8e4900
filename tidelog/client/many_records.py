"""The records of one call of `enqueue_many`, and their way into batches: in slices, without a step per record.

Invariants: all arguments are checked before the first record is queued. Records are queued in turns; a turn queues
consecutive records of the call, all of them or none, so that the queued records are always the first ones. Records of
one partition keep the order of the call. Memory is accounted for once per slice of a batch.
Not here: waiting for memory or metadata (producer.py), sending (producer_core.py), the loops over keys and sizes
(routing.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.client import routing
from tidelog.client.accumulator import (
    OBJECT_BYTES,
    RECORD_BYTES,
    Headers,
    PartitionQueue,
    PendingBatch,
    as_bytes,
    checked_headers,
    record_size,
)
from tidelog.client.batch_delivery import BatchDelivery, RecordsNotQueued
from tidelog.client.options import partition_index, timestamp_ms
from tidelog.client.producer_core import ProducerCore
from tidelog.client.route import Route
from tidelog.errors import InvalidRequest, TidelogError, UnknownTopicOrPartition
from tidelog.records.v2.record import Header
from tidelog.types import INT64_MAX, Millis, PartitionIndex

if TYPE_CHECKING:
    from tidelog.client.outgoing_record import OutgoingRecord
    from tidelog.client.routing import Numbers

TURN_BYTES: Final = 4 * 1024 * 1024
"""Limit of what one turn of the loop queues. A turn takes some milliseconds, during which nothing is sent. It is large
enough for the batches of some hundred partitions to get more than a few records each."""
RESUME_SHARE: Final = 8
"""A call that waits for memory continues once this part of `buffer_bytes` is free: single freed batches would give each
of many partitions only a few records per turn."""

NO_HEADERS: Final[Headers] = ()

Content: TypeAlias = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers of a record."""


class RecordColumns:
    """The fields of many records, checked: lists of equal length, None for a field that no record has."""

    __slots__ = ("headers", "keys", "outgoing", "partition", "partitions", "sizes", "timestamps", "values")

    def __init__(
        self,
        values: list[bytes | None],
        keys: list[bytes | None] | None = None,
        headers: list[Headers] | None = None,
        *,
        partition: PartitionIndex | None = None,
        partitions: Numbers | None = None,
        timestamps: Millis | list[Millis | None] | None = None,
    ) -> None:
        """partition: that of all records. partitions: one for each record, NO_PARTITION to choose one. timestamps: one
        for all records or one for each, None for the time at which a record is queued."""
        self.values, self.keys, self.headers = values, keys, headers
        self.partition, self.partitions, self.timestamps = partition, partitions, timestamps
        self.outgoing: Sequence[OutgoingRecord] = ()
        """The records as the program sent them, if interceptors see their outcomes."""
        self.sizes = routing.measure(values, keys, RECORD_BYTES)
        if headers is not None:
            for index, each in enumerate(headers):
                if each:
                    self.sizes[index] += record_size(None, None, each) - RECORD_BYTES

    def __len__(self) -> int:
        return len(self.values)


def checked_columns(
    values: Iterable[bytes | None],
    keys: Iterable[bytes | None] | None,
    headers: Iterable[Iterable[Header]] | None,
    partition: object,
    timestamp: object,
) -> RecordColumns:
    """Return the arguments of `enqueue_many` as columns. Raises TypeError, InvalidRecord, InvalidTimestamp,
    UnknownTopicOrPartition, and InvalidRequest for columns of different lengths."""
    value_list = _bytes_column("value", values)
    count = len(value_list)
    timestamps: Millis | list[Millis | None] | None
    if not isinstance(timestamp, Iterable):  # arrays of numpy have __index__ too
        timestamps = None if timestamp is None else timestamp_ms(timestamp)
    else:
        timestamps = [None if each is None else timestamp_ms(each) for each in timestamp]
        ensure_even("timestamps", len(timestamps), count)
    key_list = None if keys is None else _bytes_column("key", keys)
    if key_list is not None:
        ensure_even("keys", len(key_list), count)
    header_list = None if headers is None else [checked_headers(each) for each in headers]
    if header_list is not None:
        ensure_even("headers", len(header_list), count)
    return RecordColumns(
        value_list,
        key_list,
        header_list,
        partition=None if partition is None else partition_index(partition),
        timestamps=timestamps,
    )


def ensure_even(what: str, length: int, count: int) -> None:
    """Raise InvalidRequest for columns of different lengths."""
    if length != count:
        raise InvalidRequest(f"{length} {what} for {count} values: give one for each value")


def _bytes_column(what: str, column: object) -> list[bytes | None]:
    if isinstance(column, str | bytes | bytearray | memoryview) or not isinstance(column, Iterable):
        raise TypeError(
            f"{what}s must be an iterable of bytes or None, for example a list of them, not {type(column).__name__}"
        )
    entries: list[Any] = list(column)  # the caller may change its list while the call waits
    if routing.first_other(entries) >= 0:
        return [as_bytes(f"{what} {index}", entry) for index, entry in enumerate(entries)]
    return entries


class ManyRecords:
    """The records of one call on their way into batches. `delivery` contains the queued ones, always the first ones."""

    def __init__(self, topic: str, columns: RecordColumns) -> None:
        self.topic, self.columns = topic, columns
        self.delivery = BatchDelivery()
        self._measured_for: Route | None = None
        self._targets_for: Route | None = None
        self._targets: Numbers | None = None
        """The partition of each record; None if no record has a key, and neither the caller nor a partitioner of the
        program chooses."""

    @property
    def queued(self) -> int:
        """Number of queued records."""
        return len(self.delivery)

    @property
    def is_queued(self) -> bool:
        """Whether every record is queued."""
        return self.queued == len(self.columns)

    def too_large(self, route: Route) -> list[int]:
        """Return the indexes of the records whose size may exceed the topic's limit; empty in further calls with the
        same route."""
        if self._measured_for is route:
            return []
        self._measured_for = route
        sizes = self.columns.sizes
        if not sizes or max(sizes) <= route.record_bytes_max:
            return []
        return [index for index, size in enumerate(sizes) if size > route.record_bytes_max]

    def wants_more(self, memory: int, buffer_bytes: int) -> bool:
        """Whether enough memory is free to queue the next records (see RESUME_SHARE)."""
        sizes, at = self.columns.sizes, self.queued
        if at == len(sizes) or memory < sizes[at] + OBJECT_BYTES:
            return at == len(sizes)
        share = buffer_bytes // RESUME_SHARE
        return memory >= share or routing.fit(sizes, at, len(sizes), share, memory, OBJECT_BYTES)[0] == len(sizes)

    @property
    def highest_partition(self) -> int:
        """The highest partition that the caller has chosen; 0 if none."""
        columns = self.columns
        return columns.partition or max(0, max(columns.partitions or (), default=0))

    def content(self, record: int) -> Content:
        """Return key, value and headers of a record."""
        columns = self.columns
        return (
            None if columns.keys is None else columns.keys[record],
            columns.values[record],
            NO_HEADERS if columns.headers is None else columns.headers[record],
        )

    def not_queued(self, cause: TidelogError) -> RecordsNotQueued:
        """Return the error of a call that ends after some of its records were queued."""
        why = cause.message.removesuffix(" Nothing was queued.")
        error = RecordsNotQueued(
            f"the first {self.queued} of {len(self.columns)} records for topic {self.topic!r} were queued and are "
            f"sent, the others were not: {why} The error's delivery has the outcome of the first ones."
        )
        error.delivery = self.delivery
        return error

    def put(self, route: Route, core: ProducerCore, buffer_bytes: int, at: Millis, now: Millis) -> None:
        """Queue the records of one turn, as far as memory allows.

        at: monotonic time. now: the time of records without one. Raises UnknownTopicOrPartition before a record of the
        turn is queued.
        """
        columns, begin = self.columns, self.queued
        memory = buffer_bytes - core.memory_used
        end, size = routing.fit(columns.sizes, begin, len(columns), TURN_BYTES, memory, OBJECT_BYTES)
        if end == begin and begin < len(columns) and columns.sizes[begin] + OBJECT_BYTES <= memory:
            end, size = begin + 1, columns.sizes[begin]  # larger than a turn
        timestamps: Millis | list[Millis]
        if isinstance(columns.timestamps, list):
            for index in range(begin, end):
                if columns.timestamps[index] is None:
                    columns.timestamps[index] = now
            timestamps = columns.timestamps  # type: ignore[assignment] # complete up to `end`
        else:
            timestamps = now if columns.timestamps is None else columns.timestamps
        turn = _Turn(columns, self.delivery, core, route.batch_bytes, timestamps, at)
        if columns.partition is not None:
            turn.add(route.at(self.topic, columns.partition), range(begin, end))
        elif (targets := self._targets_on(route)) is None:
            self._put_anywhere(route, turn, begin, end)
        else:
            if (without_key := routing.unassigned(targets, begin, end)) > 0:
                self._choose_for(route, targets, begin, end, size * without_key // (end - begin))
            for partition, indexes in routing.group(targets, begin, end, len(route.queues)):
                turn.add(route.queues[partition], indexes)

    def _put_anywhere(self, route: Route, turn: _Turn, begin: int, end: int) -> None:
        """Queue records without keys, in slices that fit into the open batch of the present partition."""
        sizes = self.columns.sizes
        while begin < end:
            queue = route.queues[route.partitioner.sticky]
            for room in (turn.room(queue), route.batch_bytes, INT64_MAX):
                behind, size = routing.fit(sizes, begin, end, room, INT64_MAX, 0)
                if behind > begin:
                    break
            if room == INT64_MAX:
                behind, size = begin + 1, sizes[begin]  # larger than a batch
            turn.add(route.without_key(size), range(begin, behind))
            begin = behind

    def _targets_on(self, route: Route) -> Numbers | None:
        """Return the partition of each record; NO_PARTITION for a record without key whose partition the caller has not
        chosen. Raises UnknownTopicOrPartition."""
        if self._targets_for is not None and len(self._targets_for.queues) == len(route.queues):
            return self._targets
        columns, partitions = self.columns, len(route.queues)
        keys = columns.keys
        if keys is None and route.keys.choose is not None:
            keys = [None] * len(columns)
        self._targets = None if keys is None else route.keys.of_keys(keys, partitions)
        if columns.partitions is not None:
            given = columns.partitions
            if given and max(given) >= partitions:
                index = next(index for index, partition in enumerate(given) if partition >= partitions)
                try:
                    route.at(self.topic, given[index])
                except UnknownTopicOrPartition as error:
                    raise UnknownTopicOrPartition(f"record {index}: {error.message}") from None
            keyed = self._targets if self._targets is not None else repeat(routing.NO_PARTITION)
            self._targets = array(
                "i", [by_key if chosen < 0 else chosen for chosen, by_key in zip(given, keyed, strict=False)]
            )
        self._targets_for = route
        return self._targets

    @staticmethod
    def _choose_for(route: Route, targets: Numbers, begin: int, end: int, size: int) -> None:
        """Choose one partition for the records of a turn without a key."""
        partition = int(route.without_key(size).topic_partition.partition)
        for index in range(begin, end):
            if targets[index] < 0:
                targets[index] = partition


class _Turn:
    """The values that all slices of one turn of a call share."""

    def __init__(
        self,
        columns: RecordColumns,
        delivery: BatchDelivery,
        core: ProducerCore,
        batch_bytes: int,
        timestamps: Millis | list[Millis],
        at: Millis,
    ) -> None:
        self._columns, self._delivery, self._core = columns, delivery, core
        self._batch_bytes, self._timestamps, self._at = batch_bytes, timestamps, at

    def room(self, queue: PartitionQueue) -> int:
        """Return the free bytes of the queue's open batch, or of a new one if there is none."""
        batch = queue.batches[-1] if queue.batches else None
        return self._batch_bytes - (0 if batch is None or batch.sealed else batch.size)

    def add(self, queue: PartitionQueue, records: Sequence[int]) -> None:
        """Queue these records of the call in one partition."""
        columns = self._columns
        if isinstance(records, range):
            sizes, begin, end = columns.sizes, records.start, records.stop
        else:
            sizes, begin, end = routing.pick_sizes(columns.sizes, records), 0, len(records)
        offset = begin
        while begin < end:
            batch = queue.batches[-1] if queue.batches else None
            if batch is None or batch.sealed or batch.size + sizes[begin] > self._batch_bytes:
                batch = self._core.open_batch(queue, self._at)
            behind, slice_size = routing.fit(sizes, begin, end, self._batch_bytes - batch.size, INT64_MAX, 0)
            if behind == begin:
                behind, slice_size = begin + 1, sizes[begin]  # larger than a batch
            self._extend(batch, records[begin - offset : behind - offset], slice_size)
            begin = behind

    def _extend(self, batch: PendingBatch, records: Sequence[int], size: int) -> None:
        columns, count = self._columns, len(records)
        timestamps = self._timestamps
        batch.records += routing.waiting(records, columns.values, columns.keys, timestamps, columns.headers)
        batch.size += size
        batch.queue.queued_bytes += size
        self._core.memory_used += size + OBJECT_BYTES * count
        outcome = batch.outcome
        self._delivery.add(outcome, outcome.records, records, timestamps)
        outcome.records += count
