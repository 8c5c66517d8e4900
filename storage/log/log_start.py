"""The start of a log: its log start offset, the removal of its first segments, and the replacement of cleaned segments.

Invariants:
  1. The log start is durable before a file is removed, and never above the high watermark. Of a log with a remote tier
     that is the local log start: below it, segments are gone from here and not lost.
  2. Only committed, durable and undamaged segments are removed. Their files stay for the readers and flushes that still
     use them.
  3. Before segments are replaced, it is durable that offsets may be missing between them, below the recovery point:
     anywhere else recovery treats missing offsets as lost. During a cleaning no segment is deleted. A truncation ends
     the cleaning.
  4. A log always has a segment. If all have expired, a new one is started at the log end first, and its name is durable
     before the others are removed.
Not here: which segments may be removed (retention.py), the removal of their files (deleted_files.py, log_directory.py).
Source: Kafka's UnifiedLog.deleteOldSegments and maybeIncrementLogStartOffset.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial

from storage.compaction.cleaning import Cleaning
from storage.files.deleted_files import DeletedFiles, Leaving
from storage.log.directory_claims import DirectoryClaims, in_order
from storage.log.log_positions import LogPositions
from storage.log.log_reader import LogReader
from storage.log.log_writer import LogWriter
from storage.log.retention import active_expired, count_deletable
from storage.segment.segment import ALL_SUFFIXES, LogSegment, segment_path
from storage.segment.segments import DELETED_SUFFIX
from tidelog.types import Millis, Offset


class LogStart:
    """The start of one log. Its methods raise OSError. `cleaning`: the cleaning in progress."""

    __slots__ = ("_claims", "_flush", "_log", "_reader", "_segments", "_writer", "cleaning", "deleted", "leaving")

    def __init__(self, log: LogPositions, reader: LogReader, writer: LogWriter, claims: DirectoryClaims) -> None:
        self._log, self._segments, self._flush = log, log.segments, log.flush_state
        self._reader, self._writer, self._claims = reader, writer, claims
        self.deleted = DeletedFiles()
        """Files of removed segments, until `file.delete.delay.ms` has passed."""
        self.cleaning: Cleaning | None = None
        self.leaving: Leaving | None = None
        """Segments that left the log and whose files are being renamed."""

    def expired(self, now: Millis, *, pinned: bool = False) -> tuple[Offset, Callable[[], None]] | None:
        """The segments that `retention.ms`, `retention.bytes` and the log start allow to remove; None if there are
        none. If all have expired, starts a new segment. pinned: only what is below the log start, or is copied to the
        remote tier. Also raises BrokenChain.

        Returns the base offset of the first remaining segment, and a function that makes durable what must remain known
        of the others. It must run before they are removed; on any thread; it raises OSError.
        """
        log, segments = self._log, self._segments
        if self.cleaning is not None or self.leaving is not None:
            return None
        is_tiered, end = log.config.remote_storage, log.log_end_offset
        if is_tiered and active_expired(segments.active, log.config, now=now, log_end=end, limit=self._limit()):
            # Otherwise the last records of a topic that is not written to are never copied, and outlive retention.ms.
            self._writer.roll(end, now, "local.retention.ms has passed")
        count = count_deletable(
            segments.all,
            log.config,
            now=now,
            log_start=log.log_start_offset,
            log_end=end,
            # Copied segments stay part of the log, and readers of a snapshot get them from the remote tier.
            limit=min(self._limit(), log.log_start_offset) if pinned and not is_tiered else self._limit(),
            copied_end=log.copied_end if is_tiered else None,
        )
        if count == 0:
            return None
        rolled = count == len(segments)
        if rolled:
            self._writer.roll(end, now, "all segments have expired")
        producers = log.producers.state

        def may_begin_at(base: Offset) -> bool:
            """With a remote tier, records below it are still part of the log, unless it starts there: without a
            snapshot, copies of later segments lack their open transactions, and aborted records count as committed."""
            return not is_tiered or base <= log.log_start_offset or base in producers.snapshots

        while count > 0 and not may_begin_at(segments.all[count].base_offset):
            count -= 1
        if count == 0:
            return None
        base = segments.all[count].base_offset
        keep = producers.keeping(base)
        return base, (in_order(partial(log.files.sync_directory, log.path), keep) if rolled else keep)

    def _limit(self) -> Offset:
        """No segment that ends above this offset may be removed."""
        log = self._log
        limit = min(log.high_watermark, log.recovery_point)
        return limit if log.damage is None else min(limit, log.damage.first_offset)

    def take_out(self) -> Leaving | None:
        """Remove the segments below the local log start, which is durable, from the log. Returns the work to run on any
        thread and then to pass to `left`; None if there is none, or if a cleaning or another removal is in progress."""
        log, segments = self._log, self._segments
        if self.cleaning is not None or self.leaving is not None:
            return None
        start = min(log.local_log_start_offset, self._limit())
        count = sum(segment.base_offset <= start for segment in segments.all[1:])
        if count == 0:
            return None
        self._reader.forget()  # cached positions may lie in these segments
        taken = segments.take_first(count)
        self._flush.forget(taken)
        paths = [
            segment_path(log.path, segment.base_offset, kind) for segment in taken for kind in reversed(ALL_SUFFIXES)
        ]
        snapshots = log.producers.segments_removed(log.log_start_offset)
        self.leaving = Leaving(
            log.files, log.producers.state.keeping(segments.first.base_offset), paths, DELETED_SUFFIX, snapshots
        )
        return self.leaving

    def free_names(self) -> None:
        """Rename the files of removed segments, unless that was done. Any thread. Raises OSError."""
        leaving = self.leaving
        if leaving is not None:
            leaving.run()

    def left(self, leaving: Leaving, now: Millis) -> None:
        """Finish a removal that has run."""
        if self.leaving is leaving:
            self.leaving = None
            self.deleted.put(leaving.deleted, now + self._log.config.file_delete_delay_ms)

    def replace(self, old: Sequence[LogSegment], cleaned: LogSegment, now: Millis) -> None:
        """Replace segments by the cleaned segment that was made of them and is durable as `.cleaned`. A disk that is
        full halfway is treated as failed."""
        log = self._log
        assert self.cleaning is not None, "no cleaning is in progress"
        end = self.cleaning.plan.sources[-1].end
        assert end <= log.recovery_point, "only durable segments may be cleaned"
        self._claims.allow_holes(log, end)
        try:
            dropped = self._segments.replace(old, cleaned)
        except OSError as error:  # the next start finishes it; segments added before that would be replaced too
            raise OSError(errno.EIO, f"replacing segments failed halfway: {error}") from error
        self._reader.forget()  # cached positions may lie in these segments
        log.producers.segments_replaced([segment.base_offset for segment in old], cleaned.base_offset)
        self._flush.forget(old)
        self.deleted.put(dropped, now + log.config.file_delete_delay_ms)

    def durably_decided(self) -> Offset:
        """A cleaning may rely on the end of every transaction that began below this offset: the marker is durable and
        cannot be truncated."""
        log = self._log
        point = log.recovery_point
        return point if point >= log.high_watermark else min(point, log.producers.state.decided_below(point))

    def stop_cleaning(self) -> None:
        """Cancel the cleaning, because the segments of the log change."""
        if self.cleaning is not None:
            self.cleaning.cancelled = True
            self.cleaning = None
