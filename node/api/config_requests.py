"""Settings of topics, nodes and groups, as Kafka's clients ask for them: which are in force, and changes.

Sources: KIP-133 (describing and altering), KIP-226 (synonyms), KIP-339 (single changes), KIP-848 (groups), KIP-1142
(listing).
"""

from __future__ import annotations

from enum import IntEnum

from tidelog.cluster_descriptions import ConfigResource, ResourceConfigs
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """The settings of these topics, nodes and groups."""

    resources: tuple[ConfigResource, ...]


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
    """Changes of one topic, node or group, or only their validation."""

    resource: ConfigResource
    changes: tuple[SettingChange, ...]
    replaces_all: bool = False
    """Settings that `changes` does not name are reset to their defaults."""
    validate_only: bool = False

    @property
    def name(self) -> str:
        """Of the topic, node or group."""
        return self.resource.name


@dataclass(frozen=True, slots=True)
class AlterConfigsOfResources:
    """Each topic, node or group gets its settings on its own. The answer is ChangedTopics, with the names of all."""

    resources: tuple[AlteredResource, ...]


@dataclass(frozen=True, slots=True)
class ListConfigResourcesRequest:
    """What has settings, of these types; empty: of every type."""

    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListConfigResourcesAnswer:
    """All topics and nodes, and the groups that have settings of their own."""

    resources: tuple[ConfigResource, ...]
