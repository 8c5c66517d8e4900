"""What producers had done up to where a log was cut: read anew from snapshots and batches, on any thread.

Kept true: only files are read, by handles of its own; what the indexes say, which belong to the owner, is asked before.
Left to others: the cut (log_cut.py), what the state is for (log_producers.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from storage.batch_walk import walk_file
from storage.files import File, Files
from storage.producer_recovery import Replayed, rebuild
from storage.producer_state import ProducerStateManager
from storage.segment import LogSegment
from tidelog.records.header import BatchHeader
from tidelog.types import Millis, Offset


class SegmentBytes:
    """A segment's .log file, up to `size`."""

    __slots__ = ("_file", "_files", "_places", "base_offset", "path", "size")

    def __init__(self, files: Files, segment: LogSegment) -> None:
        self._files, self.path, self.base_offset, self.size = files, segment.path, segment.base_offset, segment.size
        self._file: File | None = None
        self._places: list[tuple[Offset, int]] = []

    def note(self, offset: Offset, position: int) -> None:
        """A search for `offset` may begin at this byte."""
        self._places.append((offset, position))

    @property
    def file(self) -> File:
        """The file, opened at first use."""
        if self._file is None:
            self._file = self._files.open(self.path, read_only=True)
        return self._file

    def start_for(self, offset: Offset) -> int:
        """Where to begin a search: at the last place known to lie before it."""
        return max((position for known, position in self._places if known <= offset), default=0)

    def walk(self, position: int = 0) -> Iterator[BatchHeader]:
        """Headers of the batches from byte `position` on. Raises BrokenChain, OSError."""
        return walk_file(self.file, position, self.size, self.base_offset)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class ProducersAfterCut:
    """Made on the owner's thread, read on any, then taken over by the log (`state`, `replayed`)."""

    def __init__(
        self,
        files: Files,
        folder: str,
        expiration_ms: int,
        segments: Sequence[LogSegment],
        *,
        last_size: int,
        snapshots: Sequence[Offset],
        log_start: Offset,
        log_end: Offset,
        high_watermark: Offset,
        now: Millis,
    ) -> None:
        """segments: those that stay, the last one cut to `last_size` bytes. snapshots: where the reading may begin.
        high_watermark: not above `log_end`. Raises BrokenChain, OSError."""
        self._files, self._folder, self._expiration_ms = files, folder, expiration_ms
        self._segments = [SegmentBytes(files, each) for each in segments]
        self._segments[-1].size = last_size
        bases = [segment.base_offset for segment in segments]
        for start in (log_start, *snapshots):
            holder = bisect_right(bases, start) - 1
            if holder >= 0 and bases[holder] < start <= log_end:
                self._segments[holder].note(start, segments[holder].start_for(start))
        self._log_start, self._high_watermark, self._now = log_start, high_watermark, now
        self.log_end = log_end
        self.last_base = segments[-1].base_offset
        self.state: ProducerStateManager | None = None
        self.replayed = Replayed([], [])

    def read(self) -> None:
        """The log ends at `log_end` now, its snapshots not above. Raises OSError."""
        self.state = ProducerStateManager(self._files, self._folder, self._expiration_ms)
        try:
            self.replayed = rebuild(
                self.state,
                self._segments,
                log_start=self._log_start,
                log_end=self.log_end,
                high_watermark=self._high_watermark,
                now=self._now,
            )
        finally:
            for segment in self._segments:
                segment.close()
