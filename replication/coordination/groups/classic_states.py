"""States of classic groups, and the transitions between them. The diagram in docs/groups.md is drawn from the table.
Source: Kafka 4.1, ClassicGroupState.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class ClassicState(Enum):
    """State of a classic group. The value is its name in requests."""

    EMPTY = "Empty"
    """No members. Its committed offsets are kept until they expire."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are to join the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The next generation has begun; its leader is to bring the assignment."""
    STABLE = "Stable"
    """Every member has its assignment, or gets it when it asks."""
    DEAD = "Dead"
    """Deleted, or expired."""


class ClassicCause(Enum):
    """Cause of a transition of a classic group."""

    JOINED = "a member joined, joined again, or has other metadata"
    MEMBER_GONE = "a member left, its session timed out, or it did not ask for its assignment in time"
    ALL_JOINED = "every member has joined again, or the rebalance timeout has passed"
    NONE_LEFT = "no member is left when the join phase ends"
    ASSIGNED = "the leader brought the assignment, which is recorded"
    DELETED = "the group was deleted, its last offset expired, or members of the other protocol took it over"


CLASSIC_TRANSITIONS: Final[Mapping[tuple[ClassicState, ClassicCause], ClassicState]] = {
    (ClassicState.EMPTY, ClassicCause.JOINED): ClassicState.PREPARING_REBALANCE,
    (ClassicState.EMPTY, ClassicCause.DELETED): ClassicState.DEAD,
    (ClassicState.PREPARING_REBALANCE, ClassicCause.ALL_JOINED): ClassicState.COMPLETING_REBALANCE,
    (ClassicState.PREPARING_REBALANCE, ClassicCause.NONE_LEFT): ClassicState.EMPTY,
    (ClassicState.COMPLETING_REBALANCE, ClassicCause.JOINED): ClassicState.PREPARING_REBALANCE,
    (ClassicState.COMPLETING_REBALANCE, ClassicCause.MEMBER_GONE): ClassicState.PREPARING_REBALANCE,
    (ClassicState.COMPLETING_REBALANCE, ClassicCause.ASSIGNED): ClassicState.STABLE,
    (ClassicState.STABLE, ClassicCause.JOINED): ClassicState.PREPARING_REBALANCE,
    (ClassicState.STABLE, ClassicCause.MEMBER_GONE): ClassicState.PREPARING_REBALANCE,
}
"""Next state by state and cause. A group that does not exist begins in EMPTY."""
