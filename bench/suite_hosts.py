"""Two event loops in one process compared with two processes: why a machine with more cores runs more nodes
(docs/decisions/0016).

Each contender appends the same batches to its own log, as a leader does, in slices of one loop turn: one loop alone;
two loops in two threads of one process; two processes. Contenders take turns. Each counts with its best turn by the
clock, because the question is what the cores do together. Without a second free core the figures have no meaning.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier as ProcessBarrier
from pathlib import Path
from threading import Barrier
from typing import Final

from bench.figure import Figure, Run
from bench.suite_storage import EPOCH, build, make_log
from storage.log.log import Log
from storage.log_config import LogConfig
from tidelog.types import Durability

APPENDS: Final = 30_000
"""Appends of 1 KiB batches per loop in one turn."""
SLICE: Final = 20
"""Appends per turn of a loop."""
ROUNDS: Final = 7


def figures(run: Run) -> Iterator[Figure]:
    appends = APPENDS // (20 if run.quick else 1)
    rates: dict[str, list[float]] = {"one": [], "threads": [], "processes": []}
    for number in range(1 if run.quick else ROUNDS):
        scratch = run.scratch / str(number)
        rates["one"].append(_one_loop(Run(scratch / "one", quick=run.quick), appends))
        rates["threads"].append(_two_threads(Run(scratch / "threads", quick=run.quick), appends))
        rates["processes"].append(_two_processes(Run(scratch / "processes", quick=run.quick), appends))
        shutil.rmtree(scratch)
    best = {name: max(each) for name, each in rates.items()}
    yield Figure("appends of 1 KiB, one loop", best["one"], "appends/s")
    yield Figure("two loops in one process, against one", best["threads"], "appends/s", best["one"])
    yield Figure("two processes of one loop, against one", best["processes"], "appends/s", best["one"])


def _log(run: Run, name: str) -> Log:
    run.scratch.mkdir(parents=True, exist_ok=True)
    return make_log(run, name, LogConfig(durability=Durability.PAGE_CACHE))


def _work(log: Log, batch: bytes, appends: int, wait: Callable[[], object]) -> tuple[float, float]:
    """Start and end time of the appends of one loop."""

    async def append_all() -> None:
        for _ in range(appends // SLICE):
            for _ in range(SLICE):
                log.append(batch, assign_offsets=True, leader_epoch=EPOCH)
            await asyncio.sleep(0)

    wait()
    begun = time.monotonic()
    asyncio.run(append_all())
    return begun, time.monotonic()


def _rate(times: list[tuple[float, float]], appends: int) -> float:
    return len(times) * appends / (max(end for _, end in times) - min(begun for begun, _ in times))


def _one_loop(run: Run, appends: int) -> float:
    return _rate([_work(_log(run, "log"), build(1 << 10), appends, lambda: None)], appends)


def _two_threads(run: Run, appends: int) -> float:
    logs, batch, together = [_log(run, f"log-{number}") for number in range(2)], build(1 << 10), Barrier(2)
    times: list[tuple[float, float]] = []
    threads = [
        threading.Thread(target=lambda log=log: times.append(_work(log, batch, appends, together.wait))) for log in logs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _rate(times, appends)


def _in_process(
    scratch: Path,
    appends: int,
    together: ProcessBarrier,
    times: multiprocessing.SimpleQueue[tuple[float, float]],
) -> None:
    times.put(_work(_log(Run(scratch), "log"), build(1 << 10), appends, together.wait))


def _two_processes(run: Run, appends: int) -> float:
    context = multiprocessing.get_context("spawn")
    together, times = context.Barrier(2), context.SimpleQueue()
    processes = [
        context.Process(target=_in_process, args=(run.scratch / str(number), appends, together, times))
        for number in range(2)
    ]
    for process in processes:
        process.start()
    found = [times.get() for _ in processes]
    for process in processes:
        process.join()
    return _rate(found, appends)
