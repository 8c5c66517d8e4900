"""The gain of one fsync for many appends, compared with the gain for bare writes of the same batches.

A gain is the ratio of two rates: of 64 appends that share one fsync, and of 64 appends with one fsync each. The log
uses `GroupCommit` as a node does: it appends on this thread and syncs on another, and while one sync is in progress the
appends of the next group arrive, each of which requests a sync. The bare writes are `pwritev` and `fdatasync` on one
thread. Syncs are counted.

A wait for a disk takes no processor time, so the figures use the clock. The four contenders take turns, and each counts
with its median, because the best time of a disk can be a tenth of its usual time. Other load on the machine therefore
affects the figures, most of all those that need the processor: the appends of a group.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any, Final

from bench.figure import Better, Figure, Run
from storage.directory.group_commit import GroupCommit
from storage.log.log import Log
from tidelog.types import LeaderEpoch

APPENDERS: Final = 64
ROUNDS: Final = 25
GROUPS: Final = 4
"""Groups of appenders in a turn."""
ALONE: Final = 16
"""Appends in a turn with one fsync each: it takes as long as a turn of groups, or slightly longer."""


class Worker:
    """An `Executor` of one thread; the owner of the logs handles its completions."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Callable[[Any], None], Any]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._work.put((work, done))

    def wait(self) -> None:
        """Wait for the end of one job and handle its completion."""
        done, result = self._done.get()
        done(result)

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (piece := self._work.get()) is not None:
            work, done = piece
            result: BaseException | None = None
            try:
                work()
            except OSError as error:
                result = error
            self._done.put((done, result))


class Appenders:
    """The appenders of a log, which wait until their appends are durable."""

    def __init__(self, log: Log, batch: bytes) -> None:
        self._log, self._batch, self._worker = log, batch, Worker()
        self.commit = GroupCommit(self._worker, lambda _: None, self._failed)

    @staticmethod
    def _failed(error: BaseException) -> None:
        raise error

    def together(self) -> None:
        """`GROUPS` groups; each arrives while a sync is in progress and waits for the next one."""
        self._append(1)
        for _ in range(GROUPS):
            self._append(APPENDERS)
            self._worker.wait()
        self._drain()

    def alone(self) -> None:
        """`ALONE` appends, each with its own sync."""
        for _ in range(ALONE):
            self._append(1)
            self._drain()

    def _append(self, count: int) -> None:
        for _ in range(count):
            self._log.append(self._batch, assign_offsets=True, leader_epoch=LeaderEpoch(0))
            self.commit.request(self._log)

    def _drain(self) -> None:
        while self.commit.busy:
            self._worker.wait()
        assert self._log.durable_offset == self._log.log_end_offset, "all appends are durable"

    def close(self) -> None:
        self._worker.close()


def group_commits(run: Run, log: Log, batch: bytes, name: str, target: float | None) -> Iterator[Figure]:
    """log: an empty one with fsync durability. name: the size of its batches."""
    fd = os.open(run.scratch / f"raw-syncs-{name}", os.O_RDWR | os.O_CREAT)
    appenders = Appenders(log, batch)
    position = 0

    def write(syncs: int, batches: int) -> None:
        """Write `batches` batches and sync them, `syncs` times."""
        nonlocal position
        for _ in range(syncs):
            for _ in range(batches):
                os.pwritev(fd, [batch], position)
                position += len(batch)
            os.fdatasync(fd)

    def together() -> None:
        before = appenders.commit.flushes
        appenders.together()
        flushes.append((appenders.commit.flushes - before - 1) / GROUPS)

    flushes: list[float] = []
    median = seconds_an_append(
        2 if run.quick else ROUNDS,
        {
            "raw alone": (lambda: write(ALONE, 1), ALONE),
            "alone": (appenders.alone, ALONE),
            "raw together": (lambda: write(GROUPS, APPENDERS), GROUPS * APPENDERS),
            "together": (together, GROUPS * APPENDERS),
        },
    )
    yield Figure(
        f"gain of one fsync for {APPENDERS} appends of {name}, against that of raw writes",
        median["alone"] / median["together"],
        "times",
        median["raw alone"] / median["raw together"],
        target=target,
    )
    yield Figure(
        f"{APPENDERS} waiting appenders of {name}, against raw writes with one fdatasync for {APPENDERS}",
        1 / median["together"],
        "appends/s",
        1 / median["raw together"],
    )
    yield Figure(
        f"fsyncs for {APPENDERS} waiting appenders of {name}", max(flushes), "fsyncs", target=1, better=Better.LESS
    )
    appenders.close()
    log.close()
    os.close(fd)


def seconds_an_append(rounds: int, works: Mapping[str, tuple[Callable[[], None], int]]) -> dict[str, float]:
    """The median turn of each contender. works: a turn, and its number of appends."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, (work, appends) in works.items():
            begun = time.perf_counter()
            work()
            taken[name].append((time.perf_counter() - begun) / appends)
    return {name: statistics.median(found) for name, found in taken.items()}
