"""Storage's Executor in virtual time: work that a real node gives to a thread runs beside the loop, one disk call at a
time.

Each job is a greenlet. Before a disk call it may yield to the loop and continue later, as the seed decides: callbacks
of its own process and of all others run between its calls. Only one thing runs at any instant, and the same seed gives
the same order.

Invariants: an executor runs its jobs one at a time and in order, like the writer thread of a log directory (a pool has
`workers` of them in parallel). A job belongs to the process that submitted it. When that process dies, the job stops
where it is and runs no further line, no `finally` either. A lock that one job holds blocks other jobs; a loop that
acquires it waits until the job releases it. Not here: disk calls of the loop itself (machine.py).
"""

from __future__ import annotations

import random
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType, TracebackType
from typing import Any, Final, TypeVar

from greenlet import getcurrent, greenlet

from testbed.sim.loop import SimLoop
from testbed.sim.process import Process

T = TypeVar("T")

SYNCS: Final = frozenset({"sync", "sync_directory"})
SHORT_US: Final = 100
"""Upper bound for any other disk call."""
QUICK: Final = 0.6
"""The share of these calls that finish before anything else can run."""
START_US: Final = 150
"""Upper bound for the wake-up of a thread."""
NOWHERE: Final = ("", "")


@dataclass(slots=True)
class DiskPace:
    """The speed of a machine's disk; shared by its executors and changed by faults.

    hanging: parts of paths, and the operations on them that hang; `stalled`: every call hangs."""

    delay_us: tuple[int, int] = (200, 4_000)
    slow_by: float = 1.0
    stalled: bool = False
    hanging: dict[str, frozenset[str]] = field(default_factory=dict)

    def hangs(self, operation: str, path: str) -> bool:
        """Whether a call hangs now."""
        if self.stalled:
            return True
        return any(operation in operations and part in path for part, operations in self.hanging.items())

    def takes_us(self, operation: str, rng: random.Random) -> int:
        """The duration of a disk call in microseconds."""
        least, most = self.delay_us if operation in SYNCS else (1, SHORT_US)
        return max(1, int((least + int(rng.random() * (most - least + 1))) * self.slow_by))


