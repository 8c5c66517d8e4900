"""The node's settings of log maintenance, by Kafka's names where Kafka has them.

Not here: the settings of topics (storage/log_config.py), the maintenance itself (maintenance.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.directory.reserve import AUTOMATIC
from tidelog.settings import flag, millis, number, setting, size
from tidelog.types import INT32_MAX, INT64_MAX

_CHECK_MS_MIN: Final = 10


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """Times in milliseconds, sizes in bytes, rates in bytes per second."""

    reserve_bytes: int = setting("log.reserve.bytes", AUTOMATIC, size(AUTOMATIC))
    """Tidelog's own: space on the file system of each log directory that appends and new logs leave free; -1: a tenth
    of the file system, at most 64 MiB; 0: none. Below it they are rejected with `DiskFull` until a quarter of the
    reserve more is free; reads, deletions, truncations, checkpoints and the metadata log continue"""
    checkpoint_ms: int = setting("log.flush.offset.checkpoint.interval.ms", 5_000, millis(_CHECK_MS_MIN))
    """interval of writing recovery points, high watermarks and log start offsets (Kafka: 60000, and 5000 for high
    watermarks)"""
    flush_check_ms: int = setting("log.flush.scheduler.interval.ms", 1_000, millis(_CHECK_MS_MIN))
    """interval of checking `flush.ms` and the free space of the log directories"""
    retention_check_ms: int = setting("log.retention.check.interval.ms", 300_000, millis(_CHECK_MS_MIN))
    """interval of looking for segments to delete"""
    producer_check_ms: int = setting("producer.id.expiration.check.interval.ms", 600_000, millis(_CHECK_MS_MIN))
    """interval of looking for expired producers"""
    producers_max: int = 1 << 16
    """The producers known in all logs together, each counted once for each log; beyond it some of the topics with the
    most are forgotten (maintenance.py). The node derives it from `memory.max.bytes`."""
    cleaner: bool = setting("log.cleaner.enable", True, flag())
    """logs are compacted on this node"""
    cleaner_backoff_ms: int = setting("log.cleaner.backoff.ms", 15_000, millis(0))
    """pause of a directory's cleaner when no log needs compaction"""
    cleaner_rate_max: int = setting("log.cleaner.io.max.bytes.per.second", INT64_MAX, number(1, unit="bytes/s"))
    """limit of what the cleaner of one log directory reads and writes"""
    cleaner_map_bytes: int = setting("log.cleaner.dedupe.buffer.size", 128 << 20, size(1 << 10, INT32_MAX))
    """memory for the offset map of one compaction"""
    scrub_rate_max: int = setting("log.scrub.bytes.per.second", 8 << 20, number(0, unit="bytes/s"))
    """Tidelog's own: limit of what the scrub of one log directory reads of closed segments to find damage; 0: none"""
    scrub_interval_ms: int = setting("log.scrub.interval.ms", 604_800_000, millis(0))
    """Tidelog's own: a segment that was found intact is not read again before this time"""
