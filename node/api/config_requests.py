"""Settings of topics and nodes, as Kafka's clients ask for them: which are in force, and changes.

Sources: KIP-133 (describing and altering), KIP-226 (synonyms), KIP-339 (single changes).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tidelog.errors import TidelogError
from tidelog.settings import SettingType


class ConfigResourceType(IntEnum):
    """What has settings, by Kafka's numbers."""

    TOPIC = 2
    NODE = 4


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic by name, or a node by its id."""

    type: int
    """Of ConfigResourceType; others are refused one by one."""
    name: str
    """Empty for the nodes of the cluster together."""


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """The settings of these topics and nodes."""

    resources: tuple[ConfigResource, ...]


class ConfigSource(IntEnum):
    """Where the value of a setting comes from, by Kafka's numbers."""

    TOPIC = 1
    NODE = 4
    """The configuration of the node; of a topic's setting: for topics without a value of their own."""
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value that a setting has, or would have without the values before it."""

    key: str
    """Where it is set: the topic's key, or the node's."""
    value: str | None
    """None: unset."""
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """A setting of a topic or a node."""

    key: str
    values: tuple[ConfigValue, ...]
    """At least one; the first is in force."""
    type: SettingType = SettingType.STRING
    is_read_only: bool = False
    """Only a restart of the node changes it."""

    @property
    def value(self) -> str | None:
        """The value in force."""
        return self.values[0].value

    @property
    def source(self) -> ConfigSource:
        """Where that comes from."""
        return self.values[0].source


@dataclass(frozen=True, slots=True)
class ResourceConfigs:
    """Every setting of a topic or a node by key, or why they are not shown."""

    error: TidelogError | None = None
    configs: tuple[ConfigInForce, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeConfigsAnswer:
    """In the order of the request."""

    resources: tuple[ResourceConfigs, ...]


class ConfigOperation(IntEnum):
    """What a change does, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    """The default applies again."""
    APPEND = 2
    """Add the items to a list; those that it has already are not added again."""
    SUBTRACT = 3
    """Take the items out of a list."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change of one setting."""

    key: str
    value: str | None
    operation: int = ConfigOperation.SET
    """Of ConfigOperation; others are refused with the resource."""


@dataclass(frozen=True, slots=True)
class AlteredResource:
    """Changes of one topic or node, or only their validation."""

    resource: ConfigResource
    changes: tuple[SettingChange, ...]
    replaces_all: bool = False
    """Settings that `changes` does not name are reset to their defaults."""
    validate_only: bool = False

    @property
    def name(self) -> str:
        """Of the topic or node."""
        return self.resource.name


@dataclass(frozen=True, slots=True)
class AlterConfigsOfResources:
    """Each topic or node gets its settings on its own. The answer is ChangedTopics, with the names of both."""

    resources: tuple[AlteredResource, ...]
