"""One planted bug and the worlds that notice it. Not in __main__.py, which a worker process cannot import."""

from __future__ import annotations

from typing import NamedTuple

from tests.sim.mutants import MUTANTS
from tests.sim.mutants.mutant import is_caught, violation_of, worlds


class Found(NamedTuple):
    """The outcome of one planted bug. violation: in its story; None: none. noticed: the violation in the last of
    `tried` random worlds; None: no world failed."""

    number: int
    by_story: bool
    violation: str | None
    tried: int
    noticed: str | None


def examine(number: int, seeds: range) -> Found:
    """Plant one bug in its story, and in random worlds until one notices it."""
    violation = violation_of(MUTANTS[number])
    count, noticed = worlds(MUTANTS[number], seeds)
    return Found(number, is_caught(MUTANTS[number], violation), violation, count, noticed)
