"""The front end of a log: where it starts, the segments that go there, and those that cleaned ones take the place of.

Kept true:
  1. The log's start is durable before a file goes, and never above the high watermark.
  2. What goes is committed, durable and undamaged; a segment that readers or flushes still use keeps its file for them.
  3. Before segments are replaced it is durable that offsets may be missing between them, below the recovery point:
     recovery takes what is missing elsewhere for lost. While a cleaning is under way no segment is deleted; a cut ends
     the cleaning.
  4. A log is never without a segment: where all have expired, another one begins at the log end first, and its name is
     durable before theirs are gone.
Left to others: which segments may go (retention.py), the removal of their files (deleted_files.py, log_directory.py).
Source: Kafka's UnifiedLog.deleteOldSegments and maybeIncrementLogStartOffset.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from storage.compaction.cleaning import Cleaning
from storage.config import LogConfig
from storage.files.deleted_files import DeletedFiles, Leaving
from storage.files.file_system import Files
from storage.log.flush import FlushState
from storage.log.log_producers import LogProducers
from storage.log.retention import count_deletable
from storage.producers.aborted_transactions import Told
from storage.recovery.loading import Damage
from storage.segment.epoch_cache import LeaderEpochCache
from storage.segment.segment import ALL_SUFFIXES, LogSegment, segment_path
from storage.segment.segments import DELETED_SUFFIX, LogSegments
from tidelog.types import Millis, Offset


class Expired(NamedTuple):
    """Segments below `base` may go, once `keep` has made durable what is to be known of them: for any thread, raises
    OSError."""

    base: Offset
    keep: Callable[[], None]


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

    def roll(self, now: Millis, why: str) -> LogSegment:
        """Begin another segment at the log end. why: for the log line. Raises OSError."""
        ...


class LogStart:
    """The front end of one log. Its methods raise OSError. `cleaning`: the round under way."""

    __slots__ = ("_deleted", "_epochs", "_flush", "_log", "_producers", "_segments", "cleaning", "leaving")

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
        self.leaving: Leaving | None = None
        """Segments that are out of the log, and whose files are being renamed."""

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

    def started_at(self, offset: Offset) -> None:
        """It is durable that the log starts at `offset`."""
        if offset > self._log.log_start_offset:
            self._log.log_start_offset = offset
            self._epochs.truncate_from_start(offset)

    def delete_old(self, now: Millis) -> int:
        """Take out the segments that may go, before returning. Returns how many. Raises BrokenChain too."""
        expired = self.expired(now)
        if expired is None:
            return 0
        expired.keep()
        before = len(self._segments)
        self.advance(expired.base)
        leaving = self.take_out()
        if leaving is not None:
            leaving.run()
            self.left(leaving, now)
        return before - len(self._segments)

    def expired(self, now: Millis) -> Expired | None:
        """Which segments `retention.ms`, `retention.bytes` and the log's start let go; None for none. Where all have
        expired, another one is begun. Raises BrokenChain too."""
        log, segments = self._log, self._segments
        if self.cleaning is not None or self.leaving is not None:
            return None
        count = count_deletable(
            segments.all,
            log.config,
            now=now,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            limit=self._limit(),
        )
        if count == 0:
            return None
        rolled = count == len(segments)
        if rolled:
            log.roll(now, "all segments have expired")
        base = segments.all[count].base_offset
        keep_snapshot, files, path = self._producers.keeping(base), log.files, log.path

        def keep() -> None:
            if rolled:
                files.sync_directory(path)
            keep_snapshot()

        return Expired(base, keep)

    def _limit(self) -> Offset:
        """No segment that reaches beyond may go."""
        log = self._log
        limit = min(log.high_watermark, log.recovery_point)
        return limit if log.damage is None else min(limit, log.damage.first_offset)

    def take_out(self) -> Leaving | None:
        """Take the segments below the log's start, which is durable, out of the log. Returns what is to be run, on any
        thread, and then given to `left`; None where there is none, or another cleaning or removal is under way."""
        log, segments = self._log, self._segments
        if self.cleaning is not None or self.leaving is not None:
            return None
        start = min(log.log_start_offset, self._limit())
        count = sum(segment.base_offset <= start for segment in segments.all[1:])
        if count == 0:
            return None
        log.segments_went()
        taken = segments.take_first(count)
        self._flush.forget(taken)
        paths = [
            segment_path(log.path, segment.base_offset, kind) for segment in taken for kind in reversed(ALL_SUFFIXES)
        ]
        snapshots = self._producers.segments_went(log.log_start_offset)
        self.leaving = Leaving(
            log.files, self._producers.keeping(segments.first.base_offset), paths, DELETED_SUFFIX, snapshots
        )
        return self.leaving

    def free_names(self) -> None:
        """Rename what is out of the log, unless that has been done. Any thread. Raises OSError."""
        leaving = self.leaving
        if leaving is not None:
            leaving.run()

    def left(self, leaving: Leaving, now: Millis) -> None:
        """It has run."""
        if self.leaving is leaving:
            self.leaving = None
            self._put_aside(leaving.deleted, now)

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
