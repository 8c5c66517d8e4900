"""Metadata records as bytes: each is one `MetadataRecord` message, the value of one record of a batch v2.

Kept true: what is encoded decodes to an equal value; a batch of records is one atomic change, a control batch changes
nothing. Bytes that are no such thing are `CorruptLog`, a kind of record, or a feature level, that this version
does not know is `UnsupportedVersion`.
Left to others: what the records mean (replication/controller/image.py), where they lie (metadata_log.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never
from uuid import UUID

from google.protobuf.message import DecodeError

from replication.controller import features
from replication.controller.metadata import (
    ClusterRecord,
    DirectoryState,
    LocatedRecord,
    MetadataRecord,
    NodeChangeRecord,
    NodeRegistrationRecord,
    NodeStateSnapshot,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicConfigsRecord,
    TopicRecord,
    TopicRemovalRecord,
    VotersRecord,
)
from replication.raft.voters import Voter
from tidelog.errors import CorruptLog, UnsupportedVersion
from tidelog.protocol.v1 import common_pb2, controller_pb2
from tidelog.protocol.v1 import metadata_records_pb2 as pb
from tidelog.records import Record, RecordBatch, build_batch, iter_batches
from tidelog.types import (
    DirectoryId,
    Endpoint,
    Incarnation,
    LeaderEpoch,
    Millis,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    ProducerId,
    TopicId,
)


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """One atomic change of the log, or a control batch without any. `end` is one past its last offset."""

    base_offset: Offset
    end: Offset
    leader_epoch: LeaderEpoch
    records: tuple[LocatedRecord, ...]


def encode_batch(
    records: Sequence[MetadataRecord], *, leader_epoch: LeaderEpoch, timestamp: Millis, base_offset: Offset = Offset(0)
) -> bytes:
    """One batch of these records; in a log its offsets are still to be assigned. timestamp: milliseconds since 1970."""
    return build_batch(
        [
            Record(offset=Offset(base_offset + index), timestamp=timestamp, key=None, value=encode_record(record))
            for index, record in enumerate(records)
        ],
        leader_epoch=leader_epoch,
    )


def decode_batches(data: bytes | bytearray | memoryview) -> Iterator[MetadataBatch]:
    """The batches in these bytes. Raises CorruptLog, CorruptRecord, UnsupportedVersion."""
    for batch in iter_batches(data):
        batch.ensure_valid()
        yield MetadataBatch(
            Offset(batch.base_offset),
            Offset(batch.next_offset),
            LeaderEpoch(batch.partition_leader_epoch),
            () if batch.is_control else _decode(batch),
        )


def _decode(batch: RecordBatch) -> tuple[LocatedRecord, ...]:
    return tuple((Offset(record.offset), decode_record(record.value or b"")) for record in batch.records())


def encode_record(record: MetadataRecord) -> bytes:
    """The record's value in the log."""
    message = pb.MetadataRecord()
    match record:
        case PartitionChangeRecord():
            message.partition_change.CopyFrom(_partition_change(record))
        case PartitionRecord():
            message.partition.CopyFrom(_partition(record))
        case NodeRegistrationRecord():
            message.node_registration.CopyFrom(_registration(record))
        case NodeChangeRecord(node_id, node_epoch, fenced, draining, offline):
            change = pb.NodeChangeRecord(node_id=node_id, node_epoch=node_epoch, fenced=fenced, draining=draining)
            change.offline_directories.extend(directory.bytes for directory in offline)
            message.node_change.CopyFrom(change)
        case TopicRecord(name, topic_id, configs):
            message.topic.CopyFrom(pb.TopicRecord(name=name, topic_id=topic_id.bytes, configs=configs))
        case TopicConfigsRecord(topic_id, configs):
            message.topic_configs.CopyFrom(pb.TopicConfigsRecord(topic_id=topic_id.bytes, configs=configs))
        case TopicRemovalRecord(topic_id):
            message.topic_removal.CopyFrom(pb.TopicRemovalRecord(topic_id=topic_id.bytes))
        case ClusterRecord(cluster_id, feature_level):
            message.cluster.CopyFrom(pb.ClusterRecord(cluster_id=cluster_id, feature_level=feature_level))
        case VotersRecord(voters):
            message.voters.CopyFrom(pb.VotersRecord(voters=[_voter(voter) for voter in voters]))
        case ProducerIdsRecord(node_id, node_epoch, next_id):
            block = pb.ProducerIdsRecord(node_id=node_id, node_epoch=node_epoch, next_producer_id=next_id)
            message.producer_ids.CopyFrom(block)
        case _:
            assert_never(record)
    return message.SerializeToString(deterministic=True)


