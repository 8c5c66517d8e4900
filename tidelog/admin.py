"""Administration: topics, the cluster's state, offsets.

Questions go to any node that answers. What changes the cluster is sent once: where the connection breaks before the
answer, nobody can tell whether it was done, and the error says so instead of asking twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final, Literal
from uuid import UUID

from tidelog import _methods as methods
from tidelog._cluster import BACKOFF_MS
from tidelog._methods import Answer, Method, Request
from tidelog._network import Clock, Transport
from tidelog._offsets import EARLIEST, LATEST, list_offsets
from tidelog._options import at_least
from tidelog._service import Service
from tidelog._status import address_from_proto, from_proto
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidRequest,
    NodeShuttingDown,
    RequestTimedOut,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.types import (
    Endpoint,
    FolderId,
    Incarnation,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    TopicPartition,
)
from tidelog.v1 import admin_pb2

VISIBLE_MS: Final = 5_000
"""How long `create_topic` waits until every partition has a leader; the topic exists, whatever comes of it."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition: who holds it, who leads it (-1: nobody), who is in sync."""

    partition: PartitionIndex
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    offline: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its id, its partitions by index, every setting in force."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A registered node. `fenced`: not heard of, or not caught up; it leads nothing."""

    node_id: NodeId
    endpoint: Endpoint
    rack: str
    node_epoch: NodeEpoch
    incarnation: Incarnation
    fenced: bool
    draining: bool
    leaders: int
    replicas: int


