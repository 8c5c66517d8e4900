"""Random worlds: a bounded number on every run, and those that once found something."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim import random_world, regressions
from tests.sim.plan import make_plan

FRESH_WORLDS = 40
"""Some 1.5 s each on one idle core; `make sim` runs more."""

SAME_WORLD = """
from tests.sim.random_world import run_seed
outcome = run_seed(11)
print(outcome.digest, outcome.failure)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, FRESH_WORLDS + 1))
def test_a_random_world_keeps_its_promises_and_heals(seed: int) -> None:
    outcome = random_world.run_seed(seed)
    assert outcome.failure is None, f"replay with: make sim SEED={seed}\n{outcome.failure}"
    assert outcome.acknowledged > 0
    assert outcome.read > 0


@pytest.mark.slow
def test_what_was_found_once_stays_away() -> None:
    for seed in regressions.SEEDS:
        outcome = random_world.run_seed(seed)
        assert outcome.failure is None, f"replay with: make sim SEED={seed}\n{outcome.failure}"


@pytest.mark.slow
def test_a_seed_is_one_world_under_any_hash_seed() -> None:
    worlds = {
        subprocess.run(
            [sys.executable, "-c", SAME_WORLD],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(worlds) == 1
    assert "None" in worlds.pop()


def test_a_plan_is_a_value() -> None:
    plan = make_plan(5)
    assert plan == make_plan(5)
    assert plan != make_plan(6)
    assert plan.without(frozenset({0})).faults == plan.faults[1:]
