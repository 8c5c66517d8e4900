"""How much of a log compaction can clean, and whether that is worth a cleaning.

    log start ........ first dirty ........ end ........ log end
        already clean      dirty, cleanable        too young, undecided, not durable, or active

Invariants: nothing at or above the last stable offset or the durable offset is cleaned, nor the active segment. No
cleaning relies on a transaction whose marker is not durable: if the marker were lost and the transaction aborted, the
last record of a key would be gone. Segments are cleaned whole. Records younger than `min.compaction.lag.ms` stay.
Records older than `max.compaction.lag.ms` are cleaned at any dirty ratio.
Not here: which log is cleaned first (log_cleaner.py), the cleaning (cleaning.py).
Source: Kafka's LogCleanerManager.cleanableOffsets and LogToClean; KIP-354.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from storage.log.retention import youngest_ms
from storage.log_config import LogConfig
from storage.segment.segment import LogSegment
from tidelog.types import INT64_MAX, Millis, Offset


class Cleanable(NamedTuple):
    """What can be cleaned: the segments from the log's first one to the last one below `end`, by the keys from
    `first_dirty` on. overdue: part of it is older than `max.compaction.lag.ms`."""

    first_dirty: Offset
    end: Offset
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        """The dirty share of the bytes that a cleaning would read; 0 if there are none."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_it(self, config: LogConfig) -> bool:
        """True if it exceeds `min.cleanable.dirty.ratio` or is overdue."""
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_ratio)


def measure(
    segments: Sequence[LogSegment],
    config: LogConfig,
    *,
    now: Millis,
    log_start: Offset,
    log_end: Offset,
    cleaned: Offset | None,
    limit: Offset,
) -> Cleanable:
    """What can be cleaned of a log now. cleaned: the recorded offset up to which the log is clean. limit: the last
    stable offset, or the offset up to which the log and the ends of its transactions are durable. Raises BrokenChain or
    OSError if an index cannot be read."""
    is_valid = cleaned is not None and log_start <= cleaned <= log_end
    first_dirty = cleaned if cleaned is not None and is_valid else log_start
    end, clean, dirty = log_start, 0, 0
    dirty_segments = []
    for segment, behind in pairwise(segments):
        if behind.base_offset > limit:
            break
        if behind.base_offset <= first_dirty:
            clean += segment.size
        elif config.min_compaction_lag_ms > 0 and youngest_ms(segment) > now - config.min_compaction_lag_ms:
            break
        else:
            dirty += segment.size
            dirty_segments.append(segment)
        end = behind.base_offset
    return Cleanable(first_dirty, max(end, first_dirty), clean, dirty, _is_overdue(dirty_segments, config, now))


def _is_overdue(segments: Sequence[LogSegment], config: LogConfig, now: Millis) -> bool:
    """Judged by the first batch of each segment, which is usually the oldest."""
    if config.max_compaction_lag_ms == INT64_MAX:
        return False
    latest = now - config.max_compaction_lag_ms
    for segment in segments:
        first = next(segment.walk(), None)
        if first is not None and 0 < first.max_timestamp < latest:
            return True
    return False
