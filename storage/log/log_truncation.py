"""Truncating or emptying a log without an fsync on the owner's thread.

    begin    on the owner's thread: determine the new log end; nothing at or above it counts as durable any more
    run      on any thread: lower the recorded offsets, durably; remove files, truncate the last segment, fsync; remove
             epoch entries above the new end, fsync; read the producer state at the new end
    proceed  on the owner's thread: the log now ends there. Emptying has a second `run`: the new log start is recorded
             only after everything else is removed

Invariants:
  1. A truncation has the log for itself from begin to end (`Log.truncation`): no append, no new flush, and no change of
     segments except its own. Flushes that began before may finish; they count only up to the new end.
  2. `run` accesses only files, through its own handles and objects: the owner's state in memory does not change until
     the end. Bytes below the new end are not touched.
  3. Recorded offsets are lowered before anything is removed, and bytes are removed before epochs (design section 3). If
     the disk is full while the offsets are lowered, nothing was truncated; any later failure takes the directory
     offline.
Not here: where to truncate (replication/), keeping other work away meanwhile (node/replicas/follower_replica.py,
group_commit.py).
Source: design section 3; Kafka's UnifiedLog.truncateTo and truncateFullyAndStartAt.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from storage.files.file_system import File, Files, remove_files, sync_all
from storage.log.flush import FlushState
from storage.log.log_producers import ProducersAfterTruncation
from storage.producers.producer_snapshot import snapshot_path
from storage.segment.agreed_indexes import remove_agreements
from storage.segment.batch_walk import BrokenChain, Hole
from storage.segment.epoch_cache import EpochFile, LeaderEpochCache
from storage.segment.segment import ALL_SUFFIXES, LOG_SUFFIX, LogSegment, segment_path
from storage.segment.segments import LogSegments
from tidelog.errors import CorruptLog
from tidelog.types import EpochStart, Offset

if TYPE_CHECKING:
    from storage.log.log import Log

_log: Final = logging.getLogger("storage.log")
_REMOVAL_ORDER: Final = tuple(reversed(ALL_SUFFIXES))
"""Order in which a segment's files are removed. The .log file is last: after a crash, the rest is still a segment."""


