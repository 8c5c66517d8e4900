"""All data folders of one node: opened, loaded and closed side by side, and the logs in them by name.

Kept true:
  1. A folder that cannot be opened, belongs to somebody else or fails while it is loaded is left out, with the error
     that says why; the others serve.
  2. A log is used only for the topic id that it was made for.
  3. A new log lies in a folder that works and is above its reserve, if there is one: the one with the fewest logs, of
     several the one with the most room.
Left to others: one folder (log_directory.py), what is done from time to time (maintenance.py), which logs there should
be (node/).
Everything is for the owner's thread; what waits for a disk runs on each folder's executor and reports back through a
`done`. Source: Kafka's LogManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from storage.config import LogConfig
from storage.directory.log_directory import ConfigOf, DataFolder, LoadProgress
from storage.files.executor import Executor
from storage.log.log import Log
from storage.recovery.loading import Damage
from tidelog.errors import InconsistentTopicId, KafkaStorageError, TidelogError
from tidelog.types import FolderId, NodeId, PartitionKey, TopicId, TopicPartition

Done = Callable[[], None]


class LogManager:
    """The data folders of one node, in the order in which they were named."""

    def __init__(self, folders: Iterable[DataFolder] = ()) -> None:
        """folders: open already, for tools and tests; a node calls `open`."""
        self.folders: list[DataFolder] = list(folders)
        self.failed: dict[str, TidelogError] = {}
        """Folders that were left out, by path, and why."""
        self.progress: dict[str, LoadProgress] = {}
        """By path, of folders that are being loaded or were; written by the loading threads, whole."""

    # --- starting -------------------------------------------------------------------------------------------------

    def open(
        self,
        paths: Sequence[str],
        open_folder: Callable[[str], DataFolder],
        executor_of: Callable[[str], Executor],
        done: Done,
    ) -> None:
        """Take folders into use, side by side, then call `done`. open_folder: run on the folder's executor."""
        opened: dict[str, DataFolder] = {}

        def finish() -> None:
            self.folders += [opened[path] for path in paths if path in opened]
            done()

        pending = _Pending(len(paths), finish)
        for path in paths:

            def one(result: DataFolder | BaseException, path: str = path) -> None:
                if isinstance(result, DataFolder):
                    opened[path] = result
                else:
                    self._leave_out(path, result)
                pending.one_less()

            executor_of(path).submit(lambda path=path: open_folder(path), one)  # type: ignore[misc]

    def adopt(self, cluster_id: str, node_id: NodeId, done: Done) -> None:
        """Let all folders belong to the cluster and to this node, durably; those that belong elsewhere are left out."""
        self._each(lambda folder: folder.adopt(cluster_id, node_id), self._drop, done)

    def load(self, config_of: ConfigOf, done: Done) -> None:
        """Open all logs of all folders that are not open yet, recovering where needed; may take long. A folder that
        fails meanwhile stays, offline, with the logs it had loaded."""

        def load(folder: DataFolder) -> None:
            folder.load_logs(config_of, progress=lambda progress: self.progress.update({folder.path: progress}))

        def failed(folder: DataFolder, error: BaseException) -> None:
            self._leave_out(folder.path, error)
            if folder.offline is None:
                folder.give_up(f"it could not be loaded: {error}")

        self._each(load, failed, done)

    def _each(
        self,
        work: Callable[[DataFolder], object],
        failed: Callable[[DataFolder, BaseException], None],
        done: Done,
    ) -> None:
        pending = _Pending(len(self.folders), done)
        for folder in list(self.folders):

            def one(result: object, folder: DataFolder = folder) -> None:
                if isinstance(result, BaseException):
                    failed(folder, result)
                pending.one_less()

            folder.executor.submit(lambda folder=folder: work(folder), one)  # type: ignore[misc]

    def _drop(self, folder: DataFolder, error: BaseException) -> None:
        self._leave_out(folder.path, error)
        self.folders.remove(folder)
        folder.close()

    def _leave_out(self, path: str, error: BaseException) -> None:
        """Anything but an error of ours is a defect, and nobody's to keep quiet."""
        if not isinstance(error, TidelogError):
            raise error
        self.failed[path] = error

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the folders belong to; None where they belong to none yet."""
        return next((folder.cluster_id for folder in self.folders if folder.cluster_id is not None), None)

    @property
    def working(self) -> list[DataFolder]:
        """The folders that are not offline."""
        return [folder for folder in self.folders if folder.offline is None]

    def logs(self) -> Iterator[tuple[DataFolder, Log]]:
        """Every open log of the folders that work."""
        for folder in self.working:
            for log in list(folder.logs.values()):
                yield folder, log

    def damaged(self) -> dict[PartitionKey, Damage]:
        """All damage known: of open logs, and of logs that are gone (design section 4, rule 6)."""
        return {key: damage for folder in self.folders for key, damage in folder.damaged().items()}

    def is_missing(self, key: PartitionKey) -> bool:
        """Had a log of this partition held something in a folder here, of which nothing was found?"""
        return any(key in folder.missing for folder in self.folders)

    # --- logs -----------------------------------------------------------------------------------------------------

    def use(self, folder: DataFolder, log: Log, topic_id: TopicId, config: LogConfig) -> Log:
        """A loaded log for its partition, under its topic's settings. One that was loaded as if it promised something
        else, before its topic was known here, is loaded again.

        Raises InconsistentTopicId where it was made for another topic, KafkaStorageError, DiskFull.
        """
        name = log.topic_partition
        if log.topic_id != topic_id:
            raise InconsistentTopicId(
                f"the log {log.path} was made for topic id {log.topic_id}, not for {topic_id}: set it aside"
            )
        if log.config.durability is config.durability:
            log.reconfigure(config)
            return log
        folder.commit.forget(log)
        log.release()
        del folder.logs[name]
        again = folder.load_logs(lambda _name, _id: config, only=lambda other: other == name).get(name)
        if again is None:
            raise KafkaStorageError(f"{name} was not loaded again from {folder.path}: {'; '.join(folder.notes[-1:])}")
        return again

    def home_of(self, name: TopicPartition, home: FolderId | None) -> DataFolder:
        """The folder for a new log. home: the only one for it, None for any. Raises KafkaStorageError."""
        folder = self.place(home)
        if folder is None:
            where = "every data folder is offline" if home is None else f"data folder {home} is offline or gone"
            raise KafkaStorageError(f"{name} was not made: {where}; check the disks, then restart the node")
        return folder

    def place(self, home: FolderId | None) -> DataFolder | None:
        """The folder for a new log, None where there is none."""
        if home is not None:
            return next((folder for folder in self.working if folder.folder_id == home), None)
        return min(
            self.working,
            key=lambda folder: (folder.reserve.low, len(folder.logs), -folder.reserve.free),
            default=None,
        )

    # --- ending ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of everything as it is: no flush, no marker."""
        for folder in self.folders:
            folder.close()


class _Pending:
    """Calls `done` when so many pieces of work have ended; at once where there are none."""

    def __init__(self, count: int, done: Done) -> None:
        self._count, self._done = count + 1, done
        self.one_less()

    def one_less(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._done()
