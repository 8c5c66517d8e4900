"""The simulator can fail: each story, with the rule it is about made weaker, must end in a broken promise.

`make sim-mutants` plants the same bugs in random worlds too.
"""

from __future__ import annotations

import pytest

from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.mutants.mutant import is_caught, told


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_planted_bug_is_caught_by_its_story(mutant: Mutant) -> None:
    said = told(mutant)
    assert is_caught(mutant, said), f"{mutant.story.__name__} says: {said or 'all is well'}"


def test_there_are_enough_planted_bugs() -> None:
    assert len({mutant.plant for mutant in MUTANTS}) >= 30
    assert all(mutant.plant.__doc__ for mutant in MUTANTS), "each says which rule it makes weaker"
