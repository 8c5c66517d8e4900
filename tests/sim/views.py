"""How the simulator looks into a node: the only file that knows where a node keeps what the checkers want to see."""

from __future__ import annotations

from collections.abc import Iterator

from node.node import Node
from node.partition import Partition
from replication.image import EMPTY, ClusterImage
from storage.log import Log
from tests.sim.checkers import READ_BYTES, ReadableLog, ReplicaView
from tidelog.types import Offset, PartitionKey

Position = tuple[int, bool, object, int, int]
"""What the checkers watch of a replica: leader epoch, whether it leads, its log, the log's end and high watermark."""


def replicas(node: Node) -> Iterator[ReplicaView]:
    """Every replica that the node has loaded."""
    manager = node.replicas
    for partition in () if manager is None else manager.partitions():
        yield _view(partition)


def moved(node: Node, seen: dict[Partition, Position]) -> list[ReplicaView]:
    """The replicas of which something moved since `seen`, which is brought up to date: asked after every callback."""
    manager = node.replicas
    if manager is None:
        return []
    found = []
    for partition in manager.partitions():
        log = partition.log
        position = (
            partition.leader_epoch,
            partition.leader is not None,
            None if partition.offline else log,
            log.log_end_offset,
            log.high_watermark,
        )
        if seen.get(partition) != position:
            seen[partition] = position
            found.append(_view(partition))
    return found


def _view(partition: Partition) -> ReplicaView:
    return ReplicaView(
        partition.key,
        str(partition),
        None if partition.offline else partition.log,
        partition.leader_epoch,
        partition.leader is not None,
        partition.log.config.durability,
    )


def acts(node: Node) -> bool:
    """Has the node's replica manager begun to act on the metadata, so that all its replicas are loaded?"""
    return node.replicas is not None and node.replicas.image is not EMPTY


def image(node: Node) -> ClusterImage:
    """The newest committed image that the node knows."""
    return node.image if node.image is not None else EMPTY


def changed_sets(before: ClusterImage, after: ClusterImage) -> list[PartitionKey]:
    """Partitions whose in-sync set differs."""
    changed = []
    for topic_id, topic in after.topics.items():
        if before.topics.get(topic_id) is topic:
            continue
        for state in topic.partitions:
            old = before.partition(state.key)
            if old is None or set(old.isr) != set(state.isr):
                changed.append(state.key)
    return changed


def read(log: ReadableLog, start: int, end: int) -> bytes:
    """Whole batches from the one that holds `start` on, up to `end`."""
    assert isinstance(log, Log)
    pieces, position = [], start
    while position < end:
        found = log.read(Offset(position), READ_BYTES, up_to=Offset(end))
        if not found.records:
            break
        pieces.append(bytes(found.records))
        position = found.next_offset
    return b"".join(pieces)
