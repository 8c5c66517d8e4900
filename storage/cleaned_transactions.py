"""Which batches of a transaction cleaning may drop: those of an aborted one, and markers that no batch needs any more.

A log is walked from its start on, batch by batch, with the aborted transactions that its indexes name.
Kept true: a marker goes only when every batch of its transaction is gone, so a reader never sees the records of a
transaction without learning how that one ended; aborted transactions that still have batches stay in the index.
Left to others: when a marker that may go does go (batch_filter.py: its delete horizon). Source: Kafka's
CleanedTransactionMetadata; KIP-98, KIP-534.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from storage.transaction_index import AbortedTransaction
from tidelog.records.batch import RecordBatch
from tidelog.records.control import EndTxnMarker, decode_control
from tidelog.types import Offset, ProducerId


class CleanedTransactions:
    """The transactions around one walk along a log. `kept`: those aborted ones, by the offset of their marker, that the
    cleaned segments still have batches of; whoever writes these takes them out."""

    __slots__ = ("_aborted", "_coming", "_committed", "_known", "kept")

    def __init__(self) -> None:
        self._coming: list[tuple[Offset, AbortedTransaction]] = []
        self._known: set[tuple[ProducerId, Offset]] = set()
        self._aborted: dict[ProducerId, tuple[AbortedTransaction, bool]] = {}
        """By producer, the aborted transaction that the walk is in, and whether it has met a batch of it."""
        self._committed: set[ProducerId] = set()
        """Producers of whose transaction the walk has met a batch, and not its end."""
        self.kept: list[AbortedTransaction] = []

    def expect(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Take aborted transactions, each once however often it is named, before the walk reaches them."""
        for transaction in transactions:
            name = transaction.producer_id, transaction.last_offset
            if name not in self._known:
                self._known.add(name)
                heappush(self._coming, (transaction.first_offset, transaction))

    def may_drop(self, batch: RecordBatch) -> bool:
        """Walk over a batch: is it the data of an aborted transaction, or a marker that no batch needs? Raises
        CorruptRecord for a marker that is none."""
        self._begin_up_to(batch.last_offset)
        if batch.is_control:
            return self._may_drop_marker(batch)
        if not batch.is_transactional:
            return False
        producer = batch.producer_id
        found = self._aborted.get(producer)
        if found is None:
            self._committed.add(producer)
            return False
        self._aborted[producer] = found[0], True
        return True

    def _begin_up_to(self, offset: Offset) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, transaction = heappop(self._coming)
            self._aborted.setdefault(transaction.producer_id, (transaction, False))

    def _may_drop_marker(self, batch: RecordBatch) -> bool:
        producer = batch.producer_id
        for record in batch.records():
            marker = decode_control(record)
            if not isinstance(marker, EndTxnMarker):
                return False
            if marker.committed:
                had_batches = producer in self._committed
                self._committed.discard(producer)
                return not had_batches
            transaction, had_batches = self._aborted.pop(producer, (None, False))
            if transaction is not None and had_batches:
                self.kept.append(transaction)
            return not had_batches
        return True  # only its header was left by an earlier cleaning
