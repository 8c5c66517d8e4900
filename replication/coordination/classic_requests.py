"""Requests of members of classic groups to a group coordinator, and their answers.

Source: Kafka's JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-345, KIP-394, KIP-559, KIP-814).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from replication.coordination.group_records import ClassicProtocol
from tidelog.errors import TidelogError
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """A member joins a group, or joins again."""

    group_id: str
    member_id: str
    """Empty: a new member, to which the coordinator gives an id."""
    instance_id: str | None
    protocol_type: str
    """What the group is for: `consumer`, `connect`, or any other name."""
    protocols: tuple[ClassicProtocol, ...]
    """The names of the protocols that the member supports, in its order of preference, with its metadata for each."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    needs_member_id: bool = True
    """A new member is only told its id, and joins again with it (Kafka's version 4): a request that is repeated after a
    lost connection leaves no second member behind."""
    skips_assignment: bool = True
    """The member understands `JoinGroupAnswer.skip_assignment` (Kafka's version 9)."""


@dataclass(frozen=True, slots=True)
class MemberJoin:
    """A JoinGroup, with what the listener knows about the member."""

    request: JoinGroup
    ticket: int
    """Names this request in a LateAnswer; never used twice while the coordinator is loaded."""
    client_id: str
    client_host: str
    new_member_id: str
    """The id of a new member: unique for ever."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member, as its leader learns of it. metadata: for the protocol of the generation."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupAnswer:
    """The generation of which the member is part."""

    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    """All of them, for the leader, which assigns; empty for others."""
    skip_assignment: bool = False
    """The leader keeps the assignment that the group has."""
    error: TidelogError | None = None
    """MemberIdRequired: join again with `member_id`. Every other refusal is raised."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What the leader assigns to a member: bytes of the protocol of the group."""

    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """A member asks for its assignment; the leader brings those of all."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    """None: not compared with that of the group."""
    protocol: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberSync:
    """A SyncGroup. ticket: as of MemberJoin."""

    request: SyncGroup
    ticket: int


@dataclass(frozen=True, slots=True)
class SyncGroupAnswer:
    """The assignment of the member."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicHeartbeat:
    """A member is alive. Refused with RebalanceInProgress while the group waits for its members to join again."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClassicHeartbeatAnswer:
    """The member is part of the generation."""


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member that leaves. member_id: empty for an operator that removes a static member by its instance id."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Members leave a group."""

    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class LeftMember:
    """The outcome for one member."""

    member_id: str
    instance_id: str | None
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroupAnswer:
    """In the order of the request."""

    members: tuple[LeftMember, ...]


@dataclass(frozen=True, slots=True)
class DescribeClassicGroups:
    """The groups to describe, with what their members say and have in bytes. Source: Kafka's DescribeGroups."""

    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribedClassicMember:
    """A member of a classic group. metadata: for the protocol of the group. Both are empty while it is not stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedClassicGroup:
    """The state of a classic group. A consumer group (KIP-848) is none: it is described by DescribeGroups."""

    group_id: str
    error: TidelogError | None = None
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedClassicMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeClassicGroupsAnswer:
    """In the order of the request."""

    groups: tuple[DescribedClassicGroup, ...]


@dataclass(frozen=True, slots=True)
class AnsweredLater:
    """Instead of an answer: a LateAnswer follows, once other members have joined or the leader has assigned."""


ANSWERED_LATER: Final = AnsweredLater()

JoinOutcome: TypeAlias = JoinGroupAnswer | AnsweredLater
SyncOutcome: TypeAlias = SyncGroupAnswer | AnsweredLater


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """Effect: the answer to the request with this ticket, or its refusal."""

    ticket: int
    answer: JoinGroupAnswer | SyncGroupAnswer | TidelogError
