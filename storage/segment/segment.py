"""One segment of a log: a .log file of batches, its offset index and its time index.

Invariants:
  1. Between two calls the file holds `size` bytes of complete batches. Offsets and epochs grow, and all offsets are at
     or above `base_offset`.
  2. A failed write leaves nothing: the file is truncated, and the indexes have no entry for it.
  3. Index entries follow Kafka 4.1. If more than `index.interval.bytes` were appended since the last entry, the next
     batch gets an entry (last offset, position). With each entry, and on rolling and closing, the time index gets the
     largest timestamp so far.
Not here: the choice of offsets and epochs (log.py), fsync (flush.py), repair (recovery.py).
Source: Kafka's LogSegment; README of the test vectors for the index rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from storage.files.file_system import File, Files, WouldBlock, remove_files, sync_all, sync_paths
from storage.log_config import LogConfig
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain, Link, walk_file
from storage.segment.lazy_index import LazyIndex
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex, TimestampOffset
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX
from storage.segment.verifier import first_fault
from tidelog.errors import TidelogError
from tidelog.records.batches import view
from tidelog.records.v2.fast_paths import follow_chain
from tidelog.records.v2.header import HEADER_BYTES, BatchHeader, peek_header
from tidelog.types import INT32_MAX, NO_TIMESTAMP, Buffer, Millis, Offset

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
"""Files that every segment has."""
ALL_SUFFIXES: Final = (*SUFFIXES, TRANSACTION_INDEX_SUFFIX)
"""Files that a segment may have."""
SEGMENT_FILE: Final = re.compile(r"(?P<base>\d{20})(?P<suffix>\.log|\.index|\.timeindex|\.txnindex)")


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """Kafka's file name: the base offset in 20 digits, and the suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


class SegmentRead(NamedTuple):
    """Complete batches of one segment."""

    records: Buffer
    next_offset: Offset
    """Offset and position of the batch after them."""
    next_position: int
    left: BatchHeader | None
    """If there are no batches: the one that was not read because it is too large or reaches the read bound."""


class BatchPlace(NamedTuple):
    """Byte `position` of a segment, at the start of a batch or at the end. least: the offset after the batch before it,
    0 if unknown."""

    position: int
    least: Offset


def place_of(offset: Offset, headers: Iterable[BatchHeader], least: Offset) -> BatchPlace | None:
    """Start of the first of these batches whose last offset is at or above `offset`, None if there is none. least: the
    offset after the batch before them, 0 if unknown. Raises BrokenChain."""
    for header in headers:
        if header.last_offset >= offset:
            return BatchPlace(header.position, least)
        least = Offset(header.last_offset + 1)
    return None


OPEN_SEGMENTS_MAX: Final = 1_000
"""Per log directory: one descriptor and two mappings each, well below the Linux limit per process (65,530 mappings)."""


