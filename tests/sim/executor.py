"""Storage's Executor in virtual time: what a real node gives to a thread becomes a scheduled event.

Kept true: one executor works one thing at a time, in order, like the writer thread of a data folder (`workers` of them
side by side for a pool); the work itself happens at some instant between its start and its report, both drawn from the
seed, so a crash may fall before, between and after. Everything belongs to the process that submitted it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.sim.loop import SimLoop
from tests.sim.process import Process

T = TypeVar("T")


@dataclass(slots=True)
class DiskPace:
    """How fast a machine's disk is; shared by its executors and changed by faults."""

    delay_us: tuple[int, int] = (200, 4_000)
    slow_by: float = 1.0
    stalled: bool = False


class SimExecutor:
    """See the module's words. `resume` is called when the disk no longer stalls."""

    def __init__(self, loop: SimLoop, rng: random.Random, process: Process, pace: DiskPace, workers: int = 1) -> None:
        self._loop, self._rng, self._process, self._pace = loop, rng, process, pace
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self._idle_workers = workers
        self._under_way: dict[Callable[[Any], None], None] = {}
        self._hanging: set[Callable[[Any], None]] = set()

    def hang(self) -> None:
        """What is under way is not reported before `resume`; other workers work on."""
        self._hanging = set(self._under_way)

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        self._waiting.append((work, done))
        if self._idle_workers:
            self._begin()

    def resume(self) -> None:
        self._hanging.clear()
        self._later(0, self._begin)  # in its process: a dead one works no more, a paused one later

    def _begin(self) -> None:
        while self._waiting and self._idle_workers and not self._pace.stalled:
            self._idle_workers -= 1
            self._start(*self._waiting.popleft())

    def _start(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        self._under_way[done] = None
        draw = self._rng.random
        least, most = self._pace.delay_us
        takes_us = max(1, int((least + int(draw() * (most - least + 1))) * self._pace.slow_by))
        at_us = min(takes_us, max(0, int(takes_us * (3 * draw() - 1))))  # at once, at the end, or between: a third each
        if at_us:
            self._later(at_us, self._work, work, done, takes_us - at_us)
        else:
            self._work(work, done, takes_us)

    def _work(self, work: Callable[[], T], done: Callable[[T | BaseException], None], rest_us: int) -> None:
        outcome: T | BaseException
        try:
            outcome = work()
        except Exception as failed:  # noqa: BLE001 - handed to whoever asked, as a thread pool does
            outcome = failed
        if rest_us:
            self._later(rest_us, self._report, done, outcome)
        else:
            self._report(done, outcome)

    def _report(self, done: Callable[[T | BaseException], None], outcome: T | BaseException) -> None:
        if self._pace.stalled or done in self._hanging:  # a stuck disk reports nothing
            self._later(10_000, self._report, done, outcome)
            return
        del self._under_way[done]
        self._idle_workers += 1
        if self._waiting:
            self._begin()
        done(outcome)

    def _later(self, delay_us: int, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_at_us(self._loop.now_us + delay_us, callback, *args, context=self._process.context())
