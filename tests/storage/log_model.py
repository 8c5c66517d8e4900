"""A log in its simplest form: a list of batches. The state after a crash is checked against it.

Invariants: the model knows every batch that was ever appended and not truncated, in order, with its records. Rules
decide which of them compaction or deletion may have removed; the model does not record what the log did.
Not here: driving log and model together (crash_machine.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from storage.log.log import Log
from storage.segment.transaction_index import AbortedTransaction
from tests.storage.workbench import epoch_end
from tidelog.records.batches import batch_at, iter_batches
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.control import EndTxnMarker, decode_control
from tidelog.records.v2.record import Record
from tidelog.types import Offset, ProducerId


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored batch. base: offset of its first record. v0 and v1 messages contain no epoch, so it is a field here."""

    base: int
    last: int
    epoch: int
    records: tuple[Record, ...]
    producer: tuple[int, int, int] = (-1, -1, -1)
    """Id, epoch and last sequence."""
    is_transactional: bool = False
    marker: bool | None = None
    """True for a control batch that commits."""

    @classmethod
    def of(cls, data: bytes, epoch: int) -> Stored:
        """The size of the stored bytes."""
        batch, marker = batch_at(data), None
        records = tuple(batch.records())
        if batch.is_control:
            decoded = decode_control(records[0])
            assert isinstance(decoded, EndTxnMarker)
            marker = decoded.committed
        if batch.magic < 2:
            return cls(records[0].offset, batch.last_offset, epoch, records)
        producer = (batch.producer_id, batch.producer_epoch, batch.last_sequence)
        return cls(batch.base_offset, batch.last_offset, epoch, records, producer, batch.is_transactional, marker)

    def is_in(self, present: set[Offset]) -> bool:
        """True if any record of it remains."""
        return self.base in present or any(record.offset in present for record in self.records)


@dataclass(slots=True)
class Found:
    """What a reader of the whole log receives. visible: offsets that a read_committed reader receives."""

    batches: list[RecordBatch] = field(default_factory=list)
    records: dict[int, Record] = field(default_factory=dict)
    visible: set[int] = field(default_factory=set)

    def offsets(self) -> set[Offset]:
        """The offsets of all records, and the base offsets of batches that have lost records."""
        return {batch.base_offset for batch in self.batches} | {Offset(offset) for offset in self.records}


