"""The settings of a node, as Kafka's tools ask for those of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any, Final

from node.config import BOOTSTRAP, NODE_ID, NodeConfig
from node.listener_addresses import ADVERTISED_LISTENERS, LISTENERS
from node.listener_settings import PROTOCOLS
from storage.log_config import CLEANUP_POLICY
from tidelog.cluster_descriptions import ConfigInForce, ConfigSource, ConfigValue
from tidelog.settings import Setting, SettingType, settings_of

_CONSTANT: Final = (
    ("delete.topic.enable", "true", SettingType.BOOLEAN),
    ("process.roles", "broker,controller", SettingType.LIST),
)
"""Settings of Kafka that tools look for, and that are always so here."""


def node_settings(config: NodeConfig) -> tuple[ConfigInForce, ...]:
    """Every setting by key, but those of TLS, which each listener may have for itself."""
    described = [_described(declared, value) for declared, value in _values(config)]
    described += [_constant(*each) for each in (*_CONSTANT, ("broker.id", str(config.node_id), SettingType.INT))]
    return tuple(sorted(described, key=lambda each: each.key))


def _values(config: NodeConfig) -> Iterator[tuple[Setting[Any], Any]]:
    yield NODE_ID, config.node_id
    yield LISTENERS, {each.name: each.bind for each in config.listeners}
    yield ADVERTISED_LISTENERS, {each.name: each.advertised for each in config.listeners if each.advertised is not None}
    yield PROTOCOLS, {each.name: each.protocol for each in config.listeners}
    yield BOOTSTRAP, config.quorum.bootstrap
    yield CLEANUP_POLICY, frozenset(policy for policy in ("delete", "compact") if getattr(config.log_config, policy))
    for part in (
        config,
        config.quorum,
        config.replication,
        config.log_config,
        config.maintenance,
        config.http,
        config.quotas,
        config.topics,
        config.coordinators.groups,
        config.coordinators.transactions,
        config.tiering,
        config.authorizer,
        config.audit,
        config.sasl,
        config.sasl.oauth,
    ):
        for field, declared in settings_of(type(part)).items():
            yield declared, getattr(part, field)


def _described(declared: Setting[Any], value: Any) -> ConfigInForce:
    default = declared.default
    given = () if value == default else (ConfigValue(declared.name, _shown(declared, value), ConfigSource.NODE),)
    otherwise = ConfigValue(
        declared.name, None if default is MISSING else _shown(declared, default), ConfigSource.DEFAULT
    )
    return ConfigInForce(declared.name, (*given, otherwise), declared.kind.type, is_read_only=True)


def _shown(declared: Setting[Any], value: Any) -> str | None:
    return None if value is None else declared.kind.show(value)


def _constant(key: str, value: str, kind: SettingType) -> ConfigInForce:
    return ConfigInForce(key, (ConfigValue(key, value, ConfigSource.DEFAULT),), kind, is_read_only=True)
