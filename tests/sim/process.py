"""A simulated process: who owns a callback, and whether it may still run.

All nodes and clients of a world share one event loop. What keeps them apart is one context variable: every task and
timer inherits the process in whose context it was made, so the loop knows the owner of each callback.

Kept true: once a process is killed, no callback of it runs ever again, no `finally` either; while it is paused its
callbacks wait in their order; while it is slow or busy too, each for as long as those before it take.
Left to others: what a crash does to its disk and connections (world.py, network.py).
"""

from __future__ import annotations

import contextvars
import weakref
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


PAID_FROM_US: Final = 500
"""A process that owes less time goes on at once."""


class ProcessState(Enum):
    RUNNING = "running"
    SLOW = "slow"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """One life of one process. A restart makes a new one."""

    __slots__ = (
        "__weakref__",
        "_context",
        "busy_until_us",
        "held_back",
        "life",
        "name",
        "on_death",
        "owes_us",
        "state",
        "step_us",
        "stirred",
    )

    _all: ClassVar[weakref.WeakSet[Process]] = weakref.WeakSet()

    def __init__(self, name: str, life: int = 0) -> None:
        self.name = name
        self.life = life
        self.state = ProcessState.RUNNING
        self.stirred = False  # something that checkers watch was written since they looked last
        self.held_back: deque[Any] = deque()  # handles that came due while it was paused or busy, in order
        self.step_us = 0  # what one callback takes while it is slow, on average
        self.busy_until_us = 0  # with its last callback
        self.owes_us = 0  # what its loop has done since and has not been paid for with time
        self.on_death: list[Callable[[], None]] = []
        self._context = contextvars.Context()
        self._context.run(CURRENT.set, self)
        Process._all.add(self)

    @classmethod
    def stir_all(cls) -> None:
        """Something was written outside any process: whose it was, the looks at each will tell."""
        for process in cls._all:
            process.stirred = True

    @property
    def alive(self) -> bool:
        return self.state is not ProcessState.DEAD

    def owe(self, us: int) -> None:
        """Its loop has done something that takes so long: what comes next waits, once that adds up to something."""
        self.owes_us += us
        if self.owes_us >= PAID_FROM_US:
            self.stirred = True

    def context(self) -> contextvars.Context:
        """A fresh context owned by this process, for one callback or task."""
        return self._context.copy()

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call now, as this process: what it schedules belongs to the process."""
        return self._context.copy().run(call, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.name}.{self.life} {self.state.value}>"


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated process", default=None)


def current_process() -> Process:
    """The process whose code is running. Asked only by what a process was given: its transport, clock, executor."""
    process = CURRENT.get()
    assert process is not None, "only a simulated process may ask for this"
    return process
