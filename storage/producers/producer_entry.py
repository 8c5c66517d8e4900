"""What a log knows of one producer, and what one more batch of its makes of that. Pure: values in, values out.

Kept true:
  1. A client's batch passes only where its sequence follows the last one, in an epoch that is not older: a gap, an
     old epoch, a new epoch that does not begin at sequence 0 are refused. A producer that is not known (any more)
     may begin with any sequence: its state may have expired, or been deleted with its records.
  2. The last five batches are remembered: a client's batch with the sequences of one of them is its duplicate.
  3. What a leader has taken, a follower takes over: nothing is refused in replication and in recovery.
Left to others: all producers of a log together (producer_state.py).
Source: KIP-98, KIP-360; Kafka's ProducerAppendInfo and ProducerStateEntry.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.append_info import Origin
from storage.producers.producer_snapshot import NO_OFFSET, ProducerSnapshot
from tidelog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from tidelog.records.v2.batch import CONTROL_BIT, TRANSACTIONAL_BIT, RecordBatch
from tidelog.records.v2.control import EndTxnMarker, decode_control
from tidelog.records.v2.header import BatchHeader
from tidelog.types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Millis, Offset, ProducerId

BATCHES_KEPT: Final = 5
"""As many as a producer may have in flight (Kafka's max.in.flight.requests.per.connection with idempotence)."""
SEQUENCE_MAX: Final = 2**31 - 1
"""Sequence 0 follows it."""


class Marker(NamedTuple):
    """The end of a transaction, as its control record says it."""

    aborted: bool
    coordinator_epoch: int
    timestamp: Millis


class ProducerBatch(NamedTuple):
    """A batch of a producer with an id. marker: where it is a control batch that ends a transaction."""

    header: BatchHeader
    marker: Marker | None = None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 where the producer numbers none."""
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
    """A transaction that had records here and has its marker at `last_offset`."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    aborted: bool


class ProducerState(NamedTuple):
    """What is known of one producer. batches: the last ones of its epoch, oldest first."""

    producer_id: ProducerId
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: Millis = NO_TIMESTAMP
    transaction_start: Offset = NO_OFFSET
    """First offset of its open transaction, -1 where none is open."""
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        """-1 where its epoch has no batch yet."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def followed_by(self, batch: ProducerBatch) -> ProducerState | None:
        """The state behind a batch outside of transactions that simply follows the last one, as nearly all do: what
        `after` would say, in less time. None for any other."""
        header, batches = batch.header, self.batches
        if not batches or self.transaction_start >= 0 or header.producer_epoch != self.epoch:
            return None
        first = header.base_sequence
        if first != batches[-1].last_sequence + 1 or header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            return None
        delta, timestamp = header.last_offset_delta, header.max_timestamp
        new = tuple.__new__  # as their own, less a call
        last = new(BatchMetadata, ((first + delta) & SEQUENCE_MAX, header.base_offset + delta, delta, timestamp))
        kept = (*batches[1 - BATCHES_KEPT :], last)
        return new(ProducerState, (self.producer_id, self.epoch, self.coordinator_epoch, timestamp, NO_OFFSET, kept))

    def duplicate_of(self, batch: ProducerBatch) -> BatchMetadata | None:
        """The earlier copy of a batch, where it is one of the last five."""
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

    def after(self, batch: ProducerBatch, origin: Origin) -> tuple[ProducerState, CompletedTransaction | None]:
        """The state behind one more batch, and the transaction that it has ended.

        Raises OutOfOrderSequenceNumber, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced; in
        replication nothing.
        """
        if batch.header.attributes & CONTROL_BIT:
            return self._after_marker(batch, origin)
        return self._after_data(batch, origin), None

    def _after_data(self, batch: ProducerBatch, origin: Origin) -> ProducerState:
        header = batch.header
        transactional = bool(header.attributes & TRANSACTIONAL_BIT)
        start = self.transaction_start
        if origin is not Origin.REPLICATION:
            self._check_epoch(header)
            if origin is Origin.CLIENT:
                self._check_sequence(header)
            if start >= 0 and not transactional:
                raise InvalidTxnState(
                    f"producer {self.producer_id} has a transaction open since offset {start} and sends a batch "
                    "outside of it: it must end the transaction first"
                )
        if start < 0 and transactional:
            start = header.base_offset
        delta = header.last_offset_delta
        last = BatchMetadata(batch.last_sequence, Offset(header.base_offset + delta), delta, header.max_timestamp)
        batches = (*self.batches[1 - BATCHES_KEPT :], last) if header.producer_epoch == self.epoch else (last,)
        return ProducerState(
            self.producer_id, header.producer_epoch, self.coordinator_epoch, header.max_timestamp, start, batches
        )

    def _after_marker(self, batch: ProducerBatch, origin: Origin) -> tuple[ProducerState, CompletedTransaction | None]:
        header, marker = batch.header, batch.marker
        if marker is None:
            return self, None  # the cleaner has removed the transaction, and its marker's record
        if origin is not Origin.REPLICATION:
            self._check_epoch(header)
            if marker.coordinator_epoch < self.coordinator_epoch:
                raise TransactionCoordinatorFenced(
                    f"a marker for producer {self.producer_id} comes from coordinator epoch "
                    f"{marker.coordinator_epoch}, but epoch {self.coordinator_epoch} has written one already: that "
                    "coordinator has been replaced"
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

    def _check_epoch(self, header: BatchHeader) -> None:
        if header.producer_epoch < self.epoch:
            raise InvalidProducerEpoch(
                f"producer {self.producer_id} sends in epoch {header.producer_epoch}, but epoch {self.epoch} has "
                "written here: a newer instance has taken its place"
            )

    def _check_sequence(self, header: BatchHeader) -> None:
        first = header.base_sequence
        if self.epoch == NO_PRODUCER_EPOCH:
            return
        if header.producer_epoch != self.epoch:
            if first != 0:
                raise OutOfOrderSequenceNumber(
                    f"producer {self.producer_id} begins epoch {header.producer_epoch} with sequence {first}: a new "
                    "epoch begins with 0"
                )
            return
        expected = (self.last_sequence + 1) & SEQUENCE_MAX
        if first != expected:
            raise OutOfOrderSequenceNumber(
                f"producer {self.producer_id} sends sequence {first} in epoch {self.epoch}, expected {expected}: a "
                "batch before it is missing"
            )

    # --- in a snapshot --------------------------------------------------------------------------------------------

    def to_snapshot(self) -> ProducerSnapshot:
        """As a snapshot keeps it: of the batches, the last."""
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
        """What a snapshot has kept."""
        batches: tuple[BatchMetadata, ...] = ()
        if entry.last_offset >= 0:
            batches = (BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp),)
        start = entry.transaction_start if entry.transaction_start >= 0 else NO_OFFSET
        return cls(entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.timestamp, start, batches)


def read_marker(batch: RecordBatch) -> Marker | None:
    """What a control batch says of its producer's transaction; None where it has no record left, or says something
    else. Raises CorruptRecord."""
    for record in batch.records():
        control = decode_control(record)
        if isinstance(control, EndTxnMarker):
            return Marker(not control.committed, control.coordinator_epoch, record.timestamp)
        return None
    return None
