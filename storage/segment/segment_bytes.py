"""The batches of a segment, for a walk on any thread. It does not use the segment's indexes and handles, which belong
to the owner's thread.

Not here: the use of the batches (producer_replay.py). The caller ensures that the file is not renamed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from storage.files.file_system import File, Files
from storage.segment.batch_walk import walk_file
from storage.segment.segment import LogSegment
from tidelog.records.v2.header import BatchHeader
from tidelog.types import Offset


class SegmentBytes:
    """A segment's .log file, up to `size`."""

    __slots__ = ("_file", "_files", "_places", "base_offset", "path", "reached", "size")

    def __init__(self, files: Files, segment: LogSegment) -> None:
        self._files, self.path, self.base_offset, self.size = files, segment.path, segment.base_offset, segment.size
        self._file: File | None = None
        self._places: list[tuple[Offset, int]] = []
        self.reached = segment.base_offset
        """The offset after the last batch that a walk has read."""

    def note(self, offset: Offset, position: int) -> None:
        """A search for `offset` may start at byte `position`."""
        self._places.append((offset, position))

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, read_only=True)
        return self._file

    def start_for(self, offset: Offset) -> int:
        """Start of a search: the last known position before `offset`."""
        return max((position for known, position in self._places if known <= offset), default=0)

    def walk(self, position: int = 0) -> Iterator[BatchHeader]:
        """Headers of the batches from byte `position` on. Raises BrokenChain, OSError."""
        for header in walk_file(self.file, position, self.size, self.base_offset):
            self.reached = Offset(header.last_offset + 1)
            yield header

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
