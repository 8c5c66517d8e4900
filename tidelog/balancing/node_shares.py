"""What each node of a cluster has, and each log directory: replicas, leaderships, bytes and load, before a plan and
after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, ReplicaMove
from tidelog.types import NodeId, TopicPartition


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


@dataclass(slots=True)
class DirectoryShare:
    """What a log directory has."""

    replicas: int = 0
    bytes: int = 0


def directory_shares(
    log_dirs: Mapping[NodeId, Iterable[str]],
    partitions: Sequence[PlacedPartition],
    moves: Iterable[ReplicaMove] = (),
    placed: Mapping[NodeId, Mapping[TopicPartition, str]] | None = None,
) -> dict[NodeId, dict[str, DirectoryShare]]:
    """What each log directory has once the moves are complete. placed: the directories to which replicas move within
    their nodes. New replicas of a node are in none: the controller chooses it later."""
    shares = {node: {path: DirectoryShare() for path in paths} for node, paths in log_dirs.items()}
    after = {move.partition: move.after for move in moves}
    for each in partitions:
        left = after.get(each.partition, each.replicas)
        for node, path in zip(each.replicas, each.log_dirs, strict=False):
            target = (placed or {}).get(node, {}).get(each.partition, path)
            if node in left and (share := shares.get(node, {}).get(target)) is not None:
                share.replicas += 1
                share.bytes += each.size_bytes
    return shares
