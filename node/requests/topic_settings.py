"""Topic settings by Kafka's names: what may be asked for, what holds where a topic says nothing.

Left to others: what a setting does (storage/config.py, replication/controller/image.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replication.controller.image import DURABILITY, MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from storage.config import LogConfig

_FIXED_AT_CREATION: Final = (DURABILITY, MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION)
"""These live in the metadata alone: nodes with other defaults must not see other promises."""


class TopicSettings:
    """A node's defaults, and topics' own settings over them."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        """defaults: by Kafka's names. Raises InvalidConfig, UnsupportedVersion."""
        self._own = dict(defaults)
        self._defaults = LogConfig.from_node(defaults)

    def check(self, configs: Mapping[str, str]) -> None:
        """Raise InvalidConfig or UnsupportedVersion where a topic cannot have these."""
        LogConfig.from_topic(configs, self._defaults)

    def at_creation(self, configs: Mapping[str, str]) -> dict[str, str]:
        """What a new topic's record says: what was asked for, and the defaults of what must be the same everywhere."""
        return {key: self._own[key] for key in _FIXED_AT_CREATION if key in self._own} | dict(configs)

    def when_removed(self, key: str) -> str | None:
        """What a topic's record says once the setting is taken from it; None: nothing, each node's default holds."""
        return self._own.get(key) if key in _FIXED_AT_CREATION else None

    def in_force(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Every setting of a topic by name, defaults included; those fixed at creation as the metadata has them."""
        known = LogConfig().as_topic()
        everywhere = {key: value for key, value in self._own.items() if key in known and key not in _FIXED_AT_CREATION}
        return dict(sorted({**known, **everywhere, **configs}.items()))
