"""One compaction round of one log: collects the keys of its dirty part, then rewrites its segments.

    plan     on the owner's thread   selects segments, copies transaction and producer state (log_cleaner.py)
    run      on any thread           reads closed segments and writes `.cleaned` files, in pieces
    settle   on the owner's thread   replaces source segments by a cleaned segment; repeated for each group

Invariants:
  1. A cleaned segment is complete and durable before it replaces its sources; until then the log is unchanged.
  2. Segments are joined as long as the result fits `segment.bytes`, `segment.index.bytes` and the offset range of one
     segment. So segments do not overlap and do not become ever smaller.
  3. Any change of the log's segments cancels the round: the log sets `cancelled`, `run` ends at its next step, and the
     files of the round are removed.
  4. Memory is bounded by the offset map and a few chunks, for any log size. If the map is full, the round ends before
     the first key that does not fit, and the next round continues there.
Not here: which records of a batch are kept (batch_filter.py), schedule and rate (log_cleaner.py).
Source: Kafka's Cleaner; the split over threads is Tidelog's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Final, NamedTuple

from storage.compaction.batch_filter import BatchFilter, FilterStats, LastRecord
from storage.compaction.cleaned_transactions import CleanedTransactions
from storage.compaction.offset_map import OffsetMap
from storage.files.file_system import Files, remove_files, sync_paths
from storage.log_config import LogConfig
from storage.segment.batch_walk import BrokenChain, Link
from storage.segment.epoch_cache import epoch_due
from storage.segment.segment import ALL_SUFFIXES, INDEX_SUFFIX, SUFFIXES, TIME_INDEX_SUFFIX, LogSegment, segment_path
from storage.segment.segments import CLEANED_SUFFIX
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX, AbortedTransaction, TransactionIndex
from storage.segment.verifier import SegmentRules, sound_batches
from tidelog.errors import CorruptRecord
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.header import BatchHeader, read_header
from tidelog.types import INT32_MAX, Buffer, EpochStart, Millis, Offset, ProducerId

_WRITE_BYTES: Final = 1 << 20
"""Bytes collected per write, so that the cost of one append to the cleaned segment is negligible."""


class CleaningCancelled(Exception):
    """The log has changed or is closed: the files of the round are useless."""


class CleaningSource(NamedTuple):
    """A segment to clean."""

    segment: LogSegment
    path: str
    base_offset: Offset
    end: Offset
    """Base offset of the next segment."""
    size: int
    """Size in bytes."""
    youngest_ms: Millis
    """Timestamp of its youngest record."""


class CleaningPlan(NamedTuple):
    """The input of a round, captured at one moment on the owner's thread."""

    files: Files
    directory: str
    config: LogConfig
    sources: Sequence[CleaningSource]
    """The segments, from the first one of the log on."""
    first_dirty: Offset
    """Keys are collected from this offset on."""
    aborted: Sequence[AbortedTransaction]
    producers: Mapping[ProducerId, LastRecord]
    map_bytes: int
    """Memory for the offset map."""
    now: Millis
    """Wall clock, for delete horizons."""
    epochs: Sequence[EpochStart]
    """The entries of the epoch cache, ascending."""
    first_unfetched: Offset
    """As in BatchFilter."""


class CleanedGroup(NamedTuple):
    """Source segments and their replacement, durable as `.cleaned`."""

    sources: Sequence[CleaningSource]
    cleaned: LogSegment


