"""Replicas that move to another log directory of this node (KIP-113): each is copied, under load, and the copy takes
its place at a moment when both are equal.

    queued     waits for its turn: `MOVES_AT_ONCE` are copied at a time
    copying    the copy fetches from the log, throttled, until it has all of it; it is flushed, and catches up again
    swapping   both are equal: the leader holds appends, the follower holds answers; the directories change the names
    reported   the log is in its new directory; heartbeats say so until the metadata name it

Invariants:
  1. Appends are held from the moment when both logs are equal until a start can find the new one only, or until the
     move has failed; then they are appended to the log that is in use.
  2. A copy of a log that was truncated, or whose local start has passed the copy, is discarded, and another is begun.
  3. A move ends with the use of its log: a replica that is deleted or moved to another node is not moved here.
  4. The next move of a replica begins when the metadata name its present directory: a late report of an earlier move
     must not undo a later one.

Not here: the copy and its files (storage/directory/future_log.py), what a start finds (log_registry.py), requests
(node/requests/log_dirs.py), the metadata (replication/controller/moved_replicas.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from node.replicas.replica import Replica
from node.replicas.replica_registry import ReplicaRegistry
from node.runtime.work import run_in
from replication.controller.image import ClusterImage
from replication.controller.moved_replicas import MovedReplica
from replication.partition.move_throttle import MoveThrottle
from storage.directory.future_log import FutureLog, settle
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.files.disk_executor import Executor
from storage.isolation import FetchIsolation
from storage.log.cold_read import ReadTicket
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain
from tidelog.clock import Clock
from tidelog.errors import DiskFull, OffsetMovedToTieredStorage, OffsetOutOfRange, TidelogError
from tidelog.records import walk_headers
from tidelog.types import NodeId, Offset

_log = logging.getLogger("node.moves")

MOVES_AT_ONCE: Final = 4
"""Copies that grow at a time. More would compete for the same disks."""

CHUNK_BYTES: Final = 256 << 10
"""Bytes copied in one turn of the loop: a fraction of a millisecond."""

PAUSE_MS: Final = 10
"""Pause before the state of a move is looked at again."""

FULL_MS: Final = 1_000
"""Pause before an append that a full disk rejected is tried again."""

REPORTED_MAX: Final = 500
"""Moves that one heartbeat reports; the others follow with later ones."""


class DirectoryMoves:
    """The moves of one node."""

    def __init__(
        self,
        me: NodeId,
        logs: LogManager,
        registry: ReplicaRegistry,
        throttle: MoveThrottle,
        *,
        clock: Clock,
        image: Callable[[], ClusterImage],
        unsealed: Callable[[Log], None],
        report_soon: Callable[[], None] = lambda: None,
    ) -> None:
        """throttle: of the bytes copied. unsealed: called with a log that may be changed again, or that another one
        has replaced."""
        self._me, self._logs, self._registry, self._throttle = me, logs, registry, throttle
        self._clock, self._image, self._unsealed = clock, image, unsealed
        self.report_soon = report_soon
        """Sends a heartbeat."""
        self._targets: dict[Replica, LogDirectory] = {}
        """The replicas to move, in the order of the requests."""
        self._moving: dict[Replica, FutureLog] = {}
        self._moved: dict[Replica, None] = {}
        """Replicas whose present directory the metadata do not name yet."""
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = False

    # --- requests ---

    def move(self, replica: Replica, target: LogDirectory) -> None:
        """Move a replica to this directory of the node; its present one cancels a move. Raises KafkaStorageError if
        either is offline, DiskFull if the disk of this one has no room for the copy."""
        target.ensure_online()
        replica.directory.ensure_online()
        if target is replica.directory:
            if self._targets.pop(replica, None) is not None:
                _log.info("%s: stays in %s: its move was cancelled", replica, target.path)
            return
        target.check_space()
        room = target.reserve.free - target.reserve.required
        if replica.log.size > room:  # the copy would take the space from the appends of all others
            raise DiskFull(
                f"{replica} has {replica.log.size} bytes, and the disk of {target.path} has room for {max(0, room)} "
                "besides its reserve (log.reserve.bytes): free space there, or name another directory"
            )
        self._add(replica, target)

    def _add(self, replica: Replica, target: LogDirectory) -> None:
        if self._targets.get(replica) is not target:
            self._targets[replica] = target
            _log.info("%s: moves from %s to %s", replica, replica.directory.path, target.path)
        self._begin_some()

    @property
    def count(self) -> int:
        """Moves that are queued or in progress."""
        return len(self._targets)

    def installed(self, replica: Replica) -> None:
        """A replica has a log: continue a move that a crash interrupted, and report one that the metadata lack."""
        if replica.log.moved_from is not None:
            self._moved[replica] = None
            self.learn(replica)
        for directory in self._logs.working if replica.directory.offline is None else ():
            if replica.key in directory.unfinished:
                if directory is replica.directory:
                    directory.drop_unfinished(replica.key)
                else:
                    self._add(replica, directory)

    def learn(self, replica: Replica) -> None:
        """Apply what the metadata say about a replica: once they name its directory, nothing has to be reported."""
        if replica not in self._moved or self._lacks(replica):
            return
        del self._moved[replica]
        self._settle(replica)

    def deleted(self, replica: Replica) -> None:
        """The log of a replica is being deleted: it is not missing where it came from."""
        self._settle(replica)

    def _settle(self, replica: Replica) -> None:
        source = None if replica.log.moved_from is None else self._logs.working_one(replica.log.moved_from)
        if source is not None and replica.directory.offline is None:  # else at a later start
            settle(source, replica.log, replica.directory, self._begin_some)

    def forget(self, replica: Replica) -> None:
        """The log of the replica is no longer used."""
        self._targets.pop(replica, None)
        self._moved.pop(replica, None)

    def drop_unneeded(self) -> None:
        """Delete the unfinished copies of earlier processes of replicas that this node does not have any more."""
        for directory in self._logs.working:
            for key in list(directory.unfinished):
                state = self._image().partition(key)
                if state is None or self._me not in state.replicas:
                    directory.drop_unfinished(key)

    def to_report(self) -> tuple[MovedReplica, ...]:
        """The replicas that heartbeats report as moved."""
        found: list[MovedReplica] = []
        for replica in self._moved:
            state = self._image().partition(replica.key)
            if state is not None and len(found) < REPORTED_MAX and self._lacks(replica):
                found.append(MovedReplica(replica.key, replica.directory.directory_id, state.partition_epoch))
        return tuple(sorted(found, key=lambda each: each.key))

    def _lacks(self, replica: Replica) -> bool:
        """True if the metadata do not name the directory of this replica."""
        state = self._image().partition(replica.key)
        if state is None or self._me not in state.replicas:
            return False
        return state.directory_of(self._me) != replica.directory.directory_id

    # --- tasks ---

    async def run(self, stop: asyncio.Event) -> None:
        """Carry out moves until `stop` is set."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._begin_some()
            try:
                await stop.wait()
            finally:  # also when it is cancelled: no task begins then
                self._stopping = True
                self._targets.clear()

    def _begin_some(self) -> None:
        if self._tasks is None or self._stopping:
            return
        for replica in list(self._targets):
            if len(self._moving) >= MOVES_AT_ONCE:
                return
            if replica not in self._moving and replica.log.moved_from is None:
                future = FutureLog(replica.directory, replica.log, self._targets[replica])
                self._moving[replica] = future
                self._tasks.create_task(self._carry_out(replica, future))

    async def _carry_out(self, replica: Replica, future: FutureLog) -> None:
        try:
            done = await self._copy(replica, future) and await self._swap(replica, future)
        except TidelogError as error:
            if self._is_wanted(replica, future):  # else its log was closed, for example with its topic
                del self._targets[replica]
                _log.error("%s: stays in %s: its move failed: %s", replica, future.source.path, error.message)
        else:
            if done:
                self._targets.pop(replica, None)
        finally:
            if not self._stopping:  # else the next start begins it again
                future.discard()
            self._moving.pop(replica, None)
            self._begin_some()  # also again, with another copy

    def _is_wanted(self, replica: Replica, future: FutureLog) -> bool:
        """True while the move is still asked for."""
        is_asked = not self._stopping and self._targets.get(replica) is future.target
        return is_asked and replica.log is future.log and self._registry.by_key.get(replica.key) is replica

    def _goes_on(self, replica: Replica, future: FutureLog) -> bool:
        return self._is_wanted(replica, future) and future.is_valid

    # --- the copy ---

    async def _copy(self, replica: Replica, future: FutureLog) -> bool:
        """Copy the log up to its end, most of it flushed. Returns False if the copy is of no use."""
        is_flushed = False
        while self._goes_on(replica, future):
            if not self._throttle.is_open(self._clock.monotonic_ms()) or future.log.truncation is not None:
                await self._clock.sleep_ms(PAUSE_MS)
                continue
            if not future.has_begun or future.lag:
                await self._copy_some(future)
            elif not is_flushed:
                future.roll()
                await self._flush(future, future.target.background)
                is_flushed = True
            elif self._may_swap(replica, future):
                return True  # in the same turn of the loop: the log has not grown since
            else:
                await self._clock.sleep_ms(PAUSE_MS)
        return False

    def _may_swap(self, replica: Replica, future: FutureLog) -> bool:
        return (
            not _is_offline(replica)
            and future.log.damage is None
            and not future.source.claims.is_moving_start(replica.name)
        )

    async def _copy_some(self, future: FutureLog) -> None:
        try:
            read = await _read(future.log, future.next_offset)
        except (OffsetOutOfRange, OffsetMovedToTieredStorage):
            await self._clock.sleep_ms(0)
            return  # the log was truncated, or its local start has moved: the copy is not valid any more
        try:
            if not future.has_begun:
                header = next(walk_headers(read.records), None)
                ticket = future.begin(future.next_offset if header is None else header.base_offset)
                result: Log | BaseException
                try:
                    result = await run_in(future.target.executor, ticket.run)
                except OSError as error:
                    result = error
                future.begun(result)
            elif future.is_valid and len(read.records):
                future.append(read)
                self._throttle.spend(len(read.records), self._clock.monotonic_ms())
            await self._clock.sleep_ms(0)
        except DiskFull as error:
            _log.warning("moving %s: waits for space: %s", future, error.message)
            await self._clock.sleep_ms(FULL_MS)

    async def _flush(self, future: FutureLog, executor: Executor) -> None:
        """Make the copy durable. Raises KafkaStorageError, DiskFull."""
        ticket = future.begin_flush()
        if ticket is None:
            return
        try:
            await run_in(executor, ticket.run)
        except OSError as error:
            future.copy.abandon_flush(ticket)
            raise future.target.fail(f"moving {future}", error) from error
        future.copy.finish_flush(ticket)

    # --- the swap ---

    async def _swap(self, replica: Replica, future: FutureLog) -> bool:
        """Let the copy, which is equal to the log, take its place."""
        target, renamed = future.target, asyncio.Event()
        future.seal()
        replica.hold()
        began = self._clock.monotonic_ms()
        try:
            await self._flush(future, target.executor)  # not behind a cleaning or a repair: appends are held
            if not self._goes_on(replica, future) or _is_offline(replica):
                return False
            run = future.promote()
            result: Log | BaseException
            try:
                result = await run_in(target.executor, run)
            except OSError as error:
                result = error
            log = future.promoted(result)
            if _is_offline(replica):
                return False  # its directory failed meanwhile; the next start finds both logs
            replica.use(log, target)
            self._moved[replica] = None
            try:
                future.leave(renamed.set)
            except TidelogError as error:
                _log.error("%s: the log in %s was not removed: %s", replica, future.source.path, error.message)
            self.report_soon()
            while not renamed.is_set() and self._lacks(replica) and not self._stopping:
                await self._clock.sleep_ms(PAUSE_MS)
        finally:
            future.unseal()
            replica.release()
            self._unsealed(replica.log)
        at = replica, target.path, log.log_end_offset, self._clock.monotonic_ms() - began
        _log.info("%s: moved to %s, log end offset %d, appends held for %d ms", *at)
        return True


