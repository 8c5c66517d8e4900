"""What each node has of a cluster: replicas, leaderships, bytes and load, before a plan and after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, ReplicaMove
from tidelog.types import NodeId


@dataclass(slots=True)
class NodeShare:
    """What a node has."""

    replicas: int = 0
    leaders: int = 0
    """Partitions whose preferred leader it is."""
    bytes: int = 0
    """Of its logs."""
    load: int = 0
    """Bytes per second: those written to its replicas, and those read from what it leads."""


def node_shares(
    nodes: Iterable[BalancedNode], partitions: Sequence[PlacedPartition], moves: Iterable[ReplicaMove] = ()
) -> dict[NodeId, NodeShare]:
    """What each node has once the moves are complete."""
    shares = {node.node_id: NodeShare() for node in nodes}
    after = {move.partition: move.after for move in moves}
    for placed in partitions:
        for place, node in enumerate(after.get(placed.partition, placed.replicas)):
            share = shares.setdefault(node, NodeShare())
            share.replicas += 1
            share.leaders += not place
            share.bytes += placed.size_bytes
            share.load += placed.bytes_in if place else placed.bytes_in + placed.bytes_out
    return shares