class Cleaning:
    """A round in progress. `ready`: a group that waits to replace its sources; `run` continues once it is removed.
    `ended`: all segments are written. `end`: the log is clean below it after the round; set when the keys are
    collected."""

    def __init__(self, plan: CleaningPlan) -> None:
        self.plan = plan
        self.end = plan.first_dirty
        self.stats = FilterStats()
        self.cancelled = False
        self.ready: CleanedGroup | None = None
        self.ended = False
        self._steps = self._work()

    def run(self, bytes_max: int) -> int:
        """Work until a group is ready, the round has ended, or `bytes_max` bytes were read and written. Returns the
        number of bytes. Any thread, one at a time.

        Raises CleaningCancelled; BrokenChain and TidelogError if the log has an unreadable batch; OSError. After an
        error the round cannot continue.
        """
        worked = 0
        try:
            while self.ready is None and not self.ended and worked < bytes_max:
                worked += next(self._steps)
        except FileNotFoundError:
            self._check_cancelled()  # the directory of a deleted log is renamed
            raise
        return worked

    def remove_files(self) -> None:
        """Remove the files of the round. Not while `run` is active. Raises OSError."""
        for source in self.plan.sources:
            self._remove_cleaned(source.base_offset)

    def _work(self) -> Iterator[int]:
        plan = self.plan
        offsets = OffsetMap.for_records(plan.sources[-1].end - plan.first_dirty, plan.map_bytes)
        yield from self._gather_keys(offsets)
        self.end = Offset(offsets.latest_offset + 1)
        transactions = CleanedTransactions()
        transactions.expect(plan.aborted)
        keep = BatchFilter(
            offsets,
            transactions,
            plan.producers,
            now=plan.now,
            delete_retention_ms=plan.config.delete_retention_ms,
            upper_bound=plan.sources[-1].end,
            first_unfetched=plan.first_unfetched,
        )
        self.stats = keep.stats
        clean = [source.youngest_ms for source in plan.sources if source.end <= plan.first_dirty]
        old_horizon = clean[-1] - plan.config.delete_retention_ms if clean else 0
        for group in self._groups():
            yield from self._clean(group, keep, transactions, old_horizon)
        self.ended = True
        yield 0

    def _scan(self, source: CleaningSource) -> Iterator[RecordBatch]:
        """The batches of a segment, with checksums, offsets and leader epochs checked."""
        rules = SegmentRules(source.base_offset, source.end, partial(epoch_due, self.plan.epochs))
        with closing(self.plan.files.open(source.path, read_only=True)) as file:
            try:
                for batch in sound_batches(file, Link(0, source.size, source.base_offset), rules):
                    self._check_cancelled()
                    yield batch
            except BrokenChain:
                self._check_cancelled()
                raise

    def _check_cancelled(self) -> None:
        if self.cancelled:
            raise CleaningCancelled

    def _gather_keys(self, offsets: OffsetMap) -> Iterator[int]:
        """Fill the map from the first dirty offset on, until it is full."""
        plan = self.plan
        transactions = CleanedTransactions()
        transactions.expect(plan.aborted)
        for source in plan.sources:
            if source.end <= plan.first_dirty:
                continue
            for batch in self._scan(source):
                if not transactions.may_drop(batch) and not batch.is_control and not _put(batch, offsets, plan):
                    return
                if batch.last_offset >= plan.first_dirty:
                    offsets.latest_offset = batch.last_offset
                yield batch.size
            offsets.latest_offset = Offset(source.end - 1)

    def _groups(self) -> Iterator[Sequence[CleaningSource]]:
        """The segments to clean; each group becomes one segment."""
        files, config = self.plan.files, self.plan.config
        group: list[CleaningSource] = []
        sizes = [0, 0, 0]
        for source in self.plan.sources:
            if source.base_offset >= self.end:
                break
            indexes = [
                files.size(segment_path(self.plan.directory, source.base_offset, kind)) or 0
                for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            ]
            sum_ = [have + more for have, more in zip(sizes, [source.size, *indexes], strict=True)]
            fits = sum_[0] <= config.segment_bytes and max(sum_[1:]) <= config.segment_index_bytes
            if group and not (fits and (not source.size or source.end - 1 - group[0].base_offset <= INT32_MAX)):
                yield group
                group, sum_ = [], [source.size, *indexes]
            group.append(source)
            sizes = sum_
        if group:
            yield group

    def _clean(
        self, group: Sequence[CleaningSource], keep: BatchFilter, transactions: CleanedTransactions, old_horizon: int
    ) -> Iterator[int]:
        """Write the segments of a group to one cleaned segment, and make it durable."""
        plan, base = self.plan, group[0].base_offset
        self._remove_cleaned(base)
        cleaned = LogSegment(
            plan.files,
            plan.directory,
            base,
            plan.config,
            created_ms=group[-1].youngest_ms,
            fresh=True,
            suffix=CLEANED_SUFFIX,
        )
        try:
            for source in group:
                keep.keep_old_tombstones = source.youngest_ms > old_horizon
                yield from self._copy(source, cleaned, keep)
            yield self._close(cleaned, transactions)
        finally:
            cleaned.close()
        self.ready = CleanedGroup(group, cleaned)
        yield 0

    def _copy(self, source: CleaningSource, cleaned: LogSegment, keep: BatchFilter) -> Iterator[int]:
        """Append the remaining batches of a segment to the cleaned one."""
        buffers: list[Buffer] = []
        headers: list[BatchHeader] = []
        size = worked = 0
        for batch in self._scan(source):
            left = keep.left_of(batch)
            worked += batch.size
            if left is not None:
                header = batch.header if isinstance(left, memoryview) else read_header(left)
                buffers.append(left)
                headers.append(header)
                size += header.size
            if worked >= _WRITE_BYTES:
                _append(cleaned, buffers, headers, size)
                yield worked + size
                buffers, headers, size, worked = [], [], 0, 0
        _append(cleaned, buffers, headers, size)
        yield worked + size

    def _close(self, cleaned: LogSegment, transactions: CleanedTransactions) -> int:
        """Finish the indexes of the cleaned segment and make its files durable."""
        plan = self.plan
        paths = [segment_path(plan.directory, cleaned.base_offset, kind) + CLEANED_SUFFIX for kind in SUFFIXES]
        if transactions.kept:
            paths.append(segment_path(plan.directory, cleaned.base_offset, TRANSACTION_INDEX_SUFFIX) + CLEANED_SUFFIX)
            TransactionIndex(plan.files, paths[-1], cleaned.base_offset).replace(transactions.kept)
            transactions.kept = []
        cleaned.become_inactive()
        sync_paths(plan.files, paths)
        self._check_cancelled()
        plan.files.sync_directory(plan.directory)
        return 0

    def _remove_cleaned(self, base: Offset) -> None:
        paths = (segment_path(self.plan.directory, base, kind) + CLEANED_SUFFIX for kind in ALL_SUFFIXES)
        remove_files(self.plan.files, paths)


def _put(batch: RecordBatch, offsets: OffsetMap, plan: CleaningPlan) -> bool:
    """Add the keys of a batch to the map. Returns False if one does not fit; `latest_offset` is then one below it."""
    for record in batch.record_list():
        if record.key is None or record.offset < plan.first_dirty:
            continue
        if not offsets.put(record.key, record.offset):
            offsets.latest_offset = Offset(record.offset - 1)
            return False
    return True


def _append(cleaned: LogSegment, buffers: Sequence[Buffer], headers: Sequence[BatchHeader], size: int) -> None:
    if cleaned.size + size > INT32_MAX:
        raise CorruptRecord(
            f"{cleaned.path} would grow beyond {INT32_MAX} bytes, because the cleaned batches are larger than before: "
            "lower segment.bytes"
        )
    if buffers:
        cleaned.append(buffers, headers, size)
