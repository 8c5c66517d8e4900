"""The lifecycle of a replica: the table is complete, and its states can be reached."""

from __future__ import annotations

from itertools import product

import pytest

from replication.partition.replica_lifecycle import TRANSITIONS, ReplicaCause, ReplicaState, state_after


def test_every_state_is_reached_from_a_new_replica() -> None:
    reached, found = set[ReplicaState](), {ReplicaState.CREATED}
    while found:
        reached |= found
        found = {after for (state, _), after in TRANSITIONS.items() if state in reached} - reached
    assert reached == set(ReplicaState)


def test_every_cause_has_a_transition() -> None:
    assert {cause for _, cause in TRANSITIONS} == set(ReplicaCause)


def test_a_removed_replica_and_one_whose_log_was_set_aside_stay_so() -> None:
    assert not {state for state, _ in TRANSITIONS} & {ReplicaState.STRAY, ReplicaState.DELETING}


def test_any_other_move_names_the_state_and_the_cause() -> None:
    for state, cause in product(ReplicaState, ReplicaCause):
        if (state, cause) in TRANSITIONS:
            assert state_after(state, cause) is TRANSITIONS[state, cause]
        else:
            with pytest.raises(AssertionError, match=f"from {state.name} by {cause.name}"):
                state_after(state, cause)


def test_a_truncation_keeps_other_roles_away() -> None:
    """A new role, and the removal of the log, wait until the truncation has ended."""
    ways = {cause for state, cause in TRANSITIONS if state is ReplicaState.TRUNCATING}
    assert ways == {ReplicaCause.TRUNCATION_ENDED, ReplicaCause.ROLE_ENDED, ReplicaCause.FAILED}
