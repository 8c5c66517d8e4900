"""What happens to a partition's leader, and what it wants done: the events and effects of `leader.py`.

Times are monotonic milliseconds, stamped by node/. A ticket is a number by which node/ knows a produce request that
waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, NewType, TypeAlias

from tidelog.errors import TidelogError
from tidelog.types import Acks, EpochEnd, Incarnation, LeaderEpoch, Millis, NodeEpoch, NodeId, Offset, PartitionEpoch

Ticket = NewType("Ticket", int)
"""A produce request that waits for its acknowledgement."""

Session = NewType("Session", int)
"""A follower's stream, numbered by node/: positions count only from the stream that agreed last."""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """What the metadata says of the node that holds a replica.

    eligible: neither fenced nor draining, so that it may be proposed for the in-sync set (KIP-841).
    """

    node_epoch: NodeEpoch
    incarnation: Incarnation
    eligible: bool
    rack: str = ""


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateKnown:
    """The metadata's word on the partition. What depends on the partition epoch counts only where that is higher than
    the one known; `views` are always the newest."""

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    partition_epoch: PartitionEpoch
    min_insync: int
    views: Mapping[NodeId, ReplicaView]
    at: Millis
    elr: tuple[NodeId, ...] = ()
    """The eligible leader replicas (KIP-966)."""


class Appended(NamedTuple):
    """The leader's own log grew to `log_end`; `held` of it is as durable as the topic asks."""

    log_end: Offset
    durable_offset: Offset


class LocalDurable(NamedTuple):
    """More of the leader's own log is as durable as the topic asks."""

    durable_offset: Offset


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """Records below `log_start` are gone from the leader's log."""

    log_start: Offset


class AckAwaited(NamedTuple):
    """A produce request whose records end at `end_offset` (one past the last) waits, at the latest until `deadline`."""

    ticket: Ticket
    acks: Acks
    end_offset: Offset
    deadline: Millis


class FollowerFetched(NamedTuple):
    """A follower asks for records from `next_offset`, its log end, on; `last_epoch` is that of its last record (-1:
    none). fetch_id: grows from each fetch of its process to the next."""

    replica: NodeId
    incarnation: Incarnation
    session: Session
    fetch_id: int
    leader_epoch: LeaderEpoch
    next_offset: Offset
    last_epoch: LeaderEpoch
    durable_offset: Offset
    log_start: Offset
    at: Millis


class FollowerDurable(NamedTuple):
    """What a follower holds moved while its fetch waits."""

    replica: NodeId
    incarnation: Incarnation
    session: Session
    leader_epoch: LeaderEpoch
    durable_offset: Offset
    at: Millis


@dataclass(frozen=True, slots=True)
class ProposalAccepted:
    """The controller's answer: the change is committed, and this is the partition since."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[NodeId, ...]
    at: Millis


@dataclass(frozen=True, slots=True)
class ProposalFailed:
    """No answer, or a refusal: either way the proposal may still take effect, until a higher partition epoch is known.

    based_on: the partition epoch that the proposal named.
    """

    based_on: PartitionEpoch
    at: Millis


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time goes by."""

    at: Millis


@dataclass(frozen=True, slots=True)
class LeadershipEnded:
    """The node leads the partition no more, or in another epoch only: this core is done."""

    reason: str


LeaderEvent: TypeAlias = (
    Appended
    | LocalDurable
    | AckAwaited
    | FollowerFetched
    | FollowerDurable
    | StateKnown
    | LogStartMoved
    | ProposalAccepted
    | ProposalFailed
    | Ticked
    | LeadershipEnded
)

# --- effects ----------------------------------------------------------------------------------------------------


class CommitUpTo(NamedTuple):
    """The high watermark moved: every offset below is committed."""

    offset: Offset


class Acknowledge(NamedTuple):
    """These produce requests are done, as their producers asked."""

    tickets: tuple[Ticket, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """These produce requests end with an error."""

    tickets: tuple[Ticket, ...]
    error: TidelogError


@dataclass(frozen=True, slots=True)
class FetchAgreed:
    """The follower's log is a prefix of the leader's: answer its fetch with what lies behind it, when there is some."""


@dataclass(frozen=True, slots=True)
class FetchDiverged:
    """The follower's log disagrees: answer with this end alone, neither records nor high watermark."""

    end: EpochEnd


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """Answer the fetch with this error; nothing in it was believed."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Ask the controller for this in-sync set (AlterPartition, KIP-497), each member by its registration (KIP-903)."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    members: tuple[tuple[NodeId, NodeEpoch], ...]


LeaderEffect: TypeAlias = CommitUpTo | Acknowledge | Fail | FetchAgreed | FetchDiverged | FetchRefused | ProposeIsr
