"""Requests of the metadata quorum: elections, and fetches of the metadata log.

Invariant: what another node claims (ids, epochs, offsets) is not checked here, so that a handler can first reject a
request that is meant for another cluster or replica. The checks are in `node/quorum/checks.py`.
"""

from __future__ import annotations

from replication.raft.log_view import SnapshotId
from tidelog.errors import TidelogError
from tidelog.types import EpochEnd, EpochStart, LeaderEpoch, NodeId, Offset
from tidelog.values import dataclass


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
    """The identity of a replica."""

    node_id: int
    cluster_id: str
    """The cluster of the replica's metadata directory; empty if it has none."""
    directory_id: bytes
    leader_id: NodeId
    """The quorum's leader (-1: unknown) and its epoch."""
    leader_epoch: LeaderEpoch
    voters: tuple[UncheckedReplicaKey, ...]
    """The voters in the replica's log; empty if it knows of no quorum."""
    incarnation: bytes
    """The incarnation of the process; empty for a node of an earlier version."""

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
    """A replica fetches the metadata log from `fetch_offset` on."""

    cluster_id: str
    """The cluster of the sender's directory; empty for a new directory, which fetches from offset 0."""
    node_id: int
    """The sender."""
    directory_id: bytes
    current_leader_epoch: int
    """The epoch as known to the sender; -1 if unknown."""
    fetch_offset: int
    last_fetched_epoch: int
    """Epoch of the record before `fetch_offset`; -1 if there is none."""
    max_wait_ms: int
    """How long the answer may wait for new records."""
    max_bytes: int
    """Size limit; at least one batch is returned."""
    durable_offset: int
    """Offsets below are fsynced by the sender."""
    high_watermark: int | None
    """The sender's high watermark: it is answered at once if the leader's is higher. None: it waits for records
    only."""
    receiver: UncheckedReplicaKey
    """The replica addressed."""


@dataclass(frozen=True, slots=True)
class FetchMetadataAnswer:
    """The answer to a fetch of the metadata log."""

    cluster_id: str
    leader_id: NodeId
    """The quorum's leader (-1: unknown) and its epoch."""
    leader_epoch: LeaderEpoch
    error: TidelogError | None = None
    """The rejection; then only the cluster and the leader are set."""
    high_watermark: Offset = Offset(0)
    """Offsets below are committed."""
    log_start_offset: Offset = Offset(0)
    diverging: EpochEnd | None = None
    """Set if the logs diverge: truncate to this end."""
    snapshot: SnapshotId | None = None
    """Set if the log starts after `fetch_offset`: fetch this snapshot first."""
    epochs: tuple[EpochStart, ...] = ()
    """The epoch entries in the range of the records."""
    records: bytes = b""
    """Whole batches."""


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """`replica` fetches at most `max_bytes` of a snapshot from `position` on."""

    cluster_id: str
    replica: UncheckedReplicaKey
    current_leader_epoch: int
    """The epoch as known to the sender."""
    snapshot: SnapshotId
    position: int
    max_bytes: int
    receiver: UncheckedReplicaKey
    """The replica addressed."""


@dataclass(frozen=True, slots=True)
class FetchSnapshotAnswer:
    """A part of a snapshot."""

    leader_id: NodeId
    leader_epoch: LeaderEpoch
    error: TidelogError | None = None
    """The rejection; then only the leader is set."""
    size: int = 0
    """Size of the whole snapshot in bytes."""
    data: bytes = b""
