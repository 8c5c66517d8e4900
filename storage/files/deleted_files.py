"""Files that are out of a log already and wait to be removed: `file.delete.delay.ms` after they got their new names.

Until then whoever began to use them can look them up still; a restart removes them all (interrupted.py). For the
owner's thread, but for `remove_files`. Source: Kafka's `file.delete.delay.ms` and LocalLog.deleteSegmentFiles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from storage.files.file_system import Files
from tidelog.types import Millis


class Leaving:
    """Files of segments that are out of their log: the snapshots go that belonged to them, then they get the names of
    deleted files, oldest segment first. Any thread; what has run does not run again: a cut, which may need the names,
    runs it first."""

    __slots__ = ("_before", "_done", "_files", "_lock", "_paths", "_snapshots", "_suffix", "deleted")

    def __init__(
        self, files: Files, before: Callable[[], None], paths: Sequence[str], suffix: str, snapshots: Sequence[str]
    ) -> None:
        """before: makes durable what must be so before any file goes. suffix: of deleted files."""
        self._files, self._before, self._paths, self._suffix = files, before, paths, suffix
        self._snapshots = snapshots
        self._lock = Lock()
        self._done = False
        self.deleted: list[str] = []
        """Where the files are that have been renamed."""

    def run(self) -> None:
        """Raises OSError."""
        with self._lock:
            if self._done:
                return
            self._before()
            remove_files(self._files, self._snapshots)
            for path in self._paths:
                if self._files.size(path) is not None:
                    self._files.rename(path, path + self._suffix)
                    self.deleted.append(path + self._suffix)
            self._done = True


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
    """Remove files, those that are gone already left out: their log's directory may have another name by now. Any
    thread. Raises OSError."""
    for path in paths:
        try:
            files.remove(path)
        except FileNotFoundError:
            continue


def remove_log_directory(files: Files, path: str) -> None:
    """Remove a log's directory and all that is in it; nothing where it is gone: it is asked for twice when a loading
    finds what is being deleted. Any thread. Raises OSError."""
    if files.is_directory(path):
        for name in files.list(path):
            files.remove(f"{path}/{name}")
        files.remove_directory(path)
