"""The Controller service: requests as events for the controller, its results as answers.

A node that is not the active controller refuses with NotController, which carries the address of the one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from node import status
from node.controller_driver import ControllerDriver
from node.metadata_codec import folders_from_proto, listeners_from_proto
from node.topic_settings import TopicSettings
from node.transport import Caller
from replication.controller_events import (
    AllocateProducerIds,
    AlteredPartition,
    AlteredPartitions,
    AlterPartition,
    CreateTopic,
    DamagedReplica,
    DeleteTopic,
    Heartbeat,
    HeartbeatAnswer,
    IsrMember,
    ProducerIdBlock,
    Proposal,
    Registered,
    RegisterNode,
    RemoveVoter,
    TopicCreated,
    TopicDeleted,
    VoterRemoved,
)
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.types import (
    FolderId,
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
from tidelog.v1 import admin_pb2, controller_pb2

T = TypeVar("T")


class ControllerService:
    """One method per RPC, each answered once what it rests on is committed."""

    def __init__(self, driver: ControllerDriver, settings: TopicSettings) -> None:
        self._driver, self._settings = driver, settings

    async def register_node(
        self, request: controller_pb2.RegisterNodeRequest, _caller: Caller
    ) -> controller_pb2.RegisterNodeResponse:
        """A node's process has started."""
        folders = _parsed(lambda: folders_from_proto(request.folders))
        incarnation = Incarnation(_uuid(request.incarnation))
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
                request.clean_start,
                folders,
                damaged,
            ),
            Registered,
        )
        return controller_pb2.RegisterNodeResponse(node_epoch=registered.node_epoch)

    async def heartbeat(
        self, request: controller_pb2.HeartbeatRequest, _caller: Caller
    ) -> controller_pb2.HeartbeatResponse:
        """A node is alive: every voter is told, so that the next controller knows who was silent."""
        self._driver.heard(NodeId(request.node_id))
        damaged = _damaged(request.damaged)
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
        return admin_pb2.CreateTopicResponse(topic_id=b"" if created.topic_id is None else created.topic_id.bytes)

    async def delete_topic(
        self, request: admin_pb2.DeleteTopicRequest, _caller: Caller
    ) -> admin_pb2.DeleteTopicResponse:
        """Remove a topic."""
        topic_id = TopicId(_uuid(request.topic_id)) if request.topic_id else None
        await self._driver.ask(lambda number: DeleteTopic(number, request.name, topic_id), TopicDeleted)
        return admin_pb2.DeleteTopicResponse()

    async def remove_voter(
        self, request: admin_pb2.RemoveVoterRequest, _caller: Caller
    ) -> admin_pb2.RemoveVoterResponse:
        """A node that is gone for good votes no more."""
        folder_id = FolderId(_uuid(request.folder_id)) if request.folder_id else None
        await self._driver.ask(lambda number: RemoveVoter(number, NodeId(request.node_id), folder_id), VoterRemoved)
        return admin_pb2.RemoveVoterResponse()


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
    return tuple(DamagedReplica(_key(replica.topic_id, replica.partition), replica.reason) for replica in replicas)


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