@dataclass(slots=True)
class LogModel:
    """The contents of the log, what must survive, and what the step in progress may change.

    held: everything below survives a power loss: it was reported as durable, or flushed on page-cache topics. fsync:
    whether the topic promises that for all of its records. also: batches that the step in progress may add. floor: the
    step in progress may truncate the log down to here. start, new_start: log start before and after the step in
    progress. compacted_to: below it, records that are superseded by a later record of the same key, also below it, may
    be gone. decided_to: the markers that compaction relied on lie below it. ghost: the log before a truncation during
    which its process died: until something is flushed, the truncation need not be durable."""

    fsync: bool = True
    batches: list[Stored] = field(default_factory=list)
    end: int = 0
    durable_offset: int = 0
    start: int = 0
    new_start: int = 0
    also: list[Stored] = field(default_factory=list)
    floor: int | None = None
    compacted_to: int = 0
    decided_to: int = 0
    ghost: LogModel | None = None
    refused_start: int | None = None
    """The log start that a full disk rejected: the checkpoint may contain it nevertheless."""

    def still(self) -> bool:
        """True if no step is in progress."""
        return not self.also and self.floor is None and self.start == self.new_start

    # --- judging --------------------------------------------------------------------------------------------------

    def judge(self, log: Log, *, whole: bool) -> LogModel:
        """Check that the log may come back like this. whole: the machine did not stop, so nothing may be missing at the
        end. Returns the model that matches: this one, or its ghost."""
        try:
            self._judge(log, whole=whole)
        except AssertionError as trouble:
            if self.ghost is None:
                raise
            ghost = replace(self.ghost, start=self.start, new_start=self.new_start)
            try:
                ghost._judge(log, whole=False)
            except AssertionError as other:
                raise AssertionError(f"{trouble}; before the truncation: {other}") from trouble
            return ghost
        return self

    def _judge(self, log: Log, *, whole: bool) -> None:
        assert log.damage is None, f"damage reported: {log.damage}"
        start, end = log.log_start_offset, log.log_end_offset
        starts = (self.start, self.new_start, self.refused_start)
        assert start in starts, f"log start {start}, expected one of {starts}"
        least = self.end if whole else self.durable_offset
        least = least if self.floor is None else min(least, self.floor)
        assert end >= least, f"the log ends at {end}, but offsets below {least} were durable"
        assert end in self._possible_ends(), f"the log ends at {end}, inside a batch or after all batches"
        assert log.durable_offset == end, "everything that recovery keeps is as durable as the topic promises"
        assert not self.fsync or log.recovery_point == end, "recovery makes everything that it keeps durable"
        self._judge_contents(log, [stored for stored in [*self.batches, *self.also] if stored.last < end])

    def judge_open(self, log: Log) -> None:
        """A log that was not restarted has all of it, durable or not."""
        assert log.log_end_offset == self.end
        assert log.log_start_offset == self.start
        assert log.durable_offset >= self.durable_offset
        self._judge_contents(log, [stored for stored in self.batches if stored.last < self.end])

    def _possible_ends(self) -> set[int]:
        ends = {self.start, self.new_start, self.end}
        for stored in [*self.batches, *self.also]:
            ends |= {stored.last + 1, stored.base}
        return ends

    def _judge_contents(self, log: Log, expected: Sequence[Stored]) -> None:
        found = read_all(log)
        self._judge_records(found, expected, log.log_start_offset)
        _judge_visible(found, expected, log.log_start_offset)
        left = expected if self.floor is None else [stored for stored in expected if stored.is_in(found.offsets())]
        _judge_epochs(log, left if self.compacted_to else expected, log.log_start_offset)
        if self.floor is None or not self.compacted_to:
            _judge_producers(log, expected, compacted=bool(self.compacted_to))
        judge_indexes(log, found)

    def _judge_records(self, found: Found, expected: Sequence[Stored], start: int) -> None:
        """Nothing that was never appended, nothing twice, nothing missing except what compaction may remove."""
        known: dict[int, Record] = {record.offset: record for stored in expected for record in stored.records}
        previous = -1
        for batch in found.batches:
            assert batch.base_offset > previous, "batches overlap"
            previous = batch.last_offset
        for offset, record in found.records.items():
            assert known.get(offset) == record, f"offset {offset} differs from what was appended"
        missing = [offset for offset in known if offset >= start and offset not in found.records]
        assert all(offset < self.compacted_to for offset in missing), f"lost: {missing[:5]}"
        if missing:
            self._judge_dropped(found, missing, expected if self.floor is None else self.batches)

    def _judge_dropped(self, found: Found, missing: Sequence[int], batches: Sequence[Stored]) -> None:
        """For each key, the last committed record below `compacted_to` exists or was a tombstone; then the whole key
        may be gone. batches: the batches to decide by; for a log that is being emptied, those before."""
        aborted, undecided = _decided(batches)
        latest: dict[bytes | None, Record] = {}
        for stored in batches:
            if stored.marker is None:
                for record in stored.records:
                    if record.offset < self.compacted_to and record.offset not in aborted | undecided:
                        latest[record.key] = record
        gone = {record.key for record in latest.values() if record.offset in missing}
        wrong = [latest[key].offset for key in gone if latest[key].value is not None]
        assert not wrong, f"the last records of these keys are missing: {wrong[:5]}"
        for record in found.records.values():
            if record.key in gone and record.offset < latest[record.key].offset and record.offset in found.visible:
                raise AssertionError(f"offset {record.offset} is there again, its tombstone is gone")


def _decided(batches: Sequence[Stored]) -> tuple[set[int], set[int]]:
    """The offsets of the records of aborted transactions, and of undecided ones."""
    open_: dict[int, list[int]] = {}
    aborted: set[int] = set()
    for stored in batches:
        producer = stored.producer[0]
        if stored.marker is not None:
            offsets = open_.pop(producer, [])
            if not stored.marker:
                aborted.update(offsets)
        elif stored.is_transactional:
            open_.setdefault(producer, []).extend(record.offset for record in stored.records)
    return aborted, {offset for offsets in open_.values() for offset in offsets}


def decisions_end(batches: Sequence[Stored], below: int) -> int:
    """The offset after the last marker of a transaction that began below the given offset; 0 for none."""
    began: dict[int, int] = {}
    end = 0
    for stored in batches:
        producer = stored.producer[0]
        if stored.marker is None and stored.is_transactional:
            began.setdefault(producer, stored.base)
        elif stored.marker is not None and began.pop(producer, below) < below:
            end = stored.last + 1
    return end


def read_all(log: Log) -> Found:
    """Read as a consumer does, with verification, from the start to the end."""
    found = Found()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, up_to=log.log_end_offset)
        if not len(read.records):
            break
        assert read.next_offset > offset, "a read did not advance"
        aborted = log.aborted_transactions(offset, read.next_offset)
        _consume(list(iter_batches(read.records)), aborted, found)
        offset = read.next_offset
    return found


def _consume(batches: list[RecordBatch], aborted: Sequence[AbortedTransaction], found: Found) -> None:
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset)
    hidden: set[int] = set()
    for batch in batches:
        batch.ensure_valid()
        found.batches.append(batch)
        records = list(batch.records())
        for record in records:
            assert record.offset not in found.records, f"offset {record.offset} exists twice"
            found.records[record.offset] = record
        while waiting and waiting[0].first_offset <= batch.last_offset:
            hidden.add(waiting.pop(0).producer_id)
        if batch.is_control:
            marker = decode_control(records[0]) if records else None
            if isinstance(marker, EndTxnMarker) and not marker.committed:
                hidden.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in hidden):
            found.visible.update(record.offset for record in records)


