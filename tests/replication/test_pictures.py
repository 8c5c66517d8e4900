"""The diagrams in the docs agree with the tables in the code."""

from __future__ import annotations

from replication.controller import node_state as node_standing
from replication.partition import follower_states, replica_lifecycle
from replication.raft.roles import TRANSITIONS, Cause
from tests.replication.pictures import is_drawn

EVERYWHERE = {Cause.HIGHER_EPOCH, Cause.LEADER_FOUND}


def test_the_quorum_s_roles_are_drawn() -> None:
    is_drawn("quorum.md", (move for move in TRANSITIONS if move.cause not in EVERYWHERE))


def test_the_follower_s_states_are_drawn() -> None:
    is_drawn("replication.md", ((source, cause, to) for (source, cause), to in follower_states.TRANSITIONS.items()))


def test_the_node_s_standings_are_drawn() -> None:
    is_drawn("metadata.md", ((source, cause, to) for (source, cause), to in node_standing.TRANSITIONS.items()))


def test_the_lifecycle_of_a_replica_is_drawn() -> None:
    is_drawn("replication.md", ((source, cause, to) for (source, cause), to in replica_lifecycle.TRANSITIONS.items()))
