"""Creation of a new log in a log directory, on any thread. A directory of an earlier log with its name is set aside.

Not here: when a log is created and put into use (log_directory.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from storage.checkpoints.checkpoint_file import (
    LEADER_EPOCH_CHECKPOINT,
    write_moved_from,
    write_partition_metadata,
)
from storage.directory.directory_changes import DirectoryChanges
from storage.files.deleted_files import remove_log_directory
from storage.files.file_system import Files, write_file
from storage.log.log import Log, LogHost
from storage.log.truncation_ticket import RemotePart
from storage.log_config import LogConfig
from storage.producers.snapshot_files import snapshot_path
from storage.recovery.loaded import Known
from storage.recovery.loading import load_log
from storage.segment.epoch_cache import EpochFile
from tidelog.types import DirectoryId, Offset, TopicId, TopicPartition

T = TypeVar("T")


class NewLog:
    """The creation of one log: a ticket that is made on the owner's thread and run on another."""

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
        start: Offset = Offset(0),
        moved_from: DirectoryId | None = None,
        remote: Callable[[], RemotePart] | None = None,
    ) -> None:
        """aside: new path for an existing directory. forget: removes what the checkpoints record about a log with this
        name, durably. start: where the log starts. moved_from: the log directory of the log that it is a copy of.
        remote: reads what the log must know of records below `start`, which are in the remote tier; with it, only its
        local part begins at `start`. Runs with the creation, and raises OSError."""
        self.path, self.tp, self.topic_id, self.aside = path, tp, topic_id, aside
        self.set_aside = False
        """True if a directory existed and was set aside."""
        self._directory, self._changes, self._config, self._forget = directory, changes, config, forget
        self._start, self._moved_from, self._remote = start, moved_from, remote

    def run(self) -> Log:
        """Create the log. Runs on the directory's executor. Raises OSError."""
        directory, files, path = self._directory, self._directory.files, self.path
        self._changes.ensure_free(path)
        if files.is_directory(path):
            move_aside(files, path, self.aside)
            self.set_aside = True
        # Before the directory exists: after a crash, recovery would apply the offsets of the former log to the new one.
        self._forget()
        files.make_directory(path)
        try:
            write_partition_metadata(files, path, self.topic_id, sync=False)
            if self._moved_from is not None:
                write_moved_from(files, path, self._moved_from)
            known = Known(log_start=self._start) if self._remote is None else self._put_remote(self._remote())
            loaded = load_log(files, path, self._config, directory.clock, directory.rng, known)
        except OSError:
            remove_log_directory(files, path)  # half a log would be loaded by the next start
            raise
        return Log(directory, path, self.tp, self.topic_id, self._config, loaded)

    def _put_remote(self, remote: RemotePart) -> Known:
        files, path = self._directory.files, self.path
        write_file(files, snapshot_path(path, self._start), remote.producers)
        EpochFile(files, f"{path}/{LEADER_EPOCH_CHECKPOINT}", -1).write(0, remote.epochs)
        return Known(log_start=remote.log_start, local_log_start=self._start)


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
