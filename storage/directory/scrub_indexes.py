"""The indexes of a closed segment, compared with its batches while the scrub reads them.

An entry of `.index` must point at a batch where lookups may start (older Kafka versions store the last offset of an
append of several batches with the byte of the first one). An entry of `.timeindex` must hold the largest timestamp so
far, and the last entry that of the segment. An entry of `.txnindex` must name an abort marker of its producer. Which
markers must have an entry depends on the producer state (aborted_transactions.py).

Not here: reading the batches, repairing the indexes (scrub_segment.py).
"""

from __future__ import annotations

from storage.files.file_system import Files, read_file
from storage.segment.index_errors import CorruptIndex
from storage.segment.offset_index import OffsetIndex
from storage.segment.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment, segment_path
from storage.segment.time_index import TimeIndex
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX, TransactionIndex
from tidelog.errors import TidelogError
from tidelog.records import EndTxnMarker, decode_control
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.header import BatchHeader
from tidelog.types import Offset


class TransactionCheck:
    """The aborted transactions in a segment's `.txnindex`."""

    def __init__(self, files: Files, segment: LogSegment, end_offset: Offset, *, cleaned: bool) -> None:
        """end_offset: base offset of the next segment. cleaned: compaction may have removed markers. Raises OSError."""
        path = segment_path(segment.directory, segment.base_offset, TRANSACTION_INDEX_SUFFIX)
        index = TransactionIndex(files, path, segment.base_offset)
        self._base, self._end, self._cleaned = segment.base_offset, end_offset, cleaned
        self._markers: set[tuple[int, int]] = set()
        self._broken: str | None = None
        try:
            self._entries = tuple(index.entries)
        except CorruptIndex as error:
            self._entries, self._broken = (), str(error)

    def take(self, batch: RecordBatch) -> None:
        """Add the next batch."""
        if not self._entries or not batch.is_control:
            return
        for record in batch.record_list():
            try:
                marker = decode_control(record)
            except TidelogError:
                continue
            if isinstance(marker, EndTxnMarker) and not marker.committed:
                self._markers.add((batch.producer_id, record.offset))

    def wrong(self) -> str | None:
        """The error after all batches were added; None if there is none."""
        if self._broken is not None:
            return self._broken
        last = int(self._base) - 1
        for entry in self._entries:
            told = f"the aborted transaction of producer {entry.producer_id} at {entry.first_offset}"
            if not last < entry.last_offset < self._end or entry.first_offset > entry.last_offset:
                return f"{told} ends at offset {entry.last_offset}, not after the previous one or not in this segment"
            if not self._cleaned and (entry.producer_id, entry.last_offset) not in self._markers:
                return f"{told} has no marker at offset {entry.last_offset}"
            last = entry.last_offset
        return None


class IndexCheck:
    """Both index files of a segment, compared with its batches."""

    def __init__(self, files: Files, segment: LogSegment, size: int) -> None:
        base, directory = segment.base_offset, segment.directory
        offsets = read_file(files, segment_path(directory, base, INDEX_SUFFIX)) or b""
        times = read_file(files, segment_path(directory, base, TIME_INDEX_SUFFIX)) or b""
        self._base, self._size = base, size
        self._offsets = list(OffsetIndex.ENTRY.iter_unpack(offsets[: len(offsets) // 8 * 8]))
        self._times = list(TimeIndex.ENTRY.iter_unpack(times[: len(times) // 12 * 12]))
        self._next_offset = self._next_time = 0
        self._wrong_offset = self._cut(offsets, OffsetIndex.ENTRY.size)
        self._wrong_time = self._cut(times, TimeIndex.ENTRY.size)
        self._last = self._last_entry = base - 1
        self._largest = -1

    @staticmethod
    def _cut(data: bytes, entry_bytes: int) -> tuple[str, int] | None:
        left = len(data) % entry_bytes
        return (f"{left} bytes follow the last whole entry", len(data) - left) if left else None

    def take(self, header: BatchHeader) -> None:
        """Add the next batch."""
        if self._next_offset < len(self._offsets):
            self._take_offset(header)
        largest = max(self._largest, header.max_timestamp)
        if self._next_time < len(self._times):
            self._take_time(header, largest)
        self._last, self._largest = header.last_offset, largest

    def _take_offset(self, header: BatchHeader) -> None:
        relative, position = self._offsets[self._next_offset]
        if position > header.position:
            return
        offset, at = self._base + relative, self._next_offset * OffsetIndex.ENTRY.size
        self._next_offset += 1
        if position < header.position or position == 0:
            self._wrong_offset = self._wrong_offset or (
                f"the entry points at byte {position}, where no batch begins",
                at,
            )
        elif offset <= self._last:
            reason = f"offset {offset} is before byte {position}, which the entry points at"
            self._wrong_offset = self._wrong_offset or (reason, at)
        elif offset <= self._last_entry:
            reason = f"offset {offset} is not above {self._last_entry}, the offset of the previous entry"
            self._wrong_offset = self._wrong_offset or (reason, at)
        self._last_entry = offset

    def _take_time(self, header: BatchHeader, largest: int) -> None:
        while self._next_time < len(self._times):
            timestamp, relative = self._times[self._next_time]
            offset = self._base + relative
            if offset > header.last_offset:
                return
            if (
                offset <= self._last
                or timestamp != largest
                or (self._next_time and timestamp <= self._times[self._next_time - 1][0])
            ):
                reason = f"it has {timestamp} for offset {offset}, but the largest timestamp up to there is {largest}"
                at = self._next_time * TimeIndex.ENTRY.size
                self._wrong_time = self._wrong_time or (reason, at)
            self._next_time += 1

    def wrong(self) -> list[tuple[str, tuple[str, int]]]:
        """The errors after all batches were added: the file's suffix, the reason and the byte."""
        found = []
        if self._wrong_offset is None and self._next_offset < len(self._offsets):
            position = self._offsets[self._next_offset][1]
            reason = f"it points at byte {position}, but the segment has {self._size} bytes"
            self._wrong_offset = (reason, self._next_offset * OffsetIndex.ENTRY.size)
        if self._wrong_offset is None and self._last_entry > self._last:
            reason = f"it points at offset {self._last_entry}, but the last offset of the segment is {self._last}"
            self._wrong_offset = (reason, (self._next_offset - 1) * OffsetIndex.ENTRY.size)
        if self._wrong_time is None and self._next_time < len(self._times):
            reason = "it points at an offset after the last one of the segment"
            self._wrong_time = (reason, self._next_time * TimeIndex.ENTRY.size)
        if (
            self._wrong_time is None
            and self._largest >= 0
            and (self._times[-1][0] if self._times else -1) != self._largest
        ):
            reason = f"the largest timestamp of the segment, {self._largest}, is missing at its end"
            self._wrong_time = (reason, len(self._times) * TimeIndex.ENTRY.size)
        if self._wrong_offset is not None:
            found.append((INDEX_SUFFIX, self._wrong_offset))
        if self._wrong_time is not None:
            found.append((TIME_INDEX_SUFFIX, self._wrong_time))
        return found
