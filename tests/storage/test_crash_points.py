"""Power fails at every disk call of a log, and each time the log must come back in an allowed state.

A machine appends (as leader and follower, plain, idempotent, in transactions, as v1), flushes, rolls, truncates,
empties, deletes from the front, compacts, checkpoints and restarts one log on a disk with failing calls. CRASH_POINTS
sets the number of crash points per kind of log; all kinds together check 100,000. FULL=1: ten times as many, from fresh
seeds. Covers scenarios 3, 10 and 14 of the design as far as one log shows them, and log-append-roll-flush.txt."""

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


def judge_crash_points(machine: type[CrashMachine], name: str) -> None:
    """A failure prints the steps that lead to it and the command that replays them."""
    digest = run_until(machine, POINTS, first_seed=FIRST_SEED, name=name)
    print(f"{name}: {machine.points} crash points, examples {digest}")
    assert machine.points >= POINTS or os.environ.get("CRASH_REPLAY")


class TestDurableLog:
    """A log with `durability=fsync`. 15,000 crash points, each with a recovery, take long."""

    def test_power_fails_at_every_call(self) -> None:
        class Durable(CrashMachine):
            pass

        judge_crash_points(Durable, type(self).__name__)


@pytest.mark.deep
class TestCompactedLog:
    """A compacted log. 15,000 crash points, each with a recovery, take long."""

    def test_power_fails_at_every_call(self) -> None:
        class Compacted(CrashMachine):
            config = replace(BASE, compact=True, delete=False, min_cleanable_ratio=0.0, delete_retention_ms=2_000)

        judge_crash_points(Compacted, type(self).__name__)


@pytest.mark.deep
class TestPageCacheLog:
    """A log with `durability=page-cache`. 15,000 crash points, each with a recovery, take long."""

    def test_power_fails_at_every_call(self) -> None:
        class PageCache(CrashMachine):
            config = replace(BASE, durability=Durability.PAGE_CACHE, flush_messages=20)

        judge_crash_points(PageCache, type(self).__name__)


@pytest.mark.deep
class TestCompactedPageCacheLog:
    """A compacted log with `durability=page-cache`. 15,000 crash points, each with a recovery, take long."""

    def test_power_fails_at_every_call(self) -> None:
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

        judge_crash_points(CompactedPageCache, type(self).__name__)


@pytest.mark.deep
class TestOldFormatLog:
    """A log of message format v1. 15,000 crash points, each with a recovery, take long."""

    def test_power_fails_at_every_call(self) -> None:
        class OldFormat(CrashMachine):
            config = replace(BASE, magic=1)

        judge_crash_points(OldFormat, type(self).__name__)


@pytest.mark.deep
class TestShortLivedLog:
    """A log with retention by time and size. 15,000 crash points, each with a recovery, take long."""

    def test_power_fails_at_every_call(self) -> None:
        class ShortLived(CrashMachine):
            config = replace(BASE, retention_ms=4_000, retention_bytes=5_000)

        judge_crash_points(ShortLived, type(self).__name__)


@pytest.mark.deep
class TestPreallocatedAndCompactedLog:
    """A compacted log with retention and preallocated files. 15,000 crash points, each with a recovery, take long."""

    def test_power_fails_at_every_call(self) -> None:
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

        judge_crash_points(Preallocated, type(self).__name__)


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
