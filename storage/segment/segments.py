"""The segments of one log, ordered by base offset: lookup by offset, creation of the next one, removal and replacement.

Invariants: the list and the directory contain the same segments. A new segment is created completely or not at all.
Files in its way are removed if they are empty, and otherwise renamed with the suffix `.stray`.
Not here: when to roll (log.py), syncing of names (flush.py). Source: Kafka's LogSegments and LocalLog.roll.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, overload

from storage.files.file_system import Files, remove_files
from storage.log_config import LogConfig
from storage.segment.segment import ALL_SUFFIXES, LogSegment, OpenSegments, segment_path
from tidelog.types import Millis, Offset

STRAY_SUFFIX: Final = ".stray"
"""Suffix of a file that belongs to no segment."""
CLEANED_SUFFIX: Final = ".cleaned"
"""Suffix of the files of a segment that a cleaning round is writing."""
SWAP_SUFFIX: Final = ".swap"
"""Suffix of the files of a durable cleaned segment that is replacing its sources."""
DELETED_SUFFIX: Final = ".deleted"
"""Suffix of segment files that are no longer part of the log and wait for removal."""


def make_segment(
    files: Files,
    directory: str,
    base: Offset,
    config: LogConfig,
    rng: random.Random,
    now: Millis,
    *,
    fresh: bool = False,
) -> LogSegment:
    """A segment with its own jitter. fresh: create its files. Raises OSError."""
    span = min(config.segment_jitter_ms, config.segment_ms)
    jitter = rng.randrange(span) if span else 0
    return LogSegment(files, directory, base, config, created_ms=now, jitter_ms=jitter, fresh=fresh)


def set_aside(files: Files, path: str) -> str:
    """Rename a file to a stray file that no lookup finds. Returns the new path. Raises OSError."""
    aside = path + STRAY_SUFFIX
    files.rename(path, aside)
    return aside


class LogSegments(Sequence[LogSegment]):
    """An ordered collection of at least one segment; empty only while a log is being emptied."""

    __slots__ = ("_bases", "_directory", "_files", "_open_segments", "_rng", "_segments")

    def __init__(
        self,
        files: Files,
        directory: str,
        rng: random.Random,
        segments: Sequence[LogSegment],
        open_segments: OpenSegments,
    ) -> None:
        """open_segments: decides which closed segments stay open."""
        self._files, self._directory, self._rng, self._open_segments = files, directory, rng, open_segments
        self._segments = list(segments)
        self.keep_open(self._segments[:-1])
        self._bases: list[int] = [segment.base_offset for segment in segments]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> LogSegment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LogSegment]: ...
    def __getitem__(self, index: int | slice) -> LogSegment | Sequence[LogSegment]:
        return self._segments[index]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    @property
    def all(self) -> Sequence[LogSegment]:
        """All segments, oldest first; must not be modified."""
        return self._segments

    def from_offset(self, offset: int) -> Sequence[LogSegment]:
        """The segment that contains `offset`, and the later ones."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def last_below(self, offset: int) -> LogSegment:
        """The last segment of a log that ends at `offset`."""
        return self._segments[max(bisect_left(self._bases, offset) - 1, 0)]

    def add(self, base: Offset, config: LogConfig, now: Millis) -> tuple[LogSegment, list[str]]:
        """Create a segment after the last one and close the last one for appends. Returns the new one, and notes about
        files in its way.

        Raises OSError; the last segment stays active then.
        """
        notes = self._free_names(base)
        try:
            segment = make_segment(self._files, self._directory, base, config, self._rng, now, fresh=True)
            if self._segments:
                self._segments[-1].become_inactive()
        except OSError:
            self._take_back(base)
            raise
        self._segments.append(segment)
        self._bases.append(base)
        return segment, notes

    def _take_back(self, base: Offset) -> None:
        """Remove the files of a segment that could not be created. Durably: the last segment takes further appends, and
        after a power loss an empty file with a base offset below their end would take the next ones."""
        if remove_files(self._files, [segment_path(self._directory, base, suffix) for suffix in ALL_SUFFIXES]):
            self._files.sync_directory(self._directory)

    def keep_open(self, closed: Iterable[LogSegment]) -> None:
        """Let these segments be closed and reopened when needed: they are durable and take no appends."""
        for segment in closed:
            if segment is not self._segments[-1]:
                segment.track_in(self._open_segments)

    def _free_names(self, base: int) -> list[str]:
        notes = []
        for suffix in ALL_SUFFIXES:
            path = segment_path(self._directory, base, suffix)
            size = self._files.size(path)
            if size == 0:
                self._files.remove(path)
            elif size is not None:
                notes.append(f"{path} was in the way of a new segment: renamed to {set_aside(self._files, path)}")
        return notes

    def behind(self, segment: LogSegment) -> Sequence[LogSegment]:
        return self._segments[bisect_right(self._bases, segment.base_offset) :]

    def end_of(self, segment: LogSegment, log_end: Offset) -> Offset:
        """Base offset of the next segment, the log end for the last one: all batches of the segment end below it."""
        behind = bisect_right(self._bases, segment.base_offset)
        return Offset(self._bases[behind]) if behind < len(self._bases) else log_end

    def drop_behind(self, segment: LogSegment | None) -> None:
        """Remove from the list the segments after this one, whose files are gone; all segments for None."""
        while self._segments and self._segments[-1] is not segment:
            self._segments.pop().close()
            self._bases.pop()
        if segment is not None:
            segment.track_in(None)

    def begin(self, base: Offset, config: LogConfig, now: Millis) -> None:
        """Create the only segment of an emptied log; its .log file may exist. Raises OSError."""
        assert not self._segments, "the log is not empty"
        self._segments.append(make_segment(self._files, self._directory, base, config, self._rng, now, fresh=True))
        self._bases.append(base)

    def remove_behind(self, segment: LogSegment) -> None:
        """Remove the segments after this one and their files, the last first. Raises OSError."""
        while self._segments[-1] is not segment:
            self._segments[-1].remove()
            self._segments.pop()
            self._bases.pop()
        segment.track_in(None)

    def take_first(self, count: int) -> list[LogSegment]:
        """Remove the oldest segments from the list and close them; their files stay."""
        taken = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        for segment in taken:
            segment.close()
        return taken

    def replace(self, old: Sequence[LogSegment], cleaned: LogSegment) -> list[str]:
        """Replace the segments `old` with the cleaned segment built from them, which is durable as `.cleaned`. Returns
        the new paths of the old files. Raises OSError; the next start then finishes or reverts the replacement.

        Each step syncs the directory: whatever names survive a crash, the old segments exist until the new one does.
        """
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == list(old), "the cleaned segments have left the log"
        cleaned.rename(SWAP_SUFFIX)
        self._files.sync_directory(self._directory)
        dropped = [path for segment in old for path in segment.rename(DELETED_SUFFIX)]
        self._files.sync_directory(self._directory)
        cleaned.rename("")
        self._files.sync_directory(self._directory)
        self._segments[first : first + len(old)] = [cleaned]
        self.keep_open([cleaned])
        self._bases[first : first + len(old)] = [cleaned.base_offset]
        return dropped

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
