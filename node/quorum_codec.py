"""The quorum's messages on the wire and as values."""

from __future__ import annotations

from uuid import UUID

from replication.quorum_events import BeginEpoch, EndEpoch, Fetch, Standing, VoteAnswer, VoteRequest
from replication.quorum_log_view import SnapshotId
from replication.voters import ReplicaKey
from tidelog.errors import InvalidRequest
from tidelog.types import FolderId, LeaderEpoch, NodeId, Offset
from tidelog.v1 import quorum_pb2 as pb


def key_to_proto(key: ReplicaKey) -> pb.ReplicaKey:
    """A replica's identity."""
    return pb.ReplicaKey(node_id=key.node_id, folder_id=key.folder_id.bytes)


def key_from_proto(message: pb.ReplicaKey) -> ReplicaKey:
    """Raises InvalidRequest."""
    return ReplicaKey(NodeId(message.node_id), folder_id_of(message.folder_id))


def folder_id_of(raw: bytes) -> FolderId:
    """Raises InvalidRequest."""
    if len(raw) != 16:
        raise InvalidRequest(f"the id of a folder has 16 bytes, this one {len(raw)}")
    return FolderId(UUID(bytes=raw))


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
    """Raises InvalidRequest."""
    return VoteRequest(
        LeaderEpoch(message.epoch),
        key_from_proto(message.candidate),
        key_from_proto(message.voter),
        LeaderEpoch(message.last_epoch),
        Offset(message.log_end),
        message.pre_vote,
    )


def vote_answer_to_proto(answer: VoteAnswer) -> pb.VoteResponse:
    """The answer to a vote request."""
    return pb.VoteResponse(epoch=answer.epoch, leader_id=answer.leader_id, granted=answer.granted)


def vote_answer_from_proto(message: pb.VoteResponse) -> VoteAnswer:
    """The answer to a vote request."""
    return VoteAnswer(LeaderEpoch(message.epoch), NodeId(message.leader_id), message.granted)


def begin_from_proto(message: pb.BeginQuorumEpochRequest) -> BeginEpoch:
    """A leader's news of itself."""
    return BeginEpoch(LeaderEpoch(message.epoch), NodeId(message.leader_id))


def end_to_proto(request: EndEpoch, cluster_id: str) -> pb.EndQuorumEpochRequest:
    """A leader's farewell."""
    return pb.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        leader_id=request.leader_id,
        epoch=request.epoch,
        successors=[key_to_proto(key) for key in request.successors],
    )


def end_from_proto(message: pb.EndQuorumEpochRequest) -> EndEpoch:
    """Raises InvalidRequest."""
    successors = tuple(key_from_proto(key) for key in message.successors)
    return EndEpoch(LeaderEpoch(message.epoch), NodeId(message.leader_id), successors)


def standing_to_proto(standing: Standing) -> pb.QuorumStanding:
    """Epoch and leader."""
    return pb.QuorumStanding(epoch=standing.epoch, leader_id=standing.leader_id)


def fetch_from_proto(message: pb.FetchMetadataRequest) -> Fetch:
    """A fetch as the leader's rules see it. A reader without a folder has one of its own that never votes. Raises
    InvalidRequest."""
    folder = folder_id_of(message.folder_id) if message.folder_id else FolderId(UUID(int=0))
    return Fetch(
        ReplicaKey(NodeId(message.node_id), folder),
        LeaderEpoch(message.current_leader_epoch),
        Offset(message.fetch_offset),
        LeaderEpoch(message.last_fetched_epoch),
        Offset(message.held_offset),
    )


def snapshot_to_proto(snapshot: SnapshotId) -> pb.SnapshotId:
    """A snapshot's identity."""
    return pb.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)


def snapshot_from_proto(message: pb.SnapshotId) -> SnapshotId:
    """A snapshot's identity."""
    return SnapshotId(Offset(message.end_offset), LeaderEpoch(message.epoch))
