"""Handlers of requests about settings of topics, nodes and groups."""

from __future__ import annotations

from collections import Counter
from typing import Final

from node.api import admin_requests as admin
from node.api import config_requests, table
from node.metadata.metadata_log import MetadataLog
from node.requests.config_changes import depends_on_present, ensure_changes_nothing, ensure_known, setting_changes
from node.requests.context import RequestContext
from node.requests.controller_client import ControllerClient
from node.requests.cordoned_log_dirs import CORDONED_LOG_DIRS, CordonedLogDirs, ensure_not_cordoned
from node.requests.described_configs import DescribedConfigs, ensure_node, ensure_this_node
from node.requests.forwarded_changes import ForwardedChanges, each_topic, ensure_not_internal
from node.requests.permitted import ensure_cluster_permitted, ensure_group_permitted, ensure_topic_permitted
from node.requests.topic_settings import TopicSettings
from node.runtime.limits import DESCRIBED_MAX, NODES_DESCRIBED_MAX, ensure_few
from replication.controller import events, features
from tidelog.cluster_descriptions import ConfigInForce, ConfigResourceType
from tidelog.errors import InvalidRequest
from tidelog.security.acls import AclOperation
from tidelog.types import NodeId

KEPT_SETTINGS: Final = frozenset(("cleanup.policy", "durability", "message.format", "message.timestamp.type"))
"""Settings of internal topics that nobody may change: coordinators depend on them."""


