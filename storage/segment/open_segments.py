"""Closed segments of a log directory that have open files. Their number is bounded; the least recently used one is
closed.

A segment without readers needs no descriptor and no mapping. Opening it again takes about 50 µs.
Invariants: at most `most` closed segments are open, not counting those with bytes that are not durable yet: after
reopening, an fsync through a new descriptor might not report an error that the old one would have reported.
Not here: handles shared with flushes and other threads, which stay open until released (file_system.py). Use on the
owner's thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.segment.segment import LogSegment

OPEN_SEGMENTS_MAX: Final = 1_000
"""Per log directory: one descriptor and two mappings each, well below the Linux limit per process (65,530 mappings)."""


class OpenSegments:
    """The open closed segments, least recently used first."""

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
