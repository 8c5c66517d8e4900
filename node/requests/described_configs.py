"""The settings of topics and of this node, for callers with permission to see them."""

from __future__ import annotations

from typing import Final

from node.api.table import ADMIN_DESCRIBE_CONFIGS
from node.metadata.metadata_log import MetadataLog
from node.requests.context import RequestContext
from node.requests.permitted import ensure_cluster_permitted, ensure_topic_permitted
from node.requests.topic_settings import TopicSettings
from tidelog.cluster_descriptions import ConfigInForce, ConfigResource, ConfigResourceType, ResourceConfigs
from tidelog.errors import InvalidRequest, TidelogError, UnknownTopicOrPartition
from tidelog.security.acls import AclOperation
from tidelog.types import NodeId

_HAVE: Final = "only topics (2) and nodes (4) have settings here"
_OTHERS: Final = {
    8: (
        f"loggers of a node (8) have no settings of their own: {_HAVE}. Set logging.level in the configuration of the "
        "node and restart it"
    ),
    16: f"nodes collect no metrics of clients (16): {_HAVE}. Read those of the clients where they run",
    32: (
        f"groups (32) have no settings of their own: {_HAVE}. group.consumer.session.timeout.ms and "
        "group.consumer.heartbeat.interval.ms hold for all groups: set them in the configuration of every node. "
        "Members of classic groups choose session.timeout.ms themselves"
    ),
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
    ) -> None:
        """node_settings: every setting of the node `node_id`, this one."""
        self._metadata, self._settings = metadata, settings
        self._node_settings, self._node_id = node_settings, node_id

    def described(self, resource: ConfigResource, context: RequestContext) -> ResourceConfigs:
        """The settings of a topic or a node, or why they are not shown."""
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
        ensure_node(resource)
        ensure_cluster_permitted(context, ADMIN_DESCRIBE_CONFIGS, AclOperation.DESCRIBE_CONFIGS)
        if resource.name not in ("", str(self._node_id)):
            raise InvalidRequest(
                f"this is node {self._node_id}, which does not know the configuration of node {resource.name[:100]}: "
                "ask that one"
            )
        return self._node_settings if resource.name else ()  # all nodes together have none: each has its own file


def ensure_node(resource: ConfigResource) -> None:
    """Raise InvalidRequest for anything but a node, with what to do instead."""
    if resource.type != ConfigResourceType.NODE:
        raise InvalidRequest(_OTHERS.get(resource.type) or f"resource type {resource.type} is unknown: {_HAVE}")
