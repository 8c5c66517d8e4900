"""One log directory: its logs, and the handling of failures and lack of space on its disk.

    DIRECTORY/TOPIC-N/                     one log
           TOPIC-N.HEX-stray/, -delete/ set aside; to be deleted
           TOPIC-N.HEX-future/          a copy of a log of another directory, to be moved here (future_log.py)
           the other files              directory_identity.py, directory_claims.py

Invariants:
  1. The offsets recorded in the directory's files are true of the disk: a truncation lowers them, durably, before it
     removes bytes.
  2. After an error of the disk the directory is offline: this process writes nothing in it any more.
  3. Only `delete_log` deletes a log. A log that cannot be loaded is set aside and reported.
Not here: several directories (log_manager.py), which logs should exist, and the consequences of a lost one (node/,
replication/).
Source: Kafka's LogManager; design section 4, rule 6.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Final, TypeVar

from storage.checkpoints.checkpoint_file import PARTITION_DIRECTORY, read_moved_from, read_partition_metadata
from storage.checkpoints.directory_identity import DirectoryIdentity
from storage.directory.directory_changes import DirectoryChanges, Retired, Started
from storage.directory.group_commit import GroupCommit
from storage.directory.load_progress import LoadProgress, segment_by_segment
from storage.directory.new_log import NewLog, move_aside, run_ticket
from storage.directory.reserve import Reserve
from storage.directory.salvage import Salvage
from storage.files.deleted_files import Leaving, remove_log_directory
from storage.files.disk_executor import Executor, InlineExecutor
from storage.files.file_system import Files, is_full, remove_files
from storage.log.directory_claims import DirectoryClaims, in_order
from storage.log.log import Log
from storage.log.recent_appends import RecentAppends
from storage.log_config import LogConfig
from storage.recovery.loaded import Damage, Progress
from storage.recovery.loading import load_log
from storage.segment.segment import OpenSegments
from tidelog.errors import DiskFull, KafkaStorageError, TidelogError
from tidelog.types import (
    INT64_MAX,
    METADATA_TOPIC,
    DirectoryId,
    Durability,
    NodeId,
    Offset,
    PartitionIndex,
    PartitionKey,
    TopicId,
    TopicPartition,
    WallClock,
)

_DELETED: Final = re.compile(r".+-\d+\.[0-9a-f]+-delete")
_STRAY: Final = re.compile(r".+-\d+\.[0-9a-f]+-stray")
_FUTURE: Final = re.compile(r".+-(?P<partition>\d+)\.[0-9a-f]+-future")
_NAME_BYTES_MAX: Final = 255
"""Longest name of a file or directory on Linux (NAME_MAX)."""

T = TypeVar("T")
ConfigOf = Callable[[TopicPartition, TopicId], LogConfig]


def _ignore(_: object) -> None:
    return None


def waits(log: Log) -> bool:
    """True if the log needs another visit of maintenance: a flush, or the removal of files."""
    unflushed = log.log_end_offset > log.recovery_point and log.config.flush_ms < INT64_MAX
    return unflushed or log.durable_offset < log.log_end_offset or len(log.front.deleted) > 0


def _not_opened(path: str, error: OSError) -> KafkaStorageError:
    remedy = "check the disk"
    if isinstance(error, (FileExistsError, NotADirectoryError, FileNotFoundError, PermissionError)):
        remedy = "it must be a directory that the node may make and write; name another one in log.dirs"
    return KafkaStorageError(f"the log directory {path} cannot be opened ({error.strerror or error}): {remedy}")


class LogDirectory:
    """A log directory in use by this process."""

    future_logs: dict[TopicPartition, Log]
    """Copies of logs of other directories, which are being moved here."""
    unfinished: dict[PartitionKey, list[str]]
    """Paths of the copies that an earlier process left unfinished: they are never used."""

    def __init__(
        self,
        path: str,
        *,
        files: Files,
        clock: WallClock,
        rng: random.Random,
        executor: Executor | None = None,
        syncer: Executor | None = None,
        background: Executor | None = None,
        reader: Executor | None = None,
        syncs_at_once: int = 1,
        reserve_bytes: int = 0,
        boot_id: bytes = b"",
    ) -> None:
        """Open a log directory. An empty or missing one is created with a new id.

        executor: runs checkpoints and deletions; default: immediately. syncer: runs flushes, `syncs_at_once` in
        parallel. background: runs cleaning and the scrub. reader: runs reads that wait for the disk. These three
        default to `executor`. reserve_bytes: the setting of Reserve. boot_id: of the current boot of the machine.

        Raises KafkaStorageError if the disk fails or another process uses the directory, InvalidConfig if it is no log
        directory.
        """
        path = path.rstrip("/") or "/"
        executor = executor or InlineExecutor()
        try:
            self.identity = DirectoryIdentity(files, path, rng, boot_id)
            """Id, cluster and node of the directory, and how its last process stopped."""
            try:
                self.claims = DirectoryClaims(files, path)
                self.reserve = Reserve(files, path, reserve_bytes)
                """The free space that appends must leave."""
            except BaseException:
                self.identity.release()
                raise
        except OSError as error:
            raise _not_opened(path, error) from error
        self.path = path
        self.files = files
        self.clock = clock
        self.rng = rng
        self.offline: str | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.open_segments = OpenSegments()
        self.recent_appends = RecentAppends()
        self.notes: list[str] = [*self.identity.notes, *self.claims.notes]
        """What loading truncated, rebuilt or set aside, in sentences."""
        self.missing: dict[PartitionKey, Damage] = {}
        """Logs that had durable records and whose directory was not found (complete after `load_logs`)."""
        self.when_durable: list[Callable[[Log], None]] = []
        """Called, on the owner's thread, when a flush made more of a log durable."""
        self.when_offline: list[Callable[[LogDirectory], None]] = []
        """Called, on the owner's thread, when the directory failed; `offline` is the reason."""
        self.commit = GroupCommit(syncer or executor, self._log_durable, at_once=syncs_at_once)
        self.executor = executor
        """Runs the work of this directory that may wait for its disk, one piece after the other."""
        self.changes = DirectoryChanges(
            files,
            path,
            self.claims,
            executor,
            ensure_online=self.ensure_online,
            fail=self.fail,
            on_renamed=self._log_renamed,
        )
        """Deletions, renames and moves of the log start."""
        self.background = background or executor
        """Runs long work that may be interrupted: cleaning and the scrub."""
        self.reader = reader or executor
        """Runs reads that wait for the disk."""
        self._seen: set[PartitionKey] = set()
        self._changed: dict[Log, None] = {}
        """Logs that may need a flush or the removal of files. Maintenance looks only at these."""
        self.future_logs, self.unfinished = {}, {}
        self.in_salvage: set[TopicPartition] = set()
        """Damaged logs that are closed while they are rewritten without the lost records."""
        self._unwritten = True
        """True if the checkpoints may be stale."""

    # --- identity -------------------------------------------------------------------------------------------------

    @property
    def directory_id(self) -> DirectoryId:
        return self.identity.directory_id

    def adopt(self, cluster_id: str, node_id: NodeId) -> None:
        """Assign the directory to a node of a cluster, durably. Raises InconsistentClusterId, InvalidConfig,
        KafkaStorageError, DiskFull."""
        self._guard("writing meta.properties", lambda: self.identity.adopt(cluster_id, node_id))

    def write_registration(self, number: int) -> None:
        """Record the number of the node's registration, durably. It only grows. Raises KafkaStorageError, DiskFull."""
        self._guard("writing the registration", lambda: self.identity.write_registration(number))

    # --- logs -----------------------------------------------------------------------------------------------------

    def load_logs(
        self,
        config_of: ConfigOf,
        *,
        only: Callable[[TopicPartition], bool] | None = None,
        progress: Callable[[LoadProgress], None] = _ignore,
    ) -> dict[TopicPartition, Log]:
        """Open all logs of the directory that are not open yet, with recovery where needed. May take long. Returns all
        open logs.

        config_of: returns the settings of the topic. only: load just these logs (the metadata log is loaded before all
        others); the call without it completes the loading. progress: called after each log and each recovered segment.
        A directory that is no readable log is set aside. Raises KafkaStorageError, DiskFull.
        """
        found = [tp for tp in self._find_logs() if only is None or only(tp)]
        loaded_bytes = 0
        for number, tp in enumerate(found, 1):
            so_far = LoadProgress(self.path, str(tp), number - 1, len(found), loaded_bytes)
            report = segment_by_segment(so_far, progress)
            self._guard(f"loading {self.path}/{tp}", lambda tp=tp, report=report: self._load(tp, config_of, report))  # type: ignore[misc]
            log = self.logs.get(tp)
            loaded_bytes += 0 if log is None else log.size
            progress(LoadProgress(self.path, str(tp), number, len(found), loaded_bytes))
        self._guard("writing checkpoints", lambda: self.claims.bound_watermarks(self.logs.values()))
        if only is None:
            self._guard("looking for unfinished moves", self._find_unfinished)
            self._find_missing()
        return dict(self.logs)

    def _find_logs(self) -> list[TopicPartition]:
        """The logs in the directory that are not open. Interrupted deletions continue."""
        found = []
        for name in self._guard("listing the directory", lambda: self.files.list(self.path)):
            match = PARTITION_DIRECTORY.fullmatch(name)
            if _DELETED.fullmatch(name):
                self.delete_later(f"{self.path}/{name}")
            elif match is not None and not _STRAY.fullmatch(name) and not _FUTURE.fullmatch(name):
                tp = TopicPartition(match["topic"], PartitionIndex(int(match["partition"])))
                if tp not in self.logs and self.files.is_directory(f"{self.path}/{name}"):
                    found.append(tp)
        return found

    def _load(self, tp: TopicPartition, config_of: ConfigOf, report: Progress) -> None:
        topic_id = read_partition_metadata(self.files, f"{self.path}/{tp}")
        if topic_id is None:
            self.set_aside(tp, "its partition.metadata is missing or damaged")
            return
        self.opened(self.opening(tp, topic_id, config_of(tp, topic_id), report)())

    def opening(
        self,
        tp: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        report: Progress | None = None,
        *,
        arrived: bool = False,
    ) -> Callable[[], Log]:
        """Returns the function that opens the log in TOPIC-N, with recovery where needed. It runs on any thread and
        raises OSError. `opened` must follow. arrived: the log has come from another directory since the start."""
        path, key = f"{self.path}/{tp}", PartitionKey(topic_id, tp.partition)
        known = self.claims.known(tp, key, clean=self.identity.was_clean and not arrived)
        watermark = self.claims.high_watermark(tp)

        def run() -> Log:
            loaded = load_log(self.files, path, config, self.clock, self.rng, known, report)
            log = Log(self, path, tp, topic_id, config, loaded, watermark)
            log.moved_from = read_moved_from(self.files, path)
            return log

        return run

    def opened(self, log: Log) -> None:
        """Register a log that was opened. Raises OSError."""
        tp, key = log.topic_partition, PartitionKey(log.topic_id, log.topic_partition.partition)
        known = self.claims.known(tp, key, clean=self.identity.was_clean)
        self.notes.extend(log.notes)
        self.logs[tp] = log
        self.note_changed(log)
        self._seen.add(key)
        if log.damage is None and log.durable_offset > known.durable_offset:
            self.note_durable(log)
        if known.foreign and log.config.compact:
            self.claims.allow_holes(log, log.log_end_offset)  # holes made by Kafka are no loss at later starts either

    def _find_unfinished(self) -> None:
        """Find copies that an earlier process left unfinished, and drop their marks: no log is missing. The move begins
        again with a new copy (node/)."""
        for name in self.files.list(self.path):
            match = _FUTURE.fullmatch(name)
            path = f"{self.path}/{name}"
            topic_id = None if match is None else read_partition_metadata(self.files, path)
            if match is None:
                continue
            if topic_id is None:
                self.delete_later(path)  # a deletion was interrupted
                continue
            key = PartitionKey(topic_id, PartitionIndex(int(match["partition"])))
            self.unfinished.setdefault(key, []).append(path)
            if key not in self._seen:
                self.claims.forgetting((), [key])()

    def drop_unfinished(self, key: PartitionKey) -> None:
        """Delete what an earlier process left of a move of this log: another copy was begun, or none is needed."""
        for path in self.unfinished.pop(key, ()):
            self.delete_later(path)

    def _find_missing(self) -> None:
        for key in self.claims.marks.all():
            gone = self.is_gone(key)
            if gone is not None:
                self.missing[key] = gone

    def is_gone(self, key: PartitionKey) -> Damage | None:
        """The loss of a log that had durable records here but has no directory. Call it after loading."""
        durable_offset = self.claims.marks.get(key)
        if key in self._seen or durable_offset <= 0:
            return None
        return Damage(self.path, 0, Offset(0), durable_offset, "the directory of this log is missing")

    def damaged(self) -> dict[PartitionKey, Damage]:
        """All known damage: of open logs, and of missing logs. Reported at registration (design section 4)."""
        return {**self.missing, **self.damaged_logs()}

    def damaged_logs(self) -> dict[PartitionKey, Damage]:
        return {
            PartitionKey(log.topic_id, log.topic_partition.partition): log.damage
            for log in self.logs.values()
            if log.damage is not None
        }

    def create_log(self, tp: TopicPartition, topic_id: TopicId, config: LogConfig) -> Log:
        """`begin_log` and `finish_log` in one call: for tools, starts and tests."""
        return self.finish_log(ticket := self.begin_log(tp, topic_id, config), run_ticket(ticket.run))

    def begin_log(self, tp: TopicPartition, topic_id: TopicId, config: LogConfig) -> NewLog:
        """Begin to create an empty log: run the ticket on `executor`, then call `finish_log`.

        The mark of an earlier log of the same key is dropped: call this only after the loss of that log was handled.
        Raises KafkaStorageError, DiskFull.
        """
        assert tp not in self.logs, f"{tp} is open already"
        self.ensure_online()
        self.reserve_space(tp, 0)
        self.changes.hand_over()  # an earlier log of that name must be renamed first
        forget = self._guard(
            f"creating {tp}", lambda: self.claims.forgetting([(tp, PartitionKey(topic_id, tp.partition))])
        )
        return NewLog(self, self.changes, f"{self.path}/{tp}", tp, topic_id, config, self.name_aside(tp), forget)

    def finish_log(self, ticket: NewLog, result: Log | BaseException) -> Log:
        """Finish with the result of the ticket, or the error that it raised. Requests the first flush, which makes the
        names durable. Raises KafkaStorageError, DiskFull."""
        tp = ticket.tp
        if ticket.set_aside:
            self.notes.append(f"{ticket.path} was set aside as {ticket.aside}: a new log was created at its path")
        if isinstance(result, OSError):
            raise self.fail(f"creating {tp}", result) from result
        if isinstance(result, BaseException):
            raise result
        self.ensure_online()
        key = PartitionKey(ticket.topic_id, tp.partition)
        self.logs[tp] = result
        self.note_changed(result)
        self._seen.add(key)
        self.missing.pop(key, None)
        self.in_salvage.discard(tp)
        self.commit.request(result)
        return result

    def delete_log(self, tp: TopicPartition) -> None:
        """Delete a log: closed at once, renamed and removed in the background. Raises KafkaStorageError."""
        self._retire(self.logs[tp], self.name_aside(tp, "delete"), aside=False)

    def set_aside(self, tp: TopicPartition, why: str) -> str:
        """Rename a partition directory to `…-stray`, in the background, and keep its files. Returns its new path.
        Raises KafkaStorageError.

        The offsets recorded about an open log are dropped: the caller has handled its records. A log that cannot be
        opened keeps its mark, so that it counts as missing.
        """
        self.ensure_online()
        log, aside = self.logs.get(tp), self.name_aside(tp)
        if log is not None:
            self._retire(log, aside, aside=True)
        else:
            self._guard(f"setting {tp} aside", lambda: move_aside(self.files, f"{self.path}/{tp}", aside))
        self.notes.append(f"{self.path}/{tp} was set aside as {aside}: {why}")
        return aside

    def _retire(self, log: Log, new_path: str, *, aside: bool) -> None:
        tp = log.topic_partition
        del self.logs[tp]
        self.commit.forget(log)
        log.release()
        self.ensure_online()
        self.changes.retire(Retired(tp, PartitionKey(log.topic_id, tp.partition), log.path, new_path, aside))

    def _log_renamed(self, log: Retired) -> None:
        if not log.aside:
            self.delete_later(log.new_path)

    def salvage(self, log: Log) -> Salvage:
        """What can be read of a damaged log. Run it on any thread."""
        durable_offset = max(log.log_end_offset, Offset(0) if log.damage is None else log.damage.end_offset)
        return Salvage(
            self.files, log.path, log.log_start_offset, durable_offset, log.epochs.entries, holes=log.config.compact
        )

    def name_aside(self, tp: TopicPartition, suffix: str = "stray") -> str:
        """A new path for a copy of a log or for a log that is no longer used. A long topic name is shortened, as in
        Kafka."""
        tail = f"-{tp.partition}.{self.rng.getrandbits(128):032x}-{suffix}"
        return f"{self.path}/{tp.topic[: _NAME_BYTES_MAX - len(tail)]}{tail}"

    def _run_in_background(self, work: Callable[[], object], doing: str) -> None:
        def done(result: object) -> None:
            if isinstance(result, OSError):
                self.fail(doing, result)

        self.background.submit(work, done)

    def delete_later(self, path: str) -> None:
        """Remove a partition directory that was renamed or never used, in the background."""
        self._run_in_background(lambda: remove_log_directory(self.files, path), f"deleting {path}")

    # --- what logs call -------------------------------------------------------------------------------------------

    def fail(self, doing: str, error: OSError) -> TidelogError:
        """Handle an error of the disk: after a full disk the directory stays online, after any other error it goes
        offline. Returns the error to raise."""
        if is_full(error):
            return DiskFull(
                f"{doing}: the disk of {self.path} is full ({error.strerror}): free some space; nothing was written"
            )
        self.take_offline(f"{doing}: {error}")
        return KafkaStorageError(
            f"{doing} failed: {error}. The log directory {self.path} is offline; check the disk, then restart the node"
        )

    def take_offline(self, why: str) -> None:
        """Take the directory offline for the rest of this process."""
        if self.offline is None:
            self.offline = why
            for call in self.when_offline:
                call(self)

    def note_changed(self, log: Log) -> None:
        """The state of the log changed: maintenance looks at it until it needs no more work."""
        self._changed[log] = None
        self._unwritten = True

    def note_durable(self, log: Log) -> None:
        """Write the durable-offset mark of a log whose durable offset rose. A copy of a log has none: lost, it is no
        missing log."""
        if self.logs.get(log.topic_partition) is not log:
            return
        try:
            self.claims.marks.put(PartitionKey(log.topic_id, log.topic_partition.partition), log.durable_offset)
        except OSError as error:
            self.fail("writing durable-offset marks", error)

    def reserve_space(self, tp: TopicPartition, size: int) -> None:
        """Reserve free space for an append or a new log. The metadata log may use the reserve: nothing could be deleted
        without it. Raises DiskFull, KafkaStorageError."""
        if (log := self.logs.get(tp)) is not None:
            self.note_changed(log)
        if tp.topic != METADATA_TOPIC:
            try:
                self.reserve.take(size)
            except OSError as error:
                raise self.fail(f"querying the free space of {self.path}", error) from error

    def request_flush(self, log: Log) -> None:
        """Flush the log with the next group commit."""
        self.commit.request(log)

    def _log_durable(self, log: Log) -> None:
        self.note_changed(log)
        for call in self.when_durable:
            call(log)

    # --- maintenance ----------------------------------------------------------------------------------------------

    def check_space(self) -> None:
        """Query the free space of the file system. Raises KafkaStorageError."""
        self._guard(f"querying the free space of {self.path}", self.reserve.query)

    def request_flushes(self) -> None:
        """Flush the logs whose `flush.ms` has passed, and those whose flush a full disk rejected."""
        now = self.clock.wall_ms()
        for log in list(self._changed):
            if log.closed or not waits(log):
                del self._changed[log]
            elif log.flush_overdue(now) or log.durable_offset < log.log_end_offset:
                self.commit.request(log)

    def remove_deleted_files(self) -> None:
        """Remove, in the background, files that left their logs at least `file.delete.delay.ms` ago."""
        now = self.clock.wall_ms()
        paths = [path for log in self._changed if not log.closed for path in log.front.deleted.take(now)]
        if paths:
            self._run_in_background(lambda: remove_files(self.files, paths), f"removing files in {self.path}")
        self.changes.retry()

    def move_log_start(self, log: Log, offset: Offset, moved: Started = _ignore) -> None:
        """Move a log start up to `offset`, at most to the high watermark, in the background, and then remove the
        segments before it; never down. `moved` follows if the log starts below `offset` now."""
        offset = min(offset, log.high_watermark)
        if offset > log.log_start_offset:
            self.drop_before(log, offset, moved=moved)

    def drop_expired(self, log: Log, done: Started = _ignore) -> None:
        """Move the log start past the expired segments and remove them from the log, in the background. `done` follows
        if there are any. Raises CorruptLog, KafkaStorageError, DiskFull."""
        if log.front.leaving is not None:
            self._rename(log, log.front.leaving, done)  # a full disk rejected it before
            return
        # A pinned log starts where it did: a snapshot may begin right there.
        expired = log.guard(
            "looking for old segments of", lambda: log.front.expired(self.clock.wall_ms(), pinned=log.pinned)
        )
        if expired is not None:
            base, keep = expired
            if log.config.remote_storage and base > log.log_start_offset:
                self._drop_local(log, base, keep, done)
            else:
                self.drop_before(log, base, done, first=keep)

    def _drop_local(self, log: Log, base: Offset, keep: Callable[[], None], done: Started) -> None:
        """Remove segments that the remote tier has from the log, in the background. The log start stays."""
        write = self.claims.starting_locally(log.topic_partition, base)

        def started(result: object) -> None:
            if isinstance(result, OSError):
                done(self.fail(f"recording the local log start of {log.path}", result))
                return
            # A truncation that began meanwhile has lowered the recorded start again.
            if log.closed or log.truncation is not None or self.claims.local_start(log.topic_partition) != base:
                return
            log.locally_started_at(base)
            leaving = log.front.take_out()
            if leaving is not None:
                self._rename(log, leaving, done)

        self.note_changed(log)
        self.executor.submit(in_order(keep, write), started)

    def drop_before(
        self,
        log: Log,
        offset: Offset,
        done: Started = _ignore,
        *,
        first: Callable[[], None] | None = None,
        moved: Started = _ignore,
    ) -> None:
        """Move a log start to `offset`, which is not above the high watermark, and remove the segments before it, in
        the background. first: see DirectoryChanges.move_start. `moved` follows when the log start is durable, `done`
        when the segments left the log."""

        def started(failure: TidelogError | None) -> None:
            moved(failure)
            leaving = None
            if failure is None and not log.closed and log.truncation is None:
                leaving = log.front.take_out()
            if leaving is None:
                done(failure)
            else:
                self._rename(log, leaving, done)

        self.note_changed(log)
        self.changes.move_start(log, offset, started, first=first)

    def _rename(self, log: Log, leaving: Leaving, done: Started) -> None:
        def renamed(result: object) -> None:
            if isinstance(result, OSError):
                done(self.fail(f"renaming old segments of {log.path}", result))
            else:
                log.front.left(leaving, self.clock.wall_ms())
                self.note_changed(log)
                done(None)

        self.executor.submit(leaving.run, renamed)

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def write_checkpoints(self) -> None:
        """Write changed recovery points, high watermarks and log starts in the background. Call it every few
        seconds."""
        if self.offline is not None or not self._unwritten:
            return
        self._unwritten = False
        try:
            self._write_later(self.claims.prepare(self.logs.values()))
        except OSError as error:
            self._unwritten = True
            self.fail("writing durable-offset marks", error)

    def keep_damage(self, log: Log, *, accepted: bool) -> None:
        """Make sure that a next start finds what a log has lost below its recovery point, unless the log is replaced
        before. With `accepted`, the loss is accepted because no other replica can continue, and this is undone. In the
        background.

        Damage found at a start is found again at the next one. On a page-cache log this is not done: there, the damage
        could not be distinguished from a torn tail.
        """
        damage = log.damage
        fsynced = log.config.durability is Durability.FSYNC
        if self.offline is not None or damage is None or not fsynced or not log.lost.takes_appends:
            return
        offset = log.recovery_point if accepted else min(damage.first_offset, log.recovery_point)
        try:
            self._write_later(self.claims.recovering_from(log, offset))
        except OSError as error:
            self.fail("writing durable-offset marks", error)

    def _write_later(self, write: Callable[[], None] | None) -> None:
        if write is None:
            return

        def done(result: object) -> None:
            if isinstance(result, OSError):
                self._unwritten = True
                self.fail("writing checkpoints", result)

        self.executor.submit(write, done)

    @property
    def busy(self) -> bool:
        """True if a flush, a truncation or a change of logs is in progress."""
        return self.commit.busy or self.changes.busy

    def close_clean(self) -> None:
        """Close all logs and write the clean-shutdown marker. Raises KafkaStorageError, DiskFull; the marker is not
        written then, and the next start recovers."""
        try:
            self.ensure_online()
            for log in self.logs.values():
                log.close()
            self._guard("closing the directory", self._write_closing_files)
        finally:
            self.close()

    def _write_closing_files(self) -> None:
        self.claims.write(self.logs.values())
        if self.in_salvage or any(log.damage is not None for log in self.logs.values()):
            return  # no marker: the next start must find the damage again
        self.identity.leave_clean_marker()

    def close(self) -> None:
        """Close everything as it is: no flush, no clean-shutdown marker."""
        for log in (*self.logs.values(), *self.future_logs.values()):
            log.release()
        self.claims.close()
        self.identity.release()

    # --- errors ---------------------------------------------------------------------------------------------------

    def ensure_online(self) -> None:
        if self.offline is not None:
            raise KafkaStorageError(f"the log directory {self.path} is offline: {self.offline}")

    def _guard(self, doing: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise self.fail(doing, error) from error
