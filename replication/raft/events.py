"""What the quorum is told and what it answers: events in, effects out, as values.

`at` is monotonic time in milliseconds, stamped by the driver. A `request_id` is the driver's number for a request that
came over the wire; exactly one `Answer` with it follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replication.raft.log_view import LogView, SnapshotId
from replication.raft.roles import QuorumState
from replication.raft.voters import ReplicaKey
from tidelog.errors import TidelogError
from tidelog.types import EpochEnd, LeaderEpoch, Millis, NodeId, Offset

# --- messages between nodes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Will `voter` vote for `candidate` in `epoch`? With `pre_vote`: would it, in the epoch after this one?

    last_epoch, log_end: how far the candidate's log reaches.
    """

    epoch: LeaderEpoch
    candidate: ReplicaKey
    voter: ReplicaKey
    last_epoch: LeaderEpoch
    log_end: Offset
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteAnswer:
    """`epoch` and `leader_id` (-1 unknown) as the voter knows them."""

    epoch: LeaderEpoch
    leader_id: NodeId
    granted: bool


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """`leader_id` leads `epoch`."""

    epoch: LeaderEpoch
    leader_id: NodeId


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """`leader_id` leads `epoch` no more. successors: who should stand, the best first."""

    epoch: LeaderEpoch
    leader_id: NodeId
    successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """Epoch and leader (-1 unknown) as the answering node knows them."""

    epoch: LeaderEpoch
    leader_id: NodeId


@dataclass(frozen=True, slots=True)
class Fetch:
    """A replica asks for records from `offset` on, where its log ends.

    epoch: the quorum's, as it knows it; -1: it only wants to read. last_epoch: of the record before `offset`, -1 none.
    held: everything below is on its disk.
    """

    replica: ReplicaKey
    epoch: LeaderEpoch
    offset: Offset
    last_epoch: LeaderEpoch
    durable_offset: Offset


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""

    at: Millis


@dataclass(frozen=True, slots=True)
class LogChanged:
    """Something of this node's log has moved: its ends, what it holds, its watermark, its voters."""

    at: Millis
    log: LogView


@dataclass(frozen=True, slots=True)
class VoteAsked:
    """A vote request has come."""

    request_id: int
    at: Millis
    request: VoteRequest


@dataclass(frozen=True, slots=True)
class VoteAnswered:
    """The answer to a vote request of this node. One that never comes is no event."""

    at: Millis
    request: VoteRequest
    answer: VoteAnswer


@dataclass(frozen=True, slots=True)
class BeginEpochAsked:
    """A node says that it leads."""

    request_id: int
    at: Millis
    request: BeginEpoch


@dataclass(frozen=True, slots=True)
class EndEpochAsked:
    """A node says that it leads no more."""

    request_id: int
    at: Millis
    request: EndEpoch


@dataclass(frozen=True, slots=True)
class Fetched:
    """A fetch has come."""

    request_id: int
    at: Millis
    fetch: Fetch


@dataclass(frozen=True, slots=True)
class SnapshotAsked:
    """A replica has fetched a piece of a snapshot; `epoch` as it knows it. There is no answer to this."""

    at: Millis
    replica: ReplicaKey
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class NewRecords:
    """What the leader answered to a fetch: records, or none yet; committed up to `high_watermark`."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class LogsDiverge:
    """What the leader answered to a fetch: its largest epoch not above the asker's last, and where that ends."""

    end: EpochEnd


@dataclass(frozen=True, slots=True)
class BelowLogStart:
    """What the leader answered to a fetch: its log begins later, this snapshot stands for what was before."""

    snapshot: SnapshotId


FetchResult: TypeAlias = NewRecords | LogsDiverge | BelowLogStart


@dataclass(frozen=True, slots=True)
class FetchAnswered:
    """The node `leader_id`, as the leader of `epoch`, has answered this node's fetch of `offset`."""

    at: Millis
    leader_id: NodeId
    epoch: LeaderEpoch
    offset: Offset
    result: FetchResult


@dataclass(frozen=True, slots=True)
class Heard:
    """The node `source` answered a question of this node with an epoch and its leader (-1 unknown)."""

    at: Millis
    epoch: LeaderEpoch
    leader_id: NodeId
    source: NodeId


@dataclass(frozen=True, slots=True)
class Called:
    """Stand at once: this node forms the cluster."""

    at: Millis


@dataclass(frozen=True, slots=True)
class ResignAsked:
    """The node is being stopped: let another lead, and do not stand again."""

    at: Millis


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """This node's log took no record: it cannot lead."""

    at: Millis


Event: TypeAlias = (
    Ticked
    | LogChanged
    | VoteAsked
    | VoteAnswered
    | BeginEpochAsked
    | EndEpochAsked
    | Fetched
    | SnapshotAsked
    | FetchAnswered
    | Heard
    | Called
    | ResignAsked
    | AppendRefused
)

# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Fsync the state. Nothing that follows in the list, and no further event, before that is done."""

    state: QuorumState


@dataclass(frozen=True, slots=True)
class SendVote:
    """Ask `request.voter`."""

    request: VoteRequest


@dataclass(frozen=True, slots=True)
class SendBeginEpoch:
    """Tell a voter who leads."""

    to: ReplicaKey
    request: BeginEpoch


@dataclass(frozen=True, slots=True)
class SendEndEpoch:
    """Tell a voter that this node leads no more."""

    to: ReplicaKey
    request: EndEpoch


@dataclass(frozen=True, slots=True)
class AskBack:
    """Ask this node, where it is known to be, which epoch it is in and whether it leads: a message named it."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class FetchAgreed:
    """The logs agree. is_voter: it may have everything, else only what is committed."""

    is_voter: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request of another node."""

    request_id: int
    answer: VoteAnswer | LeaderAndEpoch | FetchAgreed | LogsDiverge | BelowLogStart | TidelogError


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """This node was elected: append the leader-change record. granting: who voted for it."""

    epoch: LeaderEpoch
    granting: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything below is committed."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Activate:
    """This node leads, and has committed in its own epoch: all that was committed before is in its image."""

    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class StopLeading:
    """This node leads no more: whatever waits for a commit has an open outcome."""


@dataclass(frozen=True, slots=True)
class TakeRecords:
    """Append what the leader answered, then take note of its watermark."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Cut the log at this offset: the leader's does not go on like it."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Fetch this snapshot from the leader and begin the log anew behind it."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class Report:
    """Something that an operator should read."""

    text: str


Effect: TypeAlias = (
    Persist
    | SendVote
    | SendBeginEpoch
    | SendEndEpoch
    | AskBack
    | Answer
    | OpenEpoch
    | Commit
    | Activate
    | StopLeading
    | TakeRecords
    | TruncateLog
    | TakeSnapshot
    | Report
)