class OpenSegments:
    """The closed segments of a log directory that have open files, least recently used first. For the owner's thread.

    A segment without readers needs no descriptor and no mapping. Opening it again takes about 50 µs. Segments with
    bytes that are not durable yet are not among them: after reopening, an fsync through a new descriptor might not
    report an error that the old one would have reported. Handles shared with flushes stay open until released.
    """

    __slots__ = ("_most", "_open")

    def __init__(self, most: int = OPEN_SEGMENTS_MAX) -> None:
        self._most = most
        self._open: dict[LogSegment, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def used(self, segment: LogSegment) -> None:
        """Mark a closed segment as open and just used. May close others."""
        self._open.pop(segment, None)
        self._open[segment] = None
        while len(self._open) > self._most:
            next(iter(self._open)).close()  # close() calls forget()

    def forget(self, segment: LogSegment) -> None:
        """Remove a segment that was closed or accepts appends again."""
        self._open.pop(segment, None)


class LogSegment:
    """One segment. `size`: bytes of its file that belong to the log."""

    __slots__ = (
        "_file",
        "_files",
        "_index",
        "_interval",
        "_max",
        "_open_segments",
        "_preallocated",
        "_since_index",
        "_time_index",
        "_unconfirmed",
        "base_offset",
        "created_ms",
        "directory",
        "first_timestamp",
        "jitter_ms",
        "size",
        "suffix",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: Offset,
        config: LogConfig,
        *,
        created_ms: Millis,
        jitter_ms: int = 0,
        fresh: bool = False,
        suffix: str = "",
    ) -> None:
        """fresh: create the .log file; those of the indexes follow (abstract_index.py). Otherwise the files exist.
        suffix: appended to the file names while the segment is not part of the log. Raises OSError."""
        self._files = files
        self.suffix = suffix
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self._interval = config.index_interval_bytes
        self._since_index = 0
        self._open_segments: OpenSegments | None = None
        self._file: File | None = files.open(self.path, create=True) if fresh else None
        self.size = 0 if fresh else files.size(self.path) or 0
        self._preallocated = fresh and config.preallocate
        if self._preallocated:
            self.file.reserve(config.segment_bytes)
        self.first_timestamp: Millis | None = None
        """Largest timestamp of the first batch: start of the age for rolling. None: not read yet, or no batch."""
        self._max: TimestampOffset | None = None
        self._unconfirmed = False
        """True if `_max` comes from the time index and has not been compared with the log."""
        limit = config.segment_index_bytes
        self._index = LazyIndex(OffsetIndex, files, self._path(INDEX_SUFFIX), base_offset, limit)
        self._time_index = LazyIndex(TimeIndex, files, self._path(TIME_INDEX_SUFFIX), base_offset, limit)
        if fresh:
            self._index.create()
            self._time_index.create()

    @property
    def path(self) -> str:
        return self._path(LOG_SUFFIX)

    def _path(self, kind: str) -> str:
        return segment_path(self.directory, self.base_offset, kind) + self.suffix

    @property
    def file(self) -> File:
        """The .log file, opened at first use. Raises BrokenChain if it is gone, OSError."""
        if self._file is None:
            try:
                self._file = self._files.open(self.path)
            except FileNotFoundError as error:
                raise BrokenChain(0, self.base_offset, f"the file is missing, {self.size} bytes are lost") from error
        if self._open_segments is not None:
            self._open_segments.used(self)
        return self._file

    @property
    def index(self) -> OffsetIndex:
        """The offset index, opened at first use. Raises CorruptIndex, OSError."""
        if self._open_segments is not None:
            self._open_segments.used(self)
        return self._index.get()

    @property
    def time_index(self) -> TimeIndex:
        """The time index, opened at first use. Raises CorruptIndex, OSError."""
        if self._open_segments is not None:
            self._open_segments.used(self)
        return self._time_index.get()

    @property
    def index_entries(self) -> int | None:
        """Number of entries of the offset index. None if it is not open; the file then contains only the entries."""
        return self._index.get().entries if self._index.is_open else None

    @property
    def memory_index(self) -> bytes | None:
        """The entries of the offset index that only the memory has; None if its file has them."""
        return self._index.get().held if self._index.is_open else None

    def shared_file(self) -> File | None:
        """The .log file with one more user, None if it is not open."""
        return None if self._file is None else self._file.share()

    def take_file(self, file: File) -> None:
        """Share this handle of the .log file, if the segment has none."""
        if self._file is None:
            self._file = file.share()
            if self._open_segments is not None:
                self._open_segments.used(self)

    def track_in(self, open_segments: OpenSegments | None) -> None:
        """Let `open_segments` decide when the segment is closed: it is durable and takes no appends. None: it takes
        appends again."""
        if self._open_segments is not None:
            self._open_segments.forget(self)
        self._open_segments = open_segments
        if open_segments is not None and (self._file is not None or self._index.is_open or self._time_index.is_open):
            open_segments.used(self)

    @property
    def largest(self) -> TimestampOffset:
        """Largest timestamp and the last offset of its batch; (-1, base offset) if there is none."""
        if self._max is None:
            self._unconfirmed = True
            self._max = (
                self.time_index.last if self.time_index.entries else TimestampOffset(Millis(-1), self.base_offset)
            )
        return self._max

    def confirm_largest(self) -> TimestampOffset:
        """`largest`, compared once with the log if it came from the time index; rebuilds the indexes if it was wrong.
        Raises CorruptIndex, OSError."""
        largest = self.largest
        if self._unconfirmed:
            self._unconfirmed = False
            with suppress(BrokenChain):  # the log is damaged there: reads of it raise
                if not self._is_largest(largest):
                    self.repair_indexes()
        return self.largest

    def _is_largest(self, largest: TimestampOffset) -> bool:
        """True if a batch has this timestamp and no batch after the last index entry has a larger one."""
        if largest.timestamp >= 0:
            header = self.find(largest.offset)
            if header is None or header.max_timestamp != largest.timestamp:
                return False
        tail = self.walk(self.start_for(self.index.last.offset))
        return all(header.max_timestamp <= largest.timestamp for header in tail)

    # --- append ---------------------------------------------------------------------------------------------------

    def roll_reason(
        self, now: Millis, size: int, max_timestamp: Millis, last_offset: Offset, config: LogConfig
    ) -> str | None:
        """Why the next `size` bytes, which end with `last_offset`, need a new segment; None if this one takes them.
        Source: LogSegment.shouldRoll. Raises BrokenChain, OSError."""
        try:
            index, times = self._index.get(), self._time_index.get()  # without `used`: an active segment is not tracked
        except CorruptIndex:
            index, times = self.ensure_indexes()
        if self.size > config.segment_bytes - size:
            return "segment.bytes is reached"
        if index.is_full or times.is_full:
            return "an index is full (segment.index.bytes)"
        if not index.fits(last_offset):
            return "the next offset is too far from the base offset"
        if self.size and self._age(now, max_timestamp) > config.roll_ms - self.jitter_ms:
            return "segment.ms has passed"
        return None

    def _age(self, now: Millis, max_timestamp: Millis) -> int:
        if self.first_timestamp is None:
            first = peek_header(self.file.pread(HEADER_BYTES, 0))
            self.first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp
        if self.first_timestamp >= 0:
            return max_timestamp - self.first_timestamp
        return now - self.created_ms

    def append(self, buffers: Sequence[Buffer], headers: Sequence[BatchHeader], size: int) -> None:
        """Write batches after the last one. headers: of the stored batches, `size` bytes in total.

        Raises OSError; nothing is appended then.
        """
        position = self.size
        since = self._since_index
        index, times = self._index.get(), self._time_index.get()
        if since + size > self._interval:
            if index.last.offset >= headers[0].last_offset > self.base_offset or not times.takes(*self.largest):
                self.rebuild_indexes()  # the index files were changed from outside
                since, index, times = self._since_index, self._index.get(), self._time_index.get()
            index.reserve_entries(len(headers))
            times.reserve_entries(len(headers))
        file, largest = self.file, self.largest
        try:
            file.pwritev(buffers, position)
            for header in headers:
                if header.max_timestamp > largest.timestamp:
                    largest = TimestampOffset(header.max_timestamp, header.last_offset)
                if since > self._interval:
                    _add_entry(index, times, header.last_offset, position, largest)
                    since = 0
                length = header.size
                position += length
                since += length
        except OSError:
            file.truncate(self.size)
            sync_all([file])  # complete batches of the failed write must not reappear after a crash
            raise
        if self.size == 0:
            self.first_timestamp = headers[0].max_timestamp
        self._max = largest
        self._since_index = since
        self.size = position

    def become_inactive(self) -> None:
        """End appends: add the last time index entry, trim the file and its indexes. Raises OSError, BrokenChain."""
        self.ensure_indexes()
        if self.size:
            largest, times = self.largest, self.time_index
            # It may have more entries than the present segment.index.bytes allows.
            has_no_slot = largest.timestamp > times.last.timestamp and times.entries >= times.max_entries
            if has_no_slot or not times.takes(*largest):
                self.rebuild_indexes()
            if largest.timestamp > self.time_index.last.timestamp:
                self.time_index.reserve_entries(1)
                self.time_index.maybe_append(largest.timestamp, largest.offset, skip_full_check=True)
        if self._preallocated:
            self.file.truncate(self.size)
            self._preallocated = False
        self.trim_indexes()

    def trim_indexes(self) -> None:
        """Truncate the index files to their entries and close them. Raises CorruptIndex, OSError."""
        self._index.trim()
        self._time_index.trim()

    # --- search and read ------------------------------------------------------------------------------------------

    def walk(self, position: int = 0, next_offset: int | None = None) -> Iterator[BatchHeader]:
        """Headers of the batches from byte `position` on. Raises BrokenChain."""
        return walk_file(self.file, position, self.size, self.base_offset if next_offset is None else next_offset)

    def find(self, offset: Offset) -> BatchHeader | None:
        """The first batch whose last offset is at or above `offset`, None if there is none. Raises BrokenChain."""
        for header in self.walk(self.start_for(offset)):
            if header.last_offset >= offset:
                return header
        return None

    def locate(self, offset: Offset) -> BatchPlace | None:
        """Start of the batch that `find` returns. Raises BrokenChain."""
        start = self.start_for(offset)
        return place_of(offset, self.walk(start), Offset(0) if start else self.base_offset)

    def locate_now(self, offset: Offset) -> BatchPlace | None:
        """As `locate`, without waiting for the disk. Raises WouldBlock, BrokenChain, OSError."""
        position = 0
        if offset > self.base_offset:
            if self._open_segments is not None or not self._index.is_open:  # a mapped page may need a disk read, too
                raise WouldBlock
            position = self._index.get().lookup(offset).position
        if self._file is None:
            raise WouldBlock
        if position and not self._ends_below(position, Offset(offset + 1), now=True):
            raise WouldBlock  # the index is wrong
        headers = walk_file(self._file, position, self.size, self.base_offset, now=True)
        return place_of(offset, headers, Offset(0) if position else self.base_offset)

    def end_below(self, offset: Offset) -> Offset:
        """One past the last batch that ends below `offset`; the base offset if there is none. Raises BrokenChain."""
        end = self.base_offset
        for header in self.walk(self.start_for(Offset(offset - 1))):
            if header.last_offset >= offset:
                break
            end = Offset(header.last_offset + 1)
        return end

    def start_for(self, offset: Offset) -> int:
        """Where a search for `offset` starts: a batch at or before it, from the index. Raises BrokenChain, OSError."""
        index, _ = self.ensure_indexes()
        position = index.lookup(offset).position
        if position and not self._ends_below(position, Offset(offset + 1)):
            return self.index.lookup(offset).position if self.repair_indexes() else 0
        return position

    def _ends_below(self, position: int, offset: Offset, *, now: bool = False) -> bool:
        """True if a batch begins at this byte and ends below `offset`; then all batches before it do, too. now: do not
        wait for the disk; raises WouldBlock instead."""
        if not 0 <= position < self.size:
            return False
        pread = self.file.pread_now if now else self.file.pread
        try:
            link = Link(position, self.size, self.base_offset)
            header = link.read(pread(HEADER_BYTES, position), 0)
        except BrokenChain:
            return False
        return header is not None and header.last_offset < offset

    def repair_indexes(self) -> bool:
        """Rebuild the indexes after a contradiction between log and index, if the batches of the log are consistent.
        Returns False if the log is damaged; reads at the damage then raise. Raises OSError."""
        try:
            for header in self.walk():
                if header.last_offset - self.base_offset > INT32_MAX:
                    return False
            self._rebuild_durably()
        except BrokenChain:
            return False
        return True

    def check_from(self, offset: Offset) -> BrokenChain | None:
        """Read and check everything from the last index entry below `offset` on. Returns the first break, or None.
        Raises OSError."""
        try:
            return first_fault(self.file, Link(self.start_for(Offset(offset - 1)), self.size, self.base_offset))
        except BrokenChain as broken:  # the file is missing, or its index cannot be rebuilt
            return broken

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        up_to: Offset,
        *,
        min_one: bool,
        at: BatchPlace | None,
        wait: bool = True,
        data: Buffer | None = None,
    ) -> SegmentRead | None:
        """Complete batches from the one that contains `offset` on, up to the first one that reaches `up_to`.

        max_bytes: upper limit, but with `min_one` at least one batch is returned. The header after the batches is
        checked as well, because no checksum covers base offsets. at: start of the first batch, if known. wait: wait for
        the disk; if False, raises WouldBlock instead of waiting. data: bytes at that position, if already read. Returns
        None if the segment has nothing at or above `offset`. Raises BrokenChain, OSError.
        """
        place = at or (self.locate(offset) if wait else self.locate_now(offset))
        if place is None or place.position >= self.size:
            return None
        position, rest = place.position, self.size - place.position
        read_size = min(max(max_bytes, HEADER_BYTES) + HEADER_BYTES, rest)
        if data is None:
            if not wait and self._file is None:
                raise WouldBlock
            pread = self.file.pread if wait else self.file.pread_now
            data = pread(read_size, position)
        link = Link(position, self.size if len(data) >= read_size else self._present_size(), place.least)
        end, next_offset, left = _whole_batches(data, link, offset, up_to, max_bytes)
        if left is not None and min_one and left.last_offset < up_to:
            read_size = min(left.size + HEADER_BYTES, rest)
            if read_size > len(data):
                data = self.file.pread(read_size, position) if wait else self.file.pread_now(read_size, position)
            if read_size > len(data):
                link = link._replace(end=self._present_size())
            end, next_offset, left = _whole_batches(data, link, offset, up_to, left.size)
        records: Buffer = data if end == len(data) else memoryview(data)[:end]
        return SegmentRead(records, next_offset, position + end, left)

    def _present_size(self) -> int:
        """The bytes of the segment that the file still has: fewer than `size` if it was truncated from outside."""
        return min(self.size, self.file.size())

    # --- truncate and repair --------------------------------------------------------------------------------------

    def truncation_position(self, offset: Offset) -> int:
        """Size of the file after a truncation to `offset`: no batch reaches `offset`, and no bytes that recovery found
        damaged remain after the last batch. Raises OSError, BrokenChain."""
        first_removed = self.find(offset)
        return self.size if first_removed is None else first_removed.position

    def was_truncated(self, offset: Offset, position: int) -> None:
        """Truncate the indexes after the file (`truncation_position`). Raises OSError, BrokenChain."""
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.size = position
        self._since_index = 0
        self.first_timestamp = None
        self._max = None
        try:
            self.check_tail()
        except (BrokenChain, CorruptIndex):  # truncated or invalid entries
            self.rebuild_indexes()

    def check_tail(self) -> Offset:
        """Walk from the last index entry to the end of the file, and update the largest timestamp. A start after a
        clean stop reads no more. Returns the next offset.

        Raises BrokenChain or CorruptIndex if file and indexes contradict each other.
        """
        start = self.index.last.position if self.index.entries else 0
        if start and start >= self.size:
            raise CorruptIndex(f"{self.index.path} points at byte {start}, but the file has {self.size} bytes")
        largest, next_offset = self.largest, self.base_offset
        if start and not self._ends_below(start, Offset(self.index.last.offset + 1)):
            raise CorruptIndex(f"{self.index.path} ends with {tuple(self.index.last)}, but the log has no such batch")
        for header in self.walk(start):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
            next_offset = Offset(header.last_offset + 1)
        if start and self.index.last.offset >= next_offset:
            raise CorruptIndex(
                f"{self.index.path} points at offset {self.index.last.offset}, but the log ends at {next_offset}"
            )
        if largest.offset >= next_offset and self.time_index.entries:
            raise CorruptIndex(
                f"{self.time_index.path} points at offset {largest.offset}, but the log ends at {next_offset}"
            )
        self._max = largest
        return next_offset

    def ensure_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes, opened; rebuilt if they are invalid. Raises BrokenChain, OSError."""
        try:
            return self.index, self.time_index
        except CorruptIndex:
            self._rebuild_durably()
        return self.index, self.time_index

    def _rebuild_durably(self) -> None:
        self.rebuild_indexes()
        self.trim_indexes()
        self.sync_indexes()

    def sync_indexes(self) -> None:
        """Sync indexes that no flush syncs, and their names: a time index entry zeroed by a crash looks valid, and so
        does a missing time index beside an offset index. Raises OSError."""
        sync_paths(self._files, [self._path(INDEX_SUFFIX), self._path(TIME_INDEX_SUFFIX)])
        self._files.sync_directory(self.directory)

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batch headers. Raises BrokenChain, OSError."""
        self.start_rebuild()
        next_offset = self.base_offset
        for header in self.walk():
            if header.last_offset - self.base_offset > INT32_MAX:
                reason = f"offset {header.last_offset} is too far from the segment's base offset {self.base_offset}"
                raise BrokenChain(header.position, next_offset, reason)
            self.index_batch(header, header.position)
            next_offset = Offset(header.last_offset + 1)

    def start_rebuild(self) -> None:
        """Clear both indexes; `index_batch` then fills them batch by batch."""
        self._index.create()
        self._time_index.create()
        self._max = TimestampOffset(Millis(-1), self.base_offset)
        self._since_index = 0
        self.first_timestamp = None

    def index_batch(self, header: BatchHeader, position: int) -> None:
        """Add the index entries for a batch that is in the file already, as its append did."""
        if position == 0:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.largest.timestamp:
            self._max = TimestampOffset(header.max_timestamp, header.last_offset)
        if self._since_index > self._interval:
            index, times = self._index.get(), self._time_index.get()
            index.reserve_entries(1)
            times.reserve_entries(1)
            _add_entry(index, times, header.last_offset, position, self.largest)
            self._since_index = 0
        self._since_index += header.size

    def close(self) -> None:
        """Close files and mappings. A segment that accepts no appends reopens them at its next use."""
        self._index.release()
        self._time_index.release()
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._open_segments is not None:
            self._open_segments.forget(self)

    def remove(self) -> None:
        """Remove the segment's files, the .log file last: after a crash the remaining files still form a segment."""
        self.close()
        remove_files(self._files, map(self._path, reversed(ALL_SUFFIXES)))

    def rename(self, suffix: str) -> list[str]:
        """Change the suffix of the segment's files; "" makes them part of the log. Shared handles stay valid; the
        segment reopens its files. Returns the new paths. Raises OSError.

        The .log file is renamed first on the way into the log and last on the way out: after a crash there may be a
        .log file without indexes, never indexes without a .log file.
        """
        self.close()
        renamed = []
        for kind in ALL_SUFFIXES if suffix == "" else reversed(ALL_SUFFIXES):
            path = segment_path(self.directory, self.base_offset, kind)
            if self._files.size(path + self.suffix) is not None:
                self._files.rename(path + self.suffix, path + suffix)
                renamed.append(path + suffix)
        self.suffix = suffix
        self._index.path, self._time_index.path = self._path(INDEX_SUFFIX), self._path(TIME_INDEX_SUFFIX)
        return renamed

    def take_indexes(self, other: LogSegment) -> None:
        """Replace the indexes with those of `other`, built from the same bytes under another suffix. Raises OSError."""
        self._index.release()
        self._time_index.release()
        for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._files.rename(other._path(kind), self._path(kind))
        self._max = None


