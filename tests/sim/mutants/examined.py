"""One planted bug and who notices it: apart from __main__.py, since a worker process cannot import that."""

from __future__ import annotations

from typing import NamedTuple

from tests.sim.mutants import MUTANTS
from tests.sim.mutants.mutant import is_caught, told, worlds


class Found(NamedTuple):
    """What came of one planted bug. noticed: what a random world said, the last of `tried`; None: all were well."""

    number: int
    by_story: bool
    said: str | None
    tried: int
    noticed: str | None


def examine(number: int, seeds: range) -> Found:
    """Plant one bug, in its story and in worlds until one notices."""
    said = told(MUTANTS[number])
    count, noticed = worlds(MUTANTS[number], seeds)
    return Found(number, is_caught(MUTANTS[number], said), said, count, noticed)
