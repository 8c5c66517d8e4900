"""Clusters for tests of plans, and what becomes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, ReplicaMove
from tidelog.types import NodeId, PartitionIndex, TopicPartition


def nodes_in(*racks: str) -> list[BalancedNode]:
    return [BalancedNode(NodeId(number), rack) for number, rack in enumerate(racks)]


def placed(
    topic: str, index: int, replicas: Sequence[int], size: int = 1, log_dirs: Sequence[str] = ()
) -> PlacedPartition:
    partition = TopicPartition(topic, PartitionIndex(index))
    return PlacedPartition(partition, tuple(map(NodeId, replicas)), size, tuple(log_dirs))


def after(partitions: Sequence[PlacedPartition], moves: Sequence[ReplicaMove]) -> list[PlacedPartition]:
    """The partitions once all have moved. A replica that stays has the log directory that it had."""
    targets, planned = {move.partition: move.after for move in moves}, []
    for each in partitions:
        replicas, had = (
            targets.get(each.partition, each.replicas),
            dict(zip(each.replicas, each.log_dirs, strict=False)),
        )
        log_dirs = tuple(had.get(node, "") for node in replicas) if had else ()
        planned.append(PlacedPartition(each.partition, replicas, each.size_bytes, log_dirs))
    return planned


def held(partitions: Sequence[PlacedPartition]) -> Counter[int]:
    return Counter(node for each in partitions for node in each.replicas)


def leads(partitions: Sequence[PlacedPartition]) -> Counter[int]:
    return Counter(each.replicas[0] for each in partitions)


def racks_used(nodes: Sequence[BalancedNode], replicas: Sequence[NodeId]) -> int:
    return len({node.rack for node in nodes if node.node_id in replicas})
