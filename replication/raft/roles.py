"""The roles of a node in the metadata quorum, and every way from one to another: the table that quorum.py obeys.

`TRANSITIONS` is the whole truth: a move that is not in it is a broken belief, and docs/quorum.md is drawn from it.
Source: Kafka's QuorumState (KIP-595), with the prospective role of KIP-996.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from tidelog.types import NO_NODE, DirectoryId, LeaderEpoch, NodeId, Offset


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a node must never forget: the newest epoch heard of, who leads it, and whom this node voted for in it (-1:
    nobody). The contents of the file `quorum-state`.

    lost_end: where the log ended when damage was found in it; it was emptied, and neither votes nor stands before it
    ends there again: a majority may have counted on what it held.
    """

    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    leader_id: NodeId = NO_NODE
    voted_id: NodeId = NO_NODE
    voted_directory: DirectoryId | None = None
    lost_end: Offset = Offset(0)


class Role(Enum):
    """What a node is, in its epoch."""

    UNATTACHED = "votes, knows no leader, has not voted in this epoch"
    VOTED = "has voted for somebody in this epoch, knows no leader"
    PROSPECTIVE = "asks whether the others would vote for it (pre-vote)"
    CANDIDATE = "has begun an epoch of its own and asks for votes"
    LEADER = "was elected by a majority in this epoch"
    FOLLOWER = "votes, and fetches from the leader of this epoch"
    RESIGNED = "led this epoch, and does not any more"
    OBSERVER = "does not vote as far as its own log says; fetches from the leader, or looks for one"


class Cause(Enum):
    """Why a role changes."""

    ELECTION_TIMEOUT = "nobody leads for too long"
    FETCH_TIMEOUT = "the leader has not answered a fetch for too long"
    CALLED = "told to stand at once: it forms the cluster, or is alone"
    PRE_VOTES_WON = "a majority would vote for it"
    PRE_VOTES_LOST = "no majority would, or none has answered in time"
    VOTES_WON = "a majority has voted for it"
    VOTES_LOST = "no majority has, or none has answered in time"
    VOTE_GRANTED = "it has voted for another"
    HIGHER_EPOCH = "somebody spoke of a newer epoch"
    LEADER_FOUND = "the leader of the epoch is known, or answers again"
    LEADER_RESIGNED = "the leader said that it leads no more"
    QUORUM_LOST = "no majority has fetched for too long (check-quorum)"
    APPEND_REFUSED = "its own disk takes no more records"
    RESIGN_ASKED = "the node is being stopped"
    LEFT_VOTERS = "the voters' record does not name it any more"
    JOINED_VOTERS = "the voters' record names it now"


class Transition(NamedTuple):
    """One way from a role to a role."""

    source: Role
    cause: Cause
    target: Role


_ANY: Final = tuple(Role)
_STANDING: Final = (Role.PROSPECTIVE, Role.CANDIDATE)
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
        *(Transition(role, Cause.LEADER_RESIGNED, Role.UNATTACHED) for role in (Role.FOLLOWER, *_STANDING)),
        Transition(Role.OBSERVER, Cause.LEADER_RESIGNED, Role.OBSERVER),
        *(
            Transition(Role.LEADER, cause, Role.RESIGNED)
            for cause in (Cause.QUORUM_LOST, Cause.APPEND_REFUSED, Cause.RESIGN_ASKED, Cause.LEFT_VOTERS)
        ),
        *(Transition(role, Cause.LEFT_VOTERS, Role.OBSERVER) for role in (Role.UNATTACHED, Role.FOLLOWER, *_STANDING)),
        Transition(Role.OBSERVER, Cause.JOINED_VOTERS, Role.FOLLOWER),
        Transition(Role.OBSERVER, Cause.JOINED_VOTERS, Role.UNATTACHED),
    ]
)
"""Every way that there is."""
