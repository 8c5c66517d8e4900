"""How many of a log's oldest segments may go: by `retention.ms`, by `retention.bytes`, or below the log's start.

Kept true:
  1. Nothing at or above the limit goes, however old it says it is: the limit is the high watermark, so what is not
     replicated yet stays (scenario 10), and nothing goes that a restart would look for.
  2. Age is that of the youngest record in a segment, by its timestamp. Only where no record has one does the clock
     count, from the moment on when the segment was made or loaded: the file's own time says nothing about records.
  3. The active segment goes only if it has data, all of it expired; the caller rolls first.
Left to others: the removal (log.py). Source: Kafka's UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.config import LogConfig
from storage.segment.index_errors import CorruptIndex
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
) -> int:
    """How many segments may go, from the oldest on. limit: no offset at or above it may. Raises BrokenChain, OSError
    where an index has to be rebuilt to tell and cannot be."""
    too_much = -1
    if config.delete and config.retention_bytes >= 0:
        too_much = sum(segment.size for segment in segments) - config.retention_bytes
    last = len(segments) - 1
    for count, segment in enumerate(segments):
        end = segments[count + 1].base_offset if count < last else log_end
        if end > limit or (count == last and segment.size == 0):
            return count
        below_start = count < last and end <= log_start
        if not (below_start or 0 <= segment.size <= too_much or _expired(segment, config, now)):
            return count
        too_much -= segment.size
    return len(segments)


def _expired(segment: LogSegment, config: LogConfig, now: Millis) -> bool:
    if not (config.delete and 0 <= config.retention_ms < _age(segment, now)):
        return False
    if segment.size:
        segment.confirm_largest()  # what a damaged time index says must not delete records
    return config.retention_ms < _age(segment, now)


def _age(segment: LogSegment, now: Millis) -> float:
    """Milliseconds since the segment's youngest record; one that compaction has left empty is as old as can be."""
    return now - youngest_ms(segment) if segment.size else float("inf")


def youngest_ms(segment: LogSegment) -> Millis:
    """The time of a segment's youngest record; where none has one, that from which on the segment is known here. Opens
    the time index at most once. Raises BrokenChain, OSError."""
    try:
        youngest = segment.largest.timestamp
    except CorruptIndex:
        segment.ensure_indexes()
        youngest = segment.largest.timestamp
    return youngest if youngest >= 0 else segment.created_ms
