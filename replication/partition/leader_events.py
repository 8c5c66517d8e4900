"""Events and effects of a partition's leader (leader.py).

Times are monotonic milliseconds, stamped by node/. A ticket is node/'s number for a waiting request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, NewType, TypeAlias

from replication.common_events import ClockTicked
from tidelog.errors import TidelogError
from tidelog.types import Acks, EpochEnd, Incarnation, LeaderEpoch, Millis, NodeEpoch, NodeId, Offset, PartitionEpoch
from tidelog.values import dataclass

Ticket = NewType("Ticket", int)
"""A produce request that waits for its acknowledgement, or a deletion that waits for the replicas."""

Session = NewType("Session", int)
"""A follower's stream, numbered by node/. Only the stream of the last agreed fetch may advance the follower's
positions."""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """The metadata about the node of a replica."""

    node_epoch: NodeEpoch
    incarnation: Incarnation
    eligible: bool
    """The node is neither fenced nor draining, so it may be proposed for the in-sync set (KIP-841)."""
    rack: str = ""


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateKnown:
    """The partition's state in the metadata. Fields that depend on the partition epoch are applied only if that is
    higher than the known one; `views` are always the newest."""

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    partition_epoch: PartitionEpoch
    min_insync: int
    views: Mapping[NodeId, ReplicaView]
    at: Millis
    elr: tuple[NodeId, ...] = ()
    """The eligible leader replicas (KIP-966)."""


class Appended(NamedTuple):
    """The leader's own log grew to `log_end`; everything below `durable_offset` is as durable as the topic requires."""

    log_end: Offset
    durable_offset: Offset


class LocalDurable(NamedTuple):
    """The durable offset of the leader's own log advanced."""

    durable_offset: Offset


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """The leader's log start advanced, durably: records below `log_start` are deleted."""

    log_start: Offset


@dataclass(frozen=True, slots=True)
class LogStartKept:
    """The log start could not be made durable, and is as before."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class DeletionAwaited:
    """A request deletes the records below `offset`, which `deletable` has returned."""

    ticket: Ticket
    offset: Offset
    deadline: Millis
    """When it times out, if the leader's own log starts at `offset` by then."""


class AckAwaited(NamedTuple):
    """A produce request waits for its acknowledgement."""

    ticket: Ticket
    acks: Acks
    end_offset: Offset
    """One past its last record."""
    deadline: Millis
    """When it times out."""


class FollowerFetched(NamedTuple):
    """A follower sent a fetch."""

    replica: NodeId
    incarnation: Incarnation
    session: Session
    leader_epoch: LeaderEpoch
    next_offset: Offset
    """The end of its log, from which on it fetches."""
    last_epoch: LeaderEpoch
    """Epoch of its last record, -1 for an empty log."""
    durable_offset: Offset
    log_start: Offset
    at: Millis


class FollowerDurable(NamedTuple):
    """A follower's durable offset or log start advanced while its fetch is open."""

    replica: NodeId
    incarnation: Incarnation
    session: Session
    leader_epoch: LeaderEpoch
    durable_offset: Offset
    log_start: Offset
    """Its log start, which is durable; 0 from a node of an older version."""
    at: Millis


@dataclass(frozen=True, slots=True)
class ProposalAccepted:
    """The controller's answer: the change is committed, and this is the resulting state."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[NodeId, ...]
    at: Millis


@dataclass(frozen=True, slots=True)
class ProposalFailed:
    """The controller rejected the proposal or did not answer. In both cases the proposal may still take effect, until a
    higher partition epoch is known."""

    based_on: PartitionEpoch
    """The partition epoch that the proposal named."""
    at: Millis


@dataclass(frozen=True, slots=True)
class LeadershipEnded:
    """The node no longer leads the partition in this epoch. The state machine accepts no further event."""

    reason: str


LeaderEvent: TypeAlias = (
    Appended
    | LocalDurable
    | AckAwaited
    | FollowerFetched
    | FollowerDurable
    | StateKnown
    | LogStartMoved
    | LogStartKept
    | DeletionAwaited
    | ProposalAccepted
    | ProposalFailed
    | ClockTicked
    | LeadershipEnded
)

# --- effects ----------------------------------------------------------------------------------------------------


class CommitUpTo(NamedTuple):
    """The high watermark advanced: every record below `offset` is committed."""

    offset: Offset


class Acknowledge(NamedTuple):
    """Acknowledge these produce requests."""

    tickets: tuple[Ticket, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail these produce requests with `error`."""

    tickets: tuple[Ticket, ...]
    error: TidelogError


@dataclass(frozen=True, slots=True)
class MoveLogStart:
    """Move the log start to `offset`, durably, and report it (`LogStartMoved`, `LogStartKept`)."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """The records of these deletions are deleted on every replica that counts. low_watermark: the lowest log start of
    these replicas."""

    tickets: tuple[Ticket, ...]
    low_watermark: Offset


@dataclass(frozen=True, slots=True)
class DeletionFailed:
    """Fail these deletions with `error`. low_watermark: as of RecordsDeleted; -1 if it is unknown."""

    tickets: tuple[Ticket, ...]
    error: TidelogError
    low_watermark: Offset


@dataclass(frozen=True, slots=True)
class FetchAgreed:
    """The follower's log is a prefix of the leader's. Answer the fetch with the records after it, once there are
    any."""


@dataclass(frozen=True, slots=True)
class FetchDiverged:
    """The follower's log diverges. Answer with this end only, without records or high watermark."""

    end: EpochEnd


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """Reject the fetch with this error; none of its positions were recorded."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Ask the controller for this in-sync set (AlterPartition, KIP-497). Each member is named with its registration
    (KIP-903)."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    members: tuple[tuple[NodeId, NodeEpoch], ...]


LeaderEffect: TypeAlias = (
    CommitUpTo
    | Acknowledge
    | Fail
    | MoveLogStart
    | RecordsDeleted
    | DeletionFailed
    | FetchAgreed
    | FetchDiverged
    | FetchRefused
    | ProposeIsr
)
