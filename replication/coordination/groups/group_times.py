"""The session timeout and the heartbeat interval of consumer groups: those that a group has of its own, in the
metadata, otherwise those of the node (KIP-848, dynamic settings of groups).

The limits of the active controller hold when a setting is changed; those of a node, which may be others or may have
changed since, when it is used: a value outside them counts as the nearest one inside. A change counts from the next
heartbeat of each member on, as in Kafka.
Not here: how they are changed (replication/controller/group_configs.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.topic_catalog import TopicCatalog
from tidelog.errors import InvalidConfig
from tidelog.settings import settings_of

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"

FIELDS: Final[Mapping[str, str]] = {
    SESSION_TIMEOUT: "consumer_session_timeout_ms",
    HEARTBEAT_INTERVAL: "consumer_heartbeat_interval_ms",
}
"""The fields of GroupConfig which the settings of a group replace."""

_LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    SESSION_TIMEOUT: ("consumer_min_session_timeout_ms", "consumer_max_session_timeout_ms"),
    HEARTBEAT_INTERVAL: ("consumer_min_heartbeat_interval_ms", "consumer_max_heartbeat_interval_ms"),
}
"""The fields of GroupConfig with the least and the largest value."""


class Times(NamedTuple):
    """The times of a group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


def valid_group_configs(config: GroupConfig, configs: Mapping[str, str]) -> dict[str, str]:
    """The settings, each value as numbers are written. config: that of the node, with the limits. Raises InvalidConfig
    if a group cannot have them."""
    declared = settings_of(GroupConfig)
    own: dict[str, int] = {}
    for key, text in configs.items():
        value = _parsed(key, text)
        low, high = _limits(config, key)
        if not low <= value <= high:
            least, most = (declared[limit].name for limit in _LIMITS[key])
            raise InvalidConfig(f"{key} is {value}; use {low} to {high}, which are {least} and {most} of the nodes")
        own[key] = value
    session, interval = _merged(config, own)
    if interval >= session:
        raise InvalidConfig(
            f"{_named(HEARTBEAT_INTERVAL, own)} is {interval}; it must be below {_named(SESSION_TIMEOUT, own)}, "
            f"{session}"
        )
    return {key: str(value) for key, value in own.items()}


def _limits(config: GroupConfig, key: str) -> tuple[int, int]:
    low, high = _LIMITS[key]
    return getattr(config, low), getattr(config, high)


def _parsed(key: str, text: str) -> int:
    field = FIELDS.get(key)
    if field is None:
        raise InvalidConfig(f"unknown group setting {key[:100]!r}; valid settings: {', '.join(FIELDS)}")
    value: int = settings_of(GroupConfig)[field].parse(text, key)
    return value


def _merged(config: GroupConfig, own: Mapping[str, int]) -> Times:
    return Times(
        own.get(SESSION_TIMEOUT, config.consumer_session_timeout_ms),
        own.get(HEARTBEAT_INTERVAL, config.consumer_heartbeat_interval_ms),
    )


def _named(key: str, own: Mapping[str, int]) -> str:
    """The setting that has the value: the caller's, or that of the nodes if the group has none."""
    return key if key in own else f"{settings_of(GroupConfig)[FIELDS[key]].name} of the nodes"


class GroupTimes:
    """The times in effect. Those of a group are computed once for each state of the settings of groups."""

    def __init__(self, config: GroupConfig, catalog: TopicCatalog) -> None:
        """config: of the node. catalog: has the newest image."""
        self._config, self._catalog = config, catalog
        self._of_node = _merged(config, {})
        self._computed_from: Mapping[str, Mapping[str, str]] = {}
        self._computed: dict[str, Times] = {}
        self._contradictory: dict[str, Mapping[str, str]] = {}
        """The settings of groups that cannot be used, to name each once."""
        self._notices: deque[str] = deque()

    def session_timeout_ms(self, group_id: str) -> int:
        """A member that sends no heartbeat for this long is removed."""
        return self._of(group_id).session_timeout_ms

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Interval of the heartbeats of members."""
        return self._of(group_id).heartbeat_interval_ms

    def take_notice(self) -> str:
        """Why the settings of one group do not count, once; empty: nothing new."""
        return self._notices.popleft() if self._notices else ""

    def _of(self, group_id: str) -> Times:
        configs = self._catalog.image.group_configs
        if configs is not self._computed_from:
            self._computed_from, self._computed = configs, {}
            self._contradictory = {group: own for group, own in self._contradictory.items() if group in configs}
        own = configs.get(group_id)
        if own is None:
            return self._of_node
        found = self._computed.get(group_id)
        if found is None:
            found = self._computed[group_id] = self._compute(group_id, own)
        return found

    def _compute(self, group_id: str, configs: Mapping[str, str]) -> Times:
        try:
            own = {key: self._within_limits(key, _parsed(key, text)) for key, text in configs.items() if key in FIELDS}
            times = _merged(self._config, own)
            if times.heartbeat_interval_ms < times.session_timeout_ms:
                self._contradictory.pop(group_id, None)
                return times
            reason = (
                f"its interval of heartbeats, {times.heartbeat_interval_ms} ms, is not below its session timeout, "
                f"{times.session_timeout_ms} ms, within the limits of this node"
            )
        except InvalidConfig as error:
            reason = error.message
        if self._contradictory.get(group_id) != configs:
            self._contradictory[group_id] = configs
            self._notices.append(
                f"group {group_id!r} has the times of this node, not its own, because {reason}; change its settings"
            )
        return self._of_node

    def _within_limits(self, key: str, value: int) -> int:
        low, high = _limits(self._config, key)
        return min(max(value, low), high)
