"""Retention rules of compaction for one batch.

Of the records with one key, only the one at the key's largest offset is kept. A tombstone (no value) is kept until its
delete horizon: the first cleaning that keeps it writes the horizon, now plus `delete.retention.ms`, to the batch's base
timestamp (KIP-534), so that readers that started earlier have time to read it. Markers of transactions without
remaining batches are removed the same way. Both stay while a follower is still to fetch them, however long it takes. v0
and v1 have no field for a horizon: the age of the segment decides, as it did in Kafka.

Invariants:
  1. A batch that loses no record keeps its bytes. One that loses records keeps base offset, last offset, producer,
     epoch, sequence, codec and timestamp type; count and largest timestamp are those of the remaining records.
  2. A batch that loses all records is removed, unless it carries a producer's last sequence or the last offset of the
     round: then its header is kept. v0 and v1 have no such header: their last message is kept.
     For an active producer, one marker of its newest coordinator epoch is kept with its record, so that a replica built
     from this log rejects an older coordinator. Kafka removes it like the others.
  3. Records above the map's latest offset have not been examined and are kept.
Not here: which batches are read (cleaning.py), the state of transactions (cleaned_transactions.py).
Source: Kafka's Cleaner.cleanInto and MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage.compaction.cleaned_transactions import CleanedTransactions
from storage.compaction.offset_map import OffsetMap
from storage.producers.producer_entry import read_marker
from tidelog.errors import TidelogError
from tidelog.records.legacy.message_builder import build_message_set
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.builder import build_batch, empty_batch
from tidelog.records.v2.header import UNKNOWN_COUNT
from tidelog.records.v2.record import Record
from tidelog.types import Buffer, Millis, Offset, ProducerId, TimestampType


class LastRecord(NamedTuple):
    """The last entry of an active producer in the log."""

    last_data_offset: Offset | None
    """Last offset of its last batch, None if a marker came last."""
    producer_epoch: int
    """The producer epoch of that entry."""
    coordinator_epoch: int
    """Coordinator epoch of its last marker; -1 if there is none."""


@dataclass(slots=True)
class FilterStats:
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0


class BatchFilter:
    __slots__ = (
        "_coordinators_kept",
        "_delete_retention_ms",
        "_first_unfetched",
        "_map",
        "_now",
        "_producers",
        "_transactions",
        "_upper_bound",
        "keep_old_tombstones",
        "stats",
    )

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[ProducerId, LastRecord],
        *,
        now: Millis,
        delete_retention_ms: int,
        upper_bound: Offset,
        first_unfetched: Offset,
    ) -> None:
        """upper_bound: the end offset of the round. first_unfetched: a follower is still to fetch what begins there."""
        self._map, self._transactions, self._producers = offsets, transactions, producers
        self._now, self._delete_retention_ms, self._upper_bound = now, delete_retention_ms, upper_bound
        self._first_unfetched = first_unfetched
        self._coordinators_kept: set[ProducerId] = set()
        """Producers for which a marker of the newest coordinator epoch has been read."""
        self.keep_old_tombstones = True
        """Whether to keep v0 and v1 tombstones of the segment that the next batches come from."""
        self.stats = FilterStats()

    def left_of(self, batch: RecordBatch) -> Buffer | None:
        """The remaining part of a batch: a view of the batch, the bytes of a replacement, or None. Raises CorruptRecord
        and the other errors of reading its records."""
        droppable = self._transactions.may_drop(batch)
        left = self._left_of(batch, droppable)
        self.stats.bytes_read += batch.size
        if left is not None:
            self.stats.bytes_kept += len(left)
        return left

    def _left_of(self, batch: RecordBatch, droppable: bool) -> Buffer | None:
        if batch.is_control:
            return self._left_of_marker(batch, droppable)
        if droppable:
            self.stats.records_read += batch.count
            return self._without_records(batch)
        if batch.header.base_offset > self._map.latest_offset and batch.header.record_count != UNKNOWN_COUNT:
            self.stats.records_read += batch.count
            self.stats.records_kept += batch.count
            return batch.buffer
        records = batch.record_list()
        kept, tombstones = self._kept(batch, records)
        self.stats.records_read += len(records)
        self.stats.records_kept += len(kept)
        if not kept:
            return self._without_records(batch)
        horizon = batch.delete_horizon_ms
        if batch.magic == 2 and tombstones and horizon is None:
            horizon = Millis(self._now + self._delete_retention_ms)
        elif len(kept) == len(records):
            return batch.buffer
        return _rebuilt(batch, kept, horizon)

    def _kept(self, batch: RecordBatch, records: Sequence[Record]) -> tuple[list[Record], bool]:
        """The records to keep, and whether they contain tombstones that need a horizon."""
        if batch.magic == 2:
            horizon = batch.delete_horizon_ms
            keep_tombstones = horizon is None or self._now < horizon
        else:
            keep_tombstones = self.keep_old_tombstones
        keep_tombstones |= batch.last_offset >= self._first_unfetched
        find, latest = self._map.get, self._map.latest_offset
        kept, tombstones = [], False
        for record in records:
            offset, key = record.offset, record.key
            if offset > latest:
                kept.append(record)
            elif key is not None and offset >= find(key):  # without a key: the topic was not compacted then
                if record.value is not None:
                    kept.append(record)
                elif keep_tombstones:
                    kept.append(record)
                    tombstones = True
        return kept, tombstones

    def _left_of_marker(self, batch: RecordBatch, droppable: bool) -> Buffer | None:
        self.stats.records_read += batch.count
        horizon = batch.delete_horizon_ms
        is_over = droppable and horizon is not None and horizon <= self._now
        is_over &= batch.last_offset < self._first_unfetched
        if not batch.count or (not self._keeps_coordinator_epoch(batch) and is_over):
            return self._without_records(batch)
        self.stats.records_kept += batch.count
        if droppable and horizon is None:
            return _rebuilt(batch, batch.record_list(), Millis(self._now + self._delete_retention_ms))
        return batch.buffer

    def _keeps_coordinator_epoch(self, batch: RecordBatch) -> bool:
        """True if this is the first marker of its active producer's newest coordinator epoch. Raises CorruptRecord."""
        last = self._producers.get(batch.producer_id)
        if last is None or batch.producer_id in self._coordinators_kept:
            return False
        marker = read_marker(batch)
        if marker is None or marker.coordinator_epoch != last.coordinator_epoch:
            return False
        self._coordinators_kept.add(batch.producer_id)
        return True

    def _without_records(self, batch: RecordBatch) -> Buffer | None:
        """The replacement of a batch without remaining records."""
        if not self._is_needed(batch):
            return None
        if batch.magic == 2:
            return empty_batch(batch)
        last = batch.record_list()[-1:]
        self.stats.records_kept += 1
        return _rebuilt(batch, last, None)

    def _is_needed(self, batch: RecordBatch) -> bool:
        """True if only this batch's header carries a producer's last sequence or epoch, or the end of the round."""
        if batch.next_offset == self._upper_bound:
            return True
        last = self._producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch


def _rebuilt(batch: RecordBatch, records: Sequence[Record], horizon: Millis | None) -> Buffer:
    """The batch with only these records. A batch that cannot be encoded again (its producer wrote a timestamp before
    1970) is kept unchanged: its surplus records are superseded by later ones."""
    try:
        return _build(batch, records, horizon)
    except TidelogError:
        return batch.buffer


def _build(batch: RecordBatch, records: Sequence[Record], horizon: Millis | None) -> bytes:
    stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    append_time = batch.max_timestamp if stamped else None
    if batch.magic < 2:
        return build_message_set(
            records,
            batch.magic,
            batch.codec,
            timestamp_type=batch.timestamp_type,
            log_append_time=append_time,
        )
    return build_batch(
        records,
        batch.codec,
        timestamp_type=batch.timestamp_type,
        base_offset=batch.base_offset,
        leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        log_append_time=append_time,
        delete_horizon_ms=horizon,
        last_offset=batch.last_offset,
    )
