"""The move of a log to another log directory of its node: a copy grows there until it takes the place of the log.

    TARGET/TOPIC-N.HEX-future/   the copy, which no checkpoint or mark knows; a start never uses it
    promote                      the log is sealed and the copy is flushed. TARGET records what it must know of the
                                 log, then the copy is renamed to TARGET/TOPIC-N and opened again
    leave                        SOURCE records a mark, then SOURCE/TOPIC-N is renamed to …-delete
    settle                       the metadata name TARGET: the mark goes, then `moved-from.metadata` in TARGET/TOPIC-N

A crash leaves one of three states, and the next start decides:

    before the first rename      the log is in SOURCE; the copy is deleted, and a new one is begun
    between the renames          both have the log, with the same records, since it was sealed: the metadata name
                                 SOURCE, the other one is deleted
    after both                   the log is in TARGET, the metadata may still name SOURCE: `moved-from.metadata` says
                                 that this is the same log. Without TARGET, the mark reports the log as missing

Invariants:
  1. The copy has the batches of the log, byte for byte, from its local log start up to its end. What only the remote
     tier has is not copied: the copy begins with its epochs and producers.
  2. What is appended after the copy took the place of the log must not be acknowledged before the second rename is
     durable, or the metadata name TARGET: a start could use the log in SOURCE. The caller holds appends until then.
Not here: reading the log, the throttle, the roles (node/replicas/directory_moves.py), the choice at a start
(node/replicas/log_registry.py).
Source: KIP-113; Kafka's ReplicaAlterLogDirsThread and LogManager.replaceCurrentWithFutureLog.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from storage.checkpoints.checkpoint_file import MOVED_FROM
from storage.directory.directory_changes import Retired
from storage.directory.log_directory import LogDirectory
from storage.directory.new_log import NewLog, move_aside
from storage.files.file_system import directory_of, read_file
from storage.log.flush import FlushTicket
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.log.truncation_ticket import RemotePart
from storage.producers.snapshot_files import snapshot_path
from tidelog.errors import CorruptLog
from tidelog.records.producer_snapshot import decode_snapshot, encode_snapshot
from tidelog.types import NO_LEADER_EPOCH, Offset, PartitionKey

T = TypeVar("T")


class FutureLog:
    """The copy of one log in another directory. For the owner's thread; what it returns to be run is for any thread."""

    def __init__(self, source: LogDirectory, log: Log, target: LogDirectory) -> None:
        self.source, self.log, self.target = source, log, target
        self.key = PartitionKey(log.topic_id, log.topic_partition.partition)
        self._truncations = log.truncations
        self._copy: Log | None = None
        self._promoted: Log | None = None

    def __str__(self) -> str:
        return f"{self.log.topic_partition} from {self.source.path} to {self.target.path}"

    @property
    def copy(self) -> Log:
        """The copy, which was begun."""
        assert self._copy is not None, "begin first"
        return self._copy

    @property
    def has_begun(self) -> bool:
        """True if there is a copy."""
        return self._copy is not None

    @property
    def is_valid(self) -> bool:
        """False if the log was truncated, closed, or its local start has passed what was copied: the copy is
        worthless."""
        log = self.log
        if log.closed or log.truncations != self._truncations:
            return False
        return self._copy is None or log.local_log_start_offset <= self._copy.log_end_offset

    @property
    def next_offset(self) -> Offset:
        """The offset to copy next."""
        return self.log.local_log_start_offset if self._copy is None else self.copy.log_end_offset

    @property
    def lag(self) -> int:
        """Records that are not copied yet."""
        return max(0, self.log.log_end_offset - self.next_offset)

    def begin(self, first: Offset) -> NewLog:
        """Begin the copy with the batch at `first`: run the ticket, then call `begun`. Raises KafkaStorageError,
        DiskFull."""
        target, log = self.target, self.log
        tp = log.topic_partition
        assert tp not in target.logs, f"{tp} is there already"
        target.ensure_online()
        target.reserve_space(tp, 0)
        path = target.name_aside(tp, "future")
        return NewLog(
            target,
            target.changes,
            path,
            tp,
            log.topic_id,
            log.config,
            path,
            lambda: None,
            start=first,
            moved_from=self.source.directory_id,
            remote=_remote_part(log, first) if log.log_start_offset < log.local_log_start_offset else None,
        )

    def begun(self, result: Log | BaseException) -> None:
        """Continue with the result of the ticket. Raises KafkaStorageError, DiskFull."""
        if isinstance(result, OSError):
            raise self.target.fail(f"moving {self}", result) from result
        if isinstance(result, BaseException):
            raise result
        self._copy = result
        self.target.future_logs[result.topic_partition] = result
        self.target.ensure_online()
        self.target.drop_unfinished(self.key)

    def append(self, read: LogRead) -> None:
        """Append batches of the log that begin at `next_offset`. Raises DiskFull, KafkaStorageError, CorruptRecord."""
        self.copy.append(read.records, assign_offsets=False, leader_epoch=NO_LEADER_EPOCH, epochs=read.epochs)

    def begin_flush(self) -> FlushTicket | None:
        """A ticket for all of the copy: run it, then call `finish_flush` of the copy; None if it is on the disk."""
        return self.copy.begin_flush(everything=True)

    def roll(self) -> None:
        """Start a new segment in the copy: opening it again reads only what follows."""
        if self.copy.active.size:
            self.copy.guard("rolling", lambda: self.copy.roll(self.copy.clock.wall_ms(), "its log is being moved"))

    def seal(self) -> None:
        """Keep the log as it is from now on; the copy has all of its batches."""
        log, copy = self.log, self.copy
        assert not self.lag, "the copy lacks batches"
        log.sealed = True
        if log.epochs.latest > copy.epochs.latest:
            copy.begin_epoch(log.epochs.latest)  # it has no records yet

    def unseal(self) -> None:
        """The log, or the one that took its place, may be changed again."""
        for log in (self.log, self._promoted):
            if log is not None:
                log.sealed = False

    def discard(self) -> None:
        """Delete the copy."""
        copy, self._copy, target = self._copy, None, self.target
        if copy is None:
            return
        self._release(copy)
        if target.offline is not None or not target.files.is_directory(copy.path):
            return  # the next start deletes it; or the rename failed halfway
        # A rejected `promote` may have left a mark. First: with it and without the copy, a log would be missing.
        self._drop_mark(target, then=lambda: target.delete_later(copy.path))

    def _drop_mark(self, directory: LogDirectory, then: Callable[[], None]) -> None:
        def dropped(result: object) -> None:
            if isinstance(result, OSError):
                directory.fail(f"moving {self}", result)
            else:
                then()

        directory.executor.submit(
            self._guarded(directory, lambda: directory.claims.forgetting((), [self.key])), dropped
        )

    def _release(self, copy: Log) -> None:
        self.target.future_logs.pop(copy.topic_partition, None)
        self.target.commit.forget(copy)
        copy.release()

    def promote(self) -> Callable[[], Log]:
        """Let the copy take the place of the sealed log, all of it being flushed: closes it and returns the function
        that renames and opens it, on the executor of `target`; it raises OSError. `promoted` must follow. Raises
        KafkaStorageError, DiskFull."""
        log, copy, target, tp = self.log, self.copy, self.target, self.log.topic_partition
        assert copy.recovery_point == copy.log_end_offset == log.log_end_offset, "all of it must be on the disk"
        target.ensure_online()
        target.changes.hand_over()  # an earlier log of that name must be renamed first
        record = self._guarded(
            target,
            lambda: target.claims.arriving(
                copy, self.key, log_start=log.log_start_offset, high_watermark=log.high_watermark
            ),
        )
        self._release(copy)
        path, aside = f"{target.path}/{tp}", target.name_aside(tp)
        reopen = target.opening(tp, log.topic_id, copy.config, arrived=True)

        def run() -> Log:
            target.changes.ensure_free(path)
            if target.files.is_directory(path):
                move_aside(target.files, path, aside)
            record()  # first: without its log start, the log would show deleted records after a crash
            target.files.rename(copy.path, path)
            target.files.sync_directory(target.path)
            return reopen()

        return run

    def promoted(self, result: Log | BaseException) -> Log:
        """Use the log that was opened in place of the sealed one; it is sealed too, until `unseal`. Raises
        KafkaStorageError, DiskFull, and CorruptLog if it is not the same: then it is set aside."""
        target, log = self.target, self.log
        if isinstance(result, OSError):
            raise target.fail(f"moving {self}", result) from result
        if isinstance(result, BaseException):
            raise result
        self._copy = None
        self._guarded(target, lambda: target.opened(result))
        same = (result.log_start_offset, result.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        if not same or result.damage is not None:
            target.set_aside(log.topic_partition, why := f"it is not the same as {log.path}")
            raise CorruptLog(f"moving {self}: the copy was set aside, {why}: {result.damage or result}")
        result.succeed(log)
        result.sealed, self._promoted = True, result  # a new role or a deletion must wait for the second rename too
        return result

    def leave(self, renamed: Callable[[], None]) -> None:
        """Delete the sealed log, whose copy has taken its place. `renamed` follows once the next start cannot find it
        any more. Raises KafkaStorageError, DiskFull: then the log stays there, closed."""
        source, log, tp = self.source, self.log, self.log.topic_partition
        del source.logs[tp]
        source.commit.forget(log)
        log.release()
        source.ensure_online()
        keep_mark = self._guarded(source, lambda: source.claims.leaving(log, self.key))
        source.changes.retire(
            Retired(
                tp,
                self.key,
                log.path,
                source.name_aside(tp, "delete"),
                aside=False,
                keep_mark=keep_mark,
                renamed=renamed,
            )
        )

    def _guarded(self, directory: LogDirectory, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise directory.fail(f"moving {self}", error) from error


def _remote_part(log: Log, local_start: Offset) -> Callable[[], RemotePart]:
    """Returns the function that reads what the log knows of the records below its local start; on any thread."""
    log_start, epochs = log.log_start_offset, log.epochs.below(local_start)
    files, path = log.files, snapshot_path(log.path, local_start)

    def read() -> RemotePart:
        producers = read_file(files, path) or b""
        try:
            decode_snapshot(producers, path)
        except CorruptLog:
            producers = encode_snapshot(())  # as the next start would do: `succeed` takes over what memory has
        return RemotePart(log_start, epochs, producers)

    return read


def settle(source: LogDirectory, log: Log, target: LogDirectory, done: Callable[[], None]) -> None:
    """Forget where a log came from: the metadata name its directory, or it is being deleted. In the background, then
    `done` follows. After a failure the next start does it."""
    key, path = PartitionKey(log.topic_id, log.topic_partition.partition), f"{log.path}/{MOVED_FROM}"

    def unmarked(result: object) -> None:
        if isinstance(result, OSError):
            source.fail("dropping a mark", result)
        else:  # only now: with the mark and without the file, the next start would report the log as missing
            target.executor.submit(remove, removed)

    def remove() -> None:
        with suppress(FileNotFoundError):  # the log is deleted meanwhile
            target.files.remove(path)
            target.files.sync_directory(directory_of(path))

    def removed(result: object) -> None:
        if isinstance(result, OSError):
            target.fail("removing the origin of a log", result)
        else:
            log.moved_from = None
            done()

    try:
        drop_mark = source.claims.forgetting((), [key])
    except OSError as error:
        source.fail("dropping a mark", error)
    else:
        source.executor.submit(drop_mark, unmarked)
