"""Checks of the values that other nodes send in messages of the metadata quorum, independent of the protocol.

Invariant: a node id, directory id, epoch or offset out of range raises InvalidRequest before the rules see it.
"""

from __future__ import annotations

from uuid import UUID

from node.api.quorum_requests import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchMetadataRequest,
    QuorumVoteRequest,
    UncheckedReplicaKey,
)
from replication.raft.epoch_limits import EPOCH_LAST
from replication.raft.quorum_events import BeginEpoch, EndEpoch, Fetch, VoteRequest
from replication.raft.voters import ReplicaKey
from tidelog.errors import InvalidRequest
from tidelog.types import NO_LEADER_EPOCH, DirectoryId, LeaderEpoch, NodeId, Offset


def unchecked(key: ReplicaKey) -> UncheckedReplicaKey:
    """The identity of a replica, for a message."""
    return UncheckedReplicaKey(key.node_id, key.directory_id.bytes)


def key_of(claimed: UncheckedReplicaKey) -> ReplicaKey:
    """The identity of a replica. Raises InvalidRequest."""
    if claimed.node_id < 0:
        raise InvalidRequest(f"{claimed.node_id} is not a valid node id: ids start at 0")
    return ReplicaKey(NodeId(claimed.node_id), directory_id_of(claimed.directory_id))


def directory_id_of(raw: bytes) -> DirectoryId:
    """A directory id from its 16 bytes. Raises InvalidRequest."""
    if len(raw) != 16:
        raise InvalidRequest(f"a directory id has 16 bytes, this one has {len(raw)}")
    return DirectoryId(UUID(bytes=raw))


def epoch_of(number: int, least: int = 0) -> LeaderEpoch:
    """An epoch. Raises InvalidRequest if no node may be in it."""
    if not least <= number <= EPOCH_LAST:
        raise InvalidRequest(
            f"{number} is not an epoch of the metadata quorum: valid are {least} to {EPOCH_LAST}; the sender is faulty"
        )
    return LeaderEpoch(number)


def offset_of(number: int) -> Offset:
    """An offset. Raises InvalidRequest."""
    if number < 0:
        raise InvalidRequest(f"{number} is not an offset of the metadata log: the sender is faulty")
    return Offset(number)


def vote_of(request: QuorumVoteRequest) -> VoteRequest:
    """A vote request. Raises InvalidRequest."""
    return VoteRequest(
        epoch_of(request.epoch),
        key_of(request.candidate),
        key_of(request.voter),
        epoch_of(request.last_epoch, NO_LEADER_EPOCH),
        offset_of(request.log_end),
        request.pre_vote,
    )


def begin_of(request: BeginQuorumEpochRequest) -> BeginEpoch:
    """The announcement of a leader. Raises InvalidRequest."""
    return BeginEpoch(epoch_of(request.epoch), NodeId(request.leader_id))


def end_of(request: EndQuorumEpochRequest) -> EndEpoch:
    """The resignation of a leader. Raises InvalidRequest."""
    return EndEpoch(epoch_of(request.epoch), NodeId(request.leader_id), tuple(map(key_of, request.successors)))


def fetch_of(request: FetchMetadataRequest) -> Fetch:
    """A fetch. A reader that names no directory gets the id 0, which never votes. Raises InvalidRequest."""
    directory = directory_id_of(request.directory_id) if request.directory_id else DirectoryId(UUID(int=0))
    return Fetch(
        ReplicaKey(NodeId(request.node_id), directory),
        epoch_of(request.current_leader_epoch, NO_LEADER_EPOCH),
        offset_of(request.fetch_offset),
        epoch_of(request.last_fetched_epoch, NO_LEADER_EPOCH),
        offset_of(request.durable_offset),
    )