def _is_offline(replica: Replica) -> bool:
    """True if the replica is offline now; it may have become that while a move waited."""
    return replica.offline is not None


async def _read(log: Log, offset: Offset) -> LogRead:
    """The next batches, without waiting for the disk on the loop. Raises as `Log.try_fetch`."""
    found = log.try_fetch(offset, CHUNK_BYTES, FetchIsolation.LOG_END)
    if isinstance(found, LogRead):
        return found
    ready: ReadTicket | None = found
    try:
        await run_in(log.directory.reader, found.run)
    except (OSError, BrokenChain, CorruptIndex):
        ready = None  # it is read again on the loop, where errors are handled
    try:
        if log.truncation is not None:
            raise OffsetOutOfRange(f"{log.topic_partition} is being truncated")
        read = log.try_fetch(offset, CHUNK_BYTES, FetchIsolation.LOG_END, ready, wait=True)
    finally:
        found.release()
    assert isinstance(read, LogRead), "it has waited for the disk"
    return read


def lag_of(directories: Iterable[LogDirectory], future: Log) -> int:
    """Records that a copy lacks of its log."""
    logs = (directory.logs.get(future.topic_partition) for directory in directories)
    ends = [log.log_end_offset for log in logs if log is not None]
    return max(0, max(ends, default=future.log_end_offset) - future.log_end_offset)