def _add_entry(
    index: OffsetIndex, times: TimeIndex, last_offset: Offset, position: int, largest: TimestampOffset
) -> None:
    """Add an entry to both indexes. Full indexes get no entry; this may happen within one append of many batches.
    Lookups then walk further."""
    if not index.is_full and not times.is_full:
        index.append(last_offset, position)
        times.maybe_append(largest.timestamp, largest.offset)


def _whole_batches(
    data: Buffer, link: Link, offset: Offset, up_to: Offset, max_bytes: int
) -> tuple[int, Offset, BatchHeader | None]:
    """Find the complete batches below `up_to` in `data`, which starts at the chain's current position.

    Returns their length in bytes, the offset after them, and, if there is none, the next batch. Checks the chain of
    headers. Raises BrokenChain.
    """
    at, next_offset = link.position, offset
    before, link = (link.at(place) for place in follow_chain(data, max_bytes, link.next_offset, up_to))
    if link.position > at:
        next_offset = Offset(link.next_offset)
    while link.position == at or link.position - at < len(data):  # older formats, and the end of the chain
        try:
            header = link.read(data, link.position - at)
        except BrokenChain:
            if link.position == at or not _leads_on(data, at, before):
                link = before
                if link.position == at:
                    raise
                next_offset = Offset(link.next_offset)
            break  # the batches before it are valid; the next read raises
        if header is None:
            if link.position == at:
                raise link.broken(f"only {len(data)} bytes are left, less than a batch header")
            break
        if header.last_offset >= up_to or link.position - at + header.size > max_bytes:
            return link.position - at, next_offset, header if link.position == at else None
        before, link = link, link.behind(header)
        next_offset = Offset(link.next_offset)
    return link.position - at, next_offset, None


def _leads_on(data: Buffer, at: int, link: Link) -> bool:
    """Whether the batch at `link`, after which the chain breaks, is itself valid. Its checksum does not cover its base
    offset, so a gap in the offsets before it counts as invalid. In formats v0 and v1 that is the offset of the message;
    what a compressed set holds says where it begins and ends."""
    header = link.read(data, link.position - at)
    assert header is not None, "it was read before"
    batch = view(data, header._replace(position=link.position - at))
    try:
        batch.ensure_valid()
        if header.magic == 2:
            first, last = header.base_offset, header.last_offset
        else:
            offsets = [record.offset for record in batch.records()]
            first, last = offsets[0], offsets[-1]
    except TidelogError:
        return False
    return first <= link.next_offset and last == header.last_offset
