"""The simulator's access to a node: the only file that knows where a node keeps what the checkers read."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from node.metadata.metadata_log import METADATA, METADATA_KEY
from node.process.metadata_node import MetadataNode
from node.process.node import Node
from node.replicas.own_log_check import damage_at
from node.replicas.replica import Replica
from node.replicas.waiting_fetch import wake_all
from replication.controller.image import EMPTY, ClusterImage
from replication.partition.leader_events import Appended
from replication.partition.replica_lifecycle import ReplicaState
from storage.append_info import Origin
from storage.log.log import Log
from storage.segment.segment import LogSegment
from testbed.fake_disk import FakeDisk
from testbed.fake_tree import Inode
from testbed.sim.checkers import READ_BYTES, ReadableLog, ReplicaView
from testbed.sim.ledger import Ledger
from tidelog.errors import CorruptRecord, TidelogError
from tidelog.records import walk_headers
from tidelog.records.v2.control import EndTxnMarker, control_batch
from tidelog.types import Acks, Durability, Offset, PartitionKey

Position = tuple[int, bool, object, int, int, int, int, int]
"""The watched state of a replica: leader epoch, whether it leads, its log, log start, local log start and end, durable
offset, watermark."""


def replicas(node: Node, *, metadata: bool = False) -> Iterator[ReplicaView]:
    """Every replica that the node has loaded; with `metadata`, that of the metadata log first."""
    for part in _parts(node):
        if isinstance(part, Replica):
            yield _view(part)
        elif metadata:
            yield _metadata_view(part)


def moved(node: Node, seen: dict[object, Position]) -> Sequence[ReplicaView]:
    """The replicas that changed since `seen`, which this call updates; called after every callback. The metadata log
    is one of them: its leader is the quorum's."""
    metadata = node._metadata
    if metadata is None:
        return ()
    found: list[ReplicaView] | None = None
    log, view = metadata.metadata.log, metadata.view
    position: Position = (
        view.leader_epoch,
        view.leader_id == view.node_id,
        log if log.directory.offline is None else None,
        log.log_start_offset,
        log._left_below,
        log.log_end_offset,
        log.flush_state.synced,
        log.high_watermark,
    )
    last = seen.get
    if last(metadata) != position:
        seen[metadata] = position
        found = [_metadata_view(metadata)]
    manager = node.replicas
    if manager is None:
        return found or ()
    for part in manager.registry.by_key.values():
        log = part.log
        position = (
            part.leader_epoch,
            part.state is ReplicaState.LEADING,
            log if log.directory.offline is None else None,
            log.log_start_offset,
            log._left_below,
            log.log_end_offset,
            log.flush_state.synced,
            log.high_watermark,
        )
        if last(part) != position:
            seen[part] = position
            found = found or []
            found.append(_view(part))
    return found or ()


def replica(node: Node, key: PartitionKey) -> ReplicaView | None:
    """A replica as the node has it now, the metadata log's too; None if it has none."""
    if node._metadata is not None and key == METADATA_KEY:
        return _metadata_view(node._metadata)
    part = None if node.replicas is None else node.replicas.registry.by_key.get(key)
    return None if part is None else _view(part)


def _parts(node: Node) -> Iterator[Replica | MetadataNode]:
    if node._metadata is not None:
        yield node._metadata
    if node.replicas is not None:
        yield from node.replicas.partitions()


def _usable(log: Log) -> Log | None:
    return log if log.directory.offline is None else None


def _metadata_view(metadata: MetadataNode) -> ReplicaView:
    view, log = metadata.view, metadata.metadata.log
    return ReplicaView(METADATA_KEY, str(METADATA), _usable(log), view.leader_epoch, view.leads, Durability.FSYNC)


def _view(replica: Replica) -> ReplicaView:
    log, leader, name = replica.log, replica.leader, replica.name
    fields = (
        replica.key,
        f"{name.topic}-{name.partition}",
        log if replica.offline is None and log.directory.offline is None else None,
        replica.leader_epoch,
        leader is not None,
        log.config.durability,
        -1 if leader is None else leader.core.in_sync.partition_epoch,
    )
    return tuple.__new__(ReplicaView, fields)  # as ReplicaView(...), with one call less


