"""The Admin service: reads the image of this node and forwards changes to the controller.

Invariants: this node responds to a change after it has applied it, so later requests to this node see it; errors of the
controller reach the caller unchanged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from node.controller.controller_client import ControllerClient
from node.metadata.message_mapping import MessageMapping
from node.metadata.metadata_log import MetadataLog
from node.quorum.state import QuorumView
from node.requests.log_dirs import LogDirs
from node.requests.topic_settings import TopicSettings
from node.requests.types.context import RequestContext
from node.runtime import methods, status
from node.runtime.limits import ensure_few
from replication.controller.administration import state_of
from replication.controller.explain import OnDisks, explain, why_not_restart
from replication.controller.image import ClusterImage, NodeRegistration, PartitionState, TopicState
from tidelog.errors import InvalidRequest, RequestTimedOut, TidelogError, UnknownTopicId, UnknownTopicOrPartition
from tidelog.protocol.v1 import admin_pb2, common_pb2
from tidelog.types import NO_NODE, NodeAddress, NodeId, PartitionIndex, PartitionKey, TopicId

CHANGE_MS: Final = 15_000
"""After this time the outcome of a change counts as unknown."""

_PARTITION: Final = MessageMapping(
    PartitionState, admin_pb2.PartitionMetadata.DESCRIPTOR, given=("topic_id", "directories")
)


class AdminService:
    """One method per RPC."""

    def __init__(
        self,
        metadata: MetadataLog,
        view: QuorumView,
        controller: ControllerClient,
        settings: TopicSettings,
        log_dirs: LogDirs,
    ) -> None:
        self._metadata, self._view, self._log_dirs = metadata, view, log_dirs
        self._controller, self._settings = controller, settings

    # --- reading --------------------------------------------------------------------------------------------------

    async def get_metadata(
        self, request: admin_pb2.GetMetadataRequest, context: RequestContext
    ) -> admin_pb2.GetMetadataResponse:
        """The nodes that are not fenced, and the requested topics."""
        ensure_few(request.topics, "topics")
        ensure_few(request.topic_ids, "topic ids")
        image = self._metadata.image
        return admin_pb2.GetMetadataResponse(
            cluster_id=image.cluster_id,
            controller_id=self._view.leader_id,
            nodes=[
                _address(node, context.listener)
                for _, node in sorted(image.nodes.items())
                if not node.fenced and context.listener in node.listeners
            ],
            topics=self._topics(image, request),
            metadata_offset=image.offset,
        )

    def _topics(self, image: ClusterImage, request: admin_pb2.GetMetadataRequest) -> list[admin_pb2.TopicMetadata]:
        if request.all_topics:
            return [self._topic(image, image.topics[image.topic_ids[name]]) for name in sorted(image.topic_ids)]
        answers = []
        for name in request.topics:
            topic = image.topic(name)
            if topic is None:
                missing = UnknownTopicOrPartition(
                    f"topic {name!r} does not exist, as far as this node knows; create it"
                )
                answers.append(admin_pb2.TopicMetadata(error=status.to_proto(missing), name=name))
            else:
                answers.append(self._topic(image, topic))
        for raw in request.topic_ids:
            topic = image.topics.get(TopicId(UUID(bytes=raw))) if len(raw) == 16 else None
            if topic is None:
                unknown = UnknownTopicId(f"no topic has the id {raw.hex()}, as far as this node knows: it was deleted")
                answers.append(admin_pb2.TopicMetadata(error=status.to_proto(unknown), topic_id=raw))
            else:
                answers.append(self._topic(image, topic))
        return answers

    def _topic(self, image: ClusterImage, topic: TopicState) -> admin_pb2.TopicMetadata:
        return admin_pb2.TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id.bytes,
            partitions=[_partition(image, state) for state in topic.partitions],
            configs=self._settings.in_force(topic.configs),
        )

    async def describe_cluster(
        self, _request: admin_pb2.DescribeClusterRequest, context: RequestContext
    ) -> admin_pb2.DescribeClusterResponse:
        """The state of the cluster for an operator."""
        image = self._metadata.image
        states = list(image.partitions())
        leaders = Counter(state.leader for state in states)
        replicas = Counter(node for state in states for node in state.replicas)
        disks = await self._log_dirs.look(image, replicas)
        return admin_pb2.DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=NO_NODE if self._view.is_lost else self._view.leader_id,
            controller_epoch=self._view.leader_epoch,
            controller_silence_ms=self._view.silence_ms(),
            metadata_offset=image.offset,
            nodes=[
                admin_pb2.NodeStatus(
                    address=_address(node, context.listener),
                    node_epoch=node.node_epoch,
                    incarnation=node.incarnation.bytes,
                    fenced=node.fenced,
                    draining=node.draining,
                    leaders=leaders[node.node_id],
                    replicas=replicas[node.node_id],
                )
                for _, node in sorted(image.nodes.items())
            ],
            voters=[
                admin_pb2.QuorumVoter(node_id=voter.node_id, directory_id=voter.directory_id.bytes)
                for voter in image.voters
            ],
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

    async def create_topic(
        self, request: admin_pb2.CreateTopicRequest, _context: RequestContext
    ) -> admin_pb2.CreateTopicResponse:
        """Forward; respond when this node has applied the topic."""
        answer = await self._controller.call(methods.CONTROLLER_CREATE_TOPIC, request, timeout_ms=CHANGE_MS)
        if answer.topic_id:
            topic_id = TopicId(UUID(bytes=answer.topic_id))
            await self._applied(lambda image: topic_id in image.topics, f"topic {request.name} was created")
        return answer

    async def delete_topic(
        self, request: admin_pb2.DeleteTopicRequest, _context: RequestContext
    ) -> admin_pb2.DeleteTopicResponse:
        """Forward; respond when this node has applied the deletion."""
        if request.topic_id and len(request.topic_id) != 16:
            raise InvalidRequest(f"a topic id has 16 bytes, this one {len(request.topic_id)}")
        known = self._metadata.image.topic_ids.get(request.name)
        meant = TopicId(UUID(bytes=request.topic_id)) if request.topic_id else known
        answer = await self._controller.call(methods.CONTROLLER_DELETE_TOPIC, request, timeout_ms=CHANGE_MS)
        await self._applied(lambda image: meant not in image.topics, f"topic {request.name} was deleted")
        return answer

    async def elect_leaders(
        self, request: admin_pb2.ElectLeadersRequest, _context: RequestContext
    ) -> admin_pb2.ElectLeadersResponse:
        """Forward, with the ids of the topics."""
        ensure_few(request.partitions, "partitions")
        for each in request.partitions:
            self._identify(each)
        answer = await self._controller.call(methods.CONTROLLER_ELECT_LEADERS, request, timeout_ms=CHANGE_MS)
        self._name(answer.partitions)
        return answer

    async def alter_partition_reassignments(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest, _context: RequestContext
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """Forward, with the ids of the topics."""
        ensure_few(request.partitions, "partitions")
        for each in request.partitions:
            self._identify(each.partition)
        method = methods.CONTROLLER_ALTER_PARTITION_REASSIGNMENTS
        answer = await self._controller.call(method, request, timeout_ms=CHANGE_MS)
        self._name(answer.partitions)
        return answer

    async def list_partition_reassignments(
        self, _request: admin_pb2.ListPartitionReassignmentsRequest, _context: RequestContext
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        """The partitions under reassignment."""
        image = self._metadata.image
        return admin_pb2.ListPartitionReassignmentsResponse(
            partitions=[
                admin_pb2.OngoingReassignment(
                    partition=_place(image, state),
                    replicas=state.replicas,
                    adding=state.adding,
                    removing=state.removing,
                    isr=state.isr,
                )
                for state in image.partitions()
                if state.adding or state.removing
            ]
        )

    async def incremental_alter_configs(
        self, request: admin_pb2.IncrementalAlterConfigsRequest, _context: RequestContext
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Forward; respond when this node has applied the settings."""
        method = methods.CONTROLLER_INCREMENTAL_ALTER_CONFIGS
        answer = await self._controller.call(method, request, timeout_ms=CHANGE_MS)
        reached = answer.metadata_offset
        await self._applied(lambda image: image.offset >= reached, f"topic {request.topic} was changed")
        return answer

    async def create_partitions(
        self, request: admin_pb2.CreatePartitionsRequest, _context: RequestContext
    ) -> admin_pb2.CreatePartitionsResponse:
        """Forward; respond when this node has applied the partitions."""
        answer = await self._controller.call(methods.CONTROLLER_CREATE_PARTITIONS, request, timeout_ms=CHANGE_MS)
        reached = answer.metadata_offset
        await self._applied(lambda image: image.offset >= reached, f"topic {request.topic} was changed")
        return answer

    async def update_features(
        self, request: admin_pb2.UpdateFeaturesRequest, _context: RequestContext
    ) -> admin_pb2.UpdateFeaturesResponse:
        """Forward; respond when this node has applied the level."""
        answer = await self._controller.call(methods.CONTROLLER_UPDATE_FEATURES, request, timeout_ms=CHANGE_MS)
        if not request.validate_only:
            await self._applied(lambda image: image.feature_level >= answer.level, "the feature level was raised")
        return answer

    # --- explaining -----------------------------------------------------------------------------------------------

    async def explain_partitions(
        self, request: admin_pb2.ExplainPartitionsRequest, _context: RequestContext
    ) -> admin_pb2.ExplainPartitionsResponse:
        """Why partitions cannot be read or written, by the image of this node and the log directories of replicas.
        Without partitions in the request: every partition that is not healthy."""
        ensure_few(request.partitions, "partitions")
        image = self._metadata.image
        found = [self._find(image, asked) for asked in request.partitions]
        states = [each for each in found if isinstance(each, PartitionState)] or list(image.partitions())
        disks = await self._log_dirs.look(image, {node for state in states for node in state.replicas})
        if not request.partitions:
            unwell = (state for state in states if not explain(image, state, disks).healthy)
            return admin_pb2.ExplainPartitionsResponse(partitions=[_explanation(image, each, disks) for each in unwell])
        answers = [
            _explanation(image, each, disks)
            if isinstance(each, PartitionState)
            else admin_pb2.PartitionExplanation(partition=asked, error=status.to_proto(each))
            for asked, each in zip(request.partitions, found, strict=True)
        ]
        return admin_pb2.ExplainPartitionsResponse(partitions=answers)

    def _find(self, image: ClusterImage, asked: admin_pb2.TopicPartitionId) -> PartitionState | TidelogError:
        try:
            self._identify(asked)
            topic_id = TopicId(UUID(bytes=asked.topic_id))
            return state_of(image, PartitionKey(topic_id, PartitionIndex(asked.partition)))
        except TidelogError as error:
            return error

    async def describe_log_dirs(
        self, _request: admin_pb2.DescribeLogDirsRequest, _context: RequestContext
    ) -> admin_pb2.DescribeLogDirsResponse:
        """The log directories of this node."""
        return admin_pb2.DescribeLogDirsResponse(log_dirs=self._log_dirs.own())

    async def explain_restart(
        self, request: admin_pb2.ExplainRestartRequest, _context: RequestContext
    ) -> admin_pb2.ExplainRestartResponse:
        """What would stop working while a node is stopped, by the image of this node."""
        trouble = self._controller.trouble()
        reasons = [*filter(None, [trouble]), *why_not_restart(self._metadata.image, NodeId(request.node_id))]
        return admin_pb2.ExplainRestartResponse(safe=not reasons, reasons=reasons)

    def _identify(self, place: admin_pb2.TopicPartitionId) -> None:
        """Set the current id of the topic where none is given. Raises InvalidRequest, UnknownTopicOrPartition."""
        if place.topic_id:
            if len(place.topic_id) != 16:
                raise InvalidRequest(f"a topic id has 16 bytes, this one {len(place.topic_id)}")
            return
        topic = self._metadata.image.topic(place.topic)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {place.topic!r} does not exist, as far as this node knows")
        place.topic_id = topic.topic_id.bytes

    def _name(self, outcomes: Iterable[admin_pb2.PartitionOutcome]) -> None:
        topics = self._metadata.image.topics
        for outcome in outcomes:
            topic = topics.get(TopicId(UUID(bytes=outcome.partition.topic_id)))
            outcome.partition.topic = "" if topic is None else topic.name

    async def remove_voter(
        self, request: admin_pb2.RemoveVoterRequest, _context: RequestContext
    ) -> admin_pb2.RemoveVoterResponse:
        """Forward."""
        return await self._controller.call(methods.CONTROLLER_REMOVE_VOTER, request, timeout_ms=CHANGE_MS)

    async def _applied(self, seen: Callable[[ClusterImage], bool], what: str) -> None:
        try:
            async with asyncio.timeout(CHANGE_MS / 1_000):
                await self._metadata.wait_until(lambda: seen(self._metadata.image))
        except TimeoutError:
            raise RequestTimedOut(
                f"{what}, but this node has not heard of it within {CHANGE_MS} ms; look again, or ask another node"
            ) from None


