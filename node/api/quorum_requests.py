"""Requests of the metadata quorum: elections, and fetches of the metadata log.

Invariant: what another node claims (ids, epochs, offsets) is not checked here, so that a handler can first reject a
request that is meant for another cluster or replica. The checks are in `node/quorum/checks.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from replication.raft.log_view import SnapshotId
from tidelog.errors import TidelogError
from tidelog.types import EpochEnd, EpochStart, LeaderEpoch, NodeId, Offset


@dataclass(frozen=True, slots=True)
class UncheckedReplicaKey:
    """A replica of the metadata log as a message names it."""

    node_id: int
    directory_id: bytes


@dataclass(frozen=True, slots=True)
class IntroduceRequest:
    """Query of the identity of a replica. node_id: of the sender."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class IntroduceAnswer:
    """The identity of a replica.

    cluster_id: the cluster of its metadata directory, "" for none. leader_id, leader_epoch: the quorum's leader (-1:
    unknown) and its epoch. voters: in its log; none if no quorum was formed, as far as it knows. incarnation: of the
    process; empty for a node of an earlier version.
    """

    node_id: int
    cluster_id: str
    directory_id: bytes
    leader_id: NodeId
    leader_epoch: LeaderEpoch
    voters: tuple[UncheckedReplicaKey, ...]
    incarnation: bytes

    @property
    def key(self) -> UncheckedReplicaKey:
        """The answering replica."""
        return UncheckedReplicaKey(self.node_id, self.directory_id)


@dataclass(frozen=True, slots=True)
class QuorumVoteRequest:
    """`candidate`, of the cluster `cluster_id`, requests the vote of `voter`; the fields are those of `VoteRequest` in
    replication/raft/quorum_events.py."""

    cluster_id: str
    epoch: int
    candidate: UncheckedReplicaKey
    voter: UncheckedReplicaKey
    last_epoch: int
    log_end: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """The node `leader_id` of the cluster announces to `receiver` that it leads `epoch`."""

    cluster_id: str
    leader_id: int
    epoch: int
    receiver: UncheckedReplicaKey


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """The node `leader_id` of the cluster announces to `receiver` that it no longer leads `epoch`.

    successors: preferred candidates, the best first.
    """

    cluster_id: str
    leader_id: int
    epoch: int
    successors: tuple[UncheckedReplicaKey, ...]
    receiver: UncheckedReplicaKey


@dataclass(frozen=True, slots=True)
class FetchMetadataRequest:
    """A replica fetches the metadata log from `fetch_offset` on.

    cluster_id: of the sender's directory; "" for a new directory, which fetches from offset 0. node_id, directory_id:
    the sender. current_leader_epoch: as known to the sender, -1: unknown. last_fetched_epoch: of the record before
    `fetch_offset`, -1: none. max_wait_ms: how long the answer may wait for new records. max_bytes: size limit; at least
    one batch is returned. durable_offset: offsets below are fsynced by the sender. high_watermark: of the sender, which
    is answered at once if the leader's is higher; None: it waits for records only. receiver: the replica addressed.
    """

    cluster_id: str
    node_id: int
    directory_id: bytes
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int
    max_bytes: int
    durable_offset: int
    high_watermark: int | None
    receiver: UncheckedReplicaKey


@dataclass(frozen=True, slots=True)
class FetchMetadataAnswer:
    """The answer to a fetch of the metadata log. error: the rejection; then only the cluster and the leader are set.

    leader_id, leader_epoch: the quorum's leader (-1: unknown) and its epoch. high_watermark: offsets below are
    committed. diverging: the logs diverge, truncate to this end. snapshot: the log starts later, fetch this snapshot
    first. records: whole batches; epochs: the epoch entries in their range.
    """

    cluster_id: str
    leader_id: NodeId
    leader_epoch: LeaderEpoch
    error: TidelogError | None = None
    high_watermark: Offset = Offset(0)
    log_start_offset: Offset = Offset(0)
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None
    epochs: tuple[EpochStart, ...] = ()
    records: bytes = b""


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """`replica` fetches at most `max_bytes` of a snapshot from `position` on. current_leader_epoch: as known to the
    sender. receiver: the replica addressed."""

    cluster_id: str
    replica: UncheckedReplicaKey
    current_leader_epoch: int
    snapshot: SnapshotId
    position: int
    max_bytes: int
    receiver: UncheckedReplicaKey


@dataclass(frozen=True, slots=True)
class FetchSnapshotAnswer:
    """A part of a snapshot. error: the rejection; then only the leader is set. size: of the whole snapshot."""

    leader_id: NodeId
    leader_epoch: LeaderEpoch
    error: TidelogError | None = None
    size: int = 0
    data: bytes = b""