class ConfigHandlers(ForwardedChanges):
    """One method per API."""

    def __init__(
        self,
        metadata: MetadataLog,
        controller: ControllerClient,
        settings: TopicSettings,
        node_settings: tuple[ConfigInForce, ...],
        node_id: NodeId,
        cordoned: CordonedLogDirs,
    ) -> None:
        """node_settings: every setting of the node `node_id`, this one, that its configuration has."""
        super().__init__(metadata, controller)
        self._settings, self._node_id, self._cordoned = settings, node_id, cordoned
        self._configs = DescribedConfigs(metadata, settings, node_settings, node_id, cordoned)

    async def describe_configs(
        self, request: config_requests.DescribeConfigsRequest, context: RequestContext
    ) -> config_requests.DescribeConfigsAnswer:
        """The settings of topics, groups and of this node, by its image and its configuration."""
        ensure_few(request.resources, "topics, nodes and groups", DESCRIBED_MAX)
        nodes = [each for each in request.resources if each.type == ConfigResourceType.NODE]
        ensure_few(nodes, "nodes", NODES_DESCRIBED_MAX)
        return config_requests.DescribeConfigsAnswer(
            tuple(self._configs.described(each, context) for each in request.resources)
        )

    async def incremental_alter_configs(
        self, request: admin.AlterConfigsRequest, context: RequestContext
    ) -> admin.ChangedTopics:
        """Change the settings of each topic; respond when this node has applied them."""

        async def alter(topic: events.AlterConfigs) -> events.ChangedTopic:
            ensure_topic_permitted(context, table.ADMIN_INCREMENTAL_ALTER_CONFIGS, topic.name)
            present = self._metadata.image.topic(topic.name)
            if present is not None:
                ensure_known(topic.changes, present.configs)
            return await self._alter_topic(topic, context)

        return await each_topic(request.topics, alter, context)

    async def alter_configs(
        self, request: config_requests.AlterConfigsOfResources, context: RequestContext
    ) -> admin.ChangedTopics:
        """As `incremental_alter_configs`, with the operations of Kafka's requests. Of a node, `cordoned.log.dirs`
        changes while it runs, and no other setting."""
        times = Counter(each.resource for each in request.resources)

        async def alter(asked: config_requests.AlteredResource) -> events.ChangedTopic:
            if times[asked.resource] > 1:
                raise InvalidRequest(
                    f"{asked.name} is named twice in one request: name each topic, node and group once"
                )
            if asked.resource.type == ConfigResourceType.GROUP:
                return await self._alter_group(asked, context)
            if asked.resource.type != ConfigResourceType.TOPIC:
                ensure_node(asked.resource)
                return await self._alter_node(asked, context)
            ensure_topic_permitted(context, table.ADMIN_ALTER_CONFIGS, asked.name)
            if depends_on_present(asked):
                await self._catch_up(asked.name, context)
            present = self._metadata.image.topic(asked.name)
            configs = {} if present is None else present.configs
            changes = setting_changes(asked, configs, self._settings.in_force(configs))
            return await self._alter_topic(events.AlterConfigs(asked.name, changes, asked.validate_only), context)

        return await each_topic(request.resources, alter, context)

    async def _alter_node(self, asked: config_requests.AlteredResource, context: RequestContext) -> events.ChangedTopic:
        ensure_cluster_permitted(context, table.ADMIN_ALTER_CONFIGS, AclOperation.ALTER_CONFIGS)
        ensure_changes_nothing(asked, but=CORDONED_LOG_DIRS)
        if not asked.name:
            ensure_not_cordoned(asked)
            return events.ChangedTopic(asked.name)
        if any(each.operation != config_requests.ConfigOperation.DELETE for each in asked.changes):
            ensure_this_node(asked.resource, self._node_id)  # before its paths are looked for on this one
        image = self._metadata.image
        cordons = self._cordoned.cordons_of(asked, image)
        if image.feature_level < features.DIRECTORY_CORDONS and not any(each.cordoned for each in cordons):
            return events.ChangedTopic(asked.name)  # it resets what no cluster of that level can have set
        if cordons:
            ensure_this_node(asked.resource, self._node_id)
            features.require(image, features.DIRECTORY_CORDONS, CORDONED_LOG_DIRS)
        for cordon in () if asked.validate_only else cordons:
            await self._alter(table.ADMIN_ALTER_CORDON, cordon, context, "the cordon was changed")
        return events.ChangedTopic(asked.name)

    async def _alter_group(
        self, asked: config_requests.AlteredResource, context: RequestContext
    ) -> events.ChangedTopic:
        ensure_group_permitted(context, table.ADMIN_ALTER_CONFIGS, AclOperation.ALTER_CONFIGS, asked.name)
        if depends_on_present(asked):
            await self.alter_group_configs(events.AlterGroupConfigs(asked.name, (), validate_only=True), context)
        present = self._metadata.image.group_configs.get(asked.name, {})
        changes = setting_changes(asked, present, {})
        await self.alter_group_configs(events.AlterGroupConfigs(asked.name, changes, asked.validate_only), context)
        return events.ChangedTopic(asked.name)

    async def alter_group_configs(
        self, request: events.AlterGroupConfigs, context: RequestContext
    ) -> events.GroupConfigsAltered:
        """Forward; respond when this node has applied the settings."""
        return await self._alter(table.ADMIN_ALTER_GROUP_CONFIGS, request, context, "the settings were changed")

    async def list_config_resources(
        self, request: config_requests.ListConfigResourcesRequest, context: RequestContext
    ) -> config_requests.ListConfigResourcesAnswer:
        """All topics, the nodes in service, and the groups with settings, by the image of this node."""
        types = request.types or tuple(ConfigResourceType)
        return config_requests.ListConfigResourcesAnswer(self._configs.listed(types, context.listener))

    async def _catch_up(self, topic: str, context: RequestContext) -> None:
        """Wait until the settings of the topic in the image of this node are as new as those of the controller. Raises
        UnknownTopicOrPartition, and what `_change_topic` raises."""
        nothing = admin.AlterConfigsRequest((events.AlterConfigs(topic, (), validate_only=True),))
        await self._change_topic(table.ADMIN_INCREMENTAL_ALTER_CONFIGS, nothing, context, "looked up")

    async def _alter_topic(self, topic: events.AlterConfigs, context: RequestContext) -> events.ChangedTopic:
        for change in topic.changes:
            if change.key in KEPT_SETTINGS:
                ensure_not_internal(topic.name, f"its setting {change.key} cannot be changed")
        asked = admin.AlterConfigsRequest((topic,))
        return await self._change_topic(table.ADMIN_INCREMENTAL_ALTER_CONFIGS, asked, context, "changed")
