"""Transaction batches that cleaning may drop: data of aborted transactions, and markers that no batch needs any more.

The log is walked from its start, batch by batch, together with the aborted transactions from its indexes.
Invariants: a marker is dropped only when every batch of its transaction is gone, so that a reader never sees records of
a transaction without its outcome. Aborted transactions that still have batches stay in the index.
Not here: when a droppable marker is dropped (its delete horizon, batch_filter.py).
Source: Kafka's CleanedTransactionMetadata; KIP-98, KIP-534.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from storage.segment.transaction_index import AbortedTransaction
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.control import EndTxnMarker, decode_control
from tidelog.types import Offset, ProducerId


class CleanedTransactions:
    """State of transactions during one walk along a log. `kept`: aborted transactions, by the offset of their marker,
    that still have batches in the cleaned segments; the writer of the transaction index empties it."""

    __slots__ = ("_aborted", "_coming", "_committed", "kept")

    def __init__(self) -> None:
        self._coming: deque[AbortedTransaction] = deque()
        self._aborted: dict[ProducerId, tuple[AbortedTransaction, bool]] = {}
        """By producer: the aborted transaction at the current position, and whether a batch of it has been read."""
        self._committed: set[ProducerId] = set()
        """Producers with a batch of a transaction read, but not its end."""
        self.kept: list[AbortedTransaction] = []

    def expect(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions before the walk reaches them. Those that ended before the walk's start have no
        effect."""
        self._coming = deque(sorted([*self._coming, *transactions], key=lambda transaction: transaction.first_offset))

    def may_drop(self, batch: RecordBatch) -> bool:
        """Process the next batch. Returns True if it is data of an aborted transaction, or a marker that no batch
        needs. Raises CorruptRecord for a malformed marker."""
        self._begin_up_to(batch.last_offset)
        if batch.is_control:
            return self._may_drop_marker(batch)
        if not batch.is_transactional:
            return False
        producer = batch.producer_id
        transaction, _ = self._aborted.get(producer, (None, False))
        if transaction is None or transaction.last_offset < batch.base_offset:
            self._committed.add(producer)
            return False
        self._aborted[producer] = transaction, True
        return True

    def _begin_up_to(self, offset: Offset) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborted[transaction.producer_id] = transaction, False

    def _may_drop_marker(self, batch: RecordBatch) -> bool:
        producer = batch.producer_id
        for record in batch.records():
            marker = decode_control(record)
            if not isinstance(marker, EndTxnMarker):
                return False
            undecided = producer in self._committed
            self._committed.discard(producer)
            if marker.committed:
                return not undecided
            transaction, had_batches = self._aborted.pop(producer, (None, False))
            if transaction is not None and had_batches:
                self.kept.append(transaction)
            return not (had_batches or undecided)
        return True  # an earlier cleaning has kept only its header
