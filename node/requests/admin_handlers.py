"""Handlers of the Admin service: read the image of this node and forward changes to the controller.

Invariants: this node responds to a change after it has applied it, so later requests to this node see it; errors of the
controller reach the caller unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from node.api import admin_requests as admin
from node.api import table
from node.api.metadata import GetMetadataAnswer, GetMetadataRequest, PartitionMetadata, SharedPartitions, TopicMetadata
from node.metadata.metadata_log import MetadataLog
from node.quorum.state import QuorumView
from node.requests.config_handlers import ConfigHandlers
from node.requests.context import RequestContext
from node.requests.controller_client import ControllerClient
from node.requests.described_quorum import DescribedQuorum
from node.requests.feature_updates import level_with
from node.requests.forwarded_changes import each_topic, ensure_not_internal
from node.requests.log_dirs import LogDirs
from node.requests.one_by_one import one_by_one
from node.requests.permitted import ensure_topic_permitted, permitted_operations
from node.requests.topic_creation import TopicCreation, unknown_topic
from node.requests.topic_settings import TopicSettings
from node.requests.topic_snapshot_handlers import SnapshotTaker, TopicSnapshotHandlers
from node.runtime.limits import ensure_few
from node.security.acl_decisions import AclDecisions
from node.security.security_settings import AuthorizerConfig
from replication.controller import events, features
from replication.controller.administration import state_of
from replication.controller.elections import electable
from replication.controller.explain import OnDisks, explain, why_not_restart
from replication.controller.image import ClusterImage, NodeRegistration, PartitionState, TopicState
from tidelog.cluster_descriptions import (
    ClusterDescription,
    ConfigInForce,
    NodeDescription,
    PartitionExplanation,
    PartitionResult,
    ReassignmentDescription,
    VoterDescription,
)
from tidelog.errors import (
    FeatureUpdateFailed,
    InvalidUpdateVersion,
    NodeNotAvailable,
    TidelogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.security.acls import CLUSTER_NAME, AclDecision, AclOperation, ResourceType, checked_host, checked_principal
from tidelog.types import NO_NODE, Endpoint, Millis, NodeAddress, NodeId, PartitionKey, TopicId

TOPICS_KEPT: Final = 16
"""Topics whose partitions are kept for the next answer."""

NO_ENDPOINT: Final = Endpoint("", 0)
"""The address of a node that does not have the listener of the request."""


class AdminHandlers(ConfigHandlers, TopicSnapshotHandlers):
    """One method per API; those about settings are inherited."""

    def __init__(
        self,
        metadata: MetadataLog,
        view: QuorumView,
        controller: ControllerClient,
        settings: TopicSettings,
        log_dirs: LogDirs,
        authorizer: AuthorizerConfig,
        node_settings: tuple[ConfigInForce, ...],
        creation: TopicCreation,
        quorum: DescribedQuorum,
        snapshots: SnapshotTaker,
    ) -> None:
        """authorizer: by whose settings `explain_acl` decides. node_settings: every setting of this node."""
        super().__init__(metadata, controller, settings, node_settings, view.node_id, log_dirs.cordoned)
        self._view, self._log_dirs = view, log_dirs
        self._quorum, self._creation, self._taker = quorum, creation, snapshots
        self._authorizer, self._decisions = authorizer, AclDecisions(authorizer)
        self._partitions: dict[TopicId, SharedPartitions] = {}
        """The partitions of requested topics, as in the image `_partitions_at`."""
        self._partitions_at: ClusterImage | None = None

    # --- reading --------------------------------------------------------------------------------------------------

    async def get_metadata(self, request: GetMetadataRequest, context: RequestContext) -> GetMetadataAnswer:
        """The nodes that are not fenced, and the requested topics. Raises NodeNotAvailable before it has joined."""
        ensure_few(request.topics, "topics")
        ensure_few(request.topic_ids, "topic ids")
        if not self._metadata.image.cluster_id:
            # "No such topic" would be a guess: clients give up the partitions of a topic that is gone.
            raise NodeNotAvailable(
                f"{table.ADMIN_GET_METADATA}: node {self._view.node_id} has not joined a cluster yet: use another node"
            )
        refusals = await self._creation.create(request, self._metadata.image, self.create_topics, context)
        image = self._metadata.image
        return GetMetadataAnswer(
            cluster_id=image.cluster_id,
            controller_id=self._view.leader_id,
            nodes=tuple(_address(node, context.listener) for node in image.reachable_nodes(context.listener)),
            topics=tuple(self._topics(image, request, context, refusals)),
            metadata_offset=image.offset,
            operations=(
                permitted_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
                if request.with_cluster_operations
                else None
            ),
        )

    def _topics(
        self,
        image: ClusterImage,
        request: GetMetadataRequest,
        context: RequestContext,
        refusals: Mapping[str, TidelogError],
    ) -> list[TopicMetadata]:
        """The requested topics, each once. Of all topics, those that the caller may describe. A name that the caller
        may not describe is refused whether or not there is such a topic. refusals: why some were not created."""
        if request.all_topics:
            return [
                self._topic(image, image.topics[image.topic_ids[name]], request, context)
                for name in sorted(image.topic_ids)
                if context.authorizer.allows_topic(context, AclOperation.DESCRIBE, name)
            ]
        answers = []
        for name in dict.fromkeys(request.topics):
            topic = image.topic(name)
            refusal = context.authorizer.topic_refusal(context, table.ADMIN_GET_METADATA, name)
            if refusal is not None:
                answers.append(TopicMetadata(name, error=refusal))
            elif topic is None:
                answers.append(TopicMetadata(name, error=refusals.get(name) or unknown_topic(name)))
            else:
                answers.append(self._topic(image, topic, request, context))
        for raw in dict.fromkeys(request.topic_ids):
            topic = image.topics.get(TopicId(UUID(bytes=raw))) if len(raw) == 16 else None
            if topic is None:
                unknown = UnknownTopicId(f"no topic has the id {raw.hex()}, as far as this node knows: it was deleted")
                answers.append(TopicMetadata(topic_id=raw, error=unknown))
            elif refusal := context.authorizer.topic_refusal(context, table.ADMIN_GET_METADATA, topic.name, by_id=True):
                answers.append(TopicMetadata(topic_id=raw, error=refusal))
            else:
                answers.append(self._topic(image, topic, request, context))
        return answers

    def _topic(
        self, image: ClusterImage, topic: TopicState, request: GetMetadataRequest, context: RequestContext
    ) -> TopicMetadata:
        shows_configs = context.authorizer.allows_topic(context, AclOperation.DESCRIBE_CONFIGS, topic.name)
        return TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id.bytes,
            partitions=self._partitions_of(image, topic),
            configs=self._settings.in_force(topic.configs) if shows_configs else {},
            operations=(
                permitted_operations(context, ResourceType.TOPIC, topic.name) if request.with_topic_operations else None
            ),
        )

    def _partitions_of(self, image: ClusterImage, topic: TopicState) -> SharedPartitions:
        """The partitions of a topic, made once for each image: all members of a group request the same ones."""
        if self._partitions_at is not image:
            self._partitions_at, self._partitions = image, {}
        found = self._partitions.get(topic.topic_id)
        if found is None:
            if len(self._partitions) == TOPICS_KEPT:
                del self._partitions[next(iter(self._partitions))]
            found = SharedPartitions(PartitionMetadata(state, _offline(image, state)) for state in topic.partitions)
            self._partitions[topic.topic_id] = found
        return found

    async def describe_cluster(
        self, _request: admin.DescribeClusterRequest, context: RequestContext
    ) -> ClusterDescription:
        """The state of the cluster for an operator."""
        image = self._metadata.image
        states = list(image.partitions())
        leaders = Counter(state.leader for state in states)
        replicas = Counter(node for state in states for node in state.replicas)
        disks = await self._log_dirs.query(image, replicas)
        return ClusterDescription(
            cluster_id=image.cluster_id,
            controller_id=NO_NODE if self._view.is_lost else self._view.leader_id,
            controller_epoch=self._view.leader_epoch,
            controller_silence_ms=Millis(self._view.silence_ms()),
            metadata_offset=image.offset,
            nodes=tuple(
                NodeDescription(
                    node_id=node.node_id,
                    endpoint=_address(node, context.listener).endpoint,
                    rack=node.rack,
                    node_epoch=node.node_epoch,
                    incarnation=node.incarnation,
                    fenced=node.fenced,
                    draining=node.draining,
                    leaders=leaders[node.node_id],
                    replicas=replicas[node.node_id],
                    cordoned=node.cordoned,
                    log_dirs=len(node.directories),
                    cordoned_log_dirs=len(node.directories) - len(node.open_directories),
                )
                for _, node in sorted(image.nodes.items())
            ),
            voters=tuple(VoterDescription(voter.node_id, voter.directory_id) for voter in image.voters),
            feature_level=image.feature_level,
            topics=len(image.topics),
            partitions=len(states),
            leaderless_partitions=leaders[NO_NODE],
            under_replicated_partitions=sum(len(state.isr) < len(state.replicas) for state in states),
            full_partitions=sum(disks.refuses(state) is not None for state in states),
            damaged_partitions=sum(disks.is_damaged(state) for state in states),
            unanswered_nodes=disks.unanswered,
            under_min_isr_partitions=sum(len(state.isr) < image.min_insync(state) for state in states),
        )

    # --- changing -------------------------------------------------------------------------------------------------

    async def create_topics(self, request: admin.CreateTopicsRequest, context: RequestContext) -> admin.ChangedTopics:
        """Create each topic; respond when this node has applied them. A number that is -1 is this node's default."""
        allows_all = context.authorizer.allows(context, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)

        async def create(topic: events.CreateTopic) -> events.ChangedTopic:
            if not allows_all:
                ensure_topic_permitted(context, table.ADMIN_CREATE_TOPICS, topic.name)
            ensure_not_internal(topic.name, "it is created when a client first looks a coordinator up")
            topic = self._creation.with_defaults(topic)
            with context.throttle.mutation(0 if topic.validate_only else topic.partition_count):
                asked = admin.CreateTopicsRequest((topic,))
                return await self._change_topic(table.ADMIN_CREATE_TOPICS, asked, context, "created")

        return await each_topic(request.topics, create, context)

    async def delete_topics(self, request: admin.DeleteTopicsRequest, context: RequestContext) -> admin.ChangedTopics:
        """Delete each topic; respond when this node has applied the deletions."""

        async def delete(topic: events.DeleteTopic) -> events.ChangedTopic:
            state = self._to_delete(topic, context)
            for name in (topic.name, "" if state is None else state.name):
                ensure_not_internal(
                    name, "it holds the state of groups, transactions or remote segments; delete groups or topics"
                )
            with context.throttle.mutation(0 if state is None else len(state.partitions)):
                asked = admin.DeleteTopicsRequest((topic,))
                return await self._change_topic(table.ADMIN_DELETE_TOPICS, asked, context, "deleted")

        return await each_topic(request.topics, delete, context)

    def _to_delete(self, topic: events.DeleteTopic, context: RequestContext) -> TopicState | None:
        """The topic, if this node knows it. Raises TopicAuthorizationFailed; UnknownTopicId, since permission for an id
        that this node does not know cannot be checked."""
        image = self._metadata.image
        state = image.topic(topic.name) if topic.topic_id is None else image.topics.get(topic.topic_id)
        by_id = not topic.name and topic.topic_id is not None
        if by_id and state is None:
            raise UnknownTopicId(f"no topic has the id {topic.topic_id}, as far as this node knows")
        name = state.name if by_id and state is not None else topic.name
        ensure_topic_permitted(context, table.ADMIN_DELETE_TOPICS, name, by_id=by_id)
        return state

    async def elect_leaders(
        self, request: admin.ElectLeadersRequest, context: RequestContext
    ) -> admin.ChangedPartitions:
        """Forward, with the ids of the topics. Partitions of topics that this node does not know are answered by it."""
        ensure_few(request.partitions, "partitions")
        if not request.partitions:
            elected = await self._forward(table.ADMIN_ELECT_LEADERS, request, context)
            return admin.ChangedPartitions(tuple(dict(map(self._with_name, elected.partitions)).values()))
        places = [self._with_id(each) for each in request.partitions]
        known = tuple(each for each in places if isinstance(each, admin.TopicPartitionId))
        if not known:  # the request would be one for all partitions
            return self._in_order(places, (), context)
        elected = await self._forward(table.ADMIN_ELECT_LEADERS, replace(request, partitions=known), context)
        return self._in_order(places, elected.partitions, context)

    async def alter_partition_reassignments(
        self, request: admin.AlterReassignmentsRequest, context: RequestContext
    ) -> admin.ChangedPartitions:
        """Forward, with the ids of the topics. Partitions of topics that this node does not know are answered by it."""
        ensure_few(request.partitions, "partitions")
        if any(each.queued for each in request.partitions):
            # A controller of an earlier version does not know the field, and would begin all of them at once.
            features.require(self._metadata.image, features.QUEUED_MOVES, "a queued move")
        places = [self._with_id(each.partition) for each in request.partitions]
        moves = tuple(
            replace(each, partition=place)
            for each, place in zip(request.partitions, places, strict=True)
            if isinstance(place, admin.TopicPartitionId)
        )
        begun = await self._forward(
            table.ADMIN_ALTER_PARTITION_REASSIGNMENTS, admin.AlterReassignmentsRequest(moves), context
        )
        return self._in_order(places, begun.partitions, context)

    async def list_partition_reassignments(
        self, _request: admin.ListReassignmentsRequest, _context: RequestContext
    ) -> admin.ListReassignmentsAnswer:
        """The partitions under reassignment, and those with a queued one."""
        image = self._metadata.image
        return admin.ListReassignmentsAnswer(
            tuple(
                ReassignmentDescription(
                    _place(image, state), state.replicas, state.adding, state.removing, state.isr, state.queued
                )
                for state in image.partitions()
                if state.adding or state.removing or state.queued
            )
        )

    async def create_partitions(
        self, request: admin.CreatePartitionsRequest, context: RequestContext
    ) -> admin.ChangedTopics:
        """Add partitions to each topic; respond when this node has applied them."""

        async def grow(topic: events.CreatePartitions) -> events.ChangedTopic:
            ensure_topic_permitted(context, table.ADMIN_CREATE_PARTITIONS, topic.name)
            ensure_not_internal(
                topic.name, "the number of its partitions decides which of them has the state of which group or topic"
            )
            state = self._metadata.image.topic(topic.name)
            added = 0 if state is None or topic.validate_only else topic.total - len(state.partitions)
            with context.throttle.mutation(added):
                asked = admin.CreatePartitionsRequest((topic,))
                return await self._change_topic(table.ADMIN_CREATE_PARTITIONS, asked, context, "changed")

        return await each_topic(request.topics, grow, context)

    async def update_features(self, request: events.UpdateFeatures, context: RequestContext) -> events.FeaturesUpdated:
        """Forward; respond when this node has applied the level."""
        answer = await self._forward(table.ADMIN_UPDATE_FEATURES, request, context)
        if not request.validate_only:
            await self._applied(lambda image: image.feature_level >= answer.level, "the feature level was raised")
        return answer

    async def update_named_features(
        self, request: admin.UpdateNamedFeatures, context: RequestContext
    ) -> events.FeaturesUpdated:
        """Raise the feature level to what the features need; respond when this node has applied it. Raises
        InvalidUpdateVersion."""
        level = level_with(self._metadata.image, request.updates)
        if level == self._metadata.image.feature_level:
            return events.FeaturesUpdated(level)
        try:
            return await self.update_features(events.UpdateFeatures(level, request.validate_only), context)
        except FeatureUpdateFailed as error:  # Kafka's reason for a broker that does not support the version
            raise InvalidUpdateVersion(error.message) from error

    async def remove_voter(self, request: events.RemoveVoter, context: RequestContext) -> events.VoterRemoved:
        """Forward."""
        return await self._forward(table.ADMIN_REMOVE_VOTER, request, context)

    async def unregister_node(self, request: events.UnregisterNode, context: RequestContext) -> events.NodeUnregistered:
        """Forward; respond when this node has applied the removal."""
        return await self._alter(table.ADMIN_UNREGISTER_NODE, request, context, "the node was removed")

    async def alter_cordon(self, request: events.AlterCordon, context: RequestContext) -> events.CordonAltered:
        """Forward; respond when this node has applied the change. Raises UnsupportedVersion for directories, while a
        controller of an older version would take the request for one about the node."""
        if request.directories:
            features.require(self._metadata.image, features.DIRECTORY_CORDONS, "the cordon of a log directory")
        return await self._alter(table.ADMIN_ALTER_CORDON, request, context, "the cordon was changed")

    async def alter_user_scram_credentials(
        self, request: events.AlterScramCredentials, context: RequestContext
    ) -> events.ScramCredentialsAltered:
        """Forward; respond when this node has applied the credentials."""
        api = table.ADMIN_ALTER_USER_SCRAM_CREDENTIALS
        return await self._alter(api, request, context, "the credentials were changed")

    async def describe_user_scram_credentials(
        self, request: admin.DescribeScramCredentialsRequest, _context: RequestContext
    ) -> admin.DescribeScramCredentialsAnswer:
        """The users and mechanisms, without salts and keys, by the image of this node."""
        ensure_few(request.users, "users")
        wanted = set(request.users)
        return admin.DescribeScramCredentialsAnswer(
            tuple(
                admin.ScramCredentialInfo(name, mechanism, record.iterations)
                for (name, mechanism), record in sorted(self._metadata.image.scram.items())
                if not wanted or name in wanted
            )
        )

    async def alter_users_one_by_one(
        self, request: admin.AlterUsersOneByOne, context: RequestContext
    ) -> admin.ChangedParts:
        """Change the credentials of each user; respond when this node has applied them."""

        async def alter(user: events.AlterScramCredentials) -> events.ScramCredentialsAltered:
            return await self.alter_user_scram_credentials(user, context)

        return _parts(await one_by_one(request.users, "users", _user_of, alter, context))

    async def create_acls(self, request: events.CreateAcls, context: RequestContext) -> events.AclsCreated:
        """Forward; respond when this node has applied the rules."""
        return await self._alter(table.ADMIN_CREATE_ACLS, request, context, "the ACLs were created")

    async def delete_acls(self, request: events.DeleteAcls, context: RequestContext) -> events.AclsDeleted:
        """Forward; respond when this node has applied the removal."""
        return await self._alter(table.ADMIN_DELETE_ACLS, request, context, "the ACLs were removed")

    async def alter_client_quotas(
        self, request: events.AlterClientQuotas, context: RequestContext
    ) -> events.ClientQuotasAltered:
        """Forward; respond when this node has applied the quotas."""
        return await self._alter(table.ADMIN_ALTER_CLIENT_QUOTAS, request, context, "the quotas were changed")

    async def alter_quotas_one_by_one(
        self, request: admin.AlterQuotasOneByOne, context: RequestContext
    ) -> admin.ChangedParts:
        """Change the quotas of each entity; respond when this node has applied them."""

        async def alter(entry: events.QuotaAlteration) -> events.ClientQuotasAltered:
            return await self.alter_client_quotas(events.AlterClientQuotas((entry,), request.validate_only), context)

        return _parts(await one_by_one(request.entries, "entities", lambda entry: str(entry.entity), alter, context))

    async def describe_client_quotas(
        self, request: admin.DescribeClientQuotasRequest, _context: RequestContext
    ) -> admin.DescribeClientQuotasAnswer:
        """The quotas in the image of this node."""
        found = [
            admin.ClientQuota(entity, values)
            for entity, values in self._metadata.image.quotas.items()
            if request.user in (None, entity.user) and request.client_id in (None, entity.client_id)
        ]
        found.sort(key=lambda each: (each.entity.user or "", each.entity.client_id or "", each.entity.user is None))
        return admin.DescribeClientQuotasAnswer(tuple(found))

    # --- access control lists ---------------------------------------------------------------------------------------

    async def describe_acls(
        self, request: admin.DescribeAclsRequest, _context: RequestContext
    ) -> admin.DescribeAclsAnswer:
        """The rules that the filter selects, by the image of this node."""
        return admin.DescribeAclsAnswer(tuple(sorted(filter(request.filter.selects, self._metadata.image.acls))))

    async def explain_acl(self, request: admin.AclQuestion, _context: RequestContext) -> AclDecision:
        """The decision about a question and its rule, by the image and the settings of this node."""
        checked_principal(request.principal)
        self._decisions.follow(self._metadata.image.acls)
        decision = self._decisions.decide(
            request.principal,
            checked_host(request.host),
            request.operation,
            request.resource_type,
            request.resource_name,
        )
        return replace(decision, enforced=self._authorizer.enabled)

    # --- explaining -----------------------------------------------------------------------------------------------

    async def explain_partitions(
        self, request: admin.ExplainPartitionsRequest, context: RequestContext
    ) -> admin.ExplainPartitionsAnswer:
        """Why partitions cannot be read or written, by the image of this node and the log directories of replicas.
        Without partitions in the request: every partition that is not healthy, of the topics that the caller may
        describe."""
        ensure_few(request.partitions, "partitions")
        image = self._metadata.image
        found = [self._find(image, asked, context) for asked in request.partitions]
        if request.partitions:
            states = [each for each in found if isinstance(each, PartitionState)]
        else:
            states = _described(image, context)
        disks = await self._log_dirs.query(image, {node for state in states for node in state.replicas})
        if not request.partitions:
            unhealthy = (state for state in states if not explain(image, state, disks).healthy)
            return admin.ExplainPartitionsAnswer(tuple(_explanation(image, each, disks) for each in unhealthy))
        return admin.ExplainPartitionsAnswer(
            tuple(_explanation(image, each, disks) if isinstance(each, PartitionState) else each for each in found)
        )

    def _find(
        self, image: ClusterImage, asked: admin.TopicPartitionId, context: RequestContext
    ) -> PartitionState | PartitionExplanation:
        """The state of the partition, or the answer that there is none or that the caller may not describe it."""
        by_id = asked.topic_id is not None
        topic = image.topic(asked.topic) if asked.topic_id is None else image.topics.get(asked.topic_id)
        name = asked.topic if topic is None else topic.name
        refuses = context.authorizer.topic_refusal
        refusal = (
            None if by_id and topic is None else refuses(context, table.ADMIN_EXPLAIN_PARTITIONS, name, by_id=by_id)
        )
        if refusal is not None:
            return PartitionExplanation(asked, refusal)
        try:
            key = self._key_of(asked)
            asked = replace(asked, topic_id=key.topic_id)
            return state_of(image, key)
        except TidelogError as error:
            return PartitionExplanation(asked, error)

    async def describe_log_dirs(
        self, _request: admin.DescribeLogDirsRequest, _context: RequestContext
    ) -> admin.DescribeLogDirsAnswer:
        """The log directories of this node."""
        return admin.DescribeLogDirsAnswer(self._log_dirs.own())

    async def alter_replica_log_dirs(
        self, request: admin.AlterReplicaLogDirsRequest, context: RequestContext
    ) -> admin.ChangedPartitions:
        """Begin to move replicas of this node between its log directories."""
        ensure_few(request.moves, "partitions")
        results = []
        for move in request.moves:
            error: TidelogError | None = None
            try:
                key = self._key_of(move.partition)
                self._log_dirs.move(key, str(move.partition), move.path, self._metadata.image)
            except TidelogError as refusal:
                context.meter.count_error(error := refusal)
            results.append(PartitionResult(move.partition, error))
        return admin.ChangedPartitions(tuple(results))

    async def describe_replica_logs(
        self, request: admin.DescribeReplicaLogsRequest, _context: RequestContext
    ) -> admin.DescribeReplicaLogsAnswer:
        """The logs of this node, with their sizes, by log directory."""
        return admin.DescribeReplicaLogsAnswer(self._log_dirs.with_logs(request.partitions, self._metadata.image))

    async def describe_quorum(
        self, request: admin.DescribeQuorumRequest, _context: RequestContext
    ) -> admin.DescribeQuorumAnswer:
        """The replicas of the metadata log, as the leader of the quorum knows them."""
        return await self._quorum.describe(request)

    async def explain_restart(
        self, request: admin.ExplainRestartRequest, _context: RequestContext
    ) -> admin.ExplainRestartAnswer:
        """The partitions and services that would stop working with a node, by the image of this node."""
        unavailable = self._controller.why_unavailable()
        reasons = (*filter(None, [unavailable]), *why_not_restart(self._metadata.image, request.node_id))
        return admin.ExplainRestartAnswer(not reasons, reasons)

    # --- names and ids --------------------------------------------------------------------------------------------

    def _key_of(self, place: admin.TopicPartitionId) -> PartitionKey:
        """The key of the partition; without a topic id, by the topic's name. Raises UnknownTopicOrPartition."""
        if place.topic_id is not None:
            return PartitionKey(place.topic_id, place.partition)
        return PartitionKey(self._topic_named(place.topic).topic_id, place.partition)

    def _topic_named(self, name: str) -> TopicState:
        topic = self._metadata.image.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist, as far as this node knows")
        return topic

    def _with_id(self, place: admin.TopicPartitionId) -> admin.TopicPartitionId | PartitionResult:
        """The partition with the id of its topic, or the answer that there is no such topic."""
        try:
            return replace(place, topic_id=self._key_of(place).topic_id)
        except UnknownTopicOrPartition as error:
            return PartitionResult(place, error)

    def _in_order(
        self,
        places: Sequence[admin.TopicPartitionId | PartitionResult],
        changed: Sequence[PartitionResult],
        context: RequestContext,
    ) -> admin.ChangedPartitions:
        """The answers in the order of the request. changed: of the partitions that were forwarded."""
        found = dict(map(self._with_name, changed))
        results = [each if isinstance(each, PartitionResult) else found[self._key_of(each)] for each in places]
        for each in results:
            if each.error is not None:
                context.meter.count_error(each.error)
        return admin.ChangedPartitions(tuple(results))

    def _with_name(self, changed: PartitionResult) -> tuple[PartitionKey, PartitionResult]:
        place = changed.partition
        assert isinstance(place, admin.TopicPartitionId), "the controller answers with ids"
        key = self._key_of(place)
        topic = self._metadata.image.topics.get(key.topic_id)
        return key, replace(changed, partition=replace(place, topic="" if topic is None else topic.name))


