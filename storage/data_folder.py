"""One data folder: who it belongs to, its logs, and the files that say how far they can be trusted.

    FOLDER/meta.properties                    version, cluster.id, node.id, directory.id           (Kafka's)
           recovery-point-offset-checkpoint   below it, everything is on the disk                  (Kafka's)
           replication-offset-checkpoint      high watermarks                                      (Kafka's)
           log-start-offset-checkpoint        where logs start, if not at their first segment      (Kafka's)
           .kafka_cleanshutdown               there after a clean stop only                        (Kafka's)
           .lock                              held by the process that works on it                 (Kafka's)
           held-offset-marks                  held_marks.py
           registration                       number of the node's last registration
           TOPIC-N/                           one log
           TOPIC-N.HEX-stray/, -delete/       set aside; to be deleted

Kept true:
  1. What the checkpoints claim is true of the disk: a truncation lowers them, durably, before it cuts.
  2. After an error of the disk the folder is offline: nothing in it is written again in this process.
  3. Nothing is deleted but what `delete_log` was told to delete; what cannot be loaded is set aside and reported.
Left to others: which logs there should be, and what a lost one means for the cluster (node/, replication/).
Source: Kafka's LogManager, BrokerMetadataCheckpoint and CleanShutdownFileHandler; KIP-858; design section 4, rule 6.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Final, TypeVar
from uuid import UUID

from storage.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    decode_topic_id,
    encode_topic_id,
    read_offsets,
    read_partition_metadata,
    write_partition_metadata,
)
from storage.clock import WallClock
from storage.config import LogConfig
from storage.executor import Executor, InlineExecutor
from storage.files import Files, FolderLock, folder_of, is_full, read_file, write_file
from storage.group_commit import GroupCommit
from storage.held_marks import HeldMarks
from storage.loading import Damage, Known, LogLoader
from storage.log import Log
from storage.offset_checkpoint import OffsetCheckpoint
from tidelog.errors import (
    CorruptLog,
    DiskFull,
    InconsistentClusterId,
    InvalidConfig,
    KafkaStorageError,
    TidelogError,
)
from tidelog.types import FolderId, NodeId, Offset, PartitionIndex, PartitionKey, TopicId, TopicPartition

META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
REGISTRATION: Final = "registration"
LOCK: Final = ".lock"
_LOG_FOLDER: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>\d{1,10})")
_DELETED: Final = re.compile(r".+-\d+\.[0-9a-f]+-delete")
_NAME_BYTES_MAX: Final = 255
"""Longest name of a file or folder on Linux (NAME_MAX)."""
_RESERVED: Final = re.compile(r".+-\d+\.[0-9a-f]+-(stray|future)")

T = TypeVar("T")
ConfigOf = Callable[[TopicPartition, TopicId], LogConfig]


def _ignore(_: object) -> None:
    return None


class DataFolder:
    """A data folder in use by this process.

    `on_held(log)`: a group commit has made more of the log durable. `on_offline(folder)`: the folder has failed,
    `offline` says why. `on_flush_failure(error)`: a background flush or checkpoint failed; DiskFull needs no action.
    All three are called on the owner's thread and may be set at any time.
    """

    def __init__(
        self,
        path: str,
        *,
        files: Files,
        clock: WallClock,
        rng: random.Random,
        executor: Executor,
        syncer: Executor,
        syncs_at_once: int,
        lock: FolderLock,
        properties: dict[str, str],
        was_clean: bool,
    ) -> None:
        """Use `DataFolder.open`."""
        self.path = path
        self.files = files
        self.clock = clock
        self.rng = rng
        self.was_clean = was_clean
        self.offline: str | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.notes: list[str] = []
        """What loading cut, rebuilt or set aside, in sentences."""
        self.missing: dict[PartitionKey, Damage] = {}
        """Logs that had held something, of which no folder was found (complete after `load_logs`)."""
        self.on_held: Callable[[Log], None] = _ignore
        self.on_offline: Callable[[DataFolder], None] = _ignore
        self.on_flush_failure: Callable[[BaseException], None] = _ignore
        self.commit = GroupCommit(syncer, self._log_held, self._flush_failed, at_once=syncs_at_once)
        self._executor = executor
        self._lock = lock
        self._properties = properties
        self._marks = HeldMarks(files, path)
        self._recovery_points = self._checkpoint(RECOVERY_POINT_CHECKPOINT)
        self._high_watermarks = self._checkpoint(HIGH_WATERMARK_CHECKPOINT)
        self._log_starts = self._checkpoint(LOG_START_CHECKPOINT)
        self._found_high_watermarks = dict(self._high_watermarks.claimed)
        self._found_recovery_points = dict(self._recovery_points.claimed)
        self._seen: set[PartitionKey] = set()
        self._registration = self._read_registration()

    @classmethod
    def open(
        cls,
        path: str,
        *,
        files: Files,
        clock: WallClock,
        rng: random.Random,
        executor: Executor | None = None,
        syncer: Executor | None = None,
        syncs_at_once: int = 1,
    ) -> DataFolder:
        """Take a data folder into use; an empty one, or none, becomes a new one with an id of its own.

        executor: where checkpoints and deletions run; without one, at once. syncer: where logs are flushed, so many
        side by side; without one, on `executor`. Raises KafkaStorageError where the disk fails or another process uses
        the folder, InvalidConfig where it is no data folder.
        """
        path = path.rstrip("/") or "/"
        executor = executor or InlineExecutor()
        try:
            _make_folder(files, path)
            try:
                lock = files.lock(f"{path}/{LOCK}")
            except BlockingIOError as error:
                raise KafkaStorageError(
                    f"the data folder {path} is in use by another process: stop that one, or give this node another "
                    "folder"
                ) from error
            try:
                properties = _read_properties(files, path, rng)
                was_clean = _take_clean_marker(files, path)
                return cls(
                    path,
                    files=files,
                    clock=clock,
                    rng=rng,
                    executor=executor,
                    syncer=syncer or executor,
                    syncs_at_once=syncs_at_once,
                    lock=lock,
                    properties=properties,
                    was_clean=was_clean,
                )
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise KafkaStorageError(f"the data folder {path} cannot be opened: {error}; check the disk") from error

    # --- identity -------------------------------------------------------------------------------------------------

    @property
    def folder_id(self) -> FolderId:
        """The folder's own id (KIP-858)."""
        return FolderId(decode_topic_id(self._properties["directory.id"]))

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the folder belongs to, None before it belongs to one."""
        return self._properties.get("cluster.id")

    @property
    def node_id(self) -> NodeId | None:
        """The node that the folder belongs to."""
        node = self._properties.get("node.id")
        return None if node is None else NodeId(int(node))

    @property
    def last_registration(self) -> int:
        """Number of the node's last registration that this folder knows of, -1 for none."""
        return self._registration

    def adopt(self, cluster_id: str, node_id: NodeId) -> None:
        """Let the folder belong to a node of a cluster, durably. Raises InconsistentClusterId, InvalidConfig,
        KafkaStorageError."""
        if self.cluster_id is not None and self.cluster_id != cluster_id:
            raise InconsistentClusterId(
                f"the data folder {self.path} belongs to cluster {self.cluster_id}, not to {cluster_id}: give this "
                "node "
                "the folder of its own cluster, or an empty one"
            )
        if self.node_id is not None and self.node_id != node_id:
            raise InvalidConfig(
                f"the data folder {self.path} belongs to node {self.node_id}, not to node {node_id}: check node.id "
                "and data_folders"
            )
        changed = {**self._properties, "cluster.id": cluster_id, "node.id": str(node_id)}
        if changed != self._properties:
            self._guard("writing meta.properties", lambda: _write_properties(self.files, self.path, changed))
            self._properties = changed

    def write_registration(self, number: int) -> None:
        """Note the number of the node's registration, durably; it only grows. Raises KafkaStorageError, DiskFull."""
        if number == self._registration:
            return
        assert number > self._registration, f"registration {number} is older than {self._registration}"
        path = f"{self.path}/{REGISTRATION}"
        self._guard("writing the registration", lambda: write_file(self.files, path, f"0\n{number}\n".encode()))
        self._registration = number

    def _read_registration(self) -> int:
        data = read_file(self.files, f"{self.path}/{REGISTRATION}")
        if data is None:
            return -1
        lines = data.decode("ascii", "replace").split("\n")
        if len(lines) < 2 or lines[0] != "0" or not lines[1].isdigit():
            self.notes.append(f"{self.path}/{REGISTRATION} is damaged: the folder counts as an older copy")
            return -1
        return int(lines[1])

    # --- logs -----------------------------------------------------------------------------------------------------

    def load_logs(
        self, config_of: ConfigOf, *, only: Callable[[TopicPartition], bool] | None = None
    ) -> dict[TopicPartition, Log]:
        """Open all logs of the folder that are not open yet, recovering where needed; may take long. Returns all
        open ones.

        config_of: the topic's settings. only: load just these now (the metadata log comes before all others); the call
        without it completes the loading. What is no readable log is set aside. Raises KafkaStorageError, DiskFull.
        """
        for name in self._guard("listing the folder", lambda: self.files.list(self.path)):
            match = _LOG_FOLDER.fullmatch(name)
            if match is None or _DELETED.fullmatch(name) or _RESERVED.fullmatch(name):
                if _DELETED.fullmatch(name):
                    self._delete_later(f"{self.path}/{name}")
                continue
            tp = TopicPartition(match["topic"], PartitionIndex(int(match["partition"])))
            if (
                tp in self.logs
                or (only is not None and not only(tp))
                or not self.files.is_folder(f"{self.path}/{name}")
            ):
                continue
            self._guard(f"loading {self.path}/{name}", lambda tp=tp: self._load(tp, config_of))  # type: ignore[misc]
        if only is None:
            self._find_missing()
        return dict(self.logs)

    def _load(self, tp: TopicPartition, config_of: ConfigOf) -> None:
        path = f"{self.path}/{tp}"
        topic_id = read_partition_metadata(self.files, path)
        if topic_id is None:
            self.set_aside(tp, "its partition.metadata is missing or damaged")
            return
        key = PartitionKey(topic_id, tp.partition)
        config = config_of(tp, topic_id)
        known = Known(
            self._found_recovery_points.get(tp, Offset(0)),
            self._marks.get(key),
            self._log_starts.claimed.get(tp, Offset(0)),
            self.was_clean,
        )
        loaded = LogLoader(self.files, path, config, self.clock, self.rng, known).load()
        log = Log(self, path, tp, topic_id, config, loaded)
        log.advance_high_watermark(self._found_high_watermarks.get(tp, Offset(0)))
        self.notes.extend(loaded.notes)
        self.logs[tp] = log
        self._seen.add(key)
        if loaded.damage is None and log.held > known.held:
            self.note_held(log)

    def _find_missing(self) -> None:
        for key, held in self._marks.all().items():
            if key not in self._seen and held > 0:
                self.missing[key] = Damage(self.path, 0, Offset(0), held, "no folder of this log was found")

    def damaged(self) -> dict[PartitionKey, Damage]:
        """All damage known: of open logs, and of logs that are gone. To be named at registration (design section 4)."""
        found = dict(self.missing)
        for log in self.logs.values():
            if log.damage is not None:
                found[PartitionKey(log.topic_id, log.topic_partition.partition)] = log.damage
        return found

    def create_log(self, tp: TopicPartition, topic_id: TopicId, config: LogConfig) -> Log:
        """Make an empty log. Its names become durable with its first flush, which is asked for here.

        A mark of an earlier log of the same key is dropped: call it only once that one's loss has been dealt with.
        Raises KafkaStorageError, DiskFull.
        """
        assert tp not in self.logs, f"{tp} is open already"
        self._ensure_online()
        key = PartitionKey(topic_id, tp.partition)

        def make() -> Log:
            path = f"{self.path}/{tp}"
            if self.files.is_folder(path):
                self.set_aside(tp, "it was in the way of a new log")
            self._forget(tp, key)
            self.files.make_folder(path)
            try:
                write_partition_metadata(self.files, path, topic_id, sync=False)
                loaded = LogLoader(self.files, path, config, self.clock, self.rng, Known()).load()
            except OSError:
                self._remove_folder(path)
                raise
            return Log(self, path, tp, topic_id, config, loaded)

        log = self._guard(f"creating {tp}", make)
        self.logs[tp] = log
        self._seen.add(key)
        self.missing.pop(key, None)
        self.commit.request(log)
        return log

    def delete_log(self, tp: TopicPartition) -> None:
        """Delete a log: its name is gone at once, its files in the background. Raises KafkaStorageError, DiskFull."""
        log = self.logs.pop(tp)
        self.commit.forget(log)
        log.release()
        self._ensure_online()
        doomed = self._name_aside(tp, "delete")

        def rename() -> None:
            self._forget(tp, PartitionKey(log.topic_id, tp.partition))
            self.files.rename(log.path, doomed)

        self._guard(f"deleting {tp}", rename)
        self._delete_later(doomed)

    def set_aside(self, tp: TopicPartition, why: str) -> str:
        """Move a log's folder out of the way, keeping all that is in it. Returns its new path. Raises
        KafkaStorageError.

        What an open log held is no claim any more: whoever sets it aside has judged it. One that cannot be opened keeps
        its mark, so that it is missed.
        """
        self._ensure_online()
        log = self.logs.pop(tp, None)
        if log is not None:
            self.commit.forget(log)
            log.release()
        path = f"{self.path}/{tp}"
        aside = self._name_aside(tp, "stray")

        def rename() -> None:
            if log is not None:
                self._marks.drop(PartitionKey(log.topic_id, tp.partition))
            self.files.rename(path, aside)
            self.files.sync_folder(self.path)

        self._guard(f"setting {tp} aside", rename)
        self.notes.append(f"{path} was set aside as {aside}: {why}")
        return aside

    def _name_aside(self, tp: TopicPartition, suffix: str) -> str:
        """A new name for a log's folder that is out of use; a long topic's is cut, as Kafka does, to what file systems
        take."""
        tail = f"-{tp.partition}.{self.rng.getrandbits(128):032x}-{suffix}"
        return f"{self.path}/{tp.topic[: _NAME_BYTES_MAX - len(tail)]}{tail}"

    def _forget(self, tp: TopicPartition, key: PartitionKey) -> None:
        """No file claims anything about this log any more. Raises OSError."""
        self._marks.drop(key)
        self._found_high_watermarks.pop(tp, None)
        for checkpoint in (self._recovery_points, self._high_watermarks, self._log_starts):
            if checkpoint.claimed.get(tp):
                self._write_now(checkpoint, {**checkpoint.claimed, tp: Offset(0)})

    def _delete_later(self, path: str) -> None:
        def done(result: object) -> None:
            if isinstance(result, OSError):
                self._flush_failed(self.fail(f"deleting {path}", result))

        self._executor.submit(lambda: self._remove_folder(path), done)

    def _remove_folder(self, path: str) -> None:
        if not self.files.is_folder(path):
            return  # asked for twice: when the log was deleted, and by a loading that found it meanwhile
        for name in self.files.list(path):
            self.files.remove(f"{path}/{name}")
        self.files.remove_folder(path)

    # --- what logs call -------------------------------------------------------------------------------------------

    def fail(self, doing: str, error: OSError) -> TidelogError:
        """Judge an error of the disk: a full one stays in use, anything else takes the folder offline. Returns what to
        raise."""
        if is_full(error):
            return DiskFull(
                f"{doing}: the disk of {self.path} is full ({error.strerror}): make room; nothing was written"
            )
        if self.offline is None:
            self.offline = f"{doing}: {error}"
            self.on_offline(self)
        return KafkaStorageError(
            f"{doing} failed: {error}. The data folder {self.path} is offline; check the disk, then restart the node"
        )

    def note_held(self, log: Log) -> None:
        """Write the held mark of a log that has moved up."""
        try:
            self._marks.put(PartitionKey(log.topic_id, log.topic_partition.partition), log.held)
        except OSError as error:
            self._flush_failed(self.fail("writing held marks", error))

    def lower_marks(self, log: Log, offset: Offset) -> None:
        """Before a truncation: the files claim nothing at or above `offset` any more, durably. Raises OSError."""
        tp = log.topic_partition
        self._marks.lower(PartitionKey(log.topic_id, tp.partition), offset)
        if self._recovery_points.claimed.get(tp, 0) > offset:
            self._write_now(self._recovery_points, {**self._recovery_points.claimed, tp: offset})

    def note_log_start(self, log: Log) -> None:
        """Write down where the log starts now, durably. Raises OSError."""
        starts = {**self._log_starts.claimed, log.topic_partition: log.log_start_offset}
        self._write_now(self._log_starts, starts)

    def request_flush(self, log: Log) -> None:
        """Flush the log with the next group commit."""
        self.commit.request(log)

    def _log_held(self, log: Log) -> None:
        self.on_held(log)

    def _flush_failed(self, error: BaseException) -> None:
        self.on_flush_failure(error)

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        path = f"{self.path}/{name}"
        try:
            claimed = read_offsets(self.files, path)
        except CorruptLog as error:
            self.notes.append(f"{error.message}; logs are recovered from their beginning")
            claimed = {}
        return OffsetCheckpoint(self.files, path, claimed)

    @staticmethod
    def _write_now(checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, Offset]) -> None:
        version = checkpoint.prepare(offsets)
        if version is not None:
            checkpoint.write(version, offsets)

    def _current(self) -> list[tuple[OffsetCheckpoint, dict[TopicPartition, Offset]]]:
        """What the checkpoints should say. A log not loaded yet keeps what was found."""
        open_ = {tp: log for tp, log in self.logs.items() if log.damage is None}
        points = {**self._recovery_points.claimed, **{tp: log.recovery_point for tp, log in open_.items()}}
        marks = {**self._found_high_watermarks, **{tp: log.high_watermark for tp, log in self.logs.items()}}
        starts = {**self._log_starts.claimed}
        for tp, log in self.logs.items():
            if log.log_start_offset > log.segments[0].base_offset or starts.get(tp, 0) != 0:
                starts[tp] = log.log_start_offset
        return [
            (self._recovery_points, points),
            (self._high_watermarks, marks),
            (self._log_starts, {tp: offset for tp, offset in starts.items() if offset > 0}),
        ]

    def write_checkpoints(self) -> None:
        """Write recovery points, high watermarks and log starts in the background, where they changed.

        Also asks for the flush of logs whose `flush.ms` has run out, and again for those that a full disk kept from
        being flushed. To be called every few seconds.
        """
        if self.offline is not None:
            return
        now = self.clock.wall_ms()
        for log in self.logs.values():
            if log.flush_overdue(now) or log.held < log.log_end_offset:
                self.commit.request(log)
        prepared = [(file, file.prepare(offsets), offsets) for file, offsets in self._current()]
        changed = [(file, version, offsets) for file, version, offsets in prepared if version is not None]
        if not changed:
            return

        def work() -> None:
            for file, version, offsets in changed:
                file.write(version, offsets)

        def done(result: object) -> None:
            if isinstance(result, OSError):
                self._flush_failed(self.fail("writing checkpoints", result))

        self._executor.submit(work, done)

    def close_clean(self) -> None:
        """Close all logs and leave the marker of a clean stop. Raises KafkaStorageError, DiskFull; then there is no
        marker, and the next start recovers."""
        try:
            self._ensure_online()
            for log in self.logs.values():
                log.close()
            self._guard("closing the folder", self._write_closing_files)
        finally:
            self.close()

    def _write_closing_files(self) -> None:
        for file, offsets in self._current():
            self._write_now(file, offsets)
        self._marks.sync()
        if any(log.damage is not None for log in self.logs.values()):
            return  # the next start must find the damage again
        marker = json.dumps({"version": 0, "brokerEpoch": self._registration}, separators=(",", ":"))
        write_file(self.files, f"{self.path}/{CLEAN_SHUTDOWN}", marker.encode())

    def close(self) -> None:
        """Let go of everything as it is: no flush, no marker."""
        for log in self.logs.values():
            log.release()
        self._marks.close()
        self._lock.release()

    # --- errors ---------------------------------------------------------------------------------------------------

    def _ensure_online(self) -> None:
        if self.offline is not None:
            raise KafkaStorageError(f"the data folder {self.path} is offline: {self.offline}")

    def _guard(self, doing: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise self.fail(doing, error) from error


def _make_folder(files: Files, path: str) -> None:
    """Make the folder where it is missing, and its name, and those above it, durable."""
    if files.is_folder(path):
        return
    files.make_folder(path)
    while folder_of(path) != path and path != ".":
        path = folder_of(path)
        files.sync_folder(path)


def _read_properties(files: Files, path: str, rng: random.Random) -> dict[str, str]:
    """The contents of meta.properties, made where the folder is new."""
    data = read_file(files, f"{path}/{META_PROPERTIES}")
    if data is None:
        strangers = [name for name in files.list(path) if name not in (LOCK, f"{META_PROPERTIES}.tmp", "lost+found")]
        if strangers:
            raise InvalidConfig(
                f"{path} has no {META_PROPERTIES} but is not empty ({', '.join(strangers[:3])}…): give this node its "
                "own data "
                "folder, or an empty one"
            )
        properties = {"version": "1", "directory.id": encode_topic_id(UUID(int=rng.getrandbits(128), version=4))}
        _write_properties(files, path, properties)
        return properties
    properties = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            properties[name.strip()] = value.strip()
    try:
        decode_topic_id(properties["directory.id"])
        int(properties.get("node.id", "0"))
        if properties["version"] != "1":
            raise ValueError(f"version {properties['version']}")
    except (KeyError, ValueError) as error:
        raise InvalidConfig(
            f"{path}/{META_PROPERTIES} is damaged or of another version ({error}): restore it, or give this node "
            "another folder"
        ) from error
    return properties


def _write_properties(files: Files, path: str, properties: dict[str, str]) -> None:
    text = "".join(f"{name}={value}\n" for name, value in sorted(properties.items()))
    write_file(files, f"{path}/{META_PROPERTIES}", text.encode())


def _take_clean_marker(files: Files, path: str) -> bool:
    """Was the last stop a clean one? The marker is gone, durably, before anything is written."""
    data = read_file(files, f"{path}/{CLEAN_SHUTDOWN}")
    if data is None:
        return False
    files.remove(f"{path}/{CLEAN_SHUTDOWN}")
    files.sync_folder(path)
    return True
