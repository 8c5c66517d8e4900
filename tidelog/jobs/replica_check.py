"""Checks the batches of one replica in order: checksums, offsets and leader epochs.

Not here: the comparison with other replicas (replica_comparison.py), receipts (receipt_check.py).
Source: Kafka's DefaultRecordBatch.ensureValid; KIP-101 for leader epochs, which never fall along a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from tidelog.errors import CorruptRecord, TidelogError
from tidelog.jobs.replica_comparison import AuditedBatch, AuditedRecord
from tidelog.records.batches import iter_batches
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.control import EndTxnMarker, decode_control
from tidelog.records.v2.record import Record, encode_record
from tidelog.types import NO_LEADER_EPOCH, Offset

PROBLEMS_MAX: Final = 10
"""Problems of one replica that are named; further ones are counted."""
DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class ReplicaProblem:
    """What is wrong in one replica by itself."""

    offset: Offset
    kind: str
    """checksum, offsets, epoch, hole or records."""
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} at offset {self.offset}: {self.detail}"


class ReplicaCheck:
    """The batches of one replica, in the order in which it shows them."""

    def __init__(self, *, compacted: bool) -> None:
        """compacted: offsets may be missing, and records are read."""
        self._compacted = compacted
        self._next: Offset | None = None
        self._cut = False
        """The log starts at `_next`, perhaps within a batch, which is shown whole."""
        self._epoch = NO_LEADER_EPOCH
        self.problems: list[ReplicaProblem] = []
        """The first `PROBLEMS_MAX`."""
        self.problem_count = 0
        self.batches = 0
        self.size = 0

    def note(self, offset: Offset, kind: str, detail: str) -> None:
        """Add a problem."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(ReplicaProblem(offset, kind, detail))

    def check(self, batch: RecordBatch) -> bool:
        """Check the next batch. Returns False if its records must not be read."""
        header = batch.header
        base, last = header.base_offset, header.last_offset
        self.batches += 1
        self.size += header.size
        is_valid = True
        try:
            batch.ensure_valid()
        except CorruptRecord as error:
            self.note(base, "checksum", error.message)
            is_valid = False
        except TidelogError as error:
            self.note(base, "records", error.message)
            is_valid = False
        if self._next is not None and batch.magic == 2:
            if base < self._next and not (self._cut and last >= self._next):
                self.note(base, "offsets", f"the batch begins at {base}, the batch before it ends at {self._next - 1}")
            elif base > self._next and not self._compacted:
                self.note(self._next, "hole", f"offsets {self._next}..{base - 1} are missing")
        if batch.magic == 2:
            if header.leader_epoch < self._epoch:
                self.note(base, "epoch", f"leader epoch {header.leader_epoch} follows leader epoch {self._epoch}")
            self._epoch = max(self._epoch, header.leader_epoch)
            if is_valid and not self._compacted and header.record_count != header.last_offset_delta + 1:
                self.note(base, "hole", f"the batch of offsets {base}..{last} has {header.record_count} records")
        self._cut = self._cut and last < (self._next or 0)
        self._next = Offset(max(last + 1, self._next or 0))
        return is_valid

    def skip_to(self, offset: Offset) -> None:
        """What lies below `offset` was removed by retention, or by an operator."""
        self._next, self._cut = offset, True

    def end_at(self, end: Offset) -> None:
        """The replica shows nothing more below `end`, its high watermark or where the audit ends."""
        if self._next is not None and self._next < end and not self._compacted:
            self.note(self._next, "hole", f"offsets {self._next}..{end - 1} are missing, below the high watermark")


def batches_of(records: bytes | bytearray | memoryview) -> Iterator[RecordBatch]:
    """The batches of an answer. Raises CorruptRecord if their headers cannot be followed."""
    return iter_batches(records, partial_tail="raise")


def audited_batch(batch: RecordBatch) -> AuditedBatch:
    """What is compared of a batch; copies its bytes."""
    header = batch.header
    return AuditedBatch(header.base_offset, header.last_offset, header.leader_epoch, header.crc, bytes(batch.buffer))


def audited_records(batch: RecordBatch) -> list[AuditedRecord]:
    """What is compared of the records of a compacted topic. Raises CorruptRecord and other errors of reading them."""
    producer = batch.producer_id if batch.is_transactional else None
    epoch = batch.partition_leader_epoch
    if batch.is_control:
        return [
            AuditedRecord(record.offset, epoch, _digest(record), None, producer=producer, is_committed=marker.committed)
            for record in batch.record_list()
            if isinstance(marker := decode_control(record), EndTxnMarker)
        ]
    return [
        AuditedRecord(
            record.offset,
            epoch,
            _digest(record),
            None if record.key is None else blake2b(record.key, digest_size=DIGEST_BYTES).digest(),
            record.value is None,
            producer,
        )
        for record in batch.record_list()
    ]


def _digest(record: Record) -> bytes:
    encoded = encode_record(0, record.timestamp, record.key, record.value, record.headers)
    return blake2b(encoded, digest_size=DIGEST_BYTES).digest()
