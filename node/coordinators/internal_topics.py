"""The internal topics of the coordinators. A topic is created on first use, by the node that gets the request.

Invariants:
  1. A topic is created once, however many nodes get requests at the same time: the controller refuses the second
     creation, and every node then waits until it has applied the first one.
  2. None is created, and no coordinator is found, below the feature level of coordinators: a node of an older version
     might lead a partition of the topic, or a partition that a transaction needs.
  3. While a cluster starts, none is created before as many nodes run as it has replicas: its replicas stay where they
     are made, and the first node that runs would be the only one in sync, and the preferred leader of all partitions. A
     node that does not start within NODES_MS is not awaited: groups work while a node is down.
Not here: the refusal of others' writes to the topics (storage/log/log_writer.py, node/requests/admin_handlers.py).
Source: Kafka's AutoTopicCreationManager, GroupCoordinatorService and TransactionCoordinator (`offsetsTopicConfigs`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Final, Protocol

from replication.controller import features
from replication.controller.events import CreateTopic
from replication.controller.image import ClusterImage, TopicState
from replication.coordination.partitioning import partition_of
from tidelog.errors import CoordinatorNotAvailable, TidelogError, TopicExists
from tidelog.types import NO_NODE, NodeAddress, PartitionIndex
from tidelog.values import dataclass

CREATE_MS: Final = 10_000
"""How long a request waits until its internal topic exists."""

NODES_MS: Final = 5_000
"""How long a request waits for registered nodes to start."""

REPLICATION_FACTOR: Final = 3
"""Kafka's default of the replication factor, for clusters with as many nodes."""

BATCH_BYTES_MAX: Final = 16 << 20
"""`max.message.bytes` of internal topics. A decision is one batch: the new assignment of a group with thousands of
members is larger than the default of 1 MiB. Only coordinators write to these topics."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The settings with which an internal topic is created."""

    name: str
    partitions: int = 50
    replication_factor: int = -1
    """-1: three, or the number of nodes if that is less."""
    segment_bytes: int = 100 << 20
    configs: Mapping[str, str] = field(default_factory=dict)
    """Further topic settings."""
    feature_level: int = features.COORDINATORS
    """Below it the topic is not created."""
    needed_for: str = "a consumer group or a transaction"

    def factor(self, nodes: int) -> int:
        """The number of replicas. nodes: the number of registered nodes."""
        return min(REPLICATION_FACTOR, nodes) if self.replication_factor < 0 else self.replication_factor

    def request(self, nodes: int) -> CreateTopic:
        """The request to the controller. nodes: the number of registered nodes."""
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "durability": "fsync",
            "max.message.bytes": str(BATCH_BYTES_MAX),
            "message.format": "v2",
            "message.timestamp.type": "CreateTime",
            "segment.bytes": str(self.segment_bytes),
            "unclean.leader.election.enable": "false",
            **self.configs,
        }
        return CreateTopic(self.name, self.partitions, self.factor(nodes), configs)


class Metadata(Protocol):
    """The metadata log of the node."""

    @property
    def image(self) -> ClusterImage: ...

    async def wait_until(self, condition: Callable[[], bool], /) -> None: ...


class InternalTopics:
    """Finds the internal topics, and creates those that are missing."""

    def __init__(self, metadata: Metadata, create: Callable[[CreateTopic], Awaitable[object]]) -> None:
        """create: sends the request to the controller; may raise TopicExists."""
        self._metadata, self._create = metadata, create
        self._creating = asyncio.Lock()

    async def ensure(self, topic: InternalTopic) -> TopicState:
        """The topic, created if it is missing. Raises CoordinatorNotAvailable if it cannot be created now,
        UnsupportedVersion below the feature level of coordinators."""
        image = self._metadata.image
        found = image.topic(topic.name)
        if found is not None and image.feature_level >= topic.feature_level:
            return found
        try:
            async with asyncio.timeout(CREATE_MS / 1_000), self._creating:
                await self._metadata.wait_until(lambda: self._metadata.image.feature_level > 0)
                features.require(self._metadata.image, topic.feature_level, topic.needed_for)
                return await self._created(topic)
        except TimeoutError:
            raise CoordinatorNotAvailable(
                f"the internal topic {topic.name} is being created, and this node has not seen it within {CREATE_MS} "
                "ms: try again"
            ) from None

    async def _created(self, topic: InternalTopic) -> TopicState:
        await self._await_nodes(topic)
        image = self._metadata.image
        if topic.name not in image.topic_ids:
            try:
                await self._create(topic.request(len(image.nodes)))
            except TopicExists:
                pass  # another node was faster
            except TidelogError as error:
                raise CoordinatorNotAvailable(
                    f"the internal topic {topic.name} does not exist and cannot be created now: {error.message}"
                ) from error
        await self._metadata.wait_until(lambda: topic.name in self._metadata.image.topic_ids)
        found = self._metadata.image.topic(topic.name)
        assert found is not None, "it was in the image in this turn of the loop"
        return found

    async def _await_nodes(self, topic: InternalTopic) -> None:
        """Wait until enough nodes run for the replicas of a new topic, or all of the others have had their time."""

        def is_due() -> bool:
            image = self._metadata.image
            return topic.name in image.topic_ids or not _waits_for_nodes(image, topic.factor(len(image.nodes)))

        try:
            async with asyncio.timeout(NODES_MS / 1_000):
                await self._metadata.wait_until(is_due)
        except TimeoutError:
            pass  # a node is down for long

    def partition_of(self, topic: str, key: str) -> PartitionIndex:
        """As `coordinator_partition`, in the newest image."""
        return coordinator_partition(self._metadata.image, topic, key)


def _waits_for_nodes(image: ClusterImage, factor: int) -> bool:
    """Whether fewer nodes run than the replicas need, and others, which were not stopped on purpose, may start yet. A
    cordoned node gets no replica, so none is awaited."""
    nodes = [node for node in image.nodes.values() if not node.gets_no_replicas]
    return sum(node.active for node in nodes) < factor and any(node.fenced and not node.draining for node in nodes)


def coordinator_partition(image: ClusterImage, topic: str, key: str) -> PartitionIndex:
    """The partition of a group id or transactional id. Raises CoordinatorNotAvailable if the topic does not exist
    yet."""
    found = image.topic(topic)
    if found is None or not found.partitions:
        raise CoordinatorNotAvailable(
            f"the internal topic {topic} does not exist, as far as this node knows: look the coordinator up, which "
            "creates it"
        )
    return PartitionIndex(partition_of(key, len(found.partitions)))


def coordinator_node(image: ClusterImage, topic: TopicState, partition: int, listener: str) -> NodeAddress:
    """The leader of a partition of an internal topic, with its address on that listener; its leader epoch is the
    coordinator epoch. Raises CoordinatorNotAvailable."""
    state = topic.partitions[partition]
    node = None if state.leader == NO_NODE else image.nodes.get(state.leader)
    endpoint = None if node is None else node.listeners.get(listener)
    if node is None or endpoint is None:
        raise CoordinatorNotAvailable(
            f"partition {topic.name}-{partition} has no leader that is reached by listener {listener!r} at the moment; "
            "try again after a pause"
        )
    return NodeAddress(node.node_id, endpoint, node.rack, state.leader_epoch)
