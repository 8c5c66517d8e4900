"""The state of a replica in its leader's progress, and the events that change it: the diagram in the docs, compared
with a leader that gets all events in any order."""

from __future__ import annotations

import random
from enum import Enum, auto

from replication.partition.leader_events import ProposalFailed
from tests.replication.partition_stories import Leader
from tests.replication.pictures import is_drawn
from tidelog.types import Millis, NodeId, PartitionEpoch


class State(Enum):
    """Towards the in-sync set; a replica that is not outside counts for the high watermark."""

    OUTSIDE = auto()
    JOINING = auto()
    MEMBER = auto()


class Cause(Enum):
    PROPOSED = "the leader asks the controller for a set with it"
    REFUSED = "the controller rejected it, or did not answer"
    KNOWN_IN = "a higher partition epoch is known, whose set has it"
    KNOWN_OUT = "a higher partition epoch is known, whose set has it not"


WAYS = {
    (State.OUTSIDE, Cause.PROPOSED, State.JOINING),
    (State.OUTSIDE, Cause.KNOWN_IN, State.MEMBER),
    (State.JOINING, Cause.REFUSED, State.JOINING),
    (State.JOINING, Cause.KNOWN_IN, State.MEMBER),
    (State.JOINING, Cause.KNOWN_OUT, State.OUTSIDE),
    (State.MEMBER, Cause.KNOWN_OUT, State.OUTSIDE),
}


def standing(leader: Leader, node: int) -> State:
    progress = leader.core.in_sync
    if NodeId(node) in progress.isr:
        return State.MEMBER
    return State.JOINING if NodeId(node) in progress.counted else State.OUTSIDE


def step(leader: Leader, rng: random.Random) -> Cause:
    """One event. Returns the cause of the change of state, if it changes the state of node 2."""
    match rng.randrange(4):
        case 0:
            leader.fetch(rng.choice((2, 3)), rng.choice((90, 100)), last_epoch=3)
            return Cause.PROPOSED
        case 1:
            leader.later(rng.randint(50, 600))
            return Cause.PROPOSED
        case 2:
            leader.core.handle(ProposalFailed(PartitionEpoch(leader.partition_epoch), Millis(leader.now)))
            return Cause.REFUSED
        case _:
            isr = [1, *(node for node in (2, 3) if rng.random() < 0.5)]
            leader.metadata_changed(isr=tuple(isr))
            return Cause.KNOWN_IN if 2 in isr else Cause.KNOWN_OUT


def test_nothing_else_changes_how_a_replica_stands() -> None:
    """A member that is proposed to leave, or that lags, counts until it is known to be out; so does a joiner."""
    seen = set()
    for seed in range(40):
        rng, leader = random.Random(seed), Leader(isr=(1, 2))
        for _ in range(40):
            before = standing(leader, 2)
            cause = step(leader, rng)
            after = standing(leader, 2)
            if before is not after or (before, cause) == (State.JOINING, Cause.REFUSED):
                seen.add((before, cause, after))
    assert seen == WAYS


def test_a_replica_s_standings_are_drawn() -> None:
    is_drawn("replication.md", WAYS)
