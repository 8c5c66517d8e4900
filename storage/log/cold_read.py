"""Reads that the page cache cannot serve: prepared on the owner's thread, run on any thread, checked on the owner's.

Invariants:
  1. A ticket reads through its own file handles and changes nothing: it repairs no index and writes no file. Meanwhile
     the owner may roll, truncate, clean, delete and close the log.
  2. The result is used only if no segment was truncated, replaced or removed since (`generation`). Then the bytes are
     still part of the log. Only the owner checks their chain of batches and decides what a reader may see.
Not here: when a read may wait (log.py), on which thread it runs (node/), how errors are handled (log.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing
from typing import Final, TypeAlias

from storage.files.file_system import File, Files
from storage.producers.aborted_transactions import AbortedTransactions, Transactions, read_transactions
from storage.segment.batch_walk import Link, walk_file
from storage.segment.offset_index import OffsetIndex
from storage.segment.segment import INDEX_SUFFIX, BatchPlace, LogSegment, place_of, segment_path
from storage.segment.segment_bytes import SegmentBytes
from tidelog.records.v2.header import HEADER_BYTES, peek_header
from tidelog.types import Buffer, Offset

_ENTRY: Final = OffsetIndex.ENTRY


class BytesRead:
    """The bytes of a segment, starting with the batch that contains `offset`. After `run`: `segment` contains that
    batch, and no earlier segment does; `at` is where the batch begins, None if there is none; `data` holds the
    bytes."""

    def __init__(
        self,
        files: Files,
        segment: LogSegment,
        behind: LogSegment | None,
        offset: Offset,
        at: BatchPlace | None,
        max_bytes: int,
        generation: int,
    ) -> None:
        """at: where the batch begins, None if unknown. behind: the next segment with batches, or None. The read starts
        there if compaction has removed everything from `offset` on from the first segment."""
        self.segment, self.offset, self.at, self.generation = segment, offset, at, generation
        self.file: File | None = segment.shared_file()
        self.data: Buffer = b""
        self._files, self._path, self._size, self._max_bytes = files, segment.path, segment.size, max_bytes
        self._base, self._entries, self._memory_index = segment.base_offset, segment.index_entries, segment.memory_index
        self._index_path = segment_path(segment.directory, segment.base_offset, INDEX_SUFFIX)
        self._behind = None if behind is None else (behind, behind.path, behind.size)

    def run(self) -> None:
        if self.file is None:
            self.file = self._files.open(self._path)
        if self.at is None:
            self.at = self._find(self.file)
        if self.at is None and self._behind is not None:
            self.release()
            self.segment, self._path, self._size = self._behind
            self.file = self._files.open(self._path)
            self.at = BatchPlace(0, self.segment.base_offset)
        if self.at is not None:
            assert self.file is not None
            self.data = self._read(self.file, self.at.position)

    def _find(self, file: File) -> BatchPlace | None:
        start = self._start(file)
        return place_of(self.offset, walk_file(file, start, self._size, self._base), Offset(0) if start else self._base)

    def _start(self, file: File) -> int:
        """The byte where the search begins, from the index. Raises BrokenChain if the index entry does not point at a
        matching batch: the owner then repairs the index."""
        entries = self._memory_index if self._memory_index is not None else self._read_index()
        slots = range(len(entries) // _ENTRY.size)
        slot = bisect_right(
            slots, self.offset - self._base, key=lambda slot: _ENTRY.unpack_from(entries, slot * _ENTRY.size)[0]
        )
        if slot == 0:
            return 0
        position: int = _ENTRY.unpack_from(entries, (slot - 1) * _ENTRY.size)[1]
        link = Link(position, self._size, self._base)
        header = link.read(file.pread(HEADER_BYTES, position), 0) if 0 < position < self._size else None
        if header is None or header.last_offset > self.offset:
            raise link.broken(
                f"{self._index_path} points there for offset {self.offset}, but no matching batch begins there"
            )
        return position

    def _read_index(self) -> bytes:
        with closing(self._files.open(self._index_path, read_only=True)) as index:
            count = index.size() // _ENTRY.size if self._entries is None else self._entries
            return index.pread(count * _ENTRY.size, 0)

    def _read(self, file: File, at: int) -> Buffer:
        rest = self._size - at
        data = file.pread(min(max(self._max_bytes, HEADER_BYTES) + HEADER_BYTES, rest), at)
        first = peek_header(data)
        if first is not None and first.size <= rest:  # at least one batch, however large, and the next header
            size = min(first.size + HEADER_BYTES, rest)
            data = data if len(data) >= size else file.pread(size, at)
        return data

    def release(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


class TransactionsRead:
    """The transaction data in the batches of a segment. Not read if an earlier incarnation recorded it and the segment
    is unchanged (`AbortedTransactions.recall`)."""

    def __init__(
        self, files: Files, directory: str, segments: Sequence[LogSegment], segment: LogSegment, generation: int
    ) -> None:
        """segments: the log's segments up to and including this one."""
        self.segment, self.size, self.generation = segment, segment.size, generation
        self.found: Transactions | None = None
        self.end = segment.base_offset
        """The offset after the last batch of the segment."""
        self._files, self._directory = files, directory
        self._segments = [SegmentBytes(files, each) for each in segments]

    def run(self) -> None:
        own = self._segments[-1]
        try:
            if not AbortedTransactions(self._files, self._directory).recall(own):
                self.found = read_transactions(self._files, self._directory, self._segments, own)
                self.end = own.reached
        finally:
            for segment in self._segments:
                segment.close()

    def release(self) -> None:
        """Nothing to release."""


ReadTicket: TypeAlias = BytesRead | TransactionsRead
"""A read from the disk that a log needs before it can answer. `run` it once, on any thread: it raises OSError,
BrokenChain, CorruptIndex. Then pass the ticket to the log, and `release` it."""
