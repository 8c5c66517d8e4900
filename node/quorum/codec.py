"""Conversion of the quorum's messages between protobuf and values."""

from __future__ import annotations

from uuid import UUID

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


def vote_to_proto(request: VoteRequest, cluster_id: str) -> pb.VoteRequest:
    """A vote request."""
    return pb.VoteRequest(
        cluster_id=cluster_id,
        epoch=request.epoch,
        candidate=key_to_proto(request.candidate),
        voter=key_to_proto(request.voter),
        last_epoch=request.last_epoch,
        log_end=request.log_end,
        pre_vote=request.pre_vote,
    )


def vote_from_proto(message: pb.VoteRequest) -> VoteRequest:
    """A vote request. Raises InvalidRequest."""
    return VoteRequest(
        epoch_of(message.epoch),
        key_from_proto(message.candidate),
        key_from_proto(message.voter),
        epoch_of(message.last_epoch, NO_LEADER_EPOCH),
        offset_of(message.log_end),
        message.pre_vote,
    )


def vote_answer_to_proto(answer: VoteAnswer) -> pb.VoteResponse:
    """The answer to a vote request."""
    return pb.VoteResponse(epoch=answer.epoch, leader_id=answer.leader_id, granted=answer.granted)


def vote_answer_from_proto(message: pb.VoteResponse) -> VoteAnswer:
    """The answer to a vote request."""
    return VoteAnswer(LeaderEpoch(message.epoch), NodeId(message.leader_id), message.granted)


def begin_to_proto(request: BeginEpoch, to: ReplicaKey, cluster_id: str) -> pb.BeginQuorumEpochRequest:
    """A new leader's announcement to a voter."""
    return pb.BeginQuorumEpochRequest(
        cluster_id=cluster_id, leader_id=request.leader_id, epoch=request.epoch, receiver=key_to_proto(to)
    )


def begin_from_proto(message: pb.BeginQuorumEpochRequest) -> BeginEpoch:
    """A new leader's announcement. Raises InvalidRequest."""
    return BeginEpoch(epoch_of(message.epoch), NodeId(message.leader_id))


def end_to_proto(request: EndEpoch, to: ReplicaKey, cluster_id: str) -> pb.EndQuorumEpochRequest:
    """A resigning leader's announcement to a voter."""
    return pb.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        leader_id=request.leader_id,
        epoch=request.epoch,
        successors=[key_to_proto(key) for key in request.successors],
        receiver=key_to_proto(to),
    )


def end_from_proto(message: pb.EndQuorumEpochRequest) -> EndEpoch:
    """A resigning leader's announcement. Raises InvalidRequest."""
    successors = tuple(key_from_proto(key) for key in message.successors)
    return EndEpoch(epoch_of(message.epoch), NodeId(message.leader_id), successors)


def leader_to_proto(standing: LeaderAndEpoch) -> pb.LeaderAndEpoch:
    """Epoch and leader."""
    return pb.LeaderAndEpoch(epoch=standing.epoch, leader_id=standing.leader_id)


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


def snapshot_to_proto(snapshot: SnapshotId) -> pb.SnapshotId:
    """The identity of a snapshot."""
    return pb.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)


def snapshot_from_proto(message: pb.SnapshotId) -> SnapshotId:
    """The identity of a snapshot."""
    return SnapshotId(Offset(message.end_offset), LeaderEpoch(message.epoch))
