"""Truncating or emptying a log without an fsync on the owner's thread.

    begin    on the owner's thread: determine the new log end; nothing at or above it counts as durable any more
    run      on any thread: lower the recorded offsets, durably; remove files, truncate the last segment, fsync; remove
             epoch entries above the new end, fsync; read the producer state at the new end
    proceed  on the owner's thread: the log now ends there. Emptying has a second `run`: the new log start is recorded
             only after everything else is removed. A log whose records below its new end are in the remote tier gets
             their epochs and producers before that, and starts with them

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

import logging
from collections.abc import Callable
from typing import Final

from storage.log.directory_claims import DirectoryClaims, in_order
from storage.log.log_positions import LogPositions
from storage.log.log_producers import ProducersAfterTruncation
from storage.log.log_reader import LogReader
from storage.log.log_start import LogStart
from storage.log.truncation_ticket import Emptying, RemotePart, Shortening, TruncationTicket
from storage.producers.snapshot_files import snapshot_path
from storage.segment.batch_walk import BrokenChain, Hole
from storage.segment.segment import ALL_SUFFIXES, LogSegment, segment_path
from tidelog.errors import CorruptLog
from tidelog.types import Offset

_log: Final = logging.getLogger("storage.log")
_REMOVAL_ORDER: Final = tuple(reversed(ALL_SUFFIXES))
"""Order in which a segment's files are removed. The .log file is last: after a crash, the rest is still a segment."""


class LogTruncator:
    """Truncations of one log. For the owner's thread. Methods raise OSError and BrokenChain."""

    __slots__ = ("_claims", "_epochs", "_flush", "_front", "_log", "_reader", "_segments")

    def __init__(self, log: LogPositions, reader: LogReader, front: LogStart, claims: DirectoryClaims) -> None:
        self._log, self._segments, self._epochs, self._flush = log, log.segments, log.epochs, log.flush_state
        self._reader, self._front, self._claims = reader, front, claims

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
            # Not at `offset` if records below it are in the remote tier only: they would count as deleted.
            has_remote = log.local_log_start_offset > log.log_start_offset
            return self.begin_fully(min(offset, log.log_start_offset if has_remote else log.log_end_offset))
        last = self._segments.last_below(offset)
        end = last.end_below(offset)
        kept, position = self._epochs.below(end), last.truncation_position(end)
        if end < offset and damage is None:
            self._check_reach(last, position, end, offset)
        if end < log.log_start_offset:  # the log starts within the batch to remove
            return self.begin_fully(log.log_start_offset)
        figures = offset, log.log_end_offset, last.base_offset, position
        _log.debug("%s: truncating at offset %d, log end %d: keeps segment %d up to byte %d", log.path, *figures)
        producers = ProducersAfterTruncation(  # before `_lower`: it may raise, and must have changed nothing then
            log.files,
            log.path,
            log.config,
            log.producers.state.snapshots,
            self._up_to(last),
            position,
            log_start=log.log_start_offset,
            log_end=end,
            high_watermark=max(min(log.high_watermark, end), log.log_start_offset),
            now=log.clock.wall_ms(),
        )
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
            self._front.free_names,
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

    def begin_fully(self, offset: Offset, remote: RemotePart | None = None) -> TruncationTicket:
        """Begin to empty the log and set its start to `offset`. remote: of the records below `offset`, with which the
        log starts then; None: it starts at `offset`."""
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
            self._front.free_names,
            remote=remote,
        )

    def _lower(self, claimed: Offset, durable_offset: Offset) -> Callable[[], None]:
        """Nothing at or above `durable_offset` is durable any more, also in tickets in progress. Returns a function
        that lowers the offsets recorded in the directory's files to at most `claimed`."""
        self._flush.lower(durable_offset)
        self._reader.forget()
        self._front.stop_cleaning()
        return self._claims.lowering(self._log, claimed)

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
            tp, end, remote = self._log.topic_partition, ticket.end, ticket.remote
            if remote is None:
                ticket.move_start = self._claims.starting(tp, end)
            else:  # the local start last: segments below it are not missed any more
                starts = self._claims.starting(tp, remote.log_start), self._claims.starting_locally(tp, end)
                ticket.move_start = in_order(*starts)
            return False
        elif isinstance(ticket, Emptying):
            self._empty(ticket.end, ticket.remote)
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
        log.lost.reset(log.producers.truncated(ticket.producers))
        log.truncated_to(end)

    def _empty(self, offset: Offset, remote: RemotePart | None) -> None:
        log = self._log
        start = offset if remote is None else remote.log_start
        figures = log.log_start_offset, log.log_end_offset, start, offset
        _log.info("%s: emptied: had log start %d and log end %d, has %d and %d now", log.path, *figures)
        self._segments.drop_behind(None)
        self._epochs.restore(())
        self._segments.begin(offset, log.config, log.clock.wall_ms())
        log.lost.reset(None)
        if remote is None:
            log.restarted_at(offset)
            log.producers.emptied()
        else:
            self._epochs.restore(remote.epochs)
            log.restarted_behind(remote.log_start, offset)
            log.producers.begun_at(offset, remote.producers, log.clock.wall_ms())
        self._flush.start_at(offset)
