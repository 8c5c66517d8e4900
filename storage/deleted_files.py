"""Files that are out of a log already and wait to be removed: `file.delete.delay.ms` after they got their new names.

Until then whoever began to use them can look them up still; a restart removes them all (interrupted.py). For the
owner's thread, but for `remove_files`. Source: Kafka's `file.delete.delay.ms` and LocalLog.deleteSegmentFiles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from storage.files import Files
from tidelog.types import Millis


class DeletedFiles:
    """Those of one log, in the order in which they were put here."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, paths: Iterable[str], due_ms: int) -> None:
        """Remove these at that time, or later: never before those put here before them."""
        self._waiting.extend((due_ms, path) for path in paths)

    def take(self, now: Millis) -> list[str]:
        """Those that are due: the caller removes them."""
        due = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(self._waiting.popleft()[1])
        return due


def remove_files(files: Files, paths: Iterable[str]) -> None:
    """Remove files, those that are gone already left out: their log's folder may have another name by now. Any thread.
    Raises OSError."""
    for path in paths:
        try:
            files.remove(path)
        except FileNotFoundError:
            continue