@dataclass(slots=True, eq=False)
class TruncationTicket:
    """A truncation in progress. `end`: the new log end."""

    end: Offset
    files: Files
    directory: str
    lower_claims: Callable[[], None]
    to_remove: list[str]
    """Files to remove, in this order, if they exist."""
    keep_only: frozenset[str] | None
    """Segment files with other names are removed too: loading left them behind damage. None: there are none."""
    epoch_file: EpochFile
    epoch_version: int
    epochs: tuple[EpochStart, ...] | None
    """The remaining epoch entries. None: the file has them already."""
    free_names: Callable[[], None]
    """Renames the files of old segments that left the log, unless that was done."""
    begun: bool = False
    """True once something may have been removed."""

    def run(self) -> None:
        """Run the next step. Any thread. Raises OSError."""
        self.free_names()
        self.lower_claims()
        self.begun = True
        gone = remove_agreements(self.files, self.directory)
        gone |= remove_files(self.files, (*self.to_remove, *self._leftovers()))
        if gone:
            self.files.sync_directory(self.directory)
        self._truncate()

    def _leftovers(self) -> list[str]:
        if self.keep_only is None:
            return []
        paths = (f"{self.directory}/{name}" for name in self.files.list(self.directory) if name.endswith(ALL_SUFFIXES))
        return [path for path in paths if path not in self.keep_only]

    def _truncate(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        """Close the handles."""


@dataclass(slots=True, eq=False, kw_only=True)
class Shortening(TruncationTicket):
    """A truncation after which `last` is the last segment, truncated at byte `position`. `handle`: its file, shared."""

    last: LogSegment
    position: int
    handle: File
    producers: ProducersAfterTruncation

    def _truncate(self) -> None:
        self.handle.truncate(self.position)
        sync_all([self.handle])
        if self.epochs is not None:
            self.epoch_file.write(self.epoch_version, self.epochs)
        self.producers.read()

    def release(self) -> None:
        self.handle.close()


@dataclass(slots=True, eq=False, kw_only=True)
class Emptying(TruncationTicket):
    """A truncation that empties the log: it then starts and ends at `end`. move_start: makes the new start durable
    after everything is removed."""

    move_start: Callable[[], None] | None = None

    def run(self) -> None:
        if self.move_start is None:
            TruncationTicket.run(self)
            return
        self.move_start()
        self.files.open(segment_path(self.directory, self.end, LOG_SUFFIX), create=True).close()
        self.files.sync_directory(self.directory)

    def _truncate(self) -> None:
        self.epoch_file.write(self.epoch_version, ())


class LogTruncator:
    """Truncations of one log. For the owner's thread. Methods raise OSError and BrokenChain."""

    __slots__ = ("_epochs", "_flush", "_log", "_segments")

    def __init__(self, log: Log, segments: LogSegments, epochs: LeaderEpochCache, flush: FlushState) -> None:
        self._log, self._segments, self._epochs = log, segments, epochs
        self._flush = flush

    def begin(self, offset: Offset) -> TruncationTicket | None:
        """Begin to remove everything at and above `offset`; None if there is nothing to remove. Raises CorruptLog."""
        log, damage = self._log, self._log.lost.damage
        if damage is not None and offset > damage.first_offset:
            raise CorruptLog(
                f"{log.topic_partition} lost {damage}: it cannot be truncated after the damage; empty and refetch it"
            )
        if damage is None and offset >= log.log_end_offset:
            _log.debug("%s: nothing to truncate at offset %d: the log ends at %d", log.path, offset, log.log_end_offset)
            return None
        if offset < max(self._segments.first.base_offset, log.log_start_offset):
            return self.begin_fully(min(offset, log.log_end_offset))
        last = self._segments.last_below(offset)
        end = last.end_below(offset)
        kept, position = self._epochs.below(end), last.truncation_position(end)
        if end < offset and damage is None:
            self._check_reach(last, position, end, offset)
        if end < log.log_start_offset:  # the log starts within the batch to remove
            return self.begin_fully(log.log_start_offset)
        figures = offset, log.log_end_offset, last.base_offset, position
        _log.debug("%s: truncating at offset %d, log end %d: keeps segment %d up to byte %d", log.path, *figures)
        producers = ProducersAfterTruncation(log, self._up_to(last), end, position)  # may raise: before `_lower`
        return Shortening(
            end,
            log.files,
            log.path,
            self._lower(end, end),
            [*self._files_after(last), *self._snapshots_above(end)],
            None if log.lost.damage is None else self._names_up_to(last),
            self._flush.epoch_file,
            self._epochs.version + 1,
            None if len(kept) == len(self._epochs.entries) else kept,
            log.front.free_names,
            last=last,
            position=position,
            handle=last.file.share(),
            producers=producers,
        )

    def _check_reach(self, last: LogSegment, position: int, end: Offset, offset: Offset) -> None:
        """Check a truncation that removes more than requested. Expected causes: a batch that contains `offset`, or a
        hole before it. Otherwise a batch below `offset` claims a higher one, because its base offset, which no checksum
        covers, is corrupt. Such a batch may be committed and must not be removed silently. Raises Hole, OSError."""
        behind = self._segments.behind(last)
        bound = behind[0].base_offset if behind else self._log.log_end_offset
        try:
            sound = all(header.last_offset < bound for header in last.walk(position, end))
        except BrokenChain:
            sound = False
        if not sound:
            raise Hole(position, end, offset)

    def begin_fully(self, offset: Offset) -> TruncationTicket:
        """Begin to empty the log and set its start to `offset`."""
        log = self._log
        assert offset >= 0, f"{log.path} cannot start at offset {offset}"
        _log.debug("%s: emptying the log, to start at offset %d; log end %d", log.path, offset, log.log_end_offset)
        return Emptying(
            offset,
            log.files,
            log.path,
            self._lower(Offset(0), min(offset, log.log_start_offset)),
            [*self._files_after(None), *self._snapshots_above(Offset(-1))],
            frozenset(),
            self._flush.epoch_file,
            self._epochs.version + 1,
            (),
            log.front.free_names,
        )

    def _lower(self, claimed: Offset, durable_offset: Offset) -> Callable[[], None]:
        """Nothing at or above `durable_offset` is durable any more, also in tickets in progress. Returns a function
        that lowers the offsets recorded in the directory's files to at most `claimed`."""
        self._log.lowered(durable_offset)
        return self._log.directory.claims.lowering(self._log, claimed)

    def _files_after(self, last: LogSegment | None) -> list[str]:
        """The files of the segments after `last`, newest segment first; of all segments for None."""
        behind = self._segments.all if last is None else self._segments.behind(last)
        return [
            segment_path(self._log.path, segment.base_offset, kind)
            for segment in reversed(behind)
            for kind in _REMOVAL_ORDER
        ]

    def _up_to(self, last: LogSegment) -> list[LogSegment]:
        return [segment for segment in self._segments if segment.base_offset <= last.base_offset]

    def _names_up_to(self, last: LogSegment) -> frozenset[str]:
        return frozenset(
            segment_path(self._log.path, segment.base_offset, kind)
            for segment in self._up_to(last)
            for kind in ALL_SUFFIXES
        )

    def _snapshots_above(self, end: Offset) -> list[str]:
        return [snapshot_path(self._log.path, offset) for offset in self._log.producers.state.snapshots if offset > end]

    def proceed(self, ticket: TruncationTicket) -> bool:
        """Continue after the ticket has run. Returns True if that was all; if False, run the ticket again."""
        if isinstance(ticket, Shortening):
            self._shorten(ticket)
        elif isinstance(ticket, Emptying) and ticket.move_start is None:
            log = self._log
            ticket.move_start = log.directory.claims.starting(log.topic_partition, ticket.end)
            return False
        else:
            self._empty(ticket.end)
        return True

    def _shorten(self, ticket: Shortening) -> None:
        log, last, end = self._log, ticket.last, ticket.end
        behind = self._segments.behind(last)
        figures = log.log_end_offset, end, sum(segment.size for segment in (last, *behind)) - ticket.position
        _log.info("%s: truncated from log end %d to %d: removed %d bytes, %d segments", log.path, *figures, len(behind))
        self._segments.drop_behind(last)
        self._flush.note_truncation(last)
        last.was_truncated(end, ticket.position)
        if ticket.epochs is not None:
            self._epochs.truncate_from_end(end)
        log.lost.reset(self._log.producers.truncated(ticket.producers))
        self._set_end(end)

    def _empty(self, offset: Offset) -> None:
        log = self._log
        figures = log.log_start_offset, log.log_end_offset, offset
        _log.info("%s: emptied: had log start %d and log end %d, both are %d now", log.path, *figures)
        self._segments.drop_behind(None)
        self._epochs.restore(())
        log.log_start_offset = offset
        self._segments.begin(offset, log.config, log.directory.clock.wall_ms())
        log.lost.reset(None)
        self._set_end(offset)
        self._log.producers.emptied()
        self._flush.start_at(offset)

    def _set_end(self, offset: Offset) -> None:
        log = self._log
        log.log_end_offset = offset
        self._flush.count(offset, log.config.flush_messages)
        log.high_watermark = max(min(log.high_watermark, offset), log.log_start_offset)


def run_here(log: Log, ticket: TruncationTicket | None) -> None:
    """Run a truncation to its end on the owner's thread. Raises like `Log.truncate_to`."""
    ended = ticket is None
    while ticket is not None and not ended:
        try:
            ticket.run()
        except OSError as error:
            ended = log.truncation_ran(ticket, error)
        else:
            ended = log.truncation_ran(ticket, None)


def reported_error(ticket: TruncationTicket, error: OSError) -> OSError:
    """The error to report for one of `run` or `proceed`: a full disk counts as failed once a file may be gone."""
    if not ticket.begun:
        return error
    return OSError(errno.EIO, f"{'emptying' if isinstance(ticket, Emptying) else 'truncating'} failed halfway: {error}")
