"""Which closed segments of a log directory have files open: a bounded number, the least recently used one goes.

A segment that nobody reads needs no descriptor and no mapping; one that is read again opens them again, some 50 µs.
Kept true: at most `most` closed segments are open, those apart whose bytes are not durable yet: an fsync through a new
descriptor might not be told of an error that the old one was to be told of.
Left to others: handles that flushes and other threads share, which live until they let go (file_system.py). For the
owner's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.segment.segment import LogSegment

OPEN_SEGMENTS_MAX: Final = 1_000
"""Per log directory: one descriptor and two mappings each, well below what Linux gives a process (65,530 mappings)."""


class OpenSegments:
    """The closed segments that are open, the least recently used one first."""

    __slots__ = ("_most", "_open")

    def __init__(self, most: int = OPEN_SEGMENTS_MAX) -> None:
        self._most = most
        self._open: dict[LogSegment, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def used(self, segment: LogSegment) -> None:
        """A closed segment is open, and in use now. Others may be closed for it."""
        self._open.pop(segment, None)
        self._open[segment] = None
        while len(self._open) > self._most:
            next(iter(self._open)).close()  # which forgets it

    def forget(self, segment: LogSegment) -> None:
        """It has been closed, or takes appends again."""
        self._open.pop(segment, None)
