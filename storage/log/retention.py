"""Which of a log's oldest segments may be removed: by `retention.ms`, by `retention.bytes`, or below the log start.

Invariants:
  1. Nothing at or above the limit is removed, whatever its age. The limit is at most the high watermark and the
     recovery point: records that are not replicated yet stay (scenario 10), and so does what a restart needs.
  2. The age of a segment is that of its youngest record, by timestamp. Only if no record has one, the age counts from
     when the segment was created or loaded: the file's modification time says nothing about records.
  3. The active segment is removed only if it has data and all of it has expired. The caller rolls first; with a remote
     tier also before it is copied.
  4. Of a log with a remote tier, only what was copied without a gap is removed, whatever its age.
Not here: the removal (log_start.py), retention over both tiers (remote_retention.py).
Source: Kafka's UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from storage.log_config import LogConfig
from storage.segment.abstract_index import CorruptIndex
from storage.segment.segment import LogSegment
from tidelog.types import Millis, Offset


def count_deletable(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    now: Millis,
    log_start: Offset,
    log_end: Offset,
    limit: Offset,
    copied_end: Offset | None = None,
) -> int:
    """The number of segments that may be removed, from the oldest on. limit: no offset at or above it may be removed.
    copied_end: the end to which the remote tier has the log, None for a log without one. With it, local retention
    decides, and only the log start removes segments that are not copied. Raises BrokenChain or OSError if an index has
    to be rebuilt and cannot be."""
    too_much, may_expire = -1, limit
    if copied_end is not None:
        config = _of_node(config)
        may_expire = min(limit, copied_end)  # the records of other segments would be nowhere
    if config.delete and config.retention_bytes >= 0:
        too_much = sum(segment.size for segment in segments) - config.retention_bytes
    last = len(segments) - 1
    for count, segment in enumerate(segments):
        end = segments[count + 1].base_offset if count < last else log_end
        if end > limit or (count == last and segment.size == 0):
            return count
        below_start = count < last and end <= log_start
        is_due = end <= may_expire and (0 <= segment.size <= too_much or _expired(segment, config, now))
        if not (below_start or is_due):
            return count
        too_much -= segment.size
    return len(segments)


def active_expired(active: LogSegment, config: LogConfig, *, now: Millis, log_end: Offset, limit: Offset) -> bool:
    """True if local retention by time has passed for the active segment of a log with a remote tier: the caller rolls,
    since only closed segments are copied, and only copied ones expire. limit: as of `count_deletable`. Raises as it."""
    return active.size > 0 and log_end <= limit and _expired(active, _of_node(config), now)


def _of_node(config: LogConfig) -> LogConfig:
    """Of a log with a remote tier: what its node keeps."""
    return replace(config, remote_storage=False, retention_ms=config.local_ms, retention_bytes=config.local_bytes)


def _expired(segment: LogSegment, config: LogConfig, now: Millis) -> bool:
    if not (config.delete and 0 <= config.retention_ms < _age(segment, now)):
        return False
    if segment.size:
        segment.confirm_largest()  # a damaged time index must not delete records
    return config.retention_ms < _age(segment, now)


def _age(segment: LogSegment, now: Millis) -> float:
    """Milliseconds since the segment's youngest record; infinite for a segment that compaction has emptied."""
    return now - youngest_ms(segment) if segment.size else float("inf")


def youngest_ms(segment: LogSegment) -> Millis:
    """Timestamp of a segment's youngest record; if no record has one, the time at which the segment was created or
    loaded. Opens the time index at most once. Raises BrokenChain, OSError."""
    try:
        youngest = segment.largest.timestamp
    except CorruptIndex:
        segment.ensure_indexes()
        youngest = segment.largest.timestamp
    return youngest if youngest >= 0 else segment.created_ms
