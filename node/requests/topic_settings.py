"""Topic settings: validation, and the values that apply where a topic does not set them.

Not here: the effect of a setting (storage/log_config.py, replication/controller/image.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from replication.controller.image import DURABILITY, MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from storage.log_config import TOPIC_SETTINGS, LogConfig
from tidelog.cluster_descriptions import ConfigInForce, ConfigSource, ConfigValue
from tidelog.errors import InvalidConfig

_FIXED_AT_CREATION: Final = (DURABILITY, MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION)
"""These are stored in the metadata only, so that they are the same on nodes with different defaults."""


class TopicSettings:
    """The defaults of a node, and the settings of topics over them."""

    def __init__(self, defaults: Mapping[str, str], *, has_store: bool = False) -> None:
        """defaults: by the topics' keys. has_store: the node has an object store for the remote tier. Raises
        InvalidConfig."""
        self._has_store = has_store
        self._own = dict(defaults)
        self._defaults = LogConfig.from_node(defaults)
        self._elsewhere = {each.key: each for each in self._described_elsewhere()}
        """By key: made once, since programs ask for the settings of all topics."""

    def check(self, configs: Mapping[str, str]) -> None:
        """Raise InvalidConfig if a topic cannot have these settings."""
        config = LogConfig.from_topic(configs, self._defaults)
        config.ensure_local_within()
        if config.remote_storage and not self._has_store:
            raise InvalidConfig(
                "remote.storage.enable needs an object store: set remote.log.storage.url on every node and restart "
                "them (docs/tiering.md)"
            )

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
        found = self._elsewhere | {key: self._set_by_topic(key, value) for key, value in configs.items()}
        return tuple(found[key] for key in sorted(found))

    def _set_by_topic(self, key: str, value: str) -> ConfigInForce:
        by_topic = ConfigValue(key, value, ConfigSource.TOPIC)
        otherwise = self._elsewhere.get(key)
        if otherwise is None:  # of another version
            return ConfigInForce(key, (by_topic,))
        return replace(otherwise, values=(by_topic, *otherwise.values))

    def _described_elsewhere(self) -> Iterator[ConfigInForce]:
        """The settings of a topic that sets none itself."""
        known = LogConfig().as_topic()
        everywhere = self._everywhere(known)
        for key, default in known.items():
            declared = TOPIC_SETTINGS[key]
            values = [ConfigValue(declared.name, default, ConfigSource.DEFAULT)]
            if key in everywhere:
                values.insert(0, ConfigValue(declared.name, everywhere[key], ConfigSource.NODE))
            yield ConfigInForce(key, tuple(values), declared.kind.type)

    def _everywhere(self, known: Collection[str]) -> dict[str, str]:
        """The defaults of this node for topics without these settings."""
        return {key: value for key, value in self._own.items() if key in known and key not in _FIXED_AT_CREATION}
