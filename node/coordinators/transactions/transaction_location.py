"""The coordinators of transactional ids and the leaders of partitions, according to this node's metadata.

Source: Kafka's TransactionStateManager.partitionFor.
"""

from __future__ import annotations

from collections.abc import Callable

from node.coordinators.internal_topics import coordinator_partition
from replication.controller.image import ClusterImage
from replication.coordination.group_requests import NamedPartition
from tidelog.errors import ConnectionFailed, CoordinatorNotAvailable
from tidelog.types import NO_NODE, TRANSACTIONS_TOPIC, Endpoint, NodeId, PartitionIndex


class TransactionLocation:
    """Looks coordinators up in the newest image of the cluster."""

    def __init__(self, me: NodeId, image: Callable[[], ClusterImage], listener: str) -> None:
        """me: this node. image: returns the newest image. listener: the name of the listener between nodes."""
        self.me = me
        self._image, self._listener = image, listener

    def partition_of(self, transactional_id: str) -> PartitionIndex:
        """The partition of `__transaction_state`. Raises CoordinatorNotAvailable: the topic does not exist yet."""
        return coordinator_partition(self._image(), TRANSACTIONS_TOPIC, transactional_id)

    def node_of(self, transactional_id: str) -> NodeId:
        """The node of the coordinator. Raises CoordinatorNotAvailable: there is none at present."""
        index = self.partition_of(transactional_id)
        leader = self.leader_of(NamedPartition(TRANSACTIONS_TOPIC, index))
        if leader is None or leader == NO_NODE:
            raise CoordinatorNotAvailable(
                f"partition {TRANSACTIONS_TOPIC}-{index}, which coordinates transactional id {transactional_id!r}, "
                "has no leader at present: try again later"
            )
        return leader

    def leader_of(self, partition: NamedPartition) -> NodeId | None:
        """The leader of a partition, NO_NODE if it has none; None if the partition does not exist."""
        topic = self._image().topic(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition].leader

    def topic_id(self, partition: NamedPartition) -> bytes:
        """The topic id of a partition; for a topic that no longer exists, an id that no topic has."""
        topic = self._image().topic(partition.topic)
        return bytes(16) if topic is None else topic.topic_id.bytes

    def endpoint(self, node: NodeId) -> Endpoint:
        """The address of a node for requests between nodes. Raises ConnectionFailed if it has none."""
        registration = self._image().nodes.get(node)
        endpoint = None if registration is None else registration.listeners.get(self._listener)
        if endpoint is None:
            raise ConnectionFailed(f"node {node} has no address on listener {self._listener!r}, as far as known here")
        return endpoint