def _user_of(changes: events.AlterScramCredentials) -> str:
    """The user, one and the same, whom the changes are about."""
    first = changes.upsertions[0] if changes.upsertions else changes.deletions[0]
    return f"user {first.name!r}"


def _parts(outcomes: Iterable[object]) -> admin.ChangedParts:
    errors = (each if isinstance(each, TidelogError) else None for each in outcomes)
    return admin.ChangedParts(tuple(map(admin.ChangedPart, errors)))


def _described(image: ClusterImage, context: RequestContext) -> list[PartitionState]:
    """The partitions of all topics that the caller may describe."""
    allows = context.authorizer.allows_topic
    topics = [each for each in image.topics.values() if allows(context, AclOperation.DESCRIBE, each.name)]
    return [state for topic in topics for state in topic.partitions]


def _place(image: ClusterImage, state: PartitionState) -> admin.TopicPartitionId:
    return admin.TopicPartitionId(image.topics[state.topic_id].name, state.partition, state.topic_id)


def _explanation(image: ClusterImage, state: PartitionState, disks: OnDisks) -> PartitionExplanation:
    found = explain(image, state, disks)
    return PartitionExplanation(_place(image, state), None, found.readable, found.writable, found.causes, found.steps)


def _offline(image: ClusterImage, state: PartitionState) -> list[NodeId]:
    """The replicas whose node is fenced, or did not register the directory of the replica."""
    return [node for node in state.replicas if not electable(image, state, node)]


def _address(node: NodeRegistration, listener: str) -> NodeAddress:
    """The node, with its address on that listener if it has one."""
    return NodeAddress(node.node_id, node.listeners.get(listener, NO_ENDPOINT), node.rack)
