"""Power fails at every disk call of a log, and each time the log must come back in an allowed state.

A machine appends (as leader and follower, plain, idempotent, in transactions, as v1), flushes, rolls, truncates,
empties, deletes from the front, compacts, checkpoints and restarts one log on a disk with failing calls. CRASH_POINTS
sets the number of crash points per kind of log; all kinds together check 100,000 in the second tier, and a fifteenth of
that in the first. FULL=1: ten times as many, from fresh seeds. Covers scenarios 3, 10 and 14 of the design as far as
one log shows them, and log-append-roll-flush.txt."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.crash_machine import BASE, CrashMachine
from tests.storage.crash_runs import run_until
from tidelog.types import Durability

FULL = os.environ.get("FULL") == "1"
POINTS = int(os.environ.get("CRASH_POINTS", "15000")) * (10 if FULL else 1)
"""Crash points of one kind of log; there are seven."""
FIRST_SEED = None if FULL else int(os.environ.get("CRASH_SEED", "20261121"))
"""First seed of the examples: the same in every run, so that only a change can make the test fail; FULL=1: random."""

pytestmark = pytest.mark.timeout(7_200 if FULL else 600)


class Durable(CrashMachine):
    pass


class Compacted(CrashMachine):
    config = replace(BASE, compact=True, delete=False, min_cleanable_ratio=0.0, delete_retention_ms=2_000)


class PageCache(CrashMachine):
    config = replace(BASE, durability=Durability.PAGE_CACHE, flush_messages=20)


class CompactedPageCache(CrashMachine):
    config = replace(
        BASE,
        durability=Durability.PAGE_CACHE,
        flush_messages=20,
        compact=True,
        delete=False,
        min_cleanable_ratio=0.0,
        delete_retention_ms=2_000,
    )


class OldFormat(CrashMachine):
    config = replace(BASE, magic=1)


class ShortLived(CrashMachine):
    config = replace(BASE, retention_ms=4_000, retention_bytes=5_000)


class Preallocated(CrashMachine):
    config = replace(
        BASE,
        preallocate=True,
        compact=True,
        delete=True,
        min_cleanable_ratio=0.0,
        delete_retention_ms=500,
        retention_ms=20_000,
        segment_bytes=1_000,
        segment_ms=5_000,
    )


each_kind_of_log = pytest.mark.parametrize(
    "machine",
    [Durable, Compacted, PageCache, CompactedPageCache, OldFormat, ShortLived, Preallocated],
    ids=lambda machine: machine.__name__,
)


def judge_crash_points(machine: type[CrashMachine], points: int) -> None:
    """A failure prints the steps that lead to it and the command that replays them."""
    test = f"{test_power_fails_at_some_calls.__name__}[{machine.__name__}]"  # of `make test`
    digest = run_until(machine, points, first_seed=FIRST_SEED, name=test)
    print(f"{machine.__name__}: {machine.points} crash points, examples {digest}")
    assert machine.points >= points or os.environ.get("CRASH_REPLAY")


@each_kind_of_log
def test_power_fails_at_some_calls(machine: type[CrashMachine]) -> None:
    judge_crash_points(machine, POINTS // 15)


@pytest.mark.deep
@each_kind_of_log
def test_power_fails_at_every_call(machine: type[CrashMachine]) -> None:
    """15,000 crash points of a kind of log, each with a recovery, take long."""
    judge_crash_points(machine, POINTS)


def test_a_seed_gives_the_same_example_in_every_process() -> None:
    """Goal: a failure is reproducible on every machine. Method: another process, with other hashes and fewer loaded
    modules, draws and checks the same example."""
    program = """if True:
        from tests.storage.crash_machine import CrashMachine
        from tests.storage.crash_runs import run_until
        print(run_until(CrashMachine, 300, first_seed=5), CrashMachine.points)
    """
    environment = {name: value for name, value in os.environ.items() if name != "CRASH_REPLAY"}
    root = Path(__file__).parents[2]
    reported = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(root)},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    }

    assert reported == {f"{run_until(CrashMachine, 300, first_seed=5)} {CrashMachine.points}\n"}
