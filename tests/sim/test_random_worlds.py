"""Random worlds: fifteen in `make test`; in `make test-deep` fifteen more, 200 others, twelve with a remote tier, and
those that once found a defect."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from tests.sim import random_world, regressions
from tests.sim.judged import Selected, plan_of
from tests.sim.plan import make_plan
from tests.sim.regressions import FoundBy
from tests.sim.shrink import shrink

pytestmark = pytest.mark.timeout(900)
"""A world limits its virtual time itself; its real time is that of its processor, which others may use too."""

FIXED_WORLDS = 30
"""The same seeds in each run. Some 2.5 s each on one idle core."""

FIRST_WORLDS = 15
"""Those of them that `make test` plays: they are of all kinds, and a third has coordinators."""

WORLDS = 200
"""Those of `make test-deep`: a quarter of its time. They are others after each change, so it is the sum over the
changes that finds the rare defect; `make sim` runs more."""

SHARE = 5
"""The worlds of one test: several workers can run the tests in parallel."""

AS_THEIR_SEEDS_HAVE_IT = Selected()
TIERED = Selected(tiered=True)
TIERED_WORLDS = 12
"""Those of `make test-deep` with a remote tier: some 40 s on one idle core. `python -m tests.sim --tier` runs more."""

TIERED_SHARE = 3

SOURCES = ("node", "replication", "storage", "testbed", "tests/sim", "tidelog")
"""The sources that determine the course of a world."""


def first_seed() -> int:
    """The first seed. It changes with the sources and is the same on every machine, so that a failed run points to
    the change. With FULL=1 it is random."""
    if os.environ.get("FULL") == "1":
        return int.from_bytes(os.urandom(4))  # noqa: TID251 - new worlds
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for directory in SOURCES:
        for path in sorted((root / directory).rglob("*.py")):
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4])


FIRST_SEED = first_seed()

SAME_WORLD = """
from dataclasses import replace
from tests.sim.plan import make_plan
from tests.sim.random_world import run
outcome = run(replace(make_plan(11, 5, 10.0), voters=3))
print(outcome.digest, outcome.failure)
outcome = run(make_plan(12, 3, 8.0, coordinated=True))
print(outcome.digest, outcome.failure)
"""


def shares(first: int, count: int) -> list[range]:
    return [range(seed, seed + SHARE) for seed in range(first, first + count, SHARE)]


def fixed_shares() -> Iterator[Any]:
    for seeds in shares(1, FIXED_WORLDS):
        yield pytest.param(seeds, id=str(seeds), marks=[pytest.mark.deep] if seeds.start > FIRST_WORLDS else [])


@pytest.mark.slow
@pytest.mark.parametrize("seeds", list(fixed_shares()))
def test_worlds_keep_their_promises_and_heal(seeds: range) -> None:
    """Five worlds of several nodes, each with its faults, to the end."""
    judge(seeds)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("seeds", shares(FIRST_SEED, WORLDS), ids=range(WORLDS // SHARE))
def test_worlds_of_this_commit_keep_their_promises_and_heal(seeds: range) -> None:
    """Five worlds of several nodes, each with its faults, to the end."""
    judge(seeds)


def tiered_shares() -> list[tuple[int, ...]]:
    """The next seeds whose worlds can have a remote tier: half of all."""
    seeds = (seed for seed in count(FIRST_SEED + WORLDS) if plan_of(seed, TIERED).tiered)
    return [tuple(islice(seeds, TIERED_SHARE)) for _ in range(TIERED_WORLDS // TIERED_SHARE)]


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("seeds", tiered_shares(), ids=range(TIERED_WORLDS // TIERED_SHARE))
def test_tiered_worlds_of_this_commit_keep_their_promises_and_heal(seeds: tuple[int, ...]) -> None:
    """Three worlds with a remote tier and faults of its store, each to the end."""
    judge(seeds, TIERED)


def judge(seeds: Iterable[int], selected: Selected = AS_THEIR_SEEDS_HAVE_IT) -> None:
    for seed in seeds:
        plan = plan_of(seed, selected)
        outcome = random_world.run(plan)
        if outcome.failure is not None:
            dropped = ",".join(map(str, sorted(shrink(plan, outcome.failure, runs_max=20))))
            print(outcome.failure)  # with its last events, which would fill the summary of the run
            what = outcome.failure.splitlines()[0]
            pytest.fail(
                f"{what}; replay with: python -m tests.sim --seed {seed}{selected.options} --without '{dropped}'"
            )
        assert outcome.acknowledged > 0, f"seed {seed}"
        assert outcome.read > 0, f"seed {seed}"


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("found", regressions.WORLDS, ids=str)
def test_worlds_that_found_a_defect_pass(found: FoundBy) -> None:
    """The whole world again, with all nodes, faults and minutes that it had: some take half a minute."""
    outcome = random_world.run(found.plan)
    assert outcome.failure is None, f"replay with: {found.command}\n{outcome.failure}"


def test_a_world_that_found_a_defect_has_its_options() -> None:
    found = FoundBy(366, "a defect", Selected(nodes=5, coordinated=True))
    assert found.plan.coordinators is not None
    assert (found.plan.nodes, found.plan.voters) == (5, 3)
    assert found.command == "python -m tests.sim --seed 366 --nodes 5 --coordinators"


@pytest.mark.deep
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
    assert worlds.pop().count("None") == 2


def test_a_plan_is_a_value() -> None:
    plan = make_plan(5)
    assert plan == make_plan(5)
    assert plan != make_plan(6)
    assert plan.without(frozenset({0})).faults == plan.faults[1:]


def test_a_plan_may_have_a_remote_tier() -> None:
    """Its other faults, and the topics that cannot have a tier, are as they are without."""
    tiered = [make_plan(seed, tiered=True) for seed in range(50)]
    assert 20 < sum(plan.tiered for plan in tiered) < 50
    for plan in tiered:
        without = make_plan(plan.seed)
        assert [fault for fault in plan.faults if fault in without.faults] == list(without.faults)
        assert plan.tiered or plan == without
        assert not without.tiered


def test_a_plan_may_have_coordinators() -> None:
    plans = [make_plan(seed) for seed in range(200)]
    share = sum(plan.coordinators is not None for plan in plans) / len(plans)
    assert 0.15 < share < 0.45
    for plan in plans[:20]:
        without = make_plan(plan.seed, coordinated=False)
        assert without.coordinators is None
        assert [fault for fault in make_plan(plan.seed, coordinated=True).faults if fault in without.faults] == list(
            without.faults
        )
