"""The node's settings for maintenance, under Kafka's names where Kafka has them.

The names here lack the prefix `log.`, which is the section of the node's file: `[log] "cleaner.backoff.ms"` is Kafka's
`log.cleaner.backoff.ms`.
Not here: topic settings (config.py), the work itself (maintenance.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from storage.config import INT64_MAX
from storage.directory.reserve import AUTOMATIC
from tidelog.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class MaintenanceConfig:
    """Times in milliseconds, sizes in bytes, rates in bytes per second."""

    reserve_bytes: int = AUTOMATIC
    """Free space that appends leave on each directory's file system; -1: a tenth of it, at most 64 MiB."""

    checkpoint_ms: int = 5_000
    """Interval of writing recovery points, high watermarks and log starts."""

    flush_check_ms: int = 1_000
    """The precision of `flush.ms`, and the delay until free space in a full directory is noticed."""

    retention_check_ms: int = 300_000
    """Interval of looking for segments to remove."""

    producer_check_ms: int = 600_000
    """Interval of looking for expired producers."""

    producers_max: int = 1 << 16
    """Limit of producers in all logs, counted once per log. Above it, the longest idle ones are removed."""

    cleaner: bool = True
    """True if logs are compacted on this node."""

    cleaner_backoff_ms: int = 15_000
    """Pause of a directory's cleaner when no log is worth cleaning."""

    cleaner_rate_max: int = INT64_MAX
    """Limit for its reads and writes."""

    cleaner_map_bytes: int = 128 << 20
    """Memory for the offset map of one cleaning."""

    scrub_rate_max: int = 8 << 20
    """Limit for reading closed segments again, per directory; 0: no scrub."""

    scrub_interval_ms: int = 604_800_000
    """Minimum time between two checks of the same sound segment."""

    @classmethod
    def from_node(cls, settings: Mapping[str, str]) -> MaintenanceConfig:
        """The configuration from the names in SETTINGS. Raises InvalidConfig with key, value and the allowed values."""
        changes: dict[str, object] = {}
        for key, value in settings.items():
            field, parse = SETTINGS[key]
            changes[field] = parse(key, value)
        return replace(cls(), **changes)  # type: ignore[arg-type]  # each parser gives its field's type


def _number(low: int, high: int = INT64_MAX) -> Callable[[str, str], int]:
    def parse(key: str, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise InvalidConfig(f"{key} is {value!r}: it must be a whole number from {low} to {high}")
        return number

    return parse


def _flag(key: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise InvalidConfig(f"{key} is {value!r}: it must be true or false")
    return value == "true"


_OFFSET_MAP_BYTES_MAX: Final = 2**31 - 1
_CHECK_MS_MIN: Final = 10

SETTINGS: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = {
    "reserve.bytes": ("reserve_bytes", _number(AUTOMATIC)),
    "flush.offset.checkpoint.interval.ms": ("checkpoint_ms", _number(_CHECK_MS_MIN)),
    "flush.scheduler.interval.ms": ("flush_check_ms", _number(_CHECK_MS_MIN)),
    "retention.check.interval.ms": ("retention_check_ms", _number(_CHECK_MS_MIN)),
    "producer.id.expiration.check.interval.ms": ("producer_check_ms", _number(_CHECK_MS_MIN)),
    "cleaner.enable": ("cleaner", _flag),
    "cleaner.backoff.ms": ("cleaner_backoff_ms", _number(0)),
    "cleaner.io.max.bytes.per.second": ("cleaner_rate_max", _number(1)),
    "cleaner.dedupe.buffer.size": ("cleaner_map_bytes", _number(1 << 10, _OFFSET_MAP_BYTES_MAX)),
    "scrub.bytes.per.second": ("scrub_rate_max", _number(0)),
    "scrub.interval.ms": ("scrub_interval_ms", _number(0)),
}
