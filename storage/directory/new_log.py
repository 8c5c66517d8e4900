"""A new log of a data folder, made on any thread; and a folder that is in its way.

Kept true: before anything is made it is durable that no file claims anything about the log; what fails leaves no folder
behind. Left to others: asking for it and taking it into use (log_directory.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from storage.checkpoints.checkpoint_file import write_partition_metadata
from storage.config import LogConfig
from storage.files.deleted_files import remove_log_folder
from storage.files.file_system import Files
from storage.log.log import Log
from storage.recovery.loaded import Known
from storage.recovery.loading import LogLoader
from tidelog.types import TopicId, TopicPartition

if TYPE_CHECKING:
    from storage.directory.log_directory import DataFolder

T = TypeVar("T")


class NewLog:
    """A log that is being made."""

    def __init__(
        self,
        folder: DataFolder,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        aside: str,
        forget: Callable[[], None],
    ) -> None:
        """aside: the new path of a folder that is in the way. forget: makes durable that nothing is claimed."""
        self.tp, self.topic_id, self.aside = tp, topic_id, aside
        self.path = f"{folder.path}/{tp}"
        self.set_aside = False
        """Was something in the way?"""
        self._folder, self._config, self._forget = folder, config, forget

    def run(self) -> Log:
        """Make it. On the folder's executor. Raises OSError."""
        folder, files, path = self._folder, self._folder.files, self.path
        folder.changes.ensure_free(path)
        if files.is_folder(path):
            move_aside(files, path, self.aside)
            self.set_aside = True
        self._forget()
        files.make_folder(path)
        try:
            write_partition_metadata(files, path, self.topic_id, sync=False)
            loaded = LogLoader(files, path, self._config, folder.clock, folder.rng, Known()).load()
        except OSError:
            remove_log_folder(files, path)
            raise
        return Log(folder, path, self.tp, self.topic_id, self._config, loaded)


def move_aside(files: Files, path: str, aside: str) -> None:
    """Give a log's folder another name, durably. Raises OSError."""
    files.rename(path, aside)
    files.sync_folder(aside.rpartition("/")[0])


def run_ticket(run: Callable[[], T]) -> T | OSError:
    """Run it here. Returns what it returns, or the OSError that it raises."""
    try:
        return run()
    except OSError as error:
        return error
