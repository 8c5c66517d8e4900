"""The replicas of one node, by partition, as requests name it, and by name; and why a partition has none here.

Not here: which replicas there are (replica_manager.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from node.replicas.replica import Replica
from replication.controller.image import ClusterImage, TopicState
from storage.log.log import Log
from tidelog.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    InvalidRequest,
    KafkaStorageError,
    LeadershipLost,
    NotLeaderOrFollower,
    TidelogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.record_exchange import TopicReference
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    Endpoint,
    LeaderEpoch,
    NodeAddress,
    NodeId,
    PartitionIndex,
    PartitionKey,
    TopicId,
    TopicPartition,
)

REMEMBERED_TOPICS: Final = 1_000
"""Names of removed topics that the node remembers, to distinguish "created again" from "unknown topic"."""


class ReplicaRegistry:
    """Lookups of replicas, with the errors that requests get."""

    def __init__(self, me: NodeId, image: Callable[[], ClusterImage]) -> None:
        """image: returns the newest image applied."""
        self._me, self._image = me, image
        self.by_key: dict[PartitionKey, Replica] = {}
        self.by_name: dict[TopicPartition, Replica] = {}
        self._as_sent: dict[tuple[TopicReference, int], Replica] = {}
        self._removed: dict[TopicId, str] = {}

    def add(self, replica: Replica) -> None:
        """Register a replica."""
        self.by_key[replica.key] = self.by_name[replica.name] = replica
        for topic in (replica.key.topic_id.bytes, replica.name.topic):
            self._as_sent[topic, replica.key.partition] = replica

    def remove(self, replica: Replica) -> None:
        """Remove a replica."""
        del self.by_key[replica.key], self.by_name[replica.name]
        for topic in (replica.key.topic_id.bytes, replica.name.topic):
            del self._as_sent[topic, replica.key.partition]

    def topic_removed(self, topic: TopicState) -> None:
        """Remember the name of a removed topic."""
        self._removed[topic.topic_id] = topic.name
        while len(self._removed) > REMEMBERED_TOPICS:
            del self._removed[next(iter(self._removed))]

    def name_of(self, topic_id: TopicId) -> str:
        """The name of a removed topic, or its id."""
        return self._removed.get(topic_id, str(topic_id))

    def of_log(self, log: Log) -> Replica | None:
        """The replica that uses this log."""
        replica = self.by_name.get(log.topic_partition)
        return replica if replica is not None and replica.log is log else None

    def find(self, topic: TopicReference, index: int) -> Replica | None:
        """The replica of a partition in a request; None if there is none."""
        return self._as_sent.get((topic, index))

    def locate(self, topic: TopicReference, index: int, listener: str) -> Replica:
        """As `find`. Raises the reason if there is none; NotLeaderOrFollower names the leader if known."""
        replica = self._as_sent.get((topic, index))
        if replica is None:
            raise self._absence(self._topic(topic), PartitionIndex(index), listener)
        return replica

    def _topic(self, topic: TopicReference) -> TopicState:
        """Raises the reason if there is none."""
        image = self._image()
        if isinstance(topic, str):
            named = image.topic(topic)
            if named is None:
                raise UnknownTopicOrPartition(f"topic {topic!r} does not exist, as far as this node knows")
            return named
        if len(topic) != 16:
            raise InvalidRequest(f"a topic id has 16 bytes, {len(topic)} were sent")
        topic_id = TopicId(UUID(bytes=topic))
        found = image.topics.get(topic_id)
        if found is None:
            name = self._removed.get(topic_id)
            if name is not None and name in image.topic_ids:
                raise InconsistentTopicId(
                    f"topic {name} was deleted and created again: {topic_id} is its former id; look it up again"
                )
            raise UnknownTopicId(f"no topic has the id {topic_id}, as far as this node knows: look it up again")
        return found

    def _absence(self, topic: TopicState, index: PartitionIndex, listener: str) -> TidelogError:
        state = self._image().partition(PartitionKey(topic.topic_id, index))
        if state is None:
            return UnknownTopicOrPartition(
                f"topic {topic.name} has {len(topic.partitions)} partitions, numbered from 0; {index} is not one"
            )
        if self._me in state.replicas:
            return NotLeaderOrFollower(
                f"partition {topic.name}-{index} has no log here yet, or its directory is offline; retry after a pause"
            )
        return NotLeaderOrFollower(
            f"this node has no replica of partition {topic.name}-{index}",
            leader=self._address(state.leader, state.leader_epoch, listener),
        )

    def with_leader(self, error: TidelogError, replica: Replica | None, listener: str) -> TidelogError:
        """The error. If it makes the client look for another leader, the leader's address is added."""
        if replica is None or error.leader is not None:
            return error
        if not isinstance(error, NotLeaderOrFollower | LeadershipLost | FencedLeaderEpoch | KafkaStorageError):
            return error
        address = self._address(replica.leader_node, replica.leader_epoch, listener)
        return error if address is None else type(error)(error.message, leader=address)

    def endpoint(self, node_id: NodeId, listener: str) -> Endpoint | None:
        """The address of a node on a listener, in the newest image."""
        node = self._image().nodes.get(node_id)
        return None if node is None else node.listeners.get(listener)

    def _address(self, leader: NodeId, leader_epoch: LeaderEpoch, listener: str) -> NodeAddress | None:
        endpoint = self.endpoint(leader, listener) if leader != NO_NODE else None
        if endpoint is None or leader_epoch == NO_LEADER_EPOCH:
            return None
        return NodeAddress(leader, endpoint, self._image().nodes[leader].rack, leader_epoch)
