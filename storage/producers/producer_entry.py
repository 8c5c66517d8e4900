"""State of one producer, and its transition by one batch. Pure functions of values.

Invariants:
  1. A client's batch is accepted only if its epoch is not older and its sequence follows the last one. A gap, an older
     epoch, and a new epoch that does not begin with sequence 0 are rejected. An unknown producer may begin with any
     sequence: its state may have expired or been deleted with its records.
  2. The last five batches are remembered: a client's batch with the sequences of one of them is a duplicate.
  3. A follower accepts everything that its leader has accepted: replication and recovery reject nothing.
  4. A marker of transaction version 2 has an epoch above that of its transaction, which then is the epoch of the
     producer: late batches of the transaction are rejected, the next transaction begins with sequence 0, and a late
     copy of the marker cannot end the next transaction (KIP-890).
Not here: all producers of a log (producer_state.py), verification (verification.py).
Source: KIP-98, KIP-360, KIP-890; Kafka's ProducerAppendInfo and ProducerStateEntry.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.append_info import Origin
from storage.producers.verification import UNVERIFIED, VERSION_2, TransactionCheck
from tidelog.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber, TransactionCoordinatorFenced
from tidelog.records.producer_snapshot import NO_OFFSET, ProducerSnapshot
from tidelog.records.v2.batch import CONTROL_BIT, TRANSACTIONAL_BIT, RecordBatch
from tidelog.records.v2.control import EndTxnMarker, decode_control
from tidelog.records.v2.header import BatchHeader
from tidelog.types import INT32_MAX, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Millis, Offset, ProducerId

BATCHES_KEPT: Final = 5
"""Batches that a producer may have in flight (Kafka's max.in.flight.requests.per.connection with idempotence)."""
SEQUENCE_MAX: Final = INT32_MAX
"""The next sequence is 0."""


class Marker(NamedTuple):
    """The end of a transaction, from its control record."""

    aborted: bool
    coordinator_epoch: int
    timestamp: Millis


class ProducerBatch(NamedTuple):
    """A batch of a producer with an id. marker: set for a control batch that ends a transaction."""

    header: BatchHeader
    marker: Marker | None = None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 if the batch has no sequences."""
        first = self.header.base_sequence
        return NO_SEQUENCE if first == NO_SEQUENCE else (first + self.header.last_offset_delta) & SEQUENCE_MAX


class BatchMetadata(NamedTuple):
    """One of the last batches of a producer."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: Millis

    @property
    def first_sequence(self) -> int:
        return NO_SEQUENCE if self.last_sequence < 0 else (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)


class CompletedTransaction(NamedTuple):
    """A transaction with records in this log and its marker at `last_offset`."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    aborted: bool


class ProducerState(NamedTuple):
    """State of one producer. batches: the last ones of its epoch, oldest first."""

    producer_id: ProducerId
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: Millis = NO_TIMESTAMP
    transaction_start: Offset = NO_OFFSET
    """First offset of its open transaction, -1 for none."""
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        """-1 if its epoch has no batch yet."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def followed_by(self, batch: ProducerBatch) -> ProducerState | None:
        """Fast path of `after` for the usual case, a batch outside of transactions that follows the last one; else
        None."""
        header, batches = batch.header, self.batches
        if not batches or self.transaction_start >= 0 or header.producer_epoch != self.epoch:
            return None
        first = header.base_sequence
        if first != batches[-1].last_sequence + 1 or header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            return None
        delta, timestamp = header.last_offset_delta, header.max_timestamp
        new = tuple.__new__  # as the classes' own __new__, with one call less
        last = new(BatchMetadata, ((first + delta) & SEQUENCE_MAX, header.base_offset + delta, delta, timestamp))
        kept = (*batches[1 - BATCHES_KEPT :], last)
        return new(ProducerState, (self.producer_id, self.epoch, self.coordinator_epoch, timestamp, NO_OFFSET, kept))

    def duplicate_of(self, batch: ProducerBatch) -> BatchMetadata | None:
        """The earlier copy of the batch, if it is one of the last five."""
        header = batch.header
        if not self.batches or header.producer_epoch != self.epoch:
            return None
        if header.base_sequence == self.batches[-1].last_sequence + 1:
            return None
        last = batch.last_sequence
        for known in reversed(self.batches):
            if known.last_sequence == last and known.first_sequence == header.base_sequence:
                return known
        return None

    def has_open_transaction(self, epoch: int) -> bool:
        """True if the log contains an open transaction of this epoch."""
        return self.transaction_start >= 0 and self.epoch == epoch

    def after(
        self, batch: ProducerBatch, origin: Origin, check: TransactionCheck = UNVERIFIED
    ) -> tuple[ProducerState, CompletedTransaction | None]:
        """The state after one more batch, and the transaction that the batch ends. check: for its transaction version.

        Raises OutOfOrderSequenceNumber, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced (not in
        replication).
        """
        if batch.header.attributes & CONTROL_BIT:
            return self._after_marker(batch, origin, check)
        return self._after_data(batch, origin), None

    def _after_data(self, batch: ProducerBatch, origin: Origin) -> ProducerState:
        header = batch.header
        transactional = bool(header.attributes & TRANSACTIONAL_BIT)
        start = self.transaction_start
        if origin is not Origin.REPLICATION:
            self.ensure_epoch(header.producer_epoch)
            if origin is Origin.CLIENT:
                self._check_sequence(header)
            if start >= 0 and not transactional:
                raise InvalidTxnState(
                    f"producer {self.producer_id} sent a batch outside of its transaction, which is open since offset "
                    f"{start}: the producer must end the transaction first"
                )
        if start < 0 and transactional:
            start = header.base_offset
        delta = header.last_offset_delta
        last = BatchMetadata(batch.last_sequence, Offset(header.base_offset + delta), delta, header.max_timestamp)
        batches = (*self.batches[1 - BATCHES_KEPT :], last) if header.producer_epoch == self.epoch else (last,)
        return ProducerState(
            self.producer_id, header.producer_epoch, self.coordinator_epoch, header.max_timestamp, start, batches
        )

    def _after_marker(
        self, batch: ProducerBatch, origin: Origin, check: TransactionCheck
    ) -> tuple[ProducerState, CompletedTransaction | None]:
        header, marker = batch.header, batch.marker
        if marker is None:
            return self, None  # the cleaner has removed the transaction and the marker's record
        if origin is not Origin.REPLICATION:
            self.ensure_epoch(header.producer_epoch)
            if marker.coordinator_epoch < self.coordinator_epoch:
                raise TransactionCoordinatorFenced(
                    f"a marker for producer {self.producer_id} has coordinator epoch {marker.coordinator_epoch}, but "
                    f"the log has one of epoch {self.coordinator_epoch}: the sending coordinator has been replaced"
                )
            if check.version >= VERSION_2 and self.has_open_transaction(header.producer_epoch):
                raise InvalidProducerEpoch(
                    f"a marker for producer {self.producer_id} has epoch {header.producer_epoch}, in which the next "
                    f"transaction is open since offset {self.transaction_start}: this is a late copy of the marker of "
                    "the transaction before, whose epoch was lower"
                )
        completed = None
        if self.transaction_start >= 0:
            completed = CompletedTransaction(
                self.producer_id, self.transaction_start, header.base_offset, marker.aborted
            )
        batches = self.batches if header.producer_epoch == self.epoch else ()
        state = ProducerState(
            self.producer_id, header.producer_epoch, marker.coordinator_epoch, marker.timestamp, NO_OFFSET, batches
        )
        return state, completed

    def ensure_epoch(self, epoch: int) -> None:
        """Raises InvalidProducerEpoch if the epoch of a batch is older than that of the producer."""
        if epoch < self.epoch:
            raise InvalidProducerEpoch(
                f"producer {self.producer_id} sent a batch in epoch {epoch}, but the log has epoch "
                f"{self.epoch}: its transaction was ended for it (timeout), or a newer instance has replaced it"
            )

    def _check_sequence(self, header: BatchHeader) -> None:
        first = header.base_sequence
        if self.epoch == NO_PRODUCER_EPOCH:
            return
        if header.producer_epoch != self.epoch:
            if first != 0:
                raise OutOfOrderSequenceNumber(
                    f"producer {self.producer_id} began epoch {header.producer_epoch} with sequence {first}: a new "
                    "epoch must begin with sequence 0"
                )
            return
        expected = (self.last_sequence + 1) & SEQUENCE_MAX
        if first != expected:
            raise OutOfOrderSequenceNumber(
                f"producer {self.producer_id} sent sequence {first} in epoch {self.epoch}, expected {expected}: an "
                "earlier batch is missing"
            )

    def to_snapshot(self) -> ProducerSnapshot:
        """The snapshot entry; it contains only the last batch."""
        last = self.batches[-1] if self.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, self.last_timestamp)
        return ProducerSnapshot(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.transaction_start,
        )

    @classmethod
    def from_snapshot(cls, entry: ProducerSnapshot) -> ProducerState:
        batches: tuple[BatchMetadata, ...] = ()
        if entry.last_offset >= 0:
            batches = (BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp),)
        start = entry.transaction_start if entry.transaction_start >= 0 else NO_OFFSET
        return cls(entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.timestamp, start, batches)


def read_marker(batch: RecordBatch) -> Marker | None:
    """The marker of a control batch; None if it has no record left or another control record. Raises CorruptRecord."""
    for record in batch.records():
        control = decode_control(record)
        if isinstance(control, EndTxnMarker):
            return Marker(not control.committed, control.coordinator_epoch, record.timestamp)
        return None
    return None