def knows_tier(node: Node, key: PartitionKey) -> bool:
    """Whether a replica can read all of its log: what is in the remote tier only, too."""
    part = None if node.replicas is None else node.replicas.registry.by_key.get(key)
    log = None if part is None else part.log
    if part is None or log is None or log.local_log_start_offset <= log.log_start_offset:
        return True
    return part.remote is not None and (part.leader is None or part.remote.is_whole)


def acts(node: Node) -> bool:
    """Whether the node's replica manager has begun to apply the metadata, so that all its replicas are loaded."""
    return node.replicas is not None and node.replicas.image is not EMPTY


def is_stopping(node: Node) -> bool:
    """Whether the node was asked to end: it drains and leaves the in-sync sets."""
    return node._stop.is_set()


def image(node: Node) -> ClusterImage:
    """The newest committed image that the node has."""
    return node.image if node.image is not None else EMPTY


def decided(node: Node) -> ClusterImage:
    """The image on which the node's controller decides: all that it has appended, committed or not."""
    assert node._metadata is not None
    return node._metadata.controller._controller.image


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


def changed_settings(before: ClusterImage, after: ClusterImage) -> list[PartitionKey]:
    """One partition of each topic whose settings differ."""
    return [
        topic.partitions[0].key
        for topic_id, topic in after.topics.items()
        if before.topics.get(topic_id) is not topic
        and topic.partitions
        and (topic_id not in before.topics or before.topics[topic_id].configs != topic.configs)
    ]


def led_uncleanly(before: ClusterImage, after: ClusterImage, accepted: Collection[PartitionKey]) -> list[PartitionKey]:
    """Partitions led, in a new epoch, by a replica that may lack committed records, as their topic allows or an
    operator `accepted`. If several changes are seen at once, the result may contain too many partitions, never too
    few."""
    found = []
    for topic_id, topic in after.topics.items():
        if before.topics.get(topic_id) is not topic:
            for state in topic.partitions:
                if not (topic.allows_unclean or state.key in accepted):
                    continue
                old = before.partition(state.key)
                if old is None or state.leader_epoch == old.leader_epoch:
                    continue
                # One that has led meanwhile, and leads no more, is alone in its set.
                leaders = (state.leader,) if state.leader >= 0 else state.isr
                if leaders and old.counted_on.isdisjoint(leaders):
                    found.append(state.key)
    return found


class Places:
    """The last read position in the files of each log, so that sequential reads need no search. A position is used
    only if a batch of that offset begins there, since a truncation may have moved it."""

    KEPT: Final = 8

    def __init__(self) -> None:
        self._places: dict[Log, dict[int, tuple[LogSegment, int]]] = {}

    def has(self, log: Log, disk: FakeDisk, ledger: Ledger, start: int, end: int) -> bool:
        """Return True if the ledger's batches from `start` up to `end` are known to lie in one file of the log, byte
        for byte. On False the caller must read the log."""
        places = self._places.get(log)
        active = log.active
        segment, position = (places or {}).get(start, (None, 0))
        if places is None or segment is not active:
            return False
        data, batches = disk._file(active.path).seen.data, ledger.batches
        at = start
        while at < end:
            known = batches.get(at)
            if known is None or not data.startswith(known, position):
                return False
            position += len(known)
            at = ledger.next_of[at]
        if at != end or position > active.size:
            return False
        self._keep(places, end, active, position)
        return True

    def _keep(self, places: dict[int, tuple[LogSegment, int]], end: int, segment: LogSegment, position: int) -> None:
        places[end] = segment, position
        if len(places) > self.KEPT:
            del places[min(places)]

    def read_on(self, log: Log, disk: FakeDisk, start: int, end: int) -> bytes | None:
        """Whole batches from `start` up to `end` if they are known to lie in one file, else None."""
        places = self._places.get(log)
        if places is None:
            places = self._places[log] = {}
        active = log.active
        segment, begin = places.get(start, (active, 0))
        if segment is not active or (begin == 0 and start != active.base_offset):
            return None
        content = bytes(memoryview(disk._file(active.path).seen.data)[begin : active.size])
        position, at = 0, start
        with contextlib.suppress(CorruptRecord):  # no batch begins there any more
            for header in walk_headers(content):
                if header.base_offset >= end or (position == 0 and header.base_offset != start):
                    break
                position, at = header.end, header.last_offset + 1
        if at != end:
            return None
        self._keep(places, end, segment, begin + position)
        return content[:position]


