"""Storage's Executor in virtual time: what a real node gives to a thread runs beside the loop, one disk call at a time.

Each piece of work is a greenlet. Before a call of the disk it may hand over to the loop and go on some time later, as
the seed says: callbacks of its own process and of all others run between its calls. One thing runs at any instant, and
the same seed gives the same order.

Kept true: one executor works one thing at a time, in order, like the writer thread of a log directory (`workers` of
them side by side for a pool). Everything belongs to the process that submitted it: when that dies, work under way stops
where it is, in the middle too, and runs no further line, no `finally` either. A lock that one piece of work has is
waited for by others; a loop that wants it waits until that work has let go of it.
Left to others: what the loop itself asks of the disk (machine.py).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, TypeVar

from greenlet import getcurrent, greenlet

from tests.sim.loop import SimLoop
from tests.sim.process import Process

T = TypeVar("T")

SYNCS: Final = frozenset({"sync", "sync_directory"})
SHORT_US: Final = 100
"""What any other call of the disk takes at most."""
QUICK: Final = 0.6
"""How many of those are done before anything else can run."""
START_US: Final = 150
"""A thread wakes up and takes its work."""
NOWHERE: Final = ("", "")


@dataclass(slots=True)
class DiskPace:
    """How fast a machine's disk is; shared by its executors and changed by faults.

    hanging: parts of paths, and the operations that do not end there; `stalled`: nothing ends anywhere."""

    delay_us: tuple[int, int] = (200, 4_000)
    slow_by: float = 1.0
    stalled: bool = False
    hanging: dict[str, frozenset[str]] = field(default_factory=dict)

    def hangs(self, operation: str, path: str) -> bool:
        """Does a call not end for now?"""
        if self.stalled:
            return True
        return any(operation in operations and part in path for part, operations in self.hanging.items())

    def takes_us(self, operation: str, rng: random.Random) -> int:
        """How long a call of the disk takes."""
        least, most = self.delay_us if operation in SYNCS else (1, SHORT_US)
        return max(1, int((least + int(rng.random() * (most - least + 1))) * self.slow_by))


class Job:
    """A piece of work under way: its own stack, and where it goes on."""

    __slots__ = ("_outcome", "done", "executor", "lock", "place", "rest_us", "stack", "turn", "work")

    def __init__(self, executor: SimExecutor, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.executor, self.work, self.done = executor, work, done
        self.stack = greenlet(self._run, _loops_own())  # not of the work that submits it, where one does
        self.place = NOWHERE  # the call of the disk that it is at
        self.lock: JobLock | None = None  # that it waits for
        self.rest_us = 0  # what its last call of the disk still takes
        self.turn = 0  # which of its events is the one to come
        self._outcome: Any = None

    def _run(self) -> None:
        try:
            self._outcome = self.work()
        except Exception as failed:  # noqa: BLE001 - handed to whoever asked, as a thread pool does
            self._outcome = failed

    def go_on(self) -> int | None:
        """Run to where it hands over. Returns after how long it wants to go on; None: it has ended, or waits for a
        lock."""
        global running
        before, running = running, self
        try:
            wait_us: int | None = self.stack.switch()
        finally:
            running = before
        return wait_us

    def hand_over(self, wait_us: int | None) -> None:
        """Called by the work itself: let others run, for so long; None: until somebody wakes it."""
        self.stack.parent.switch(wait_us)

    def report(self) -> None:
        self.done(self._outcome)


def _loops_own() -> Any:
    """The stack of the loop, on which every piece of work hands over."""
    stack = getcurrent()
    while stack.parent is not None:
        stack = stack.parent
    return stack


running: Job | None = None
"""The work whose lines run now; None: the loop's, or the world's."""


class JobLock:
    """threading.Lock for a simulated process: see the module's words."""

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
        """The loop waits for whoever has the lock, or for whom that one waits."""
        owner = self._owner
        assert owner is not None, "the loop waits for a lock that it has itself"
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


class SimExecutor:
    """See the module's words. `resume` is called when the disk no longer stalls."""

    def __init__(self, loop: SimLoop, rng: random.Random, process: Process, pace: DiskPace, workers: int = 1) -> None:
        self._loop, self._rng, self._process, self._pace = loop, rng, process, pace
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self._idle_workers = workers
        self._under_way: dict[Job, None] = {}
        self._hanging: set[Job] = set()
        self._parked: dict[Job, None] = {}
        """Whose call of the disk, or report, hangs."""

    def hang(self) -> None:
        """What is under way does not go on before `resume`; other workers work on."""
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
        self._at_once(self._begin)  # in its process: a dead one works no more, a paused one later

    def abandon(self) -> None:
        """The world is over: what is still under way is put away."""
        for job in list(self._under_way):
            for _ in range(100):
                if job.stack.dead or not job.stack:
                    break
                with suppress(Exception):  # what it says while it is put away counts not
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

    # --- one step after the other ---

    def _go_on(self, job: Job, turn: int) -> None:
        """The time has come for a job to do what it was about to do: its next call, or its report."""
        if turn != job.turn:
            return  # it went on otherwise
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
        """The work is about to call the disk: others may run before it does."""
        pace, rng = self._pace, self._rng
        job.place = operation, path
        hangs = pace.hangs(operation, path) or job in self._hanging
        if not hangs and operation not in SYNCS and rng.random() < QUICK:
            job.place = NOWHERE
            return
        takes_us = pace.takes_us(operation, rng)
        before_us = min(takes_us, max(0, int(takes_us * (3 * rng.random() - 1))))  # done at once, at the end, between
        wait_us, job.rest_us = job.rest_us + before_us, takes_us - before_us
        job.hand_over(wait_us)
        job.place = NOWHERE

    def wake(self, job: Job) -> None:
        """The lock that it waits for is free."""
        self._later(0, job)

    def hurry(self, job: Job) -> None:
        """The loop waits for a lock that this work has: nothing else of its process runs until it goes on."""
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
