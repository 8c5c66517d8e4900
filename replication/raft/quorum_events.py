"""Events and effects of the metadata quorum (quorum.py).

`at` is monotonic time in milliseconds, stamped by the driver. A `request_id` is the driver's number for a request from
another node; exactly one `Answer` with it follows.
"""

from __future__ import annotations

from typing import TypeAlias

from replication.common_events import ClockTicked, Report
from replication.raft.log_view import MetadataLogView, SnapshotId
from replication.raft.roles import QuorumState
from replication.raft.voters import ReplicaKey
from tidelog.errors import TidelogError
from tidelog.types import EpochEnd, LeaderEpoch, Millis, NodeId, Offset
from tidelog.values import dataclass

# --- messages between nodes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """`candidate` requests the vote of `voter` in `epoch`."""

    epoch: LeaderEpoch
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: LeaderEpoch
    """Epoch of the last record in the candidate's log."""
    log_end: Offset
    """End of the candidate's log."""
    pre_vote: bool
    """The candidate only asks whether the voter would vote for it in the next epoch."""


@dataclass(frozen=True, slots=True)
class VoteAnswer:
    """The answer to a vote request. `epoch` and `leader_id` (-1: unknown) as known to the voter."""

    epoch: LeaderEpoch
    leader_id: NodeId
    granted: bool


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """The node `leader_id` leads `epoch`."""

    epoch: LeaderEpoch
    leader_id: NodeId


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """The node `leader_id` no longer leads `epoch`. successors: preferred candidates, the best first."""

    epoch: LeaderEpoch
    leader_id: NodeId
    successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """Epoch and leader (-1: unknown) as known to the answering node."""

    epoch: LeaderEpoch
    leader_id: NodeId


@dataclass(frozen=True, slots=True)
class Fetch:
    """A replica fetches records from the end of its log."""

    replica: ReplicaKey
    epoch: LeaderEpoch
    """The quorum's epoch as known to the replica; -1 from a reader whose positions do not count."""
    offset: Offset
    """The end of the replica's log."""
    last_epoch: LeaderEpoch
    """Epoch of its last record; -1 for an empty log."""
    durable_offset: Offset
    """All records below it are on the replica's disk."""


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetadataLogChanged:
    """This node's log changed: its start or end, durable offset, high watermark or voters."""

    at: Millis
    log: MetadataLogView


@dataclass(frozen=True, slots=True)
class Requested:
    """A request of another node arrived."""

    request_id: int
    at: Millis
    request: VoteRequest | BeginEpoch | EndEpoch | Fetch


@dataclass(frozen=True, slots=True)
class VoteAnswered:
    """The answer to a vote request of this node. There is no event for a missing answer."""

    at: Millis
    request: VoteRequest
    answer: VoteAnswer


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """A replica fetched a part of a snapshot. `epoch` as known to the replica. The quorum does not answer this."""

    at: Millis
    replica: ReplicaKey
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class NewRecords:
    """The leader's answer to a fetch: records, possibly none, committed below `high_watermark`."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class LogsDiverge:
    """The leader's answer to a fetch: its largest epoch that is at most the replica's last epoch, and its end."""

    end: EpochEnd


@dataclass(frozen=True, slots=True)
class BelowLogStart:
    """The leader's answer to a fetch below its log start: this snapshot replaces the earlier records."""

    snapshot: SnapshotId


FetchResult: TypeAlias = NewRecords | LogsDiverge | BelowLogStart


@dataclass(frozen=True, slots=True)
class FetchAnswered:
    """The node `leader_id`, as the leader of `epoch`, answered this node's fetch of `offset`, sent at `asked_at`."""

    at: Millis
    asked_at: Millis
    leader_id: NodeId
    epoch: LeaderEpoch
    offset: Offset
    result: FetchResult


@dataclass(frozen=True, slots=True)
class LeaderReported:
    """The node `source` answered a request of this node with an epoch and its leader (-1: unknown)."""

    at: Millis
    epoch: LeaderEpoch
    leader_id: NodeId
    source: NodeId


@dataclass(frozen=True, slots=True)
class LeaderRefused:
    """The address of the node that leads `epoch` refused a connection of this node: its process has ended."""

    at: Millis
    epoch: LeaderEpoch
    leader_id: NodeId


@dataclass(frozen=True, slots=True)
class Called:
    """Start an election at once: this node forms the cluster."""

    at: Millis


@dataclass(frozen=True, slots=True)
class ResignRequested:
    """The node is being stopped: resign, and do not stand for election again."""

    at: Millis


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """This node's log rejected an append: the node cannot lead."""

    at: Millis


Event: TypeAlias = (
    ClockTicked
    | MetadataLogChanged
    | Requested
    | VoteAnswered
    | SnapshotRequested
    | FetchAnswered
    | LeaderReported
    | LeaderRefused
    | Called
    | ResignRequested
    | AppendRefused
)

# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Write and fsync the state before any later effect of the list and before any further event."""

    state: QuorumState


@dataclass(frozen=True, slots=True)
class SendVote:
    """Send the request to `request.voter`."""

    request: VoteRequest


@dataclass(frozen=True, slots=True)
class Announce:
    """Announce to a voter that this node leads, or no longer leads."""

    to: ReplicaKey
    request: BeginEpoch | EndEpoch


@dataclass(frozen=True, slots=True)
class ConfirmLeader:
    """Query this node's epoch and leader, if its address is known: a message named it as leader."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class LogsAgree:
    """The logs agree. is_voter: the replica may read all records, otherwise only committed ones."""

    is_voter: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request of another node."""

    request_id: int
    answer: VoteAnswer | LeaderAndEpoch | LogsAgree | LogsDiverge | BelowLogStart | TidelogError


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """This node was elected: append the leader-change record. granting: the replicas that voted for it."""

    epoch: LeaderEpoch
    granting: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Every record below `offset` is committed."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Activate:
    """This node leads and has committed a record of its own epoch: its image contains everything that was committed
    before."""

    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class StopLeading:
    """This node no longer leads: the outcome of everything that waits for a commit is unknown."""


@dataclass(frozen=True, slots=True)
class TakeRecords:
    """Append the records of the leader's answer, then apply its high watermark."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class TruncateMetadataLog:
    """Truncate the log at `offset`, where it diverges from the leader's."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Fetch this snapshot from the leader and restart the log after it."""

    snapshot: SnapshotId


Effect: TypeAlias = (
    Persist
    | SendVote
    | Announce
    | ConfirmLeader
    | Answer
    | OpenEpoch
    | Commit
    | Activate
    | StopLeading
    | TakeRecords
    | TruncateMetadataLog
    | TakeSnapshot
    | Report
)
