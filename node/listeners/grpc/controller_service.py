"""The Controller service: translates requests to events of the controller, and its results to responses.

A node that is not the active controller raises NotController, which names the address of the active one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from node.controller.controller_driver import ControllerDriver
from node.metadata.message_mapping import MessageMapping
from node.requests.topic_settings import TopicSettings
from node.requests.types.context import RequestContext
from node.runtime import status
from replication.controller import features
from replication.controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    AlteredPartition,
    AlteredPartitions,
    AlterPartition,
    AlterReassignments,
    ConfigChange,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectionType,
    ElectLeaders,
    FeaturesUpdated,
    Heartbeat,
    HeartbeatAnswer,
    PartitionOutcome,
    PartitionOutcomes,
    ProducerIdBlock,
    Reassignment,
    Registered,
    RegisterNode,
    RemoveVoter,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    UpdateFeatures,
    VoterRemoved,
)
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.protocol.v1 import admin_pb2, controller_pb2
from tidelog.types import NO_NODE, NodeEpoch, NodeId, PartitionIndex, PartitionKey, TopicId

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def _mapping(event: type[DataclassInstance], request: Descriptor, *given: str) -> MessageMapping[Any]:
    return MessageMapping(event, request, given=("request_id", *given))


_REGISTER_NODE: Final = _mapping(RegisterNode, controller_pb2.RegisterNodeRequest.DESCRIPTOR, "at")
_HEARTBEAT: Final = _mapping(Heartbeat, controller_pb2.HeartbeatRequest.DESCRIPTOR, "at")
_ALTER_PARTITION: Final = _mapping(AlterPartition, controller_pb2.AlterPartitionRequest.DESCRIPTOR)
_ALLOCATE_PRODUCER_IDS: Final = _mapping(AllocateProducerIds, controller_pb2.AllocateProducerIdsRequest.DESCRIPTOR)
_CREATE_TOPIC: Final = _mapping(CreateTopic, admin_pb2.CreateTopicRequest.DESCRIPTOR, "configs")
_DELETE_TOPIC: Final = _mapping(DeleteTopic, admin_pb2.DeleteTopicRequest.DESCRIPTOR)
_CREATE_PARTITIONS: Final = _mapping(CreatePartitions, admin_pb2.CreatePartitionsRequest.DESCRIPTOR)
_REMOVE_VOTER: Final = _mapping(RemoveVoter, admin_pb2.RemoveVoterRequest.DESCRIPTOR)


class ControllerService:
    """One method per RPC; each responds when everything that its result depends on is committed."""

    def __init__(self, driver: ControllerDriver, settings: TopicSettings) -> None:
        self._driver, self._settings = driver, settings

    async def register_node(
        self, request: controller_pb2.RegisterNodeRequest, _context: RequestContext
    ) -> controller_pb2.RegisterNodeResponse:
        """A process of a node has started."""
        registered = await self._ask(_REGISTER_NODE, request, Registered, at=self._driver.now())
        return controller_pb2.RegisterNodeResponse(node_epoch=registered.node_epoch)

    async def heartbeat(
        self, request: controller_pb2.HeartbeatRequest, _context: RequestContext
    ) -> controller_pb2.HeartbeatResponse:
        """A node is alive. Every voter receives its heartbeats: the next controller knows which nodes were silent."""
        self._driver.heard(NodeId(request.node_id), NodeEpoch(request.node_epoch))
        answer = await self._ask(_HEARTBEAT, request, HeartbeatAnswer, at=self._driver.now())
        return controller_pb2.HeartbeatResponse(fenced=answer.fenced, drained=answer.drained)

    async def alter_partition(
        self, request: controller_pb2.AlterPartitionRequest, _context: RequestContext
    ) -> controller_pb2.AlterPartitionResponse:
        """A leader proposes in-sync sets."""
        altered = await self._ask(_ALTER_PARTITION, request, AlteredPartitions)
        return controller_pb2.AlterPartitionResponse(
            partitions=[_altered(partition) for partition in altered.partitions]
        )

    async def allocate_producer_ids(
        self, request: controller_pb2.AllocateProducerIdsRequest, _context: RequestContext
    ) -> controller_pb2.AllocateProducerIdsResponse:
        """A node asks for a block of producer ids."""
        block = await self._ask(_ALLOCATE_PRODUCER_IDS, request, ProducerIdBlock)
        return controller_pb2.AllocateProducerIdsResponse(first_producer_id=block.first, count=block.count)

    async def create_topic(
        self, request: admin_pb2.CreateTopicRequest, _context: RequestContext
    ) -> admin_pb2.CreateTopicResponse:
        """Create a topic."""
        created = await self._driver.ask(
            lambda number: _CREATE_TOPIC.from_message(
                request, request_id=number, configs=self._settings.at_creation(request.configs)
            ),
            TopicCreated,
        )
        topic_id = b"" if created.topic_id is None else created.topic_id.bytes
        return admin_pb2.CreateTopicResponse(topic_id=topic_id, warnings=created.warnings)

    async def delete_topic(
        self, request: admin_pb2.DeleteTopicRequest, _context: RequestContext
    ) -> admin_pb2.DeleteTopicResponse:
        """Delete a topic."""
        await self._ask(_DELETE_TOPIC, request, TopicDeleted)
        return admin_pb2.DeleteTopicResponse()

    async def elect_leaders(
        self, request: admin_pb2.ElectLeadersRequest, _context: RequestContext
    ) -> admin_pb2.ElectLeadersResponse:
        """Elect the preferred leaders, or replicas that may lack committed records."""
        keys = tuple(_key(each.topic_id, each.partition) for each in request.partitions)
        unclean = request.type == admin_pb2.ELECTION_TYPE_UNCLEAN
        election = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        if request.validate_only and not unclean:
            raise InvalidRequest("validate_only is supported for an unclean election only")
        done = await self._driver.ask(
            lambda number: ElectLeaders(number, election, keys, request.validate_only), PartitionOutcomes
        )
        return admin_pb2.ElectLeadersResponse(partitions=[_outcome(each) for each in done.partitions])

    async def alter_partition_reassignments(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest, _context: RequestContext
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """Move partitions to other nodes."""
        wanted = tuple(
            Reassignment(
                _key(each.partition.topic_id, each.partition.partition),
                None if each.cancel else tuple(NodeId(node) for node in each.replicas),
            )
            for each in request.partitions
        )
        if len({each.key for each in wanted}) < len(wanted):
            raise InvalidRequest("a partition is listed twice in one reassignment: list each once")
        done = await self._driver.ask(lambda number: AlterReassignments(number, wanted), PartitionOutcomes)
        return admin_pb2.AlterPartitionReassignmentsResponse(partitions=[_outcome(each) for each in done.partitions])

    async def incremental_alter_configs(
        self, request: admin_pb2.IncrementalAlterConfigsRequest, _context: RequestContext
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Change topic settings."""
        changes = tuple(
            ConfigChange(each.key, each.value if each.HasField("value") else self._settings.when_removed(each.key))
            for each in request.changes
        )
        done = await self._driver.ask(
            lambda number: AlterConfigs(number, request.topic, changes, request.validate_only), TopicAltered
        )
        return admin_pb2.IncrementalAlterConfigsResponse(
            topic_id=done.topic_id.bytes, metadata_offset=done.offset, warnings=done.warnings
        )

    async def create_partitions(
        self, request: admin_pb2.CreatePartitionsRequest, _context: RequestContext
    ) -> admin_pb2.CreatePartitionsResponse:
        """Add partitions to a topic."""
        done = await self._ask(_CREATE_PARTITIONS, request, TopicAltered)
        return admin_pb2.CreatePartitionsResponse(
            topic_id=done.topic_id.bytes, metadata_offset=done.offset, warnings=done.warnings
        )

    async def update_features(
        self, request: admin_pb2.UpdateFeaturesRequest, _context: RequestContext
    ) -> admin_pb2.UpdateFeaturesResponse:
        """Raise the feature level."""
        level = request.level or features.LATEST
        done = await self._driver.ask(
            lambda number: UpdateFeatures(number, level, request.validate_only), FeaturesUpdated
        )
        return admin_pb2.UpdateFeaturesResponse(level=done.level)

    async def remove_voter(
        self, request: admin_pb2.RemoveVoterRequest, _context: RequestContext
    ) -> admin_pb2.RemoveVoterResponse:
        """Remove a voter whose node does not return."""
        await self._ask(_REMOVE_VOTER, request, VoterRemoved)
        return admin_pb2.RemoveVoterResponse()

    async def _ask(self, mapping: MessageMapping[Any], request: Message, expected: type[T], **given: object) -> T:
        """Passes the event of a request to the controller. Raises InvalidRequest for an id that is not 16 bytes."""
        event = _parsed(lambda: mapping.from_message(request, request_id=0, **given))
        return await self._driver.ask(lambda number: replace(event, request_id=number), expected)


