"""The segments of one log, by base offset: which one holds an offset, the next one's birth, removal from the end.

Kept true: the list and the directory name the same segments; a new segment is there whole or not at all; files that are
in the way of a new one are replaced where they are empty, and set aside where they are not.
Left to others: when to roll (log.py), syncing names (flush.py). Source: Kafka's LogSegments and LocalLog.roll.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from storage.config import LogConfig
from storage.files.file_system import Files
from storage.segment.open_segments import OpenSegments
from storage.segment.segment import ALL_SUFFIXES, LogSegment, segment_path
from tidelog.types import Millis, Offset

STRAY_SUFFIX: Final = ".stray"
"""Behind the name of a file that fits nowhere."""
CLEANED_SUFFIX: Final = ".cleaned"
"""Behind the names of a segment that cleaning is writing."""
SWAP_SUFFIX: Final = ".swap"
"""Behind the names of a cleaned segment that is durable and takes its place in the log now."""
DELETED_SUFFIX: Final = ".deleted"
"""Behind the names of a segment's files that are no part of the log any more, until they are removed."""


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
    """A segment with its own jitter. fresh: make its files. Raises OSError."""
    span = min(config.segment_jitter_ms, config.segment_ms)
    jitter = rng.randrange(span) if span else 0
    return LogSegment(files, directory, base, config, created_ms=now, jitter_ms=jitter, fresh=fresh)


def set_aside(files: Files, path: str) -> str:
    """Give a file a name under which nothing looks for it, and return that. Raises OSError."""
    aside = path + STRAY_SUFFIX
    files.rename(path, aside)
    return aside


class LogSegments:
    """An ordered collection of at least one segment, but for moments while a log is emptied."""

    __slots__ = ("_bases", "_directory", "_files", "_keeper", "_rng", "_segments")

    def __init__(
        self, files: Files, directory: str, rng: random.Random, segments: Sequence[LogSegment], keeper: OpenSegments
    ) -> None:
        """keeper: decides which of the closed ones stay open."""
        self._files, self._directory, self._rng, self._keeper = files, directory, rng, keeper
        self._segments = list(segments)
        self.keep_open(self._segments[:-1])
        self._bases: list[int] = [segment.base_offset for segment in segments]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> LogSegment:
        """The oldest one."""
        return self._segments[0]

    @property
    def active(self) -> LogSegment:
        """The one that is appended to."""
        return self._segments[-1]

    @property
    def all(self) -> Sequence[LogSegment]:
        """All of them, oldest first; not to be changed."""
        return self._segments

    def from_offset(self, offset: int) -> Sequence[LogSegment]:
        """The segment that holds `offset`, and those behind it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def last_below(self, offset: int) -> LogSegment:
        """The segment that is the last one when the log ends at `offset`."""
        return self._segments[max(bisect_left(self._bases, offset) - 1, 0)]

    def add(self, base: Offset, config: LogConfig, now: Millis) -> tuple[LogSegment, list[str]]:
        """Make a segment behind the last one and close that. Returns it, and notes of what was in its way.

        Raises OSError, and then the last one is still active.
        """
        notes = self._free_names(base)
        try:
            segment = make_segment(self._files, self._directory, base, config, self._rng, now, fresh=True)
            if self._segments:
                self._segments[-1].become_inactive()
        except OSError:
            self._remove_files(base)
            raise
        self._segments.append(segment)
        self._bases.append(base)
        return segment, notes

    def keep_open(self, closed: Iterable[LogSegment]) -> None:
        """These take no appends any more, and all of their bytes are durable: they may be closed to be opened again."""
        for segment in closed:
            if segment is not self._segments[-1]:
                segment.keep_open_in(self._keeper)

    def _free_names(self, base: int) -> list[str]:
        notes = []
        for suffix in ALL_SUFFIXES:
            path = segment_path(self._directory, base, suffix)
            size = self._files.size(path)
            if size == 0:
                self._files.remove(path)
            elif size is not None:
                notes.append(f"{path} was in the way of a new segment: it is {set_aside(self._files, path)} now")
        return notes

    def _remove_files(self, base: int) -> None:
        for suffix in ALL_SUFFIXES:
            path = segment_path(self._directory, base, suffix)
            if self._files.size(path) is not None:
                self._files.remove(path)

    def behind(self, segment: LogSegment) -> Sequence[LogSegment]:
        """Those behind this one."""
        return self._segments[bisect_right(self._bases, segment.base_offset) :]

    def end_of(self, segment: LogSegment, log_end: Offset) -> Offset:
        """Where the next one begins, the log's end for the last one: none of its batches reaches there."""
        behind = bisect_right(self._bases, segment.base_offset)
        return Offset(self._bases[behind]) if behind < len(self._bases) else log_end

    def drop_behind(self, segment: LogSegment | None) -> None:
        """The files of the segments behind this one are gone, those of all for None: they are none of the log's."""
        while self._segments and self._segments[-1] is not segment:
            self._segments.pop().close()
            self._bases.pop()
        if segment is not None:
            segment.keep_open_in(None)

    def begin(self, base: Offset, config: LogConfig, now: Millis) -> None:
        """Make the only segment of a log that was emptied; its .log file may be there. Raises OSError."""
        assert not self._segments, "the log is not empty"
        self._segments.append(make_segment(self._files, self._directory, base, config, self._rng, now, fresh=True))
        self._bases.append(base)

    def remove_behind(self, segment: LogSegment) -> None:
        """Remove the segments behind this one, the last first. Raises OSError."""
        while self._segments[-1] is not segment:
            self._segments[-1].remove()
            self._segments.pop()
            self._bases.pop()
        segment.keep_open_in(None)

    def take_first(self, count: int) -> list[LogSegment]:
        """Take the oldest segments out of the log and close them; their files stay."""
        taken = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        for segment in taken:
            segment.close()
        return taken

    def replace(self, old: Sequence[LogSegment], cleaned: LogSegment) -> list[str]:
        """Put a cleaned segment, durable as `.cleaned`, in the place of those that it was made of. Returns the new
        paths of their files. Raises OSError; what was begun by then, the next start finishes or undoes.

        The directory is synced at each step: whatever order a crash lets names survive in, the old segments are there
        until the new one is found whole.
        """
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == list(old), "what was cleaned is not the log's any more"
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
        """Let go of all files."""
        for segment in self._segments:
            segment.close()
