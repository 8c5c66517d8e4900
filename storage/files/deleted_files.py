"""Files that have left a log and wait for removal, `file.delete.delay.ms` after they were renamed to `.deleted`.

Until then, readers that opened the files can still read them. A restart removes all of them (interrupted.py). Use on
the owner's thread only. Source: Kafka's `file.delete.delay.ms` and LocalLog.deleteSegmentFiles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from storage.files.file_system import Files, remove_files
from tidelog.types import Millis


class Leaving:
    """Files of segments that have left their log. `run` removes the producer snapshots of the segments, then renames
    the files to deleted files, oldest segment first. `run` may be called on any thread and takes effect once. A
    truncation calls it first, because it may need the names."""

    __slots__ = ("_before", "_done", "_files", "_lock", "_paths", "_snapshots", "_suffix", "deleted")

    def __init__(
        self, files: Files, before: Callable[[], None], paths: Sequence[str], suffix: str, snapshots: Sequence[str]
    ) -> None:
        """before: makes durable what must be durable before any file is removed. suffix: suffix of deleted files."""
        self._files, self._before, self._paths, self._suffix = files, before, paths, suffix
        self._snapshots = snapshots
        self._lock = Lock()
        self._done = False
        self.deleted: list[str] = []
        """New paths of the renamed files."""

    def run(self) -> None:
        """Remove the snapshots and rename the files, once. Raises OSError."""
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
    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, paths: Iterable[str], due_ms: int) -> None:
        """Schedule the files for removal at `due_ms` or later, never before files that were put earlier."""
        self._waiting.extend((due_ms, path) for path in paths)

    def take(self, now: Millis) -> list[str]:
        """Return the paths that are due. The caller removes them."""
        due = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(self._waiting.popleft()[1])
        return due


def remove_log_directory(files: Files, path: str) -> None:
    """Remove a partition directory and its files. A missing directory is ignored: loading requests the removal again if
    it finds a directory whose deletion is in progress. Any thread. Raises OSError."""
    if files.is_directory(path):
        for name in files.list(path):
            files.remove(f"{path}/{name}")
        files.remove_directory(path)
