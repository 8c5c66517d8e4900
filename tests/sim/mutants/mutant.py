"""A planted bug: one rule made weaker, the story that needs the rule, and the expected violation."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest

from testbed.sim.world import Simulation
from tests.sim.plan import make_plan
from tests.sim.random_world import run

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
Story = Callable[[Simulation], None]


class Mutant(NamedTuple):
    """plant: makes the rule weaker. rule: of the design's section 4, of a scenario (S5), or of Kafka. story: fails with
    the plant and this seed; its violation matches `says`."""

    plant: Plant
    rule: str
    story: Story
    says: str
    seed: int = 1

    @property
    def name(self) -> str:
        return self.plant.__name__

    def __str__(self) -> str:
        return f"{self.name}-in-{self.story.__name__}"


def violation_of(mutant: Mutant) -> str | None:
    """The violation that the mutant's story ends with; None if it ends well."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        try:
            with _silently(), Simulation(mutant.seed) as sim:
                mutant.story(sim)
        except (AssertionError, Exception) as error:  # noqa: BLE001 - any exception is the outcome of the story
            return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def is_caught(mutant: Mutant, said: str | None) -> bool:
    """Whether the story fails for the expected reason."""
    return said is not None and re.search(mutant.says, said) is not None


def worlds(mutant: Mutant, seeds: Iterable[int]) -> tuple[int, str | None]:
    """Run random worlds with the bug planted until one fails. Returns their number and the violation of the last one
    (None: all ended well)."""
    count = 0
    for seed in seeds:
        count += 1
        with pytest.MonkeyPatch.context() as patch, _silently():
            mutant.plant(patch)
            failure = run(make_plan(seed)).failure
        if failure is not None:
            return count, failure.splitlines()[0]
    return count, None


def _silently() -> warnings.catch_warnings[None]:
    return warnings.catch_warnings(action="ignore")
