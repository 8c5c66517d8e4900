"""Settings of a group coordinator, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.errors import InvalidConfig

UNIFORM: Final = "uniform"
RANGE: Final = "range"
KNOWN_ASSIGNORS: Final = (UNIFORM, RANGE)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of a group coordinator. Raises InvalidConfig for a value out of range."""

    consumer_session_timeout_ms: int = 45_000
    """A member that sends no heartbeat for this long is removed."""
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    """The pause between heartbeats that members are asked for."""
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = 2_147_483_647
    """Members of a consumer group."""
    consumer_assignors: tuple[str, ...] = KNOWN_ASSIGNORS
    """Names of the assignors on offer; the first is the default of groups whose members name none."""
    consumer_assignment_interval_max_ms: int = 1_000
    """The longest pause between two target assignments of a group. The pause is 1 ms for each 10 members, so that many
    members that join at once cost a few assignments instead of one each (as KIP-1263,
    `group.consumer.assignment.interval.ms`); groups below 10 members are assigned at once."""
    max_size: int = 2_147_483_647
    """Members of a classic group."""
    offset_metadata_max_bytes: int = 4_096
    """Length of the metadata of a committed offset, in UTF-8."""
    offsets_retention_minutes: int = 7 * 24 * 60
    """How long offsets are kept that are not committed again, of topics without subscription."""
    offsets_retention_check_interval_ms: int = 600_000
    """The pause between two searches for expired offsets."""

    def __post_init__(self) -> None:
        self._check_range("consumer_session_timeout_ms", "consumer_min_session", "consumer_max_session", "_timeout_ms")
        self._check_range(
            "consumer_heartbeat_interval_ms", "consumer_min_heartbeat", "consumer_max_heartbeat", "_interval_ms"
        )
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise InvalidConfig(
                f"{kafka_name('consumer_heartbeat_interval_ms')} is {self.consumer_heartbeat_interval_ms}; it must be "
                f"below {kafka_name('consumer_session_timeout_ms')}, {self.consumer_session_timeout_ms}"
            )
        for field in _AT_LEAST_ONE:
            if getattr(self, field) < 1:
                raise InvalidConfig(f"{kafka_name(field)} is {getattr(self, field)}; use 1 or more")
        unknown = [name for name in self.consumer_assignors if name not in KNOWN_ASSIGNORS]
        if unknown or not self.consumer_assignors:
            raise InvalidConfig(
                f"{kafka_name('consumer_assignors')} is {','.join(self.consumer_assignors)!r}; list one or more of "
                f"{', '.join(KNOWN_ASSIGNORS)}"
            )

    def _check_range(self, field: str, least: str, most: str, unit: str) -> None:
        value, low, high = getattr(self, field), getattr(self, least + unit), getattr(self, most + unit)
        if not 1 <= low <= value <= high:
            raise InvalidConfig(
                f"{kafka_name(field)} is {value}; use {kafka_name(least + unit)}, {low}, to "
                f"{kafka_name(most + unit)}, {high}"
            )


_AT_LEAST_ONE: Final = (
    "consumer_max_size",
    "max_size",
    "offset_metadata_max_bytes",
    "offsets_retention_minutes",
    "offsets_retention_check_interval_ms",
)


def kafka_name(field: str) -> str:
    """The name of the setting that a field of GroupConfig holds. All are Kafka's, but
    group.consumer.assignment.interval.max.ms."""
    return ("" if field.startswith("offset") else "group.") + field.replace("_", ".")
