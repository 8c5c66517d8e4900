"""Settings of a group coordinator, with Kafka's names and defaults."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelog.errors import InvalidConfig
from tidelog.settings import InvalidValue, choice, millis, number, setting, settings_of, size, texts
from tidelog.types import INT32_MAX
from tidelog.values import dataclass

UNIFORM: Final = "uniform"
RANGE: Final = "range"
KNOWN_ASSIGNORS: Final = (UNIFORM, RANGE)


class MigrationPolicy(Enum):
    """Which groups change their protocol while they have members (migration.py), by Kafka's names."""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """Whether classic groups become consumer groups."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether consumer groups become classic groups."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


def _assignors_of(items: list[str]) -> tuple[str, ...]:
    unknown = [item for item in items if item not in KNOWN_ASSIGNORS]
    if unknown or len(set(items)) < len(items):
        raise InvalidValue(f"list each of {', '.join(KNOWN_ASSIGNORS)} at most once")
    return tuple(items)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of a group coordinator. Raises InvalidConfig if they contradict each other."""

    consumer_session_timeout_ms: int = setting("group.consumer.session.timeout.ms", 45_000, millis(1, INT32_MAX))
    """a member that sends no heartbeat for this long is removed from its group"""
    consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms", 45_000, millis(1, INT32_MAX)
    )
    """lower limit of `group.consumer.session.timeout.ms`"""
    consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms", 60_000, millis(1, INT32_MAX)
    )
    """upper limit of it"""
    consumer_heartbeat_interval_ms: int = setting("group.consumer.heartbeat.interval.ms", 5_000, millis(1, INT32_MAX))
    """interval of the heartbeats of members"""
    consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms", 5_000, millis(1, INT32_MAX)
    )
    """lower limit of `group.consumer.heartbeat.interval.ms`"""
    consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms", 15_000, millis(1, INT32_MAX)
    )
    """upper limit of it"""
    consumer_max_size: int = setting("group.consumer.max.size", INT32_MAX, number(1, INT32_MAX))
    """members of a group of the consumer protocol; further ones are refused with `GROUP_MAX_SIZE_REACHED`"""
    consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors", KNOWN_ASSIGNORS, texts("assignors", _assignors_of, ",".join)
    )
    """the assignors that members may choose; the first is used for groups that choose none"""
    migration_policy: MigrationPolicy = setting(
        "group.consumer.migration.policy",
        MigrationPolicy.BIDIRECTIONAL,
        choice({policy.value: policy for policy in MigrationPolicy}),
    )
    """whether a classic group becomes one of the consumer protocol when a member of that joins (`upgrade`), and a
    classic one again when the last such member is gone (`downgrade`)"""
    # Many members that join at once cost a few assignments instead of one each (as KIP-1263,
    # `group.consumer.assignment.interval.ms`); groups below 10 members are assigned at once.
    consumer_assignment_interval_max_ms: int = setting(
        "group.consumer.assignment.interval.max.ms", 1_000, millis(1, INT32_MAX)
    )
    """Tidelog's own: the longest pause between two assignments of a large group; 1 ms for each 10 members"""
    max_size: int = setting("group.max.size", INT32_MAX, number(1, INT32_MAX))
    """members of a group of the classic protocol"""
    min_session_timeout_ms: int = setting("group.min.session.timeout.ms", 6_000, millis(1, INT32_MAX))
    """the shortest session timeout of a member of the classic protocol"""
    max_session_timeout_ms: int = setting("group.max.session.timeout.ms", 1_800_000, millis(1, INT32_MAX))
    """the longest one"""
    # Each member that joins later costs the others another rebalance.
    initial_rebalance_delay_ms: int = setting("group.initial.rebalance.delay.ms", 3_000, millis(0, INT32_MAX))
    """how long a new group of the classic protocol waits for further members before its first assignment"""
    offset_metadata_max_bytes: int = setting("offset.metadata.max.bytes", 4_096, size(1, 1 << 20))
    """the longest metadata of a committed offset"""
    offsets_retention_minutes: int = setting("offsets.retention.minutes", 7 * 24 * 60, number(1, INT32_MAX, unit="min"))
    """offsets of a group without members, or of a topic that no member subscribes to, are deleted at this age"""
    offsets_retention_check_interval_ms: int = setting("offsets.retention.check.interval.ms", 600_000, millis(1))
    """interval of looking for such offsets"""

    def __post_init__(self) -> None:
        self._check_range("consumer_session_timeout_ms", "consumer_min_session", "consumer_max_session", "_timeout_ms")
        self._check_range(
            "consumer_heartbeat_interval_ms", "consumer_min_heartbeat", "consumer_max_heartbeat", "_interval_ms"
        )
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise InvalidConfig(
                f"{_name('consumer_heartbeat_interval_ms')} is {self.consumer_heartbeat_interval_ms}; it must be "
                f"below {_name('consumer_session_timeout_ms')}, {self.consumer_session_timeout_ms}"
            )
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise InvalidConfig(
                f"{_name('min_session_timeout_ms')} is {self.min_session_timeout_ms}; it must be at most "
                f"{_name('max_session_timeout_ms')}, {self.max_session_timeout_ms}"
            )

    def _check_range(self, field: str, least: str, most: str, unit: str) -> None:
        value, low, high = getattr(self, field), getattr(self, least + unit), getattr(self, most + unit)
        if not 1 <= low <= value <= high:
            raise InvalidConfig(
                f"{_name(field)} is {value}; use {_name(least + unit)}, {low}, to {_name(most + unit)}, {high}"
            )


def _name(field: str) -> str:
    return settings_of(GroupConfig)[field].name
