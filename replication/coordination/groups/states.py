"""States of members and of groups, and the transitions between them. The diagrams in docs/groups.md are drawn from
the tables; reconciliation.py obeys the one of members. Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final


class MemberState(IntEnum):
    """State of a member on its way to the target assignment, by Kafka's numbers."""

    STABLE = 0
    """It has its target assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It has been asked to give partitions up, and has not confirmed it."""
    UNRELEASED_PARTITIONS = 2
    """Partitions of its target assignment are still with other members."""
    UNKNOWN = 127
    """Recorded by a version with states that this one does not know: the member must join again."""


class MemberCause(Enum):
    """What a heartbeat, or an attempt to push an assignment, finds."""

    MUST_REVOKE = "it has partitions that are not in its target, and has not confirmed that it gave them up"
    MUST_WAIT = "nothing to give up; partitions of its target are still with other members"
    REACHED = "nothing to give up, and each partition of its target is its own"


MEMBER_TRANSITIONS: Final[Mapping[tuple[MemberState, MemberCause], MemberState]] = {
    (MemberState.STABLE, MemberCause.MUST_REVOKE): MemberState.UNREVOKED_PARTITIONS,
    (MemberState.STABLE, MemberCause.MUST_WAIT): MemberState.UNRELEASED_PARTITIONS,
    (MemberState.STABLE, MemberCause.REACHED): MemberState.STABLE,
    (MemberState.UNREVOKED_PARTITIONS, MemberCause.MUST_REVOKE): MemberState.UNREVOKED_PARTITIONS,
    (MemberState.UNREVOKED_PARTITIONS, MemberCause.MUST_WAIT): MemberState.UNRELEASED_PARTITIONS,
    (MemberState.UNREVOKED_PARTITIONS, MemberCause.REACHED): MemberState.STABLE,
    (MemberState.UNRELEASED_PARTITIONS, MemberCause.MUST_REVOKE): MemberState.UNREVOKED_PARTITIONS,
    (MemberState.UNRELEASED_PARTITIONS, MemberCause.MUST_WAIT): MemberState.UNRELEASED_PARTITIONS,
    (MemberState.UNRELEASED_PARTITIONS, MemberCause.REACHED): MemberState.STABLE,
    (MemberState.UNKNOWN, MemberCause.MUST_WAIT): MemberState.UNRELEASED_PARTITIONS,
    (MemberState.UNKNOWN, MemberCause.REACHED): MemberState.STABLE,
}
"""Next state by state and cause. A member in state UNKNOWN joins again and then has nothing to give up."""


class GroupState(Enum):
    """State of a consumer group. The value is its name in requests."""

    EMPTY = "Empty"
    """No members. Its committed offsets are kept until they expire."""
    ASSIGNING = "Assigning"
    """The target assignment is older than the group epoch."""
    RECONCILING = "Reconciling"
    """Members are on their way to the target assignment."""
    STABLE = "Stable"
    """Every member has its target assignment."""
    DEAD = "Dead"
    """Deleted, or expired."""


class GroupCause(Enum):
    """Cause of a transition of a group."""

    EPOCH_BUMPED = "a member joined, left or changed its subscription, or the topics changed"
    ASSIGNED = "the target assignment of the group epoch was computed, and members have to change"
    ASSIGNED_ALREADY = "the only member got the target assignment of the group epoch with its heartbeat"
    MEMBER_AWAY = "a static member left for a while"
    MEMBER_MOVED = "a member came nearer to its target assignment"
    LAST_MEMBER_MOVED = "the last member reached its target assignment"
    LAST_MEMBER_LEFT = "the last member left or was removed"
    COMMITTED = "offsets were committed for a group that did not exist"
    DELETED = "the group was deleted, or its last offset expired"


GROUP_TRANSITIONS: Final[Mapping[tuple[GroupState, GroupCause], GroupState]] = {
    (GroupState.EMPTY, GroupCause.ASSIGNED_ALREADY): GroupState.STABLE,
    (GroupState.EMPTY, GroupCause.DELETED): GroupState.DEAD,
    (GroupState.ASSIGNING, GroupCause.EPOCH_BUMPED): GroupState.ASSIGNING,
    (GroupState.ASSIGNING, GroupCause.ASSIGNED): GroupState.RECONCILING,
    (GroupState.ASSIGNING, GroupCause.LAST_MEMBER_LEFT): GroupState.EMPTY,
    (GroupState.RECONCILING, GroupCause.EPOCH_BUMPED): GroupState.ASSIGNING,
    (GroupState.RECONCILING, GroupCause.ASSIGNED): GroupState.RECONCILING,
    (GroupState.RECONCILING, GroupCause.MEMBER_MOVED): GroupState.RECONCILING,
    (GroupState.RECONCILING, GroupCause.LAST_MEMBER_MOVED): GroupState.STABLE,
    (GroupState.RECONCILING, GroupCause.LAST_MEMBER_LEFT): GroupState.EMPTY,
    (GroupState.STABLE, GroupCause.EPOCH_BUMPED): GroupState.ASSIGNING,
    (GroupState.STABLE, GroupCause.ASSIGNED): GroupState.RECONCILING,
    (GroupState.STABLE, GroupCause.ASSIGNED_ALREADY): GroupState.STABLE,
    (GroupState.STABLE, GroupCause.MEMBER_AWAY): GroupState.RECONCILING,
    (GroupState.STABLE, GroupCause.LAST_MEMBER_LEFT): GroupState.EMPTY,
    (GroupState.DEAD, GroupCause.ASSIGNED_ALREADY): GroupState.STABLE,
    (GroupState.DEAD, GroupCause.COMMITTED): GroupState.EMPTY,
}
"""Next state by state and cause. Most heartbeats that bump the epoch assign in the same step (member_timers.py)."""