class Job:
    """A job in progress: its own stack and the point where it continues."""

    __slots__ = ("_outcome", "done", "executor", "lock", "place", "rest_us", "stack", "turn", "work")

    def __init__(self, executor: SimExecutor, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.executor, self.work, self.done = executor, work, done
        self.stack = greenlet(self._run, _loops_own())  # the loop's stack, not that of the submitting job
        self.place = NOWHERE  # its current disk call
        self.lock: JobLock | None = None  # the lock that it waits for
        self.rest_us = 0  # remaining time of its last disk call
        self.turn = 0  # number of its next event; older events are stale
        self._outcome: Any = None

    def _run(self) -> None:
        try:
            self._outcome = self.work()
        except Exception as failed:  # noqa: BLE001 - set on the future, as a thread pool does
            self._outcome = failed

    def go_on(self) -> int | None:
        """Run until the job yields. Returns the delay after which it continues; None: it has ended or waits for a
        lock."""
        global running
        before, running = running, self
        try:
            wait_us: int | None = self.stack.switch()
        finally:
            running = before
        return wait_us

    def hand_over(self, wait_us: int | None) -> None:
        """Yield from within the job for `wait_us`; None: until `wake`."""
        self.stack.parent.switch(wait_us)

    def report(self) -> None:
        self.done(self._outcome)


def _loops_own() -> Any:
    """The stack of the loop, to which every job yields."""
    stack = getcurrent()
    while stack.parent is not None:
        stack = stack.parent
    return stack


running: Job | None = None
"""The job that runs now; None: the loop or the world runs."""


class JobLock:
    """threading.Lock for a simulated process, shared by jobs and the loop."""

    __slots__ = ("_owner", "_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = False
        self._owner: Job | None = None
        self._waiting: deque[Job] = deque()

    def __enter__(self) -> None:
        me = running
        while self._taken:
            if me is None:
                self._hurry()
            else:
                me.lock = self
                self._waiting.append(me)
                me.hand_over(None)
                me.lock = None
        self._taken, self._owner = True, me

    def _hurry(self) -> None:
        """Run the owner of the lock, or the job that it waits for, until the loop gets the lock."""
        owner = self._owner
        assert owner is not None, "the loop waits for a lock that it holds itself"
        if owner.lock is not None and owner.lock._taken:
            owner.lock._hurry()
        else:
            owner.executor.hurry(owner)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taken, self._owner = False, None
        while self._waiting:
            job = self._waiting.popleft()
            if job.lock is self:
                job.executor.wake(job)
                break


def pause_ms(duration_ms: int) -> None:
    """Let the job that runs now wait, as a thread that sleeps."""
    assert running is not None, "only work of an executor sleeps"
    running.hand_over(duration_ms * 1_000)


def modules_with_locks() -> list[ModuleType]:
    """The modules of the storage engine and of remote reads whose locks the event loop and the executors share. A real
    lock stops the simulator for good: its owner and those that wait for it run on one thread."""
    shared = ("storage.", "tidelog.tiering.")
    loaded = (module for name, module in sorted(sys.modules.items()) if name.startswith(shared))
    return [module for module in loaded if getattr(module, "Lock", None) is threading.Lock]


class SimExecutor:
    """An executor of a process. `resume` is called when the disk no longer stalls."""

    def __init__(self, loop: SimLoop, rng: random.Random, process: Process, pace: DiskPace, workers: int = 1) -> None:
        self._loop, self._rng, self._process, self._pace = loop, rng, process, pace
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self._idle_workers = workers
        self._under_way: dict[Job, None] = {}
        self._hanging: set[Job] = set()
        self._parked: dict[Job, None] = {}
        """Jobs whose disk call or completion hangs."""

    @property
    def is_alive(self) -> bool:
        """False once the process has ended."""
        return self._process.alive

    def hang(self) -> None:
        """Let the jobs in progress hang until `resume`; other workers continue."""
        self._hanging = set(self._under_way)

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        self._waiting.append((work, done))
        if self._idle_workers:
            self._begin()

    def resume(self) -> None:
        self._hanging.clear()
        parked, self._parked = list(self._parked), {}
        for job in parked:
            self._later(0, job)
        self._at_once(self._begin)  # belongs to the process: a dead one starts no job, a paused one starts it later

    def abandon(self) -> None:
        """Abandon the jobs in progress at the end of the world."""
        for job in list(self._under_way):
            for _ in range(100):
                if job.stack.dead or not job.stack:
                    break
                with suppress(Exception):  # errors during disposal do not count
                    job.stack.throw()
        self._under_way.clear()

    def _begin(self) -> None:
        while self._waiting and self._idle_workers and not self._pace.stalled:
            self._idle_workers -= 1
            job = Job(self, *self._waiting.popleft())
            job.stack.gr_context = self._process.context()
            self._under_way[job] = None
            draw = self._rng.random()
            job.rest_us = 1 + int(self._rng.random() * START_US)
            if draw < 0.5 and running is None:
                self._run(job)
            else:
                self._later(1 + int(draw * START_US * self._pace.slow_by), job)

    # --- steps of a job ---

    def _go_on(self, job: Job, turn: int) -> None:
        """Continue a job at its scheduled time: its next disk call or its completion."""
        if turn != job.turn:
            return  # it has already continued another way
        if self._pace.hangs(*job.place) or job in self._hanging:
            self._parked[job] = None
        elif job.stack.dead:
            self._report(job)
        else:
            self._run(job)

    def _run(self, job: Job) -> None:
        job.turn += 1
        wait_us = job.go_on()
        if job.stack.dead:
            job.place = NOWHERE
            self._later(max(1, job.rest_us), job)
        elif wait_us is not None:
            self._later(wait_us, job)

    def calls(self, job: Job, operation: str, path: str) -> None:
        """Called before a disk call of a job: other jobs and callbacks may run first."""
        pace, rng = self._pace, self._rng
        job.place = operation, path
        hangs = pace.hangs(operation, path) or job in self._hanging
        if not hangs and operation not in SYNCS and rng.random() < QUICK:
            job.place = NOWHERE
            return
        takes_us = pace.takes_us(operation, rng)
        before_us = min(takes_us, max(0, int(takes_us * (3 * rng.random() - 1))))  # at once, at the end, or in between
        wait_us, job.rest_us = job.rest_us + before_us, takes_us - before_us
        job.hand_over(wait_us)
        job.place = NOWHERE

    def wake(self, job: Job) -> None:
        """Continue a job: the lock that it waits for is free."""
        self._later(0, job)

    def hurry(self, job: Job) -> None:
        """Run the job at once: the loop waits for a lock that it holds, and nothing else of its process runs
        meanwhile."""
        self._parked.pop(job, None)
        job.turn += 1
        if self._pace.hangs(*job.place):
            self._loop.freeze(self._process)
        self._process.owe(job.rest_us + self._pace.takes_us(job.place[0], self._rng))
        wait_us = job.go_on()
        if job.stack.dead or wait_us is not None:
            self._later(max(1, job.rest_us), job)

    def _report(self, job: Job) -> None:
        del self._under_way[job]
        self._idle_workers += 1
        if self._waiting:
            self._begin()
        job.report()

    def _later(self, delay_us: int, job: Job) -> None:
        job.turn += 1
        now_us = self._loop.now_us
        self._loop.call_at_us(now_us + delay_us, self._go_on, job, job.turn, context=self._process.context())

    def _at_once(self, callback: Callable[[], None]) -> None:
        self._loop.call_at_us(self._loop.now_us, callback, context=self._process.context())
