"""The Controller service: requests as events for the controller, its results as answers.

A node that is not the active controller refuses with NotController, which carries the address of the one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from node.controller.controller_driver import ControllerDriver
from node.metadata.metadata_codec import directories_from_proto, listeners_from_proto
from node.requests.topic_settings import TopicSettings
from node.runtime import status
from node.runtime.transport import Caller
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
    DamagedReplica,
    DeleteTopic,
    ElectionType,
    ElectLeaders,
    FeaturesUpdated,
    Heartbeat,
    HeartbeatAnswer,
    IsrMember,
    PartitionOutcome,
    PartitionOutcomes,
    ProducerIdBlock,
    Proposal,
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
from tidelog.types import (
    NO_NODE,
    DirectoryId,
    Incarnation,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    PartitionKey,
    TopicId,
)

T = TypeVar("T")


class ControllerService:
    """One method per RPC, each answered once what it rests on is committed."""

    def __init__(self, driver: ControllerDriver, settings: TopicSettings) -> None:
        self._driver, self._settings = driver, settings

    async def register_node(
        self, request: controller_pb2.RegisterNodeRequest, _caller: Caller
    ) -> controller_pb2.RegisterNodeResponse:
        """A node's process has started."""
        directories = _parsed(lambda: directories_from_proto(request.directories))
        incarnation = Incarnation(_uuid(request.incarnation))
        intact = frozenset(DirectoryId(_uuid(directory_id)) for directory_id in request.intact_directories)
        damaged = _damaged(request.damaged)
        registered = await self._driver.ask(
            lambda number: RegisterNode(
                number,
                self._driver.now(),
                request.cluster_id,
                NodeId(request.node_id),
                incarnation,
                listeners_from_proto(request.listeners),
                request.rack,
                request.boot_id,
                directories,
                intact,
                Offset(request.metadata_offset),
                damaged,
            ),
            Registered,
        )
        return controller_pb2.RegisterNodeResponse(node_epoch=registered.node_epoch)

    async def heartbeat(
        self, request: controller_pb2.HeartbeatRequest, _caller: Caller
    ) -> controller_pb2.HeartbeatResponse:
        """A node is alive: every voter is told, so that the next controller knows who was silent."""
        self._driver.heard(NodeId(request.node_id), NodeEpoch(request.node_epoch))
        damaged = _damaged(request.damaged)
        offline = tuple(DirectoryId(_uuid(directory_id)) for directory_id in request.offline_directories)
        answer = await self._driver.ask(
            lambda number: Heartbeat(
                number,
                self._driver.now(),
                NodeId(request.node_id),
                NodeEpoch(request.node_epoch),
                Offset(request.metadata_offset),
                request.ready,
                request.want_drain,
                damaged,
                offline,
            ),
            HeartbeatAnswer,
        )
        return controller_pb2.HeartbeatResponse(fenced=answer.fenced, drained=answer.drained)

    async def alter_partition(
        self, request: controller_pb2.AlterPartitionRequest, _caller: Caller
    ) -> controller_pb2.AlterPartitionResponse:
        """A leader proposes in-sync sets."""
        proposals = tuple(
            Proposal(
                _key(item.topic_id, item.partition),
                LeaderEpoch(item.leader_epoch),
                PartitionEpoch(item.partition_epoch),
                tuple(IsrMember(NodeId(member.node_id), NodeEpoch(member.node_epoch)) for member in item.new_isr),
            )
            for item in request.partitions
        )
        altered = await self._driver.ask(
            lambda number: AlterPartition(number, NodeId(request.node_id), NodeEpoch(request.node_epoch), proposals),
            AlteredPartitions,
        )
        return controller_pb2.AlterPartitionResponse(
            partitions=[_altered(partition) for partition in altered.partitions]
        )

    async def allocate_producer_ids(
        self, request: controller_pb2.AllocateProducerIdsRequest, _caller: Caller
    ) -> controller_pb2.AllocateProducerIdsResponse:
        """A node wants producer ids to give away."""
        block = await self._driver.ask(
            lambda number: AllocateProducerIds(number, NodeId(request.node_id), NodeEpoch(request.node_epoch)),
            ProducerIdBlock,
        )
        return controller_pb2.AllocateProducerIdsResponse(first_producer_id=block.first, count=block.count)

    async def create_topic(
        self, request: admin_pb2.CreateTopicRequest, _caller: Caller
    ) -> admin_pb2.CreateTopicResponse:
        """Make a topic."""
        created = await self._driver.ask(
            lambda number: CreateTopic(
                number,
                request.name,
                request.partitions,
                request.replication_factor,
                self._settings.at_creation(request.configs),
                request.validate_only,
            ),
            TopicCreated,
        )
        topic_id = b"" if created.topic_id is None else created.topic_id.bytes
        return admin_pb2.CreateTopicResponse(topic_id=topic_id, warnings=created.warnings)

    async def delete_topic(
        self, request: admin_pb2.DeleteTopicRequest, _caller: Caller
    ) -> admin_pb2.DeleteTopicResponse:
        """Remove a topic."""
        topic_id = TopicId(_uuid(request.topic_id)) if request.topic_id else None
        await self._driver.ask(lambda number: DeleteTopic(number, request.name, topic_id), TopicDeleted)
        return admin_pb2.DeleteTopicResponse()

    async def elect_leaders(
        self, request: admin_pb2.ElectLeadersRequest, _caller: Caller
    ) -> admin_pb2.ElectLeadersResponse:
        """Preferred leaders, or whoever is there."""
        keys = tuple(_key(each.topic_id, each.partition) for each in request.partitions)
        unclean = request.type == admin_pb2.ELECTION_TYPE_UNCLEAN
        election = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        if request.validate_only and not unclean:
            raise InvalidRequest("only an unclean election can be tried without changing anything")
        done = await self._driver.ask(
            lambda number: ElectLeaders(number, election, keys, request.validate_only), PartitionOutcomes
        )
        return admin_pb2.ElectLeadersResponse(partitions=[_outcome(each) for each in done.partitions])

    async def alter_partition_reassignments(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest, _caller: Caller
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """Move replicas."""
        wanted = tuple(
            Reassignment(
                _key(each.partition.topic_id, each.partition.partition),
                None if each.cancel else tuple(NodeId(node) for node in each.replicas),
            )
            for each in request.partitions
        )
        if len({each.key for each in wanted}) < len(wanted):
            raise InvalidRequest("a partition is named twice in one reassignment: name each once")
        done = await self._driver.ask(lambda number: AlterReassignments(number, wanted), PartitionOutcomes)
        return admin_pb2.AlterPartitionReassignmentsResponse(partitions=[_outcome(each) for each in done.partitions])

    async def incremental_alter_configs(
        self, request: admin_pb2.IncrementalAlterConfigsRequest, _caller: Caller
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Change settings of a topic."""
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
        self, request: admin_pb2.CreatePartitionsRequest, _caller: Caller
    ) -> admin_pb2.CreatePartitionsResponse:
        """More partitions for a topic."""
        done = await self._driver.ask(
            lambda number: CreatePartitions(number, request.topic, request.count, request.validate_only), TopicAltered
        )
        return admin_pb2.CreatePartitionsResponse(
            topic_id=done.topic_id.bytes, metadata_offset=done.offset, warnings=done.warnings
        )

    async def update_features(
        self, request: admin_pb2.UpdateFeaturesRequest, _caller: Caller
    ) -> admin_pb2.UpdateFeaturesResponse:
        """Raise the feature level."""
        level = request.level or features.LATEST
        done = await self._driver.ask(
            lambda number: UpdateFeatures(number, level, request.validate_only), FeaturesUpdated
        )
        return admin_pb2.UpdateFeaturesResponse(level=done.level)

    async def remove_voter(
        self, request: admin_pb2.RemoveVoterRequest, _caller: Caller
    ) -> admin_pb2.RemoveVoterResponse:
        """A node that is gone for good votes no more."""
        directory_id = DirectoryId(_uuid(request.directory_id)) if request.directory_id else None
        await self._driver.ask(lambda number: RemoveVoter(number, NodeId(request.node_id), directory_id), VoterRemoved)
        return admin_pb2.RemoveVoterResponse()


def _outcome(told: PartitionOutcome) -> admin_pb2.PartitionOutcome:
    place = admin_pb2.TopicPartitionId(topic_id=told.key.topic_id.bytes, partition=told.key.partition)
    message = admin_pb2.PartitionOutcome(partition=place, leader=NO_NODE, leader_epoch=-1, loss=told.loss)
    if isinstance(told.outcome, TidelogError):
        message.error.CopyFrom(status.to_proto(told.outcome))
    else:
        message.leader, message.leader_epoch = told.outcome.leader, told.outcome.leader_epoch
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


def _damaged(replicas: Iterable[controller_pb2.DamagedReplica]) -> tuple[DamagedReplica, ...]:
    return tuple(
        DamagedReplica(_key(replica.topic_id, replica.partition), replica.reason, LeaderEpoch(replica.leader_epoch))
        for replica in replicas
    )


def _key(topic_id: bytes, partition: int) -> PartitionKey:
    return PartitionKey(TopicId(_uuid(topic_id)), PartitionIndex(partition))


def _uuid(value: bytes) -> UUID:
    return _parsed(lambda: UUID(bytes=value))


def _parsed(read: Callable[[], T]) -> T:
    """Raises InvalidRequest for an id that is not 16 bytes."""
    try:
        return read()
    except ValueError as error:
        raise InvalidRequest(f"an id in the request is not one of 16 bytes: {error}") from error
