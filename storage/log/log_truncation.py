"""Cutting a log back, or emptying it, so that no fsync of it keeps the owner's thread waiting.

    begin    on the owner's thread: where the log will end; nothing at or above that counts as durable any more
    run      anywhere: what files claim falls, durably; files go, the last one is cut, fsync; the epochs over what is
             gone go, fsync; what producers had done by then is read anew
    go_on    on the owner's thread: the log ends there. One that is emptied has another piece to run first: where it
             starts now is claimed only when nothing of it is left

Kept true:
  1. From its beginning to its end a cut has the log for itself (`Log.cut`): nothing is appended, no flush begins, no
     segment comes or goes but by the cut. Flushes that had begun may end beside it: they count only up to the cut.
  2. `run` touches files only, by handles and objects of its own: what the owner has in memory is as it was until the
     end. Bytes below the new end are not touched at all.
  3. What files claim falls before anything goes, and bytes go before epochs (design section 3). A disk that was full
     when the claims were to fall has cut nothing; any failure after that takes the directory offline.
Left to others: where to cut (replication/), keeping everybody else away meanwhile (node/replicas/partition.py,
group_commit.py).
Source: design section 3; Kafka's UnifiedLog.truncateTo and truncateFullyAndStartAt.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from storage.config import LogConfig
from storage.files.file_system import File, Files, sync_all
from storage.log.flush import FlushState
from storage.log.log_damage import LogDamage
from storage.log.log_host import LogHost
from storage.log.log_producers import LogProducers
from storage.log.log_start import LogStart
from storage.producers.producer_snapshot import snapshot_path
from storage.producers.producers_after_truncation import ProducersAfterTruncation
from storage.segment.agreed_indexes import remove_agreements
from storage.segment.batch_walk import BrokenChain, Hole
from storage.segment.epoch_cache import EpochFile, LeaderEpochCache
from storage.segment.segment import ALL_SUFFIXES, LOG_SUFFIX, LogSegment, segment_path
from storage.segment.segments import LogSegments
from tidelog.errors import CorruptLog
from tidelog.types import EpochStart, Millis, Offset, TopicId, TopicPartition

_log: Final = logging.getLogger("storage.log")
_REMOVAL_ORDER: Final = tuple(reversed(ALL_SUFFIXES))
"""Of one segment's files, the .log last: what is left of it after a crash is then still a segment."""


class OwnLog(Protocol):
    """What its log does for a cut."""

    config: LogConfig
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset
    lost: LogDamage
    front: LogStart

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> TopicId: ...
    @property
    def files(self) -> Files: ...
    @property
    def directory(self) -> LogHost: ...
    @property
    def path(self) -> str: ...

    def lowered(self, offset: Offset) -> None:
        """Nothing at or above `offset` is durable any more, nor to be read where it was."""
        ...


