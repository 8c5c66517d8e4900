"""The node's settings of what is done to its logs from time to time, by Kafka's names where Kafka has them.

The names here lack the `log.` in front, which is the section of the node's file: `[log] "cleaner.backoff.ms"` is
Kafka's `log.cleaner.backoff.ms`. Left to others: a topic's settings (config.py), the doing (maintenance.py).
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
    """Room that appends leave on each directory's file system; -1: a tenth of it, at most 64 MiB."""

    checkpoint_ms: int = 5_000
    """Between two writings of recovery points, high watermarks and log starts."""

    flush_check_ms: int = 1_000
    """How exact `flush.ms` is, and how soon a directory with room again is seen."""

    retention_check_ms: int = 300_000
    """Between two looks for segments that may go."""

    producer_check_ms: int = 600_000
    """Between two looks for producers that have expired."""

    producers_max: int = 1 << 16
    """So many producers are known in all logs together, each counted once for each log; beyond, the oldest go."""

    cleaner: bool = True
    """Are logs compacted on this node?"""

    cleaner_backoff_ms: int = 15_000
    """How long a directory's cleaner waits when no log is worth cleaning."""

    cleaner_rate_max: int = INT64_MAX
    """What it reads and writes."""

    cleaner_map_bytes: int = 128 << 20
    """Memory for the offset map of one cleaning."""

    scrub_rate_max: int = 8 << 20
    """What is read again of closed segments, per directory; 0: nothing."""

    scrub_interval_ms: int = 604_800_000
    """A segment that was found sound is not read again before."""

    @classmethod
    def from_node(cls, settings: Mapping[str, str]) -> MaintenanceConfig:
        """The configuration by the names in SETTINGS. Raises InvalidConfig (naming key, value and what is allowed)."""
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
