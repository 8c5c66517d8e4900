"""False alarms: fencings and elections that no failure explains, with default settings (false_alarms.py).

A node is paused (SIGSTOP) for 0.2, 0.5 and 1 s, far less than its session; busy processes starve the whole machine
while a client writes. Targets are zero: a fencing moves leaderships for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench import false_alarms
from bench.figure import Better, Figure, Run

PAUSES: Final = (0.2, 0.5, 1.0)
LOADS: Final = (4, 8)
ROUNDS: Final = 10
STARVED_S: Final = 150.0


def figures(run: Run) -> Iterator[Figure]:
    """All figures; takes some seven minutes, most of them starved."""
    rounds, seconds = (1, 5.0) if run.quick else (ROUNDS, STARVED_S)
    with false_alarms.cluster_of_three(run.scratch / "cluster") as cluster:
        for pause in PAUSES:
            for controller in (False, True):
                who = "controller" if controller else "other node"
                run.say(f"{rounds} pauses of {pause} s, {who}")
                found = false_alarms.pauses(cluster, pause, rounds, controller=controller)
                what = f"{rounds} pauses of {pause} s, {who}"
                yield _none(f"fencings, {what}", found.fencings)
                yield Figure(f"elections, {what}", found.elections, "elections", better=Better.LESS)
        for load in LOADS:
            run.say(f"{load} busy processes for {seconds:.0f} s")
            found, longest, average = false_alarms.starved(cluster, load, seconds)
            run.say(f"  load average {average:.1f}, {longest.failed} records not acknowledged")
            what = f"{load} busy processes, {seconds:.0f} s"
            yield _none(f"fencings, {what}", found.fencings)
            yield _none(f"elections, {what}", found.elections)
            yield Figure(f"longest acknowledgement, {what}", longest.seconds, "s", better=Better.LESS)


def _none(name: str, events: int) -> Figure:
    return Figure(name, events, "events", target=0, better=Better.LESS)
