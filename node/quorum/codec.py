"""Conversion between the messages of the metadata quorum and values.

Requests of other nodes are checked when they are read: a node id, directory id, epoch or offset out of range raises
InvalidRequest. Responses are read as they are.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from node.metadata.message_mapping import Converter, MessageMapping
from replication.raft.epoch_limits import EPOCH_LAST
from replication.raft.events import BeginEpoch, EndEpoch, Fetch, LeaderAndEpoch, VoteAnswer, VoteRequest
from replication.raft.log_view import SnapshotId
from replication.raft.voters import ReplicaKey
from tidelog.errors import InvalidRequest
from tidelog.protocol.v1 import quorum_pb2 as pb
from tidelog.types import NO_LEADER_EPOCH, DirectoryId, LeaderEpoch, NodeId, Offset


def key_to_proto(key: ReplicaKey) -> pb.ReplicaKey:
    """The identity of a replica."""
    return pb.ReplicaKey(node_id=key.node_id, directory_id=key.directory_id.bytes)


def key_from_proto(message: pb.ReplicaKey) -> ReplicaKey:
    """The identity of a replica. Raises InvalidRequest."""
    return key_of(message.node_id, message.directory_id)


def key_of(node_id: int, directory_id: bytes) -> ReplicaKey:
    """The identity of a replica. Raises InvalidRequest."""
    if node_id < 0:
        raise InvalidRequest(f"{node_id} is no valid node id: ids start at 0")
    return ReplicaKey(NodeId(node_id), directory_id_of(directory_id))


def directory_id_of(raw: bytes) -> DirectoryId:
    """A directory id from its 16 bytes. Raises InvalidRequest."""
    if len(raw) != 16:
        raise InvalidRequest(f"a directory id has 16 bytes, this one has {len(raw)}")
    return DirectoryId(UUID(bytes=raw))


def epoch_of(number: int, least: int = 0) -> LeaderEpoch:
    """An epoch from a message. Raises InvalidRequest if no node may be in it."""
    if not least <= number <= EPOCH_LAST:
        raise InvalidRequest(
            f"{number} is no epoch of the metadata quorum: valid are {least} to {EPOCH_LAST}; the sender is faulty"
        )
    return LeaderEpoch(number)


def offset_of(number: int) -> Offset:
    """An offset from a message. Raises InvalidRequest."""
    if number < 0:
        raise InvalidRequest(f"{number} is no offset of the metadata log: the sender is faulty")
    return Offset(number)


_CHECKED: Final[dict[object, Converter]] = {
    ReplicaKey: Converter(MessageMapping(ReplicaKey, pb.ReplicaKey.DESCRIPTOR).to_fields, key_from_proto),
    LeaderEpoch: Converter(read=epoch_of),
    "last_epoch": Converter(read=lambda number: epoch_of(number, NO_LEADER_EPOCH)),
    Offset: Converter(read=offset_of),
}

VOTE_REQUEST: Final = MessageMapping(VoteRequest, pb.VoteRequest.DESCRIPTOR, converters=_CHECKED)
VOTE_ANSWER: Final = MessageMapping(VoteAnswer, pb.VoteResponse.DESCRIPTOR)
BEGIN_EPOCH: Final = MessageMapping(BeginEpoch, pb.BeginQuorumEpochRequest.DESCRIPTOR, converters=_CHECKED)
END_EPOCH: Final = MessageMapping(EndEpoch, pb.EndQuorumEpochRequest.DESCRIPTOR, converters=_CHECKED)
LEADER_AND_EPOCH: Final = MessageMapping(LeaderAndEpoch, pb.LeaderAndEpoch.DESCRIPTOR)
SNAPSHOT_ID: Final = MessageMapping(SnapshotId, pb.SnapshotId.DESCRIPTOR)


def fetch_from_proto(message: pb.FetchMetadataRequest) -> Fetch:
    """A fetch. A reader that names no directory gets the id 0, which never votes. Raises InvalidRequest."""
    directory = directory_id_of(message.directory_id) if message.directory_id else DirectoryId(UUID(int=0))
    return Fetch(
        ReplicaKey(NodeId(message.node_id), directory),
        epoch_of(message.current_leader_epoch, NO_LEADER_EPOCH),
        offset_of(message.fetch_offset),
        epoch_of(message.last_fetched_epoch, NO_LEADER_EPOCH),
        offset_of(message.durable_offset),
    )
