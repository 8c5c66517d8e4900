"""The ways to send records that a producer and its transactions have in common.

Not here: how a record is queued (producer.py), what a transaction adds (transaction.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from tidelog.client.batch_delivery import BatchDelivery
from tidelog.client.delivery import Delivery, OnDelivery, SendResult
from tidelog.client.many_arrow import columns_of_table
from tidelog.client.many_records import NO_HEADERS, RecordColumns, checked_columns
from tidelog.client.record_hooks import RecordHooks
from tidelog.records.v2.record import Header


class RecordSender(ABC):
    """Base of clients that send records: all methods use the subclass's `enqueue` and `enqueue_columns`."""

    hooks: RecordHooks | None
    """The interceptors and serializers of the producer; None if it has none."""

    @abstractmethod
    async def enqueue(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[Header] = NO_HEADERS,
        partition: int | None = None,
        timestamp: int | None = None,
        *,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Queue one record; await the Delivery for its outcome. on_delivery: see `Delivery.add_done_callback`."""

    @abstractmethod
    async def enqueue_columns(self, topic: str, columns: RecordColumns) -> BatchDelivery:
        """Queue many records that are checked already; see `enqueue_many`."""

    @abstractmethod
    async def flush(self) -> None:
        """Send all queued records, and wait for their outcomes."""

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[Header] = NO_HEADERS,
        partition: int | None = None,
        timestamp: int | None = None,
        *,
        on_delivery: OnDelivery | None = None,
    ) -> SendResult:
        """Send one record and wait for its result.

        key: selects the partition, as in Kafka. partition: overrides that choice. timestamp: milliseconds since 1970,
        now if None, -1 for a record without one. Returns the record's position, acknowledged as `acks` requires. Raises
        RecordTooLarge before anything is queued; BufferExhausted, or the reason why the topic is not known, after at
        most `max_block_ms`; the node's error; DeliveryTimedOut (not written); CommitUnknown (unknown whether it was
        written). A cancelled call may have queued its record, which is then sent. on_delivery: as for `enqueue`.
        """
        return await (await self.enqueue(topic, value, key, headers, partition, timestamp, on_delivery=on_delivery))

    async def enqueue_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Iterable[Iterable[Header]] | None = None,
        partition: int | None = None,
        timestamp: int | Iterable[int | None] | None = None,
    ) -> BatchDelivery:
        """Queue many records, waiting for memory and metadata; await the BatchDelivery for their outcomes.

        The fastest way to send records that are at hand. keys, headers: one for each value, or None. partition: of all
        records. timestamp: of all records, or one for each. All arguments are checked before anything is queued;
        RecordTooLarge names the record. The order within a partition is that of the values, and no other call's records
        come between them. Whenever memory is full, the call waits for more, each time up to `max_block_ms`. A call that
        fails later raises RecordsNotQueued. A call that is cancelled raises CancelledError with a BatchDelivery as its
        argument. In both cases the first records of the call may be queued, and these are sent.
        """
        columns = self.columns_of(topic, values, keys, headers, partition, timestamp)
        return await self.enqueue_columns(topic, columns)

    def columns_of(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        headers: Iterable[Iterable[Header]] | None,
        partition: int | None,
        timestamp: int | Iterable[int | None] | None,
    ) -> RecordColumns:
        """Return the records of a call of `enqueue_many`, intercepted, serialized and checked."""
        if self.hooks is None:
            return checked_columns(values, keys, headers, partition, timestamp)
        return self.hooks.columns_of(topic, values, keys, headers, partition, timestamp)

    async def enqueue_arrow(self, topic: str, table: object, *, partition: int | None = None) -> BatchDelivery:
        """Queue the rows of an Arrow table or record batch as `enqueue_many` does. Needs pyarrow: the extra `arrow`.

        table: of pyarrow, or any object with Arrow's C interface, for example a polars DataFrame. Columns, as in the
        Spark source: value, and optionally key, headers, timestampMs (-1: none; null: as timestamp), timestamp (null:
        now) and partition (null: by key), which the argument overrides; topic, offset and timestampType are ignored.
        Raises InvalidRequest for other columns.
        """
        return await self.enqueue_columns(topic, columns_of_table(table, partition))
