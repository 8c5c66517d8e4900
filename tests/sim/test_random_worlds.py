"""Random worlds: a bounded number on every run, and those that once found something."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim import random_world, regressions
from tests.sim.plan import make_plan
from tests.sim.shrink import shrink

FRESH_WORLDS = 150
"""Other ones on every run, some 1.5 s each on one idle core; `make sim` runs more."""

SHARES = 15
"""Tests that share them: so many workers may run them side by side."""

SAME_WORLD = """
from dataclasses import replace
from tests.sim.plan import make_plan
from tests.sim.random_world import run
outcome = run(replace(make_plan(11, 5, 10.0), voters=3))
print(outcome.digest, outcome.failure)
"""


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_fresh_worlds_keep_their_promises_and_heal(share: int) -> None:
    first = int.from_bytes(os.urandom(4))  # noqa: TID251 - fresh worlds; a failure names its seed
    for seed in range(first, first + FRESH_WORLDS // SHARES):
        plan = make_plan(seed)
        outcome = random_world.run(plan)
        if outcome.failure is not None:
            dropped = ",".join(map(str, sorted(shrink(plan, outcome.failure, runs_max=20))))
            pytest.fail(f"replay with: python -m tests.sim --seed {seed} --without '{dropped}'\n{outcome.failure}")
        assert outcome.acknowledged > 0, f"seed {seed}"
        assert outcome.read > 0, f"seed {seed}"


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
