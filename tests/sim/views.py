"""How the simulator looks into a node: the only file that knows where a node keeps what the checkers want to see."""

from __future__ import annotations

from collections.abc import Iterator

from node.metadata_log import METADATA, METADATA_TOPIC_ID
from node.metadata_node import MetadataNode
from node.node import Node
from node.partition import Partition
from replication.image import EMPTY, ClusterImage
from replication.leader_events import Appended
from storage.append_info import Origin
from storage.log import Log
from tests.sim.checkers import READ_BYTES, ReadableLog, ReplicaView
from tidelog.records.control import EndTxnMarker, control_batch
from tidelog.types import Durability, Offset, PartitionIndex, PartitionKey

Position = tuple[int, bool, object, int, int, int]
"""What is watched of a replica: leader epoch, whether it leads, its log, where that ends, what it holds, watermark."""


METADATA_KEY = PartitionKey(METADATA_TOPIC_ID, PartitionIndex(0))


def replicas(node: Node, *, metadata: bool = False) -> Iterator[ReplicaView]:
    """Every replica that the node has loaded; with `metadata`, that of the metadata log first."""
    for part in _parts(node):
        if isinstance(part, Partition):
            yield _view(part)
        elif metadata:
            yield _metadata_view(part)


def moved(node: Node, seen: dict[object, Position]) -> list[ReplicaView]:
    """The replicas of which something moved since `seen`, which is brought up to date: asked after every callback. The
    metadata log is one of them: its leader is the quorum's."""
    found = []
    for part in _parts(node):
        position = _position(part)
        if seen.get(part) != position:
            seen[part] = position
            found.append(_view(part) if isinstance(part, Partition) else _metadata_view(part))
    return found


def _parts(node: Node) -> Iterator[Partition | MetadataNode]:
    if node._metadata is not None:
        yield node._metadata
    if node.replicas is not None:
        yield from node.replicas.partitions()


def _position(part: Partition | MetadataNode) -> Position:
    if isinstance(part, Partition):
        log, epoch, leads = part.log, part.leader_epoch, part.leader is not None
    else:
        log, epoch, leads = part.metadata.log, part.view.leader_epoch, part.view.leads
    return epoch, leads, _usable(log), log.log_end_offset, log.held, log.high_watermark


def _usable(log: Log) -> Log | None:
    return log if log.folder.offline is None else None


def _metadata_view(metadata: MetadataNode) -> ReplicaView:
    view, log = metadata.view, metadata.metadata.log
    return ReplicaView(METADATA_KEY, str(METADATA), _usable(log), view.leader_epoch, view.leads, Durability.FSYNC)


def _view(partition: Partition) -> ReplicaView:
    return ReplicaView(
        partition.key,
        str(partition),
        None if partition.offline else _usable(partition.log),
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


def append_marker(node: Node, key: PartitionKey, producer_id: int, producer_epoch: int, *, commit: bool) -> None:
    """What a transaction coordinator has a leader do: append the marker that ends a producer's transaction."""
    manager = node.replicas
    part = None if manager is None else manager.find(key.topic_id.bytes, int(key.partition))
    if part is None or part.leader is None:
        return
    log = part.log
    marker = control_batch(
        EndTxnMarker(commit, coordinator_epoch=0),
        timestamp=log.folder.clock.wall_ms(),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    log.append(marker, assign_offsets=True, leader_epoch=part.leader_epoch, origin=Origin.COORDINATOR)
    part._lead(part.leader.handle(Appended(log.log_end_offset, log.held)))
    part._wake(part._followers_waiting)
    part.sync()
