"""Which batches of a transaction cleaning may drop: those of an aborted one, and markers that no batch needs any more.

A log is walked from its start on, batch by batch, with the aborted transactions that its indexes name.
Kept true: a marker goes only when every batch of its transaction is gone, so a reader never sees the records of a
transaction without learning how that one ended; aborted transactions that still have batches stay in the index.
Left to others: when a marker that may go does go (batch_filter.py: its delete horizon). Source: Kafka's
CleanedTransactionMetadata; KIP-98, KIP-534.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from storage.segment.transaction_index import AbortedTransaction
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.control import EndTxnMarker, decode_control
from tidelog.types import Offset, ProducerId


class CleanedTransactions:
    """The transactions around one walk along a log. `kept`: those aborted ones, by the offset of their marker, that the
    cleaned segments still have batches of; whoever writes these takes them out."""

    __slots__ = ("_aborted", "_coming", "_committed", "kept")

    def __init__(self) -> None:
        self._coming: deque[AbortedTransaction] = deque()
        self._aborted: dict[ProducerId, tuple[AbortedTransaction, bool]] = {}
        """By producer, the aborted transaction that the walk is in, and whether it has met a batch of it."""
        self._committed: set[ProducerId] = set()
        """Producers of whose transaction the walk has met a batch, and not its end."""
        self.kept: list[AbortedTransaction] = []

    def expect(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Take aborted transactions before the walk reaches them. Those that ended before it began mean nothing."""
        self._coming = deque(sorted([*self._coming, *transactions], key=lambda transaction: transaction.first_offset))

    def may_drop(self, batch: RecordBatch) -> bool:
        """Walk over a batch: is it the data of an aborted transaction, or a marker that no batch needs? Raises
        CorruptRecord for a marker that is none."""
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
        return True  # only its header was left by an earlier cleaning
