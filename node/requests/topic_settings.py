"""Topic settings: validation, and the values that apply where a topic does not set them.

Not here: the effect of a setting (storage/log_config.py, replication/controller/image.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from node.api.config_requests import ConfigInForce, ConfigSource, ConfigValue
from replication.controller.image import DURABILITY, MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from storage.log_config import TOPIC_SETTINGS, LogConfig
from tidelog.settings import SettingType

_FIXED_AT_CREATION: Final = (DURABILITY, MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION)
"""These are stored in the metadata only, so that they are the same on nodes with different defaults."""


class TopicSettings:
    """The defaults of a node, and the settings of topics over them."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        """defaults: by the topics' keys. Raises InvalidConfig."""
        self._own = dict(defaults)
        self._defaults = LogConfig.from_node(defaults)

    def check(self, configs: Mapping[str, str]) -> None:
        """Raise InvalidConfig if a topic cannot have these settings."""
        LogConfig.from_topic(configs, self._defaults)

    def at_creation(self, configs: Mapping[str, str]) -> dict[str, str]:
        """The settings in a new topic's record: those requested, and the defaults of those fixed at creation."""
        return {key: self._own[key] for key in _FIXED_AT_CREATION if key in self._own} | dict(configs)

    def when_removed(self, key: str) -> str | None:
        """The value in a topic's record after its setting is removed; None: none, each node's default applies."""
        return self._own.get(key) if key in _FIXED_AT_CREATION else None

    def in_force(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Every setting of a topic, including defaults; those fixed at creation as the metadata has them."""
        known = LogConfig().as_topic()
        return dict(sorted({**known, **self._everywhere(known), **configs}.items()))

    def described(self, configs: Mapping[str, str]) -> tuple[ConfigInForce, ...]:
        """As `in_force`, with the origin of each value, and the values that would apply without it."""
        known = LogConfig().as_topic()
        everywhere = self._everywhere(known)
        found = []
        for key in sorted({*known, *configs}):
            declared = TOPIC_SETTINGS.get(key)  # None: the setting of another version
            node_key, kind = (key, SettingType.STRING) if declared is None else (declared.name, declared.kind.type)
            values = _values(
                (key, configs.get(key), ConfigSource.TOPIC),
                (node_key, everywhere.get(key), ConfigSource.NODE),
                (node_key, known.get(key), ConfigSource.DEFAULT),
            )
            found.append(ConfigInForce(key, tuple(values), kind))
        return tuple(found)

    def _everywhere(self, known: Collection[str]) -> dict[str, str]:
        """The defaults of this node for topics without these settings."""
        return {key: value for key, value in self._own.items() if key in known and key not in _FIXED_AT_CREATION}


def _values(*origins: tuple[str, str | None, ConfigSource]) -> Iterator[ConfigValue]:
    return (ConfigValue(*each) for each in origins if each[1] is not None)