def read(log: ReadableLog, start: int, end: int) -> bytes:
    """Whole batches from the one that contains `start`, up to `end`."""
    assert isinstance(log, Log)
    pieces, position = [], start
    while position < end:
        found = log.read(Offset(position), READ_BYTES, up_to=Offset(end))
        if not found.records:
            break
        pieces.append(bytes(found.records))
        position = found.next_offset
    return b"".join(pieces)


def read_files(log: Log, disk: FakeDisk, start: int, end: int) -> bytes:
    """As `read`, directly from the files: for a log in an offline directory, one that is closed because its node stops,
    or one that refuses reads of known corruption."""
    pieces = []
    for segment in log.segments:
        content, position = bytes(memoryview(disk._file(segment.path).seen.data)[: segment.size]), 0
        for header in walk_headers(content):
            if header.last_offset >= start and header.base_offset < end:
                pieces.append(content[position : header.end])
            position = header.end
    return b"".join(pieces)


def scrub(node: Node, key: PartitionKey) -> None:
    """Run the scrub on the log of a partition now, including its newest segment; segments that it has checked before
    are due again. No effect if the node has no such log in use."""
    manager = node.replicas
    part = None if manager is None else manager.registry.find(key.topic_id.bytes, int(key.partition))
    if (
        manager is None
        or part is None
        or part.offline is not None
        or part.log.closed
        or part.log.truncation is not None
    ):
        return
    log = part.log
    if node._maintenance is not None:
        closed = node._maintenance.maintenance.scrubs[part.directory]
        closed._checked.clear()
        closed._search_at = closed._ticked
    offset = log.local_log_start_offset
    while offset < log.log_end_offset:
        damage = damage_at(log, offset, READ_BYTES)
        if damage is not None:
            manager.damage.found(log, damage)
            return
        offset = log.read(offset, READ_BYTES, up_to=log.log_end_offset).next_offset


def files_in(disk: FakeDisk, directory: str) -> list[str]:
    """The paths of the files in a directory, without triggering planned failures of the disk; none if there is no
    directory."""
    return (
        [f"{directory}/{name}" for name in sorted(disk._directory(directory).entries)]
        if disk.is_directory(directory)
        else []
    )


def inode_at(disk: FakeDisk, path: str) -> Inode | None:
    """The file of that name; None if there is none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return disk._file(path)
    return None


def append_marker(
    node: Node, key: PartitionKey, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0
) -> None:
    """Append the marker that ends a producer's transaction, as a leader does for the transaction coordinator. No
    effect if the node does not lead or refuses it."""
    part = _led(node, key)
    leader = None if part is None else part.leader
    if part is None or leader is None:
        return
    leader.settle()
    log = part.log
    marker = control_batch(
        EndTxnMarker(commit, coordinator_epoch),
        timestamp=log.directory.clock.wall_ms(),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    try:
        leader.core.ensure_enough(Acks.ALL)
        log.append(marker, assign_offsets=True, leader_epoch=part.leader_epoch, origin=Origin.COORDINATOR)
    except TidelogError:
        return
    if part.leader is leader:  # else its directory has just failed
        leader._handle(Appended(log.log_end_offset, log.durable_offset))
        wake_all(leader.waiting)
        leader._services.sync(log, part.directory, leader)


def delete_records(node: Node, key: PartitionKey, offset: int) -> int:
    """Delete records as a leader does for an operator: move the log start to `offset`, or to the high watermark.
    Returns the offset below which records may be gone because of it, now or later: 0 without effect, because the
    node does not lead. If the disk fails during the deletion, it may or may not have taken effect."""
    part = _led(node, key)
    if part is None:
        return 0
    start = min(Offset(offset), part.log.high_watermark)
    part.directory.note_changed(part.log)
    part.directory.changes.move_start(part.log, start, lambda _: part.log_start_moved())
    return start


def _led(node: Node, key: PartitionKey) -> Replica | None:
    manager = node.replicas
    part = None if manager is None else manager.registry.find(key.topic_id.bytes, int(key.partition))
    return None if part is None or part.leader is None else part
