"""A simulated process: the owner of callbacks, and whether they may run.

All nodes and clients of a world share one event loop. One context variable keeps them apart: every task and timer
inherits the process in whose context it was created, so the loop knows the owner of each callback.

Invariants: after a kill no callback of the process ever runs again, no `finally` either. While it is paused its
callbacks wait in their order; while it is slow or busy, each waits for the time of those before it. Not here: the
effects of a crash on its disk and connections (world.py, network.py).
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


PAID_FROM_US: Final = 500
"""A process that owes less time continues at once."""


class ProcessState(Enum):
    RUNNING = "running"
    SLOW = "slow"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """One incarnation of a process. A restart creates a new one."""

    __slots__ = (
        "__weakref__",
        "_context",
        "busy_until_us",
        "held_back",
        "name",
        "on_death",
        "owes_us",
        "run_number",
        "state",
        "step_us",
        "stirred",
    )

    _all: ClassVar[weakref.WeakSet[Process]] = weakref.WeakSet()
    world_thread: ClassVar[int] = threading.get_ident()
    """The thread of the world: what others write is no part of it."""

    def __init__(self, name: str, run_number: int = 0) -> None:
        self.name = name
        self.run_number = run_number
        self.state = ProcessState.RUNNING
        self.stirred = False  # watched state was written since the last check
        self.held_back: deque[Any] = deque()  # handles that came due while it was paused or busy, in order
        self.step_us = 0  # average time of a callback while the process is slow
        self.busy_until_us = 0  # with its last callback
        self.owes_us = 0  # time of disk calls of its loop that has not passed yet
        self.on_death: list[Callable[[], None]] = []
        self._context = contextvars.Context()
        self._context.run(CURRENT.set, self)
        Process._all.add(self)

    @classmethod
    def stir_all(cls) -> None:
        """Watched state was written outside any process: mark all processes for a check."""
        if threading.get_ident() != cls.world_thread:
            return
        for process in cls._all:
            process.stirred = True

    @property
    def alive(self) -> bool:
        return self.state is not ProcessState.DEAD

    def owe(self, us: int) -> None:
        """Add the time of a disk call by its loop; the next callbacks wait once the sum is large enough."""
        self.owes_us += us
        if self.owes_us >= PAID_FROM_US:
            self.stirred = True

    def give(self, variable: contextvars.ContextVar[T], value: T) -> None:
        """Set a context variable for everything that this process runs from now on."""
        self._context.run(variable.set, value)

    def context(self) -> contextvars.Context:
        """A new context owned by this process, for one callback or task."""
        return self._context.copy()

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call now, as this process: what the call schedules belongs to the process."""
        return self._context.copy().run(call, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.name}.{self.run_number} {self.state.value}>"


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated process", default=None)


def current_process() -> Process:
    """The process whose code is running. Only for what a process was given: its transport, clock, executor."""
    process = CURRENT.get()
    assert process is not None, "only a simulated process may ask for this"
    return process