def _judge_visible(found: Found, expected: Sequence[Stored], start: int) -> None:
    """read_committed readers receive no aborted record and every other one."""
    aborted, undecided = _decided(expected)
    shown = found.visible & aborted
    assert not shown, f"aborted records are shown: {sorted(shown)[:5]}"
    markers = {record.offset for stored in expected if stored.marker is not None for record in stored.records}
    hidden = {offset for offset in found.records if offset >= start} - found.visible - aborted - undecided - markers
    assert not hidden, f"committed records are hidden: {sorted(hidden)[:5]}"


def _judge_epochs(log: Log, expected: Sequence[Stored], start: int) -> None:
    entries = log.epochs.entries
    for one, two in pairwise(entries):
        assert one.epoch < two.epoch and one.start_offset < two.start_offset, entries
    expected = [stored for stored in expected if stored.last >= start]
    for stored in expected:
        epoch = max((entry.epoch for entry in entries if entry.start_offset <= max(stored.base, start)), default=-1)
        assert epoch == stored.epoch, f"epoch of offset {stored.base}, which is {stored.epoch}: {entries}"
    for epoch in {stored.epoch for stored in expected}:
        reported = epoch_end(log, epoch)
        ends = [stored.base for stored in expected if stored.epoch > epoch]
        assert reported.epoch == epoch
        assert reported.end_offset <= min(ends, default=log.log_end_offset), f"epoch {epoch} ends at {reported}"


def _judge_producers(log: Log, expected: Sequence[Stored], *, compacted: bool) -> None:
    """Every producer that ever wrote is known by its last batch, also if the log now starts after all of its batches:
    the running log knew it, and a resend must be recognized. Exceptions: compaction may remove the batches, and a log
    that was created again, after it was emptied or lost, knows at most the snapshot at its start. No other producer is
    known, and none better."""
    whole = _last_sequences(expected)
    found = {state.producer_id: (state.epoch, state.last_sequence) for state in log.producers.state.active_producers()}
    if compacted:
        whole = _last_sequences([stored for stored in expected if stored.last >= log.log_start_offset])
    for producer, state in whole.items():
        reported = found.get(ProducerId(producer))
        more = compacted and reported is not None and reported > state
        gone = reported is None and is_new(log)
        assert more or gone or reported == state, f"producer {producer} is known as {reported}, not {state}"
    strangers = found.keys() - whole.keys()
    assert compacted or not strangers, f"producers {strangers} have no batch in the log"


def is_new(log: Log) -> bool:
    """True if the log is empty and has no batch below its start."""
    return log.segments[0].base_offset == log.log_start_offset == log.log_end_offset


def _last_sequences(batches: Sequence[Stored]) -> dict[int, tuple[int, int]]:
    """Epoch and last sequence of each producer."""
    last: dict[int, tuple[int, int]] = {}
    for stored in batches:
        producer, epoch, sequence = stored.producer
        if producer >= 0:
            before = last.get(producer, (0, -1))
            last[producer] = (epoch, sequence if stored.marker is None else before[1])
    return last


def judge_indexes(log: Log, found: Found) -> None:
    """Index entries point at batches of the log. Lookups by offset and by time give the same result as a scan."""
    for segment in log.segments:
        ends = {header.position: header.last_offset for header in segment.walk()}
        segment.ensure_indexes()
        for slot in range(segment.index.entries):
            entry = segment.index.entry(slot)
            assert ends.get(entry.position) == entry.offset, f"{segment.path}: index entry {entry} points at no batch"
        times = [segment.time_index.entry(slot) for slot in range(segment.time_index.entries)]
        assert all(one.timestamp < two.timestamp and one.offset < two.offset for one, two in pairwise(times)), times
        reported = {entry.offset for entry in times}
        assert reported <= {*ends.values(), segment.base_offset}, (
            f"{segment.path}: a time entry without a batch: {times}"
        )
    for batch in found.batches[len(found.batches) // 3 :: 5]:
        at = max(batch.base_offset, log.log_start_offset)
        read = log.read(at, 1, up_to=log.log_end_offset)
        assert batch_at(bytes(read.records)).last_offset == batch.last_offset, f"offset {at} is not found"
        time = batch.max_timestamp
        first = next(
            (
                record.offset
                for record in found.records.values()
                if record.timestamp >= time and record.offset >= log.log_start_offset
            ),
            None,
        )
        lookup = log.offset_for_timestamp(time, up_to=log.log_end_offset)
        assert (None if lookup is None else lookup.offset) == first, f"time {time} is found at {lookup}, not {first}"


def present_offsets(log: Log) -> set[Offset]:
    """The offsets of all records in the segments, and the base offsets of batches that have lost records."""
    found: set[Offset] = set()
    for segment in log.segments:
        for header in segment.walk():
            batch = batch_at(segment.file.pread(header.size, header.position))
            found.update({batch.base_offset}, (record.offset for record in batch.records()))
    return found