@dataclass(frozen=True, slots=True)
class VoterDescription:
    """A member of the metadata quorum: a node and the data folder that votes."""

    node_id: NodeId
    folder_id: FolderId


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as the answering node knows it. `controller_id` is -1 where no active controller is known."""

    cluster_id: str
    controller_id: NodeId
    controller_epoch: int
    metadata_offset: int
    nodes: tuple[NodeDescription, ...]
    voters: tuple[VoterDescription, ...]
    topics: int
    partitions: int
    leaderless_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int


class Admin(Service):
    """Asks and changes the cluster. Use it inside `async with`.

    bootstrap: addresses of some nodes, "host:port,host:port". request_timeout_ms: how long one answer may take.
    patience_ms: how long questions are asked again while no node answers.
    """

    def __init__(
        self,
        bootstrap: str | list[str] | tuple[str, ...],
        *,
        request_timeout_ms: int = 30_000,
        patience_ms: int = 30_000,
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        super().__init__(bootstrap, transport=transport, clock=clock, rng=rng)
        at_least(1, request_timeout_ms=request_timeout_ms)
        at_least(0, patience_ms=patience_ms)
        self._timeout_ms, self._patience_ms = request_timeout_ms, patience_ms

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicId:
        """Create a topic; return its id once its partitions have leaders (or after 5 s: it exists all the same).

        configs: topic settings by Kafka's names, and `durability` ("fsync" or "page-cache"). validate_only: check,
        change nothing. Raises TopicExists, InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidConfig;
        RequestTimedOut or ConnectionLost where nobody can tell (`describe_topic` tells).
        """
        request = admin_pb2.CreateTopicRequest(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs or {},
            validate_only=validate_only,
        )
        answer = await self._change(methods.ADMIN_CREATE_TOPIC, request)
        if validate_only:
            return TopicId(UUID(int=0))
        topic_id = TopicId(UUID(bytes=answer.topic_id))
        await self._wait_visible(name, topic_id)
        return topic_id

    async def delete_topic(self, name: str, *, topic_id: TopicId | None = None) -> None:
        """Delete a topic and all its records. topic_id: only if it is still this life of it.

        Raises UnknownTopicOrPartition, InconsistentTopicId; RequestTimedOut or ConnectionLost where nobody can tell.
        """
        request = admin_pb2.DeleteTopicRequest(name=name, topic_id=topic_id.bytes if topic_id else b"")
        await self._change(methods.ADMIN_DELETE_TOPIC, request)

    async def remove_voter(self, node_id: int, *, folder_id: FolderId | None = None) -> None:
        """Let a node that is gone for good vote no more in the metadata quorum; another node takes its place by itself.

        folder_id: only if it votes by that folder. Raises VoterNotFound, InvalidRequest where the node is alive or the
        only voter, VoterChangePending.
        """
        request = admin_pb2.RemoveVoterRequest(node_id=node_id, folder_id=folder_id.bytes if folder_id else b"")
        await self._change(methods.ADMIN_REMOVE_VOTER, request)

    async def list_topics(self) -> list[TopicDescription]:
        """Every topic, by name."""
        answer = await self._ask(methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(all_topics=True))
        topics = [_topic(told) for told in answer.topics if not told.HasField("error")]
        return sorted(topics, key=lambda topic: topic.name)

    async def describe_topic(self, name: str) -> TopicDescription:
        """One topic. Raises UnknownTopicOrPartition."""
        answer = await self._ask(methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(topics=[name]))
        told = answer.topics[0] if answer.topics else admin_pb2.TopicMetadata()
        if told.HasField("error"):
            raise from_proto(told.error)
        if not told.topic_id:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}: create it first")
        return _topic(told)

    async def describe_cluster(self) -> ClusterDescription:
        """Nodes, controller, voters, and how many partitions want something."""
        answer = await self._ask(methods.ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest())
        voters = tuple(
            VoterDescription(NodeId(told.node_id), FolderId(UUID(bytes=told.folder_id or bytes(16))))
            for told in answer.voters
        )
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=NodeId(answer.controller_id),
            controller_epoch=answer.controller_epoch,
            metadata_offset=answer.metadata_offset,
            nodes=tuple(sorted((_node(told) for told in answer.nodes), key=lambda node: node.node_id)),
            voters=voters,
            topics=answer.topics,
            partitions=answer.partitions,
            leaderless_partitions=answer.leaderless_partitions,
            under_replicated_partitions=answer.under_replicated_partitions,
            under_min_isr_partitions=answer.under_min_isr_partitions,
        )

    async def list_offsets(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        place: Literal["earliest", "latest"] | datetime = "latest",
    ) -> dict[TopicPartition, Offset]:
        """For each partition where it begins ("earliest"), ends ("latest": one past the last committed record), or
        its first record at or after a moment (an aware datetime; the end where there is none)."""
        if isinstance(place, datetime):
            if place.tzinfo is None:
                raise InvalidRequest(f"{place!r} names no moment without a time zone: give tzinfo, for example UTC")
            timestamp = max(0, int(place.timestamp() * 1000))
        elif place in ("earliest", "latest"):
            timestamp = EARLIEST if place == "earliest" else LATEST
        else:
            raise InvalidRequest(f"{place!r} is no place in a log: use 'earliest', 'latest' or a datetime")
        wanted = {
            key if isinstance(key, TopicPartition) else TopicPartition(key[0], PartitionIndex(key[1])): timestamp
            for key in partitions
        }
        return await list_offsets(self._cluster, wanted, timeout_ms=self._timeout_ms)

    async def _ask(self, method: Method[Request, Answer], request: Request) -> Answer:
        """Ask node after node, round after round, until one answers; ConnectionFailed after `patience_ms`."""
        start = self._clock.monotonic_ms()
        while True:
            try:
                return await self._cluster.call_any(method, request)
            except ConnectionFailed:
                if self._clock.monotonic_ms() + BACKOFF_MS - start >= self._patience_ms:
                    raise
            await self._clock.sleep_ms(BACKOFF_MS)

    async def _change(self, method: Method[Request, Answer], request: Request) -> Answer:
        """Send a change to the first node that can be reached."""
        failures: list[TidelogError] = []
        for endpoint in self._cluster.candidates():
            try:
                return await self._cluster.transport.call(endpoint, method, request, timeout_ms=self._timeout_ms)
            except ConnectionLost as error:
                raise ConnectionLost(
                    f"{error.message} Nobody can tell whether it was done: look before asking again."
                ) from error
            except RequestTimedOut as error:
                raise RequestTimedOut(
                    f"{error.message} Nobody can tell whether it was done: look before asking again."
                ) from error
            except (ConnectionFailed, NodeShuttingDown) as error:
                failures.append(error)
        raise self._cluster.nobody(failures)

    async def _wait_visible(self, name: str, topic_id: TopicId) -> None:
        start = self._clock.monotonic_ms()
        while self._clock.monotonic_ms() - start < VISIBLE_MS:
            try:
                topic = await self.describe_topic(name)
            except TidelogError:
                pass  # the node asked may be behind
            else:
                if topic.topic_id != topic_id or all(partition.leader >= 0 for partition in topic.partitions):
                    return
            await self._clock.sleep_ms(BACKOFF_MS // 4)


def _topic(told: admin_pb2.TopicMetadata) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            partition=PartitionIndex(one.partition),
            leader=NodeId(one.leader),
            leader_epoch=LeaderEpoch(one.leader_epoch),
            partition_epoch=PartitionEpoch(one.partition_epoch),
            replicas=_ids(one.replicas),
            isr=_ids(one.isr),
            elr=_ids(one.elr),
            offline=_ids(one.offline),
        )
        for one in sorted(told.partitions, key=lambda one: one.partition)
    )
    return TopicDescription(
        told.name, TopicId(UUID(bytes=told.topic_id)), partitions, dict(sorted(told.configs.items()))
    )


def _node(told: admin_pb2.NodeStatus) -> NodeDescription:
    address = address_from_proto(told.address)
    return NodeDescription(
        node_id=address.node_id,
        endpoint=address.endpoint,
        rack=address.rack,
        node_epoch=NodeEpoch(told.node_epoch),
        incarnation=Incarnation(UUID(bytes=told.incarnation or bytes(16))),
        fenced=told.fenced,
        draining=told.draining,
        leaders=told.leaders,
        replicas=told.replicas,
    )


def _ids(numbers: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)