def _partition(image: ClusterImage, state: PartitionState) -> admin_pb2.PartitionMetadata:
    offline = [node for node in state.replicas if _offline(state, image.nodes.get(node))]
    return admin_pb2.PartitionMetadata(offline=offline, **_PARTITION.to_fields(state))


def _place(image: ClusterImage, state: PartitionState) -> admin_pb2.TopicPartitionId:
    name = image.topics[state.topic_id].name
    return admin_pb2.TopicPartitionId(topic=name, topic_id=state.topic_id.bytes, partition=state.partition)


def _explanation(image: ClusterImage, state: PartitionState, disks: OnDisks) -> admin_pb2.PartitionExplanation:
    told = explain(image, state, disks)
    return admin_pb2.PartitionExplanation(
        partition=_place(image, state),
        readable=told.readable,
        writable=told.writable,
        causes=told.causes,
        steps=told.steps,
    )


def _offline(state: PartitionState, node: NodeRegistration | None) -> bool:
    """True if the node of the replica is fenced, or did not register the directory of the replica."""
    if node is None or node.fenced:
        return True
    directory = state.directory_of(node.node_id)
    return all(named.directory_id != directory for named in node.directories)


def _address(node: NodeRegistration, listener: str) -> common_pb2.NodeAddress:
    """The node, with its address where it has that listener."""
    endpoint = node.listeners.get(listener)
    if endpoint is None:
        return common_pb2.NodeAddress(node_id=node.node_id, rack=node.rack, leader_epoch=-1)
    return status.address_to_proto(NodeAddress(node.node_id, endpoint, node.rack))
