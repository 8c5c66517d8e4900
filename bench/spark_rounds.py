"""Rounds of the suite `spark`: the same query by each connector in turns, and what a row of it takes."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import psutil

from bench.cluster_contest import Contest, Lane
from bench.figure import Better, Figure
from bench.loads.job import Job
from bench.raw_limits import cpu_seconds

PREBUILT: Final = "prebuilt Arrow"
CONNECTORS: Final[Mapping[str, str]] = {"Tidelog": "tidelog", "Kafka": "kafka"}
"""The format in Spark by the name of the system."""


class Taken(NamedTuple):
    """What one query took. rows, seconds: those that are counted."""

    rows: int
    seconds: float
    cpu_us: float
    """Processor time of driver, JVM, Python workers and nodes for each row of the whole query, microseconds."""


class Rounds(NamedTuple):
    """What the same query took, again and again, when all was warm."""

    taken: Sequence[Taken]

    @property
    def rate(self) -> float:
        """Rows per second, the median."""
        return statistics.median(each.rows / each.seconds for each in self.taken)

    @property
    def cpu_us(self) -> float:
        """Microseconds of processor time for each row, the median."""
        return statistics.median(each.cpu_us for each in self.taken)


def measured(contest: Contest, lane: Lane, job: Job) -> Taken:
    """One query by the system's driver. Raises SystemFailed."""
    (driver,) = lane.clients.take("spark", 1)
    nodes = [psutil.Process(pid) for pid in lane.system.pids]
    before, busy, began = _used([*_tree(driver.process.pid), *nodes]), _busy(), time.perf_counter()
    answer = lane.clients.do("spark", job)
    after = _used([*_tree(driver.process.pid), *nodes])
    own = sum(seconds - before.get(process, 0.0) for process, seconds in after.items())
    contest.run.others.append(max(0.0, _busy() - busy - own) / (time.perf_counter() - began))
    rows = int(answer["rows"])
    return Taken(rows, float(answer["seconds"]), max(own, 0.001) / int(answer.get("all_rows", rows)) * 1e6)


def rounds(
    contest: Contest, jobs: Callable[[Lane], Mapping[str, Job]], partitions: int, *, warm_up: int, repeats: int
) -> dict[str, Rounds]:
    """Every job of every system, `repeats` times when warm, in turns; by the names that `jobs` gives them."""
    found: dict[str, list[Taken]] = defaultdict(list)

    def turn(lane: Lane) -> dict[str, Taken]:
        return {name: measured(contest, lane, job) for name, job in jobs(lane).items()}

    for number in range(warm_up + repeats):
        for taken in contest.each(partitions, turn).values():
            for name, each in taken.items() if number >= warm_up else ():
                found[name].append(each)
    return {name: Rounds(taken) for name, taken in found.items()}


def rates(
    what: str, name: str, found: Mapping[str, Rounds], targets: Mapping[str, float], baselines: Sequence[str] = ()
) -> Iterator[Figure]:
    """The rate of `name` beside each baseline that was measured (all others), with its target, if it has one; and the
    processor time of a row."""
    mine = found[name]
    others = {other: found[other] for other in baselines or found if other in found and other != name}
    if not others:
        yield Figure(what, mine.rate, "rows/s")
        yield Figure(f"{what}: processor", mine.cpu_us, "us/row", better=Better.LESS)
    for other, its in others.items():
        yield Figure(f"{what} / {other}", mine.rate, "rows/s", baseline=its.rate, target=targets.get(other))
        cost = f"{what}: processor / {other}"
        yield Figure(cost, mine.cpu_us, "us/row", baseline=its.cpu_us, better=Better.LESS)


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def _used(processes: Sequence[psutil.Process]) -> dict[psutil.Process, float]:
    """Processor time by process; those that have ended meanwhile are left out."""
    found: dict[psutil.Process, float] = {}
    for process in processes:
        try:
            found[process] = cpu_seconds(process)
        except psutil.NoSuchProcess:
            continue
    return found


def _busy() -> float:
    times: Any = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
