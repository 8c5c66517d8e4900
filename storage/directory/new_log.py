"""Creation of a new log in a log directory, on any thread, and renaming of a directory that is in its way.

Invariants: before the log is created, it is durable that no file records anything about it. A failure leaves no
directory behind.
Not here: when a log is created and put into use (log_directory.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from storage.checkpoints.checkpoint_file import write_partition_metadata
from storage.directory.directory_changes import DirectoryChanges
from storage.files.deleted_files import remove_log_directory
from storage.files.file_system import Files
from storage.log.log import Log, LogHost
from storage.log_config import LogConfig
from storage.recovery.loaded import Known
from storage.recovery.loading import load_log
from tidelog.types import TopicId, TopicPartition

T = TypeVar("T")


class NewLog:
    def __init__(
        self,
        directory: LogHost,
        changes: DirectoryChanges,
        path: str,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        aside: str,
        forget: Callable[[], None],
    ) -> None:
        """aside: new path of a directory in the way. forget: makes durable that nothing is recorded of the log."""
        self.path, self.tp, self.topic_id, self.aside = path, tp, topic_id, aside
        self.set_aside = False
        """True if a directory was in the way."""
        self._directory, self._changes, self._config, self._forget = directory, changes, config, forget

    def run(self) -> Log:
        """Create the log. On the directory's executor. Raises OSError."""
        directory, files, path = self._directory, self._directory.files, self.path
        self._changes.ensure_free(path)
        if files.is_directory(path):
            move_aside(files, path, self.aside)
            self.set_aside = True
        self._forget()
        files.make_directory(path)
        try:
            write_partition_metadata(files, path, self.topic_id, sync=False)
            loaded = load_log(files, path, self._config, directory.clock, directory.rng, Known())
        except OSError:
            remove_log_directory(files, path)
            raise
        return Log(directory, path, self.tp, self.topic_id, self._config, loaded)


def move_aside(files: Files, path: str, aside: str) -> None:
    """Rename a partition directory, durably. Raises OSError."""
    files.rename(path, aside)
    files.sync_directory(aside.rpartition("/")[0])


def run_ticket(run: Callable[[], T]) -> T | OSError:
    """Call `run`. Returns its result, or the OSError that it raises."""
    try:
        return run()
    except OSError as error:
        return error
