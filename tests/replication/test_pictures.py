"""The diagrams in the docs agree with the tables in the code."""

from __future__ import annotations

from replication.controller import node_state as node_standing
from replication.coordination.groups import classic_states
from replication.coordination.groups import states as group_states
from replication.coordination.transactions import transaction_states
from replication.partition import follower_states, replica_lifecycle
from replication.raft.roles import TRANSITIONS, Cause
from tests.replication.pictures import DOCS, is_drawn

EVERYWHERE = {Cause.HIGHER_EPOCH, Cause.LEADER_FOUND}


def test_the_quorum_s_roles_are_drawn() -> None:
    is_drawn("quorum.md", (move for move in TRANSITIONS if move.cause not in EVERYWHERE))


def test_the_follower_s_states_are_drawn() -> None:
    is_drawn("replication.md", ((source, cause, to) for (source, cause), to in follower_states.TRANSITIONS.items()))


def test_the_node_s_standings_are_drawn() -> None:
    is_drawn("metadata.md", ((source, cause, to) for (source, cause), to in node_standing.TRANSITIONS.items()))


def test_the_lifecycle_of_a_replica_is_drawn() -> None:
    is_drawn("replication.md", ((source, cause, to) for (source, cause), to in replica_lifecycle.TRANSITIONS.items()))


def test_the_states_of_a_transaction_are_drawn() -> None:
    ways = ((source, cause, to) for (source, cause), to in transaction_states.TRANSITIONS.items())
    is_drawn("transactions.md", ways)


def test_the_causes_of_a_transaction_s_states_are_described() -> None:
    page = (DOCS / "transactions.md").read_text(encoding="utf-8")
    assert [cause.name for cause in transaction_states.TransactionCause if f"`{cause.name}`" not in page] == []


def test_the_states_of_groups_and_of_their_members_are_drawn() -> None:
    is_drawn("groups.md", ((source, cause, to) for (source, cause), to in group_states.GROUP_TRANSITIONS.items()))
    is_drawn("groups.md", ((source, cause, to) for (source, cause), to in group_states.MEMBER_TRANSITIONS.items()))


def test_the_states_of_classic_groups_are_drawn_and_their_causes_described() -> None:
    table = classic_states.CLASSIC_TRANSITIONS
    is_drawn("groups.md", ((source, cause, to) for (source, cause), to in table.items()))
    page = (DOCS / "groups.md").read_text(encoding="utf-8")
    assert [cause.name for cause in classic_states.ClassicCause if f"`{cause.name}`" not in page] == []
