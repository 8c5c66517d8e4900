"""The settings of topics, groups and of this node, for callers with permission to see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from node.api.table import ADMIN_DESCRIBE_CONFIGS
from node.metadata.metadata_log import MetadataLog
from node.requests.context import RequestContext
from node.requests.cordoned_log_dirs import CordonedLogDirs
from node.requests.permitted import ensure_cluster_permitted, ensure_group_permitted, ensure_topic_permitted
from node.requests.topic_settings import TopicSettings
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.group_times import FIELDS
from tidelog.cluster_descriptions import (
    ConfigInForce,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigValue,
    ResourceConfigs,
)
from tidelog.errors import InvalidRequest, TidelogError, UnknownTopicOrPartition, UnsupportedVersion
from tidelog.security.acls import AclOperation
from tidelog.settings import settings_of
from tidelog.types import NodeId

_HAVE: Final = "only topics (2), nodes (4) and groups (32) have settings here"
_OTHERS: Final = {
    8: (
        f"loggers of a node (8) have no settings of their own: {_HAVE}. Set logging.level in the configuration of the "
        "node and restart it"
    ),
    16: f"nodes collect no metrics of clients (16): {_HAVE}. Read those of the clients where they run",
}
"""Kafka's further types of resources, by number: why they are refused, and what to do."""


class DescribedConfigs:
    """Settings by the image and the configuration of a node."""

    def __init__(
        self,
        metadata: MetadataLog,
        settings: TopicSettings,
        node_settings: tuple[ConfigInForce, ...],
        node_id: NodeId,
        cordoned: CordonedLogDirs,
    ) -> None:
        """node_settings: every setting of the node `node_id`, this one, that its configuration has."""
        self._metadata, self._settings, self._cordoned = metadata, settings, cordoned
        self._node_settings, self._node_id = node_settings, node_id
        of_node = {each.key: each for each in node_settings}
        declared = settings_of(GroupConfig)
        self._of_groups = {key: of_node[declared[field].name] for key, field in FIELDS.items()}
        """The node's settings of all groups, by the key that a group has for its own."""

    def described(self, resource: ConfigResource, context: RequestContext) -> ResourceConfigs:
        """The settings of a topic, a node or a group, or why they are not shown."""
        try:
            return ResourceConfigs(None, self._settings_of(resource, context))
        except TidelogError as error:
            context.meter.count_error(error)
            return ResourceConfigs(error)

    def _settings_of(self, resource: ConfigResource, context: RequestContext) -> tuple[ConfigInForce, ...]:
        if resource.type == ConfigResourceType.TOPIC:
            ensure_topic_permitted(context, ADMIN_DESCRIBE_CONFIGS, resource.name)
            topic = self._metadata.image.topic(resource.name)
            if topic is None:
                raise UnknownTopicOrPartition(f"topic {resource.name!r} does not exist, as far as this node knows")
            return self._settings.described(topic.configs)
        if resource.type == ConfigResourceType.GROUP:
            ensure_group_permitted(context, ADMIN_DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS, resource.name)
            return self._settings_of_group(resource.name)
        ensure_node(resource)
        ensure_cluster_permitted(context, ADMIN_DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS)
        if not resource.name:
            return ()  # all nodes together have none: each has its own file
        ensure_this_node(resource, self._node_id)
        described = (*self._node_settings, self._cordoned.described(self._metadata.image))
        return tuple(sorted(described, key=lambda each: each.key))

    def _settings_of_group(self, group_id: str) -> tuple[ConfigInForce, ...]:
        """As in Kafka, whether there is such a group does not matter."""
        if not group_id:
            raise InvalidRequest(
                "groups together have no settings: name one; group.consumer.* of the nodes hold for all groups"
            )
        own = self._metadata.image.group_configs.get(group_id, {})
        return tuple(_of_group(key, own.get(key), otherwise) for key, otherwise in self._of_groups.items())

    def listed(self, types: Iterable[int], listener: str) -> tuple[ConfigResource, ...]:
        """What has settings, of these types; of the nodes, those that a client of this listener can ask. Raises
        UnsupportedVersion for a type that is unknown, as Kafka does."""
        found: list[ConfigResource] = []
        for kind in dict.fromkeys(types):
            if kind not in (*ConfigResourceType, *_OTHERS):
                raise UnsupportedVersion(f"resource type {kind} is unknown: {_HAVE}")
            found += (ConfigResource(kind, name) for name in self._names_of(kind, listener))
        return tuple(found)

    def _names_of(self, kind: int, listener: str) -> Iterable[str]:
        image = self._metadata.image
        match kind:
            case ConfigResourceType.TOPIC:
                return image.topic_ids
            case ConfigResourceType.NODE:
                return [str(node.node_id) for node in image.reachable_nodes(listener)]
            case ConfigResourceType.GROUP:
                return image.group_configs
        return ()


def _of_group(key: str, own: str | None, otherwise: ConfigInForce) -> ConfigInForce:
    """A setting of a group, of which the node has `otherwise` for all groups."""
    values = otherwise.values if own is None else (ConfigValue(key, own, ConfigSource.GROUP), *otherwise.values)
    return ConfigInForce(key, values, otherwise.type)


def ensure_this_node(resource: ConfigResource, node_id: NodeId) -> None:
    """Raise InvalidRequest for another node than this one."""
    if resource.name != str(node_id):
        raise InvalidRequest(
            f"this is node {node_id}, which does not know the configuration of node {resource.name[:100]}: ask that one"
        )


def ensure_node(resource: ConfigResource) -> None:
    """Raise InvalidRequest for what has no settings, with what to do instead."""
    if resource.type != ConfigResourceType.NODE:
        raise InvalidRequest(_OTHERS.get(resource.type) or f"resource type {resource.type} is unknown: {_HAVE}")