def decode_record(value: bytes) -> MetadataRecord:
    """The record in a value. Raises CorruptLog, UnsupportedVersion."""
    try:
        message = pb.MetadataRecord.FromString(value)
        return _record(message)
    except (DecodeError, ValueError) as error:
        raise CorruptLog(f"a metadata record of {len(value)} bytes cannot be read: {error}") from error


def _record(message: pb.MetadataRecord) -> MetadataRecord:
    match message.WhichOneof("kind"):
        case "partition_change":
            return _read_partition_change(message.partition_change)
        case "partition":
            return _read_partition(message.partition)
        case "node_registration":
            return _read_registration(message.node_registration)
        case "node_change":
            change = message.node_change
            return NodeChangeRecord(
                NodeId(change.node_id),
                NodeEpoch(change.node_epoch),
                change.fenced if change.HasField("fenced") else None,
                change.draining if change.HasField("draining") else None,
                _directory_ids(change.offline_directories),
            )
        case "topic":
            topic = message.topic
            return TopicRecord(topic.name, TopicId(UUID(bytes=topic.topic_id)), dict(topic.configs))
        case "topic_configs":
            altered = message.topic_configs
            return TopicConfigsRecord(TopicId(UUID(bytes=altered.topic_id)), dict(altered.configs))
        case "topic_removal":
            return TopicRemovalRecord(TopicId(UUID(bytes=message.topic_removal.topic_id)))
        case "cluster":
            return _read_cluster(message.cluster)
        case "voters":
            return VotersRecord(tuple(_read_voter(voter) for voter in message.voters.voters))
        case "producer_ids":
            block = message.producer_ids
            return ProducerIdsRecord(
                NodeId(block.node_id), NodeEpoch(block.node_epoch), ProducerId(block.next_producer_id)
            )
        case _:
            raise UnsupportedVersion(
                "the metadata log holds a kind of record that this version does not know: a newer version wrote it; "
                "update this node"
            )


def _read_cluster(message: pb.ClusterRecord) -> ClusterRecord:
    """From a level on that this version does not know, records may have fields that it would pass over in silence."""
    if message.feature_level > features.LATEST:
        raise UnsupportedVersion(
            f"the metadata log is at feature level {message.feature_level}, this version knows levels up to "
            f"{features.LATEST}: a newer version wrote it; update this node"
        )
    return ClusterRecord(message.cluster_id, message.feature_level)


# --- listeners, directories: also part of requests ------------------------------------------------------------------


def listeners_to_proto(listeners: Mapping[str, Endpoint]) -> list[common_pb2.Listener]:
    """Named endpoints as messages, by name."""
    return [
        common_pb2.Listener(name=name, host=endpoint.host, port=endpoint.port)
        for name, endpoint in sorted(listeners.items())
    ]


def listeners_from_proto(listeners: Sequence[common_pb2.Listener]) -> dict[str, Endpoint]:
    """Named endpoints out of messages."""
    return {listener.name: Endpoint(listener.host, listener.port) for listener in listeners}


def directories_to_proto(directories: Sequence[DirectoryState]) -> list[controller_pb2.DirectoryState]:
    """Data directories as messages."""
    return [
        controller_pb2.DirectoryState(directory_id=state.directory_id.bytes, last_registration=state.last_registration)
        for state in directories
    ]


def directories_from_proto(directories: Sequence[controller_pb2.DirectoryState]) -> tuple[DirectoryState, ...]:
    """Data directories out of messages. Raises ValueError for an id that is none."""
    return tuple(
        DirectoryState(DirectoryId(UUID(bytes=state.directory_id)), NodeEpoch(state.last_registration))
        for state in directories
    )


# --- the larger records -----------------------------------------------------------------------------------------


def _voter(voter: Voter) -> pb.Voter:
    return pb.Voter(
        node_id=voter.node_id, directory_id=voter.directory_id.bytes, listeners=listeners_to_proto(voter.listeners)
    )


def _read_voter(voter: pb.Voter) -> Voter:
    return Voter(
        NodeId(voter.node_id), DirectoryId(UUID(bytes=voter.directory_id)), listeners_from_proto(voter.listeners)
    )


