"""All log directories of one node: opened, loaded and closed in parallel, and the logs in them by name.

Invariants:
  1. A directory that cannot be opened, belongs to another cluster or node, or fails during loading is left out, with
     the error; the others are used.
  2. A log is used only for the topic id that it was created for.
  3. A new log goes to an online directory that is above its reserve, if there is one: to the one with the fewest logs,
     then to the one with the most free space.
Not here: one directory (log_directory.py), periodic work (maintenance.py), which logs should exist (node/). Everything
is for the owner's thread; work that waits for a disk runs on each directory's executor and reports back through `done`.
Source: Kafka's LogManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from storage.directory.load_progress import LoadProgress
from storage.directory.log_directory import ConfigOf, LogDirectory
from storage.files.disk_executor import Executor
from storage.log.log import Log
from storage.log_config import LogConfig
from storage.recovery.loaded import Damage
from tidelog.errors import InconsistentTopicId, KafkaStorageError, TidelogError
from tidelog.types import DirectoryId, NodeId, PartitionKey, TopicId, TopicPartition

Done = Callable[[], None]


class LogManager:
    def __init__(self, directories: Iterable[LogDirectory] = ()) -> None:
        """directories: already open, for tools and tests; a node calls `open`."""
        self.directories: list[LogDirectory] = list(directories)
        self.failed: dict[str, TidelogError] = {}
        """The directories that were left out, by path, with the error."""
        self.progress: dict[str, LoadProgress] = {}
        """The progress of loading by path. The loading threads replace the values."""

    def open(
        self,
        paths: Sequence[str],
        open_directory: Callable[[str], LogDirectory],
        executor_of: Callable[[str], Executor],
        done: Done,
    ) -> None:
        """Open directories in parallel, then call `done`. open_directory: runs on the directory's executor."""
        opened: dict[str, LogDirectory] = {}

        def finish() -> None:
            self.directories += [opened[path] for path in paths if path in opened]
            done()

        pending = _Pending(len(paths), finish)
        for path in paths:

            def one(result: LogDirectory | BaseException, path: str = path) -> None:
                if isinstance(result, LogDirectory):
                    opened[path] = result
                else:
                    self._leave_out(path, result)
                pending.one_less()

            executor_of(path).submit(lambda path=path: open_directory(path), one)  # type: ignore[misc]

    def adopt(self, cluster_id: str, node_id: NodeId, done: Done) -> None:
        """Assign all directories to the cluster and to this node, durably. Directories that belong to another cluster
        or node are left out."""
        self._each(lambda directory: directory.adopt(cluster_id, node_id), self._drop, done)

    def load(self, config_of: ConfigOf, done: Done) -> None:
        """Open all logs of all directories that are not open yet, with recovery where needed. May take long. A
        directory that fails meanwhile stays, offline, with the logs loaded so far."""

        def load(directory: LogDirectory) -> None:
            directory.load_logs(config_of, progress=lambda progress: self.progress.update({directory.path: progress}))

        def failed(directory: LogDirectory, error: BaseException) -> None:
            self._leave_out(directory.path, error)
            if directory.offline is None:
                directory.take_offline(f"loading failed: {error}")

        def loaded() -> None:
            self._find_moved()
            done()

        self._each(load, failed, loaded)

    def _find_moved(self) -> None:
        """Logs that were moved to another directory here are not missing, although their marks may still say so."""
        for _, log in self.logs():
            source = None if log.moved_from is None else self.working_one(log.moved_from)
            if source is not None:
                source.missing.pop(PartitionKey(log.topic_id, log.topic_partition.partition), None)

    def working_one(self, directory_id: DirectoryId) -> LogDirectory | None:
        """The directory of that id; None if there is none, or if it is offline."""
        return next((each for each in self.working if each.directory_id == directory_id), None)

    def _each(
        self,
        work: Callable[[LogDirectory], object],
        failed: Callable[[LogDirectory, BaseException], None],
        done: Done,
    ) -> None:
        pending = _Pending(len(self.directories), done)
        for directory in list(self.directories):

            def one(result: object, directory: LogDirectory = directory) -> None:
                if isinstance(result, BaseException):
                    failed(directory, result)
                pending.one_less()

            directory.executor.submit(lambda directory=directory: work(directory), one)  # type: ignore[misc]

    def _drop(self, directory: LogDirectory, error: BaseException) -> None:
        self._leave_out(directory.path, error)
        self.directories.remove(directory)
        directory.close()

    def _leave_out(self, path: str, error: BaseException) -> None:
        """Any error except a TidelogError is a defect and is raised."""
        if not isinstance(error, TidelogError):
            raise error
        self.failed[path] = error

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to; None if not assigned yet."""
        identities = (directory.identity for directory in self.directories)
        return next((each.cluster_id for each in identities if each.cluster_id is not None), None)

    @property
    def working(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.offline is None]

    def logs(self) -> Iterator[tuple[LogDirectory, Log]]:
        """Every open log of the online directories."""
        for directory in self.working:
            for log in list(directory.logs.values()):
                yield directory, log

    def damaged(self) -> dict[PartitionKey, Damage]:
        """All known damage: of open logs, and of missing logs (design section 4, rule 6)."""
        return {key: damage for directory in self.directories for key, damage in directory.damaged().items()}

    def is_missing(self, key: PartitionKey) -> bool:
        """True if a directory here had durable records of this partition, but its log was not found."""
        return any(key in directory.missing for directory in self.directories)

    def use(self, directory: LogDirectory, log: Log, topic_id: TopicId, config: LogConfig) -> Log:
        """A loaded log for its partition, with the settings of its topic. A log that was loaded with another
        durability, before its topic was known here, is loaded again.

        Raises InconsistentTopicId if it was created for another topic, KafkaStorageError, DiskFull.
        """
        name = log.topic_partition
        if log.topic_id != topic_id:
            raise InconsistentTopicId(
                f"the log {log.path} was created for topic id {log.topic_id}, not for {topic_id}: set it aside"
            )
        if log.config.durability is config.durability:
            log.reconfigure(config)
            return log
        directory.commit.forget(log)
        log.release()
        del directory.logs[name]
        again = directory.load_logs(lambda _name, _id: config, only=lambda other: other == name).get(name)
        if again is None:
            raise KafkaStorageError(
                f"{name} could not be loaded again from {directory.path}: {'; '.join(directory.notes[-1:])}"
            )
        return again

    def home_of(self, name: TopicPartition, home: DirectoryId | None) -> LogDirectory:
        """The directory for a new log. home: the only directory allowed; None for any. Raises KafkaStorageError."""
        directory = min(
            (each for each in self.working if home in (None, each.directory_id)),
            key=lambda each: (each.reserve.low, len(each.logs), -each.reserve.free),
            default=None,
        )
        if directory is None:
            where = "every log directory is offline" if home is None else f"log directory {home} is offline or gone"
            raise KafkaStorageError(f"{name} was not created: {where}; check the disks, then restart the node")
        return directory

    def close(self) -> None:
        """Close everything as it is: no flush, no clean-shutdown marker."""
        for directory in self.directories:
            directory.close()


class _Pending:
    """Calls `done` after `count` pieces of work have ended; at once if there are none."""

    def __init__(self, count: int, done: Done) -> None:
        self._count, self._done = count + 1, done
        self.one_less()

    def one_less(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._done()
