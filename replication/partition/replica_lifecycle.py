"""The lifecycle of a replica on its node: states, and the transitions between them.

`TRANSITIONS` is complete: any other move is a defect and fails an assertion. The diagram in docs/replication.md is
drawn from it. Not here: the states of a leader (leader.py) and of a follower (follower_states.py) within an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import product
from typing import Final


class ReplicaState(Enum):
    """State of a replica."""

    CREATED = "its log is open, and no metadata was applied yet"
    IDLE = "it has no role: the partition has no leader, or the node stops"
    FOLLOWING = "it follows the leader of the epoch"
    TRUNCATING = "it follows, and its log is being truncated: nothing else may use the log"
    LEADING = "it leads the partition in the epoch"
    OFFLINE = "its log failed or is damaged"
    STRAY = "another log takes its place; its own was set aside"
    DELETING = "its log is being deleted"


class ReplicaCause(Enum):
    """Cause of a transition."""

    ELECTED = "the metadata names this node as leader of the epoch"
    LEADER_KNOWN = "the metadata names another node as leader of the epoch"
    ROLE_ENDED = "the partition has no leader, another process has registered as this node, or the node stops"
    TRUNCATION_BEGUN = "the log diverges from the leader's, or ends below its start"
    TRUNCATION_ENDED = "the truncation has ended or failed"
    FAILED = "the log directory failed, or damage was found in the log"
    LOSS_ACCEPTED = "it continues without the damaged records, as the only replica that can lead"
    SET_ASIDE = "the log does not fit the metadata, or was opened again after a repair"
    REMOVED = "the topic was deleted, or the replica was moved to another node"


_READY: Final = (ReplicaState.CREATED, ReplicaState.IDLE, ReplicaState.FOLLOWING, ReplicaState.LEADING)
_OPEN: Final = (*_READY, ReplicaState.TRUNCATING)

TRANSITIONS: Final[Mapping[tuple[ReplicaState, ReplicaCause], ReplicaState]] = {
    **dict.fromkeys(product(_READY, [ReplicaCause.ELECTED]), ReplicaState.LEADING),
    **dict.fromkeys(product(_READY, [ReplicaCause.LEADER_KNOWN]), ReplicaState.FOLLOWING),
    **dict.fromkeys(product(_OPEN, [ReplicaCause.ROLE_ENDED]), ReplicaState.IDLE),
    (ReplicaState.FOLLOWING, ReplicaCause.TRUNCATION_BEGUN): ReplicaState.TRUNCATING,
    (ReplicaState.TRUNCATING, ReplicaCause.TRUNCATION_ENDED): ReplicaState.FOLLOWING,
    **dict.fromkeys(product((*_OPEN, ReplicaState.OFFLINE), [ReplicaCause.FAILED]), ReplicaState.OFFLINE),
    (ReplicaState.OFFLINE, ReplicaCause.ROLE_ENDED): ReplicaState.OFFLINE,
    (ReplicaState.OFFLINE, ReplicaCause.LOSS_ACCEPTED): ReplicaState.IDLE,
    **dict.fromkeys(product((*_READY, ReplicaState.OFFLINE), [ReplicaCause.SET_ASIDE]), ReplicaState.STRAY),
    **dict.fromkeys(product((*_READY, ReplicaState.OFFLINE), [ReplicaCause.REMOVED]), ReplicaState.DELETING),
}
"""Next state by state and cause."""


def state_after(state: ReplicaState, cause: ReplicaCause) -> ReplicaState:
    """The next state."""
    after = TRANSITIONS.get((state, cause))
    assert after is not None, f"no transition of a replica from {state.name} by {cause.name}"
    return after
