"""Which of a log's remote segments have expired, over both tiers: the leader decides, the log start follows.

Invariants:
  1. Segments expire from the oldest on: what remains of the log has no gap.
  2. By size, at least `retention.bytes` remain in both tiers together. Segments that are in both count once.
  3. No offset at or above the limit, the high watermark, is deleted.
Not here: the deletion (the coordinator, and whoever calls the store), local segments (retention.py).
Source: Kafka's RemoteLogManager.cleanupExpiredRemoteLogSegments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from storage.log_config import LogConfig
from tidelog.tiering.remote_segment import RemoteSegment
from tidelog.types import Millis, Offset


class RemoteExpiry(NamedTuple):
    """What retention decides."""

    expired: tuple[RemoteSegment, ...]
    """To be deleted once the log start is at `log_start`, durably: no reader may be sent to them."""
    log_start: Offset


def remote_expiry(
    segments: Iterable[RemoteSegment],
    config: LogConfig,
    *,
    now: Millis,
    log_start: Offset,
    size: int,
    limit: Offset,
) -> RemoteExpiry:
    """The segments to delete. segments: those whose copy has finished, by start offset; no more are taken than expire,
    and one. size: bytes of both tiers together."""
    too_much = size - config.retention_bytes if config.retention_bytes >= 0 else -1
    start = log_start
    expired: list[RemoteSegment] = []
    for segment in segments:
        below_start = segment.end_offset <= start
        too_large = 0 <= segment.log_size <= too_much
        if segment.end_offset > limit or not (below_start or too_large or _is_old(segment, config, now)):
            break
        expired.append(segment)
        too_much -= segment.log_size
        start = max(start, segment.end_offset)
    return RemoteExpiry(tuple(expired), start)


def age_limit(config: LogConfig, *, is_pinned: bool) -> Millis | None:
    """The age at which retention deletes records; None if it deletes none by age."""
    return Millis(config.retention_ms) if config.delete and config.retention_ms >= 0 and not is_pinned else None


def _is_old(segment: RemoteSegment, config: LogConfig, now: Millis) -> bool:
    """By its youngest record, or if no record has a timestamp, since it was copied."""
    youngest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.changed_ms
    return 0 <= config.retention_ms < now - youngest
