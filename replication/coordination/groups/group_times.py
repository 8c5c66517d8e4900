"""The session timeout and the heartbeat interval of consumer groups: those that a group has of its own, in the
metadata, otherwise those of the node (KIP-848, dynamic settings of groups).

A change counts from the next heartbeat of each member on, as in Kafka.
Not here: how they are changed (replication/controller/group_configs.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

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


def check_group_configs(config: GroupConfig, configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig if a group cannot have these settings. config: that of the node, with the limits."""
    declared = settings_of(GroupConfig)
    own: dict[str, Any] = {}
    for key, text in configs.items():
        field = FIELDS.get(key)
        if field is None:
            raise InvalidConfig(f"unknown group setting {key[:100]!r}; valid settings: {', '.join(FIELDS)}")
        own[field] = declared[field].parse(text, key)
    try:
        replace(config, **own)
    except InvalidConfig as error:
        raise InvalidConfig(f"with these settings of the group, {error.message}") from None


class GroupTimes:
    """The times in effect."""

    def __init__(self, config: GroupConfig, catalog: TopicCatalog) -> None:
        """config: of the node. catalog: has the newest image."""
        self._config, self._catalog = config, catalog

    def session_timeout_ms(self, group_id: str) -> int:
        """A member that sends no heartbeat for this long is removed."""
        return self._own(group_id, SESSION_TIMEOUT, self._config.consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Interval of the heartbeats of members."""
        return self._own(group_id, HEARTBEAT_INTERVAL, self._config.consumer_heartbeat_interval_ms)

    def _own(self, group_id: str, key: str, otherwise: int) -> int:
        text = self._catalog.image.group_configs.get(group_id, {}).get(key)
        return otherwise if text is None else int(text)
