"""The transaction of a synchronous producer: `with producer.transaction() as txn`.

Not here: the transaction itself (transaction.py). Every method runs it on the producer's loop and waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.machine import LoopThread, blocking
from tidelog.client.many_arrow import columns_of_table
from tidelog.client.many_records import NO_HEADERS, checked_columns
from tidelog.client.transaction import OffsetSource, TakenOffsets, Transaction
from tidelog.records.v2.record import Header
from tidelog.types import TopicPartition


class SyncTransaction:
    """Records and offsets that become visible together, or never: `tidelog.Producer.transaction`, with the same errors.

    Leaving the `with` block commits; an exception aborts.
    """

    def __init__(self, thread: LoopThread, transaction: Transaction) -> None:
        self._thread, self._client = thread, transaction
        self._source: OffsetSource | None = None

    def __enter__(self) -> Self:
        self._thread.run(self._client.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        was_open = self._client.is_open
        self._thread.run(self._client.__aexit__(kind, error, trace))
        if self._source is not None and error is None and was_open:
            self._source.transaction_committed()

    abort = blocking(Transaction.abort)
    prepare = blocking(Transaction.prepare)
    committed_offsets = blocking(Transaction.committed_offsets)
    send = blocking(Transaction.send)
    flush = blocking(Transaction.flush)

    def enqueue(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Iterable[Header] = NO_HEADERS,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Queue one record. The end of the block waits for it, and raises TransactionAborted if it fails."""
        self._enqueue(topic, value, key, headers, partition, timestamp)

    _enqueue = blocking(Transaction.enqueue)

    def enqueue_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        headers: Iterable[Iterable[Header]] | None = None,
        partition: int | None = None,
        timestamp: int | Iterable[int | None] | None = None,
    ) -> None:
        """Queue many records, with the arguments of `Producer.send_many`: the fastest way. The end of the block waits
        for them."""
        self.enqueue_columns(topic, checked_columns(values, keys, headers, partition, timestamp))

    def enqueue_arrow(self, topic: str, table: object, *, partition: int | None = None) -> None:
        """Queue the rows of an Arrow table. The end of the block waits for them."""
        self.enqueue_columns(topic, columns_of_table(table, partition))

    enqueue_columns = blocking(Transaction.enqueue_columns)

    def send_offsets(
        self,
        source: OffsetSource | Mapping[TopicPartition | tuple[str, int], int | CommittedOffset],
        group: GroupMetadata | str | None = None,
    ) -> None:
        """Commit offsets of a consumer group with the transaction, as `Transaction.send_offsets`. source: a synchronous
        consumer with a group and auto_commit=False, or a mapping of offsets and their `group`."""
        if isinstance(source, Mapping) or not hasattr(source, "transaction_offsets"):
            self._thread.run(self._client.send_offsets(source, group))
            return
        self._source = source
        taken = TakenOffsets(source)  # in the caller's thread: the loops of two clients never wait for each other
        self._thread.run(self._client.send_offsets(taken, group))