def _outcome(result: PartitionOutcome) -> admin_pb2.PartitionOutcome:
    place = admin_pb2.TopicPartitionId(topic_id=result.key.topic_id.bytes, partition=result.key.partition)
    message = admin_pb2.PartitionOutcome(partition=place, leader=NO_NODE, leader_epoch=-1, loss=result.loss)
    if isinstance(result.outcome, TidelogError):
        message.error.CopyFrom(status.to_proto(result.outcome))
    else:
        message.leader, message.leader_epoch = result.outcome.leader, result.outcome.leader_epoch
    return message


def _altered(altered: AlteredPartition) -> controller_pb2.AlteredPartition:
    message = controller_pb2.AlteredPartition(topic_id=altered.key.topic_id.bytes, partition=altered.key.partition)
    if isinstance(altered.outcome, TidelogError):
        message.error.CopyFrom(status.to_proto(altered.outcome))
        return message
    message.leader = altered.outcome.leader
    message.leader_epoch = altered.outcome.leader_epoch
    message.partition_epoch = altered.outcome.partition_epoch
    message.isr.extend(altered.outcome.isr)
    return message


def _key(topic_id: bytes, partition: int) -> PartitionKey:
    return PartitionKey(TopicId(_parsed(lambda: UUID(bytes=topic_id))), PartitionIndex(partition))


def _parsed(read: Callable[[], T]) -> T:
    try:
        return read()
    except ValueError as error:
        raise InvalidRequest(f"an id in the request does not have 16 bytes: {error}") from error