def _registration(record: NodeRegistrationRecord) -> pb.NodeRegistrationRecord:
    return pb.NodeRegistrationRecord(
        node_id=record.node_id,
        incarnation=record.incarnation.bytes,
        listeners=listeners_to_proto(record.listeners),
        rack=record.rack,
        boot_id=record.boot_id,
        directories=directories_to_proto(record.directories),
        state=None if record.state is None else _node_state(record.state),
    )


def _node_state(state: NodeStateSnapshot) -> pb.NodeStateSnapshot:
    return pb.NodeStateSnapshot(
        node_epoch=state.node_epoch,
        fenced=state.fenced,
        draining=state.draining,
        former_directories=directories_to_proto(state.former_directories),
        offline_directories=directories_to_proto(state.offline_directories),
    )


def _read_registration(message: pb.NodeRegistrationRecord) -> NodeRegistrationRecord:
    return NodeRegistrationRecord(
        NodeId(message.node_id),
        Incarnation(UUID(bytes=message.incarnation)),
        listeners_from_proto(message.listeners),
        message.rack,
        message.boot_id,
        directories_from_proto(message.directories),
        _read_node_state(message.state) if message.HasField("state") else None,
    )


def _read_node_state(message: pb.NodeStateSnapshot) -> NodeStateSnapshot:
    return NodeStateSnapshot(
        NodeEpoch(message.node_epoch),
        message.fenced,
        message.draining,
        directories_from_proto(message.former_directories),
        directories_from_proto(message.offline_directories),
    )


def _partition(record: PartitionRecord) -> pb.PartitionRecord:
    return pb.PartitionRecord(
        topic_id=record.topic_id.bytes,
        partition=record.partition,
        replicas=record.replicas,
        directories=[directory.bytes for directory in record.directories],
        isr=record.isr,
        elr=record.elr,
        last_known_elr=record.last_known_elr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        adding=record.adding,
        removing=record.removing,
    )


def _read_partition(message: pb.PartitionRecord) -> PartitionRecord:
    return PartitionRecord(
        TopicId(UUID(bytes=message.topic_id)),
        PartitionIndex(message.partition),
        _nodes(message.replicas),
        _directory_ids(message.directories),
        _nodes(message.isr),
        _nodes(message.elr),
        _nodes(message.last_known_elr),
        NodeId(message.leader),
        LeaderEpoch(message.leader_epoch),
        PartitionEpoch(message.partition_epoch),
        _nodes(message.adding),
        _nodes(message.removing),
    )


def _partition_change(record: PartitionChangeRecord) -> pb.PartitionChangeRecord:
    return pb.PartitionChangeRecord(
        topic_id=record.topic_id.bytes,
        partition=record.partition,
        leader=record.leader,
        isr=_node_list(record.isr),
        elr=_node_list(record.elr),
        last_known_elr=_node_list(record.last_known_elr),
        replicas=_node_list(record.replicas),
        directories=[directory.bytes for directory in record.directories or ()],
        adding=_node_list(record.adding),
        removing=_node_list(record.removing),
    )


def _read_partition_change(message: pb.PartitionChangeRecord) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        TopicId(UUID(bytes=message.topic_id)),
        PartitionIndex(message.partition),
        leader=NodeId(message.leader) if message.HasField("leader") else None,
        isr=_nodes(message.isr.nodes) if message.HasField("isr") else None,
        elr=_nodes(message.elr.nodes) if message.HasField("elr") else None,
        last_known_elr=_nodes(message.last_known_elr.nodes) if message.HasField("last_known_elr") else None,
        replicas=_nodes(message.replicas.nodes) if message.HasField("replicas") else None,
        directories=_directory_ids(message.directories) if message.directories else None,
        adding=_nodes(message.adding.nodes) if message.HasField("adding") else None,
        removing=_nodes(message.removing.nodes) if message.HasField("removing") else None,
    )


def _node_list(nodes: tuple[NodeId, ...] | None) -> pb.NodeList | None:
    return None if nodes is None else pb.NodeList(nodes=nodes)


def _nodes(numbers: Sequence[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def _directory_ids(ids: Sequence[bytes]) -> tuple[DirectoryId, ...]:
    return tuple(DirectoryId(UUID(bytes=directory)) for directory in ids)
