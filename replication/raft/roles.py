"""Roles of a node in the metadata quorum and the transitions between them: the table that quorum.py obeys.

`TRANSITIONS` is complete: any other move is a defect and fails an assertion. The diagram in docs/quorum.md is drawn
from it.
Source: Kafka's QuorumState (KIP-595), with the prospective role of KIP-996.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from tidelog.types import NO_NODE, DirectoryId, LeaderEpoch, NodeId, Offset
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class QuorumState:
    """State that survives a crash: the contents of the file `quorum-state`."""

    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    """The newest known epoch."""
    leader_id: NodeId = NO_NODE
    """Its leader, if known."""
    voted_id: NodeId = NO_NODE
    """The node and the directory that this node voted for in that epoch, if it has voted."""
    voted_directory: DirectoryId | None = None
    lost_end: Offset = Offset(0)
    """Log end at the time when damage was found in the log, which was then emptied. The node neither votes nor stands
    for election before its log end reaches this offset again: a majority may have relied on the lost records."""


class Role(Enum):
    """Role of a node in its epoch."""

    UNATTACHED = "voter, knows no leader, has not voted in this epoch"
    VOTED = "voter, has voted for a replica in this epoch, knows no leader"
    PROSPECTIVE = "queries whether the other voters would vote for it (pre-vote)"
    CANDIDATE = "has started a new epoch and requests votes"
    LEADER = "was elected by a majority in this epoch"
    FOLLOWER = "voter, fetches from the leader of this epoch"
    RESIGNED = "led this epoch and resigned"
    OBSERVER = "no voter according to its own log; fetches from the leader, or looks for one"


class Cause(Enum):
    """Cause of a role change."""

    ELECTION_TIMEOUT = "no leader is known for too long"
    FETCH_TIMEOUT = "the leader has not answered a fetch for too long"
    CALLED = "requested to stand at once: it forms the cluster, or is the only voter"
    PRE_VOTES_WON = "a majority would vote for it"
    PRE_VOTES_LOST = "no majority would vote for it, or too few voters answered in time"
    VOTES_WON = "a majority voted for it"
    VOTES_LOST = "no majority voted for it, or too few voters answered in time"
    VOTE_GRANTED = "it voted for another replica"
    HIGHER_EPOCH = "a message named a newer epoch"
    LEADER_FOUND = "the leader of the epoch is known, or answers again"
    LEADER_RESIGNED = "the leader announced that it no longer leads"
    QUORUM_LOST = "no majority has fetched for too long (check-quorum)"
    APPEND_REFUSED = "its own log rejected an append"
    RESIGN_REQUESTED = "the node is being stopped"
    LEFT_VOTERS = "the newest voters record no longer names it"
    JOINED_VOTERS = "the newest voters record names it"


class Transition(NamedTuple):
    """One allowed role change."""

    source: Role
    cause: Cause
    target: Role


_ANY: Final = tuple(Role)
_CAMPAIGNING: Final = (Role.PROSPECTIVE, Role.CANDIDATE)
_LEADERLESS: Final = (Role.UNATTACHED, Role.VOTED, Role.RESIGNED)

TRANSITIONS: Final = frozenset(
    [
        *(Transition(role, Cause.ELECTION_TIMEOUT, Role.PROSPECTIVE) for role in _LEADERLESS),
        Transition(Role.FOLLOWER, Cause.FETCH_TIMEOUT, Role.PROSPECTIVE),
        *(Transition(role, Cause.CALLED, Role.PROSPECTIVE) for role in _LEADERLESS),
        Transition(Role.PROSPECTIVE, Cause.PRE_VOTES_WON, Role.CANDIDATE),
        *(
            Transition(Role.PROSPECTIVE, Cause.PRE_VOTES_LOST, role)
            for role in (Role.FOLLOWER, Role.UNATTACHED, Role.VOTED)
        ),
        Transition(Role.CANDIDATE, Cause.VOTES_WON, Role.LEADER),
        Transition(Role.CANDIDATE, Cause.VOTES_LOST, Role.VOTED),
        *(
            Transition(role, Cause.VOTE_GRANTED, Role.VOTED)
            for role in (Role.UNATTACHED, Role.PROSPECTIVE, Role.OBSERVER)
        ),
        *(Transition(role, Cause.HIGHER_EPOCH, Role.UNATTACHED) for role in _ANY if role is not Role.OBSERVER),
        *(Transition(role, Cause.HIGHER_EPOCH, Role.OBSERVER) for role in _ANY),
        *(Transition(role, Cause.LEADER_FOUND, Role.FOLLOWER) for role in _ANY if role is not Role.OBSERVER),
        *(Transition(role, Cause.LEADER_FOUND, Role.OBSERVER) for role in _ANY),
        *(Transition(role, Cause.LEADER_RESIGNED, Role.UNATTACHED) for role in (Role.FOLLOWER, *_CAMPAIGNING)),
        Transition(Role.OBSERVER, Cause.LEADER_RESIGNED, Role.OBSERVER),
        *(
            Transition(Role.LEADER, cause, Role.RESIGNED)
            for cause in (Cause.QUORUM_LOST, Cause.APPEND_REFUSED, Cause.RESIGN_REQUESTED, Cause.LEFT_VOTERS)
        ),
        *(
            Transition(role, Cause.LEFT_VOTERS, Role.OBSERVER)
            for role in (Role.UNATTACHED, Role.FOLLOWER, *_CAMPAIGNING)
        ),
        Transition(Role.OBSERVER, Cause.JOINED_VOTERS, Role.FOLLOWER),
        Transition(Role.OBSERVER, Cause.JOINED_VOTERS, Role.UNATTACHED),
    ]
)
"""All allowed role changes."""
