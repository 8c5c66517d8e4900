"""Limits of the number of partitions: of a cluster, and of replicas on one node.

Every node keeps the metadata of all partitions in memory, and some KiB for each replica that it has.
Invariant: no request of a client or an administrator adds a partition or a replica beyond a limit. What exists already
stays when a limit is lowered. Internal topics are not counted and never refused: their number of partitions is a
setting of the nodes, and groups and transactions must work however many topics users have created.
Not here: the limit of a single topic (topics.py), the rate of changes (the quota `controller_mutation_rate`).
Source: the settings of KIP-578, which Kafka has not implemented.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Final

from replication.controller.image import ClusterImage
from tidelog.errors import PolicyViolation
from tidelog.types import INTERNAL_TOPICS, NodeId
from tidelog.values import dataclass

CLUSTER: Final = "max.partitions"
NODE: Final = "max.broker.partitions"

CLUSTER_DEFAULT: Final = 100_000
"""Default of `max.partitions`: half of what Kafka recommends. Their metadata take each node some 50 MB."""

NODE_DEFAULT: Final = 20_000
"""Default of `max.broker.partitions`: five times what Kafka recommends. They take a node some 180 MB."""


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """The settings of the active controller."""

    cluster: int = CLUSTER_DEFAULT
    """Limit of the partitions of all topics."""
    node: int = NODE_DEFAULT
    """Limit of the replicas on each node."""


class PartitionRoom:
    """What the limits allow to one request. image: the state before the request."""

    def __init__(self, image: ClusterImage, limits: PartitionLimits) -> None:
        self._topics = [topic for topic in image.topics.values() if topic.name not in INTERNAL_TOPICS]
        self._limits = limits
        self._partitions = sum(len(topic.partitions) for topic in self._topics)
        self._added: Counter[NodeId] = Counter()

    def ensure_partitions(self, topic: str, count: int) -> None:
        """Raise PolicyViolation if the cluster may not have `count` more partitions."""
        most = self._limits.cluster
        if topic not in INTERNAL_TOPICS and self._partitions + count > most:
            raise PolicyViolation(
                f"topic {topic} cannot get {count} more partitions: the cluster has {self._partitions} and may have "
                f"{most} ({CLUSTER}); delete topics, or raise {CLUSTER} on every node if the nodes have the memory"
            )

    def full(self, topic: str, placed: Iterable[Sequence[NodeId]]) -> frozenset[NodeId]:
        """The nodes that would have too many replicas. placed: the new replicas of each partition."""
        new = Counter(node for replicas in placed for node in replicas)
        most = self._limits.node
        # A node has at most one replica of a partition: in a small cluster no replicas have to be counted.
        if topic in INTERNAL_TOPICS or self._partitions + max(new.values(), default=0) <= most:
            return frozenset()
        return frozenset(node for node, count in new.items() if self._replicas[node] + self._added[node] + count > most)

    def add(self, nodes: Iterable[NodeId]) -> None:
        """Count one more replica on each of these nodes: an earlier part of the request has added it."""
        self._added.update(nodes)

    def refusal(self, what: str, full: Collection[NodeId]) -> PolicyViolation:
        """The error for replicas on nodes that would have too many. what: the refused change."""
        names = ", ".join(f"node {node}" for node in sorted(full))
        return PolicyViolation(
            f"{what}: {names} would have more than the {self._limits.node} replicas that {NODE} allows; use other "
            f"nodes, add nodes, delete topics, or raise {NODE} on every node if the nodes have the memory"
        )

    @cached_property
    def _replicas(self) -> Counter[NodeId]:
        return Counter(node for topic in self._topics for state in topic.partitions for node in state.replicas)
