"""The durable state of one log, and the flushes that advance it.

A flush ticket is created and finished on the owner's thread. It may run on any thread.

Invariants:
  1. A ticket syncs everything below `up_to` that was not durable when the ticket was created: bytes of every segment,
     indexes of closed segments, names in the directory, epoch entries.
  2. A truncation lowers `up_to` of the tickets in progress: they cover neither truncated nor later bytes at the same
     offsets.
  3. `recovery_point` and `synced` rise only with a ticket that has run, and fall only with a truncation.
  4. On a page-cache log fewer than `flush.messages` unflushed records count as durable. The append that reaches the
     limit waits for its flush, and so do the appends after it (Kafka flushes within that append).
  5. Several tickets of one log may be in progress and finish in any order. They sync one after the other. After one has
     failed, all others fail: the kernel reports an error only once, so a later fsync may succeed although bytes are
     lost.
Not here: when to flush (log.py, group_commit.py), what counts before its flush (log_positions.py), how a
failure is handled (log_directory.py).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from storage.checkpoints.checkpoint_file import PARTITION_METADATA
from storage.files.file_system import File, Files, directory_of, is_full, sync_all
from storage.recovery.loaded import LoadedLog
from storage.segment.batch_walk import BrokenChain
from storage.segment.epoch_cache import EpochFile, LeaderEpochCache
from storage.segment.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment, segment_path
from tidelog.types import EpochStart, Millis, Offset

_log: Final = logging.getLogger("storage.log")


class SyncOrder:
    """Runs the syncs of one log one at a time. For any thread."""

    __slots__ = ("_failure", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._failure: OSError | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Run one sync. Raises OSError, and after a failure always. A disk too full for the epoch file does not count
        as a failure: the next sync tries again."""
        with self._lock:
            if self._failure is not None:
                raise OSError(errno.EIO, f"an earlier sync failed ({self._failure}): unsynced data may be lost")
            try:
                work()
            except OSError as error:
                if not is_full(error):
                    self._failure = error
                raise


@dataclass(slots=True, eq=False)
class FlushTicket:
    """The files to sync, and the offset up to which the log is then durable."""

    up_to: Offset
    files: Files
    epoch_file: EpochFile
    epoch_version: int
    epochs: tuple[EpochStart, ...]
    order: SyncOrder
    begun_ms: Millis
    """When the ticket was created."""
    handles: list[File] = field(default_factory=list)
    """The files, which this ticket shares until it is released."""
    directories: list[str] = field(default_factory=list)
    """The directories whose names are synced, innermost first."""
    closed: list[LogSegment] = field(default_factory=list)
    """Closed segments whose indexes this ticket syncs."""
    new_names: bool = False
    """True if it syncs new names in the log's directory."""
    new_directory: bool = False
    """True if it syncs the name of the directory itself and its partition.metadata."""

    def run(self) -> None:
        """Sync. May run on another thread: uses only handles and directory names. Raises OSError."""
        self.order.run(self._sync)

    def _sync(self) -> None:
        sync_all(self.handles)
        for directory in self.directories:
            self.files.sync_directory(directory)
        self.epoch_file.write(self.epoch_version, self.epochs)

    def release(self) -> None:
        for handle in self.handles:
            handle.close()
        self.handles.clear()


