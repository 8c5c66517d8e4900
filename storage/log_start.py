"""The front end of a log: where it starts, the segments that go there, and those that cleaned ones take the place of.

Kept true:
  1. The log's start is durable before a file goes, and never above the high watermark.
  2. What goes is committed, durable and undamaged; a segment that readers or flushes still use keeps its file for them.
  3. Before segments are replaced it is durable that offsets may be missing between them, below the recovery point:
     recovery takes what is missing elsewhere for lost. While a cleaning is under way no segment is deleted; a cut ends
     the cleaning.
  4. A log is never without a segment: where all have expired, another one begins at the log end first, and its name is
     durable before theirs are gone.
Left to others: which segments may go (retention.py), the removal of their files (deleted_files.py, data_folder.py).
Source: Kafka's UnifiedLog.deleteOldSegments and maybeIncrementLogStartOffset.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

from storage.aborted_transactions import Told
from storage.cleaning import Cleaning
from storage.config import LogConfig
from storage.deleted_files import DeletedFiles
from storage.epoch_cache import LeaderEpochCache
from storage.files import Files
from storage.flush import FlushState
from storage.loading import Damage
from storage.log_producers import LogProducers
from storage.retention import count_deletable
from storage.segment import LogSegment
from storage.segments import LogSegments
from tidelog.types import Millis, Offset


class OwnLog(Protocol):
    """What its log does for the front end."""

    config: LogConfig
    log_start_offset: Offset
    log_end_offset: Offset
    high_watermark: Offset

    @property
    def damage(self) -> Damage | None: ...
    @property
    def files(self) -> Files: ...
    @property
    def path(self) -> str: ...
    @property
    def recovery_point(self) -> Offset: ...

    def log_start_moved(self) -> None:
        """Make durable where the log starts now. Raises OSError."""
        ...

    def allow_holes(self, end: Offset) -> None:
        """Make durable that segments below `end` may be emptied. Raises OSError."""
        ...

    def segments_went(self) -> None:
        """Segments are no part of the log any more: forget where readers were in them."""
        ...

    def roll(self, now: Millis) -> LogSegment:
        """Begin another segment at the log end. Raises OSError."""
        ...


class LogStart:
    """The front end of one log. Its methods raise OSError. `cleaning`: the round under way."""

    __slots__ = ("_deleted", "_epochs", "_flush", "_log", "_producers", "_segments", "cleaning")

    def __init__(
        self,
        log: OwnLog,
        segments: LogSegments,
        epochs: LeaderEpochCache,
        flush: FlushState,
        producers: LogProducers,
    ) -> None:
        self._log, self._segments, self._epochs, self._flush = log, segments, epochs, flush
        self._producers = producers
        self._deleted = DeletedFiles()
        self.cleaning: Cleaning | None = None

    def advance(self, offset: Offset) -> bool:
        """Let the log start at `offset`, which is not above the high watermark. Returns whether that is new."""
        log, before = self._log, self._log.log_start_offset
        if offset <= before:
            return False
        log.log_start_offset = offset
        try:
            log.log_start_moved()
        except OSError:
            log.log_start_offset = before
            raise
        self._epochs.truncate_from_start(offset)
        return True

    def delete_old(self, now: Millis) -> int:
        """Take out the segments that may go. Returns how many. Raises BrokenChain too."""
        log, segments = self._log, self._segments
        if self.cleaning is not None:
            return 0
        limit = min(log.high_watermark, log.recovery_point)
        if log.damage is not None:
            limit = min(limit, log.damage.first_offset)
        count = count_deletable(
            segments.all,
            log.config,
            now=now,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            limit=limit,
        )
        if count == 0:
            return 0
        if count == len(segments):
            log.roll(now)
            log.files.sync_folder(log.path)
        self._producers.segments_will_go(segments.all[count].base_offset)
        self.advance(segments.all[count].base_offset)
        log.segments_went()
        self._producers.segments_went(log.log_start_offset)
        self._flush.forget(segments.all[:count])
        self._put_aside(segments.drop_first(count), now)
        return count

    def replace(self, old: Sequence[LogSegment], cleaned: LogSegment, now: Millis) -> None:
        """Let a cleaned segment, durable as `.cleaned`, take the place of those that it was made of. A disk that
        is full in the middle of it is no better than a broken one."""
        log = self._log
        assert self.cleaning is not None, "no cleaning is under way"
        end = self.cleaning.plan.sources[-1].end
        assert end <= log.recovery_point, "what is not durable must not be cleaned"
        log.allow_holes(end)
        try:
            dropped = self._segments.replace(old, cleaned)
        except (
            OSError
        ) as error:  # the next start finishes it: until then nothing may come that it would replace as well
            raise OSError(errno.EIO, f"half swapped when {error}") from error
        log.segments_went()
        self._producers.segments_replaced([segment.base_offset for segment in old], cleaned.base_offset)
        self._flush.forget(old)
        self._put_aside(dropped, now)

    def durably_decided(self) -> Offset:
        """A cleaning may go by the ends of all transactions that began below: their markers will not be lost again."""
        log = self._log
        point = log.recovery_point
        return point if point >= log.high_watermark else min(point, self._producers.decided_below(point))

    def unbelieved(self, end: Offset) -> list[LogSegment]:
        """The closed segments below `end` of which a cleaning must know what their batches say of transactions."""
        return self._producers.unbelieved(end)

    def believe(self, segment: LogSegment, told: Told) -> None:
        """What `tell` said of such a segment."""
        self._producers.believe(segment, told)

    def stop_cleaning(self) -> None:
        """The log's segments change: what a cleaning has made of them is of no use."""
        if self.cleaning is not None:
            self.cleaning.cancelled = True
            self.cleaning = None

    def _put_aside(self, paths: list[str], now: Millis) -> None:
        self._deleted.put(paths, now + self._log.config.file_delete_delay_ms)

    @property
    def has_deleted(self) -> bool:
        """Do files wait to be removed?"""
        return len(self._deleted) > 0

    def take_deleted(self, now: Millis) -> list[str]:
        """The files whose time has come."""
        return self._deleted.take(now)
