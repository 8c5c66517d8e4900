"""Which closed segments of a log can be copied to the remote tier, and what a copy of one contains.

    copyable_segments (owner's thread) -> SegmentCopy (owner's) -> contents (any thread) -> is_current (owner's)

Invariants:
  1. Only committed, decided and durable records are copied: a segment ends at or below the last stable offset, the high
     watermark and the recovery point. No later leader can truncate them, except by an unclean election.
  2. Every batch is judged as it is read, its leader epoch included. A damaged segment is not copied: the remote tier
     would keep the damage after the replicas have repaired theirs.
  3. Indexes and the producer snapshot are made from the batches and not from their files, which may be lost or wrong.
  4. A copy has its own file handles and changes nothing. Meanwhile the owner may roll, truncate and delete: whether the
     result counts is decided on the owner's thread.
Not here: who may copy (the coordinator), the object (tidelog/tiering/segment_object.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from storage.checkpoints.checkpoint_file import encode_epochs
from storage.log.cold_read import TransactionsRead
from storage.log.log import Log
from storage.producers.producer_replay import replay
from storage.producers.producer_state import ProducerStateManager
from storage.segment.batch_walk import BrokenChain
from storage.segment.offset_index import OffsetIndex
from storage.segment.segment import LogSegment, segment_path
from storage.segment.segment_bytes import SegmentBytes
from storage.segment.sound_pieces import sound_pieces
from storage.segment.time_index import TimeIndex
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX, TransactionIndex, encode_transactions
from tidelog.errors import CorruptLog
from tidelog.records.producer_snapshot import encode_snapshot
from tidelog.tiering.remote_segment import SectionKind
from tidelog.types import INT64_MAX, NO_TIMESTAMP, Buffer, EpochStart, Millis, Offset


class ClosedSegment(NamedTuple):
    """A segment that takes no more appends. end: one past its last offset."""

    segment: LogSegment
    end: Offset


def copyable_segments(
    segments: Sequence[LogSegment], *, copied_end: Offset, log_start: Offset, limit: Offset
) -> list[ClosedSegment]:
    """The closed segments with offsets that are not copied yet, oldest first. copied_end: the end up to which the log
    is copied without a gap. It may lie within a segment, if a leader whose segments begin elsewhere has made the
    copies: that segment is copied whole. limit: no offset at or above it may be copied."""
    # Also those that compaction has emptied before: copies without them have a gap, which ends `copied_end` for ever.
    closed = (ClosedSegment(each, behind.base_offset) for each, behind in pairwise(segments))
    return [each for each in closed if max(copied_end, log_start) < each.end <= limit]


def copy_limit(log: Log) -> Offset:
    """No offset at or above it may be copied."""
    limit = min(log.last_stable_offset, log.high_watermark, log.recovery_point, log.durable_offset)
    return limit if log.damage is None else min(limit, log.damage.first_offset)


class SegmentCopy:
    """A closed segment of a log, as it is copied. Created on the owner's thread; `contents` runs once, on any
    thread."""

    def __init__(self, log: Log, closed: ClosedSegment) -> None:
        """Raises OSError, BrokenChain."""
        segment, end = closed
        assert segment is not log.active, "the active segment still grows"
        self.segment, self.start_offset, self.end_offset = segment, segment.base_offset, end
        self.size = segment.size
        self.leader_epochs: tuple[EpochStart, ...] = log.epochs.over(segment.base_offset, end)
        self.max_timestamp: Millis = segment.confirm_largest().timestamp
        self._truncations = log.truncations
        self._log_start = log.log_start_offset
        self._name = f"the segment of {log.topic_partition} at offset {segment.base_offset}"
        self._files, self._path, self._interval = log.files, log.path, log.config.index_interval_bytes
        self._epochs = log.epochs.below(end)
        self._transactions: TransactionsRead = log.begin_transactions_read(segment)
        self._before = [
            SegmentBytes(log.files, each) for each in log.segments if each.base_offset <= segment.base_offset
        ]

    def is_current(self, log: Log) -> bool:
        """True if the segment is as it was when the copy began: a copy that has ended may be reported. Older segments
        may have left the log."""
        return (
            not log.closed
            and log.truncation is None
            and log.truncations == self._truncations
            and any(each is self.segment for each in log.segments)
            and self.segment.size == self.size
        )

    def contents(self) -> Iterator[tuple[SectionKind, Iterable[Buffer]]]:
        """The sections of the object, each to be taken to its end before the next. Raises CorruptLog if the segment is
        damaged, OSError. If the copy is not current, an error only says that the segment has changed."""
        indexes = _CopiedIndexes(self.start_offset, self._interval)
        try:
            yield SectionKind.LOG, self._log(indexes)
            yield SectionKind.OFFSET_INDEX, [b"".join(indexes.offsets)]
            yield SectionKind.TIME_INDEX, [b"".join(indexes.finished_times())]
            yield SectionKind.PRODUCER_SNAPSHOT, [self._producers()]
            yield SectionKind.TRANSACTION_INDEX, [self._aborted()]
            yield SectionKind.LEADER_EPOCHS, [encode_epochs(self._epochs)]
        except BrokenChain as broken:  # in an earlier segment, which the producers are read from
            raise CorruptLog(f"{self._name} is not copied: {broken}; the scrub reports the damage") from broken
        finally:
            for segment in self._before:
                segment.close()

    def _log(self, indexes: _CopiedIndexes) -> Iterator[Buffer]:
        file = self._before[-1].file
        try:
            yield from sound_pieces(file, self.size, self.start_offset, self.end_offset, self._epochs, indexes.add)
        except BrokenChain as broken:
            raise CorruptLog(f"{self._name} is not copied: {broken}; the scrub reports the damage") from broken

    def _producers(self) -> bytes:
        """The producers as of the segment's end."""
        state = ProducerStateManager(self._files, self._path, INT64_MAX)
        known, _ = state.load(self.end_offset)
        first = self._before[0].base_offset
        if first > self._log_start and (known is None or known < first):
            raise CorruptLog(
                f"{self._name} is not copied: no producer snapshot is left at offset {first}, where the local log "
                "begins, and the open transactions of the remote part are not known without it: move this replica to "
                "another node (tidelog partition reassign), which takes them from the object store"
            )
        replay(state, self._before, first if known is None else known, self.end_offset)
        return encode_snapshot(each.to_snapshot() for each in state.active_producers())

    def _aborted(self) -> bytes:
        read = self._transactions
        read.run()
        if read.found is not None:
            return encode_transactions(read.found.aborted)
        path = segment_path(self._path, self.start_offset, TRANSACTION_INDEX_SUFFIX)
        return encode_transactions(TransactionIndex(self._files, path, self.start_offset).entries)


class _CopiedIndexes:
    """The entries of both indexes, by the rule of the segment's own (segment.py)."""

    def __init__(self, base: Offset, interval: int) -> None:
        self.offsets: list[bytes] = []
        self._base, self._interval, self._since = base, interval, 0
        self._times: list[bytes] = []
        self._largest = NO_TIMESTAMP
        self._largest_at, self._written = base, NO_TIMESTAMP

    def add(self, position: int, size: int, last_offset: Offset, max_timestamp: Millis, /) -> None:
        """The next batch."""
        if max_timestamp > self._largest:
            self._largest, self._largest_at = max_timestamp, last_offset
        if self._since > self._interval:
            self.offsets.append(OffsetIndex.ENTRY.pack(last_offset - self._base, position))
            self._add_time()
            self._since = 0
        self._since += size

    def _add_time(self) -> None:
        if self._largest > self._written:
            self._times.append(TimeIndex.ENTRY.pack(self._largest, self._largest_at - self._base))
            self._written = self._largest

    def finished_times(self) -> list[bytes]:
        self._add_time()
        return self._times
