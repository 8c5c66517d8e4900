"""The transaction of a synchronous producer: `with producer.transaction() as txn`.

Not here: the transaction itself (transaction.py). Every method runs it on the producer's loop and waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.machine import LoopThread, blocking
from tidelog.client.many_arrow import columns_of_table
from tidelog.client.sync_delivery import SyncBatchDelivery, delivering, delivering_many
from tidelog.client.transaction import OffsetSource, TakenOffsets, Transaction
from tidelog.types import ProducerId, TopicPartition


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

    enqueue = delivering(Transaction.enqueue)
    enqueue_many = delivering_many(Transaction.enqueue_many)
    enqueue_columns = blocking(Transaction.enqueue_columns)

    def enqueue_arrow(self, topic: str, table: object, *, partition: int | None = None) -> SyncBatchDelivery:
        """Queue the rows of an Arrow table or of a reader of batches: `enqueue_arrow` of `Transaction`."""
        # A reader is an iterator that may call a client: its rows are read in the caller's thread.
        return SyncBatchDelivery(self._thread, self.enqueue_columns(topic, columns_of_table(table, partition)))

    @property
    def is_open(self) -> bool:
        """Whether the block was entered, and is neither left nor aborted."""
        return self._client.is_open

    @property
    def identity(self) -> tuple[ProducerId, int]:
        """The producer's id and epoch: `identity` of `Transaction`."""
        return self._client.identity

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
