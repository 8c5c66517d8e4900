"""Topic settings by Kafka's names: what may be asked for, what holds where a topic says nothing.

Left to others: what a setting does (storage/config.py, replication/image.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replication.image import DURABILITY, MIN_INSYNC_REPLICAS
from storage.config import LogConfig
from tidelog.types import Durability, TimestampType

_FIELDS: Final = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "segment.jitter.ms": "segment_jitter_ms",
    "segment.index.bytes": "segment_index_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "max.message.bytes": "max_message_bytes",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
    "message.timestamp.type": "timestamp_type",
    "message.timestamp.after.max.ms": "timestamp_after_ms_max",
    "min.insync.replicas": "min_insync_replicas",
    "durability": "durability",
}
_FIXED: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.format": "v2",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}
"""Settings of which this version does one value."""

_FIXED_AT_CREATION: Final = (DURABILITY, MIN_INSYNC_REPLICAS)
"""These live in the metadata alone: nodes with other defaults must not see other promises."""


class TopicSettings:
    """A node's defaults, and topics' own settings over them."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        """defaults: by Kafka's names. Raises InvalidConfig, UnsupportedVersion."""
        self._own = dict(defaults)
        self._defaults = LogConfig.from_topic(defaults)

    def check(self, configs: Mapping[str, str]) -> None:
        """Raise InvalidConfig or UnsupportedVersion where a topic cannot have these."""
        LogConfig.from_topic(configs, self._defaults)

    def at_creation(self, configs: Mapping[str, str]) -> dict[str, str]:
        """What a new topic's record says: what was asked for, and the defaults of what must be the same everywhere."""
        return {key: self._own[key] for key in _FIXED_AT_CREATION if key in self._own} | dict(configs)

    def in_force(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Every setting of a topic by name, defaults included; those fixed at creation as the metadata has them."""
        everywhere = {key: value for key, value in self._own.items() if key not in _FIXED_AT_CREATION}
        config = LogConfig()
        values = {name: _text(getattr(config, field)) for name, field in _FIELDS.items()}
        return dict(sorted({**_FIXED, **values, **everywhere, **configs}.items()))


def _text(value: object) -> str:
    if value is TimestampType.LOG_APPEND_TIME:
        return "LogAppendTime"
    if value is TimestampType.CREATE_TIME:
        return "CreateTime"
    return value.value if isinstance(value, Durability) else str(value)