class FlushState:
    """The durable state of one log. `new_names`: files were created or removed in its directory since the last sync of
    names. `new_directory`: the directory itself is new."""

    __slots__ = (
        "_files",
        "_order",
        "_path",
        "counted",
        "epoch_file",
        "new_directory",
        "new_names",
        "recovery_point",
        "rolled",
        "synced",
        "target",
        "tickets",
    )

    def __init__(self, files: Files, path: str, loaded: LoadedLog) -> None:
        self._files = files
        self._order = SyncOrder()
        self._path = path
        self.epoch_file = loaded.epoch_file
        self.recovery_point = loaded.recovery_point
        """Recovery after a crash reads from here."""
        self.synced = loaded.durable_offset
        """Everything below is on the disk. On a page-cache log it may be above the recovery point after a recovery."""
        self.counted = loaded.durable_offset
        """Page-cache logs: everything below counts as durable."""
        self.target = Offset(0)
        """Page-cache logs: the offset up to which a roll, `flush.messages` or `flush.ms` requires a flush."""
        self.new_directory = loaded.fresh
        self.new_names = loaded.fresh or loaded.new_names
        self.rolled: list[LogSegment] = list(loaded.rebuilt)
        """Closed segments whose trimmed indexes are not durable yet."""
        self.tickets: list[FlushTicket] = []
        """Tickets in progress."""

    def require(self, offset: Offset) -> None:
        """Require that the next flush of a page-cache log reaches `offset`."""
        self.target = max(self.target, offset)

    def note_roll(self, closed: LogSegment) -> None:
        """Record that a segment was closed and another one created."""
        self.rolled.append(closed)
        self.new_names = True

    def begin(
        self, segments: Sequence[LogSegment], up_to: Offset, epochs: LeaderEpochCache, now: Millis
    ) -> FlushTicket | None:
        """Create a ticket for everything below `up_to`; None if all of it is durable. segments: from the one that
        contains the recovery point to the active one. Raises OSError."""
        new_names = self.new_names or self.new_directory
        if up_to <= self.recovery_point and not new_names and epochs.version <= self.epoch_file.written:
            return None
        ticket = FlushTicket(
            max(up_to, self.recovery_point),
            self._files,
            self.epoch_file,
            epochs.version,
            epochs.entries,
            self._order,
            now,
        )
        try:
            self._fill(ticket, segments, up_to)
        except OSError:
            ticket.release()
            raise
        self.tickets.append(ticket)
        self.new_names = self.new_directory = False
        return ticket

    def _fill(self, ticket: FlushTicket, segments: Sequence[LogSegment], up_to: Offset) -> None:
        for segment in segments:
            if segment.base_offset > up_to:
                break
            ticket.handles.append(_handle(segment))
        for segment in self.rolled:
            if segment.base_offset < segments[0].base_offset:
                ticket.handles.append(_handle(segment))  # a preallocated file was truncated to its size
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                ticket.handles.append(self._files.open(segment_path(self._path, segment.base_offset, suffix)))
        ticket.closed = list(self.rolled)
        # Tickets are independent: this one may finish first, so it also syncs what those in progress sync.
        new_names, new_directory = self.new_names, self.new_directory
        for other in self.tickets:
            new_names |= other.new_names
            new_directory |= other.new_directory
        if new_directory:
            ticket.handles.append(self._files.open(f"{self._path}/{PARTITION_METADATA}"))
            ticket.directories = [self._path, directory_of(self._path)]
        elif new_names:
            ticket.directories = [self._path]
        ticket.new_names, ticket.new_directory = new_names, new_directory

    def finish(self, ticket: FlushTicket, now: Millis) -> bool:
        """Finish a ticket that has run. Returns True if the durable offset rose."""
        self.tickets.remove(ticket)
        ticket.release()
        if _log.isEnabledFor(logging.DEBUG):
            figures = ticket.up_to, max(0, now - ticket.begun_ms), self.recovery_point
            _log.debug("%s: flushed up to offset %d in %d ms, recovery point before: %d", self._path, *figures)
        self.rolled = [segment for segment in self.rolled if segment not in ticket.closed]
        self.recovery_point = max(self.recovery_point, ticket.up_to)
        if ticket.up_to <= self.synced:
            return False
        self.synced = ticket.up_to
        return True

    def abandon(self, ticket: FlushTicket) -> None:
        self.tickets.remove(ticket)
        ticket.release()
        self.new_names |= ticket.new_names
        self.new_directory |= ticket.new_directory

    def lower(self, offset: Offset) -> None:
        """Nothing at or above `offset` is durable any more. Tickets in progress no longer cover it."""
        for ticket in self.tickets:
            ticket.up_to = min(ticket.up_to, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.synced = min(self.synced, offset)
        self.counted = min(self.counted, offset)
        self.target = min(self.target, offset)

    def note_truncation(self, last: LogSegment) -> None:
        """Record that the segments after `last` were removed and that `last` is active again."""
        self.rolled = [segment for segment in self.rolled if segment.base_offset < last.base_offset]
        for ticket in self.tickets:
            ticket.closed = [segment for segment in ticket.closed if segment.base_offset < last.base_offset]

    def forget(self, segments: Collection[LogSegment]) -> None:
        """Drop segments that left the log. Tickets in progress keep their files."""
        self.rolled = [segment for segment in self.rolled if segment not in segments]

    def start_at(self, offset: Offset) -> None:
        """Record that the log is empty, durably, and starts at `offset`."""
        self.rolled.clear()
        self.recovery_point = self.synced = self.counted = offset


def _handle(segment: LogSegment) -> File:
    """A handle to sync a segment with. Raises OSError, also if the file is missing: what it had was not durable yet."""
    try:
        return segment.file.share()
    except BrokenChain as broken:
        raise FileNotFoundError(errno.ENOENT, broken.reason, segment.path) from broken
