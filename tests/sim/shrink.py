"""Reduces the faults of a failed world: removes faults as long as the world still fails in the same way.

Source: the ddmin algorithm of Zeller's delta debugging, with a bound on the number of runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.sim.plan import Plan
from tests.sim.random_world import Outcome, run

RUNS_MAX: Final = 60


def kind_of(failure: str) -> str:
    """The kind of a failure: the error's name and the words of its first line without numbers. Two failures of one
    kind are the same."""
    return " ".join(word for word in failure.splitlines()[0].split()[:12] if not any(char.isdigit() for char in word))


def shrink(
    plan: Plan, failure: str, *, runs_max: int = RUNS_MAX, run_world: Callable[[Plan], Outcome] = run
) -> frozenset[int]:
    """The faults of the plan, by number, that can be left out while the world still fails in the same way."""
    wanted = kind_of(failure)
    kept = list(range(len(plan.faults)))
    size, runs = max(1, len(kept) // 2), 0
    while kept and runs < runs_max:
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            runs += 1
            said = run_world(plan.without(_others(plan, fewer))).failure
            if said is not None and kind_of(said) == wanted:
                kept = fewer
                break
            if runs >= runs_max:
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return _others(plan, kept)


def _others(plan: Plan, kept: list[int]) -> frozenset[int]:
    return frozenset(range(len(plan.faults))) - frozenset(kept)