@dataclass(slots=True, eq=False)
class TruncationTicket:
    """A cut under way. `end`: where the log will end."""

    end: Offset
    files: Files
    directory: str
    lower_claims: Callable[[], None]
    doomed: list[str]
    """Files that go, in this order, where they are there."""
    leftovers_but: frozenset[str] | None
    """Segment files with other names go too: what loading left behind damage. None: there are none."""
    epoch_file: EpochFile
    epoch_version: int
    epochs: tuple[EpochStart, ...] | None
    """None: those over the rest are there already."""
    free_names: Callable[[], None]
    """Renames the files of old segments that are out of the log, unless that has been done."""
    begun: bool = False
    """May something be gone?"""

    def run(self) -> None:
        """The next piece of work. Any thread. Raises OSError."""
        self.free_names()
        self.lower_claims()
        self.begun = True
        gone = remove_agreements(self.files, self.directory)
        for path in (*self.doomed, *self._leftovers()):
            if self.files.size(path) is not None:
                self.files.remove(path)
                gone = True
        if gone:
            self.files.sync_directory(self.directory)
        self._cut()

    def _leftovers(self) -> list[str]:
        if self.leftovers_but is None:
            return []
        paths = (f"{self.directory}/{name}" for name in self.files.list(self.directory) if name.endswith(ALL_SUFFIXES))
        return [path for path in paths if path not in self.leftovers_but]

    def _cut(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        """Let go of what it holds."""


@dataclass(slots=True, eq=False, kw_only=True)
class Shortening(TruncationTicket):
    """The log goes on behind `last`, cut at byte `position`; `handle`: of its file, with one user more."""

    last: LogSegment
    position: int
    handle: File
    producers: ProducersAfterTruncation

    def _cut(self) -> None:
        self.handle.truncate(self.position)
        sync_all([self.handle])
        if self.epochs is not None:
            self.epoch_file.write(self.epoch_version, self.epochs)
        self.producers.read()

    def release(self) -> None:
        self.handle.close()


@dataclass(slots=True, eq=False, kw_only=True)
class Emptying(TruncationTicket):
    """The log is emptied, and starts and ends at `end`. move_start: makes that durable, once nothing is left."""

    move_start: Callable[[], None] | None = None

    def run(self) -> None:
        if self.move_start is None:
            TruncationTicket.run(self)
            return
        self.move_start()
        self.files.open(segment_path(self.directory, self.end, LOG_SUFFIX), create=True).close()
        self.files.sync_directory(self.directory)

    def _cut(self) -> None:
        self.epoch_file.write(self.epoch_version, ())


class LogTruncator:
    """Cuts of one log. For the owner's thread; methods raise OSError and BrokenChain."""

    __slots__ = ("_epochs", "_flush", "_log", "_producers", "_segments")

    def __init__(
        self,
        log: OwnLog,
        segments: LogSegments,
        epochs: LeaderEpochCache,
        flush: FlushState,
        producers: LogProducers,
    ) -> None:
        self._log, self._segments, self._epochs = log, segments, epochs
        self._flush, self._producers = flush, producers

    def begin(self, offset: Offset) -> TruncationTicket | None:
        """Cut everything at and above `offset`; None where there is nothing. Raises CorruptLog."""
        log, damage = self._log, self._log.lost.damage
        if damage is not None and offset > damage.first_offset:
            raise CorruptLog(f"{log.topic_partition} lost {damage}: it must be emptied and refetched, not cut behind")
        if damage is None and offset >= log.log_end_offset:
            _log.debug("%s: nothing to truncate at offset %d: the log ends at %d", log.path, offset, log.log_end_offset)
            return None
        if offset < max(self._segments.first.base_offset, log.log_start_offset):
            return self.begin_anew(min(offset, log.log_end_offset))
        last = self._segments.last_below(offset)
        end = last.end_below(offset)
        kept, position = self._epochs.below(end), last.truncation_position(end)
        if end < offset and damage is None:
            self._check_reach(last, position, end, offset)
        if end < log.log_start_offset:  # the log starts within the batch that goes
            return self.begin_anew(log.log_start_offset)
        figures = offset, log.log_end_offset, last.base_offset, position
        _log.debug("%s: truncating at offset %d, log end %d: keeps segment %d up to byte %d", log.path, *figures)
        producers = ProducersAfterTruncation(
            log.files,
            log.path,
            log.config.producer_id_expiration_ms,
            self._up_to(last),
            last_size=position,
            snapshots=self._producers.snapshots,
            log_start=log.log_start_offset,
            log_end=end,
            high_watermark=max(min(log.high_watermark, end), log.log_start_offset),
            now=self._now(),
        )
        return Shortening(
            end,
            log.files,
            log.path,
            self._lower(end, end),
            [*self._files_behind(last), *self._snapshots_above(end)],
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
        """More goes than was asked for: a batch that holds `offset`, or a hole lies before it; or a batch below it says
        that it were above, since its base offset has rotted, which no checksum covers. That one is not to go unnoticed:
        it may be committed. Raises Hole, OSError."""
        behind = self._segments.behind(last)
        bound = behind[0].base_offset if behind else self._log.log_end_offset
        try:
            sound = all(header.last_offset < bound for header in last.walk(position, end))
        except BrokenChain:
            sound = False
        if not sound:
            raise Hole(position, end, offset)

    def begin_anew(self, offset: Offset) -> TruncationTicket:
        """Empty the log and let it start at `offset`."""
        log = self._log
        assert offset >= 0, f"{log.path} was to start at {offset}"
        _log.debug("%s: emptying the log, to start at offset %d; log end %d", log.path, offset, log.log_end_offset)
        return Emptying(
            offset,
            log.files,
            log.path,
            self._lower(Offset(0), min(offset, log.log_start_offset)),
            [*self._files_behind(None), *self._snapshots_above(Offset(-1))],
            frozenset(),
            self._flush.epoch_file,
            self._epochs.version + 1,
            (),
            log.front.free_names,
        )

    def _lower(self, claimed: Offset, durable_offset: Offset) -> Callable[[], None]:
        """Nothing at or above `held` is durable any more: here, and in tickets under way. Returns what makes the
        directory's files claim nothing at or above `claimed`."""
        self._log.lowered(durable_offset)
        return self._log.directory.lowering_marks(self._log, claimed)

    def _files_behind(self, last: LogSegment | None) -> list[str]:
        """The files of the segments behind this one, the youngest first; of all of them for None."""
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
        return [snapshot_path(self._log.path, offset) for offset in self._producers.snapshots if offset > end]

    def _now(self) -> Millis:
        return self._log.directory.clock.wall_ms()

    # --- the end --------------------------------------------------------------------------------------------------

    def go_on(self, ticket: TruncationTicket) -> bool:
        """The ticket has run. Returns whether that was all, and the log is what is left; else it has more to run."""
        if isinstance(ticket, Shortening):
            self._shorten(ticket)
        elif isinstance(ticket, Emptying) and ticket.move_start is None:
            ticket.move_start = self._log.directory.moving_log_start(self._log, ticket.end)
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
        log.lost.reset(self._producers.cut(ticket.producers))
        self._set_end(end)

    def _empty(self, offset: Offset) -> None:
        log = self._log
        figures = log.log_start_offset, log.log_end_offset, offset
        _log.info("%s: emptied: had log start %d and log end %d, both are %d now", log.path, *figures)
        self._segments.drop_behind(None)
        self._epochs.clear()
        log.log_start_offset = offset
        self._segments.begin(offset, log.config, self._now())
        log.lost.reset(None)
        self._set_end(offset)
        self._producers.emptied()
        self._flush.start_at(offset)

    def _set_end(self, offset: Offset) -> None:
        log = self._log
        log.log_end_offset = offset
        self._flush.count(offset, log.config.flush_messages)
        log.high_watermark = max(min(log.high_watermark, offset), log.log_start_offset)


class TruncateLog(Protocol):
    """A log of which a cut has begun."""

    def truncation_ran(self, ticket: TruncationTicket, error: BaseException | None) -> bool: ...


def run_here(log: TruncateLog, ticket: TruncationTicket | None) -> None:
    """Run a cut to its end on the owner's thread. Raises as `Log.truncate_to`."""
    ended = ticket is None
    while ticket is not None and not ended:
        try:
            ticket.run()
        except OSError as error:
            ended = log.truncation_ran(ticket, error)
        else:
            ended = log.truncation_ran(ticket, None)


def as_judged(ticket: TruncationTicket, error: OSError) -> OSError:
    """How an error of `run` or `go_on` is to be judged: a disk that is full once something may be gone is no better
    than a broken one."""
    if not ticket.begun:
        return error
    return OSError(errno.EIO, f"half {'emptied' if isinstance(ticket, Emptying) else 'cut'} when {error}")
