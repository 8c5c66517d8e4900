"""How late the event loop comes to its callbacks: a timer that measures its own delay.

A callback that takes long delays all others of the node, also heartbeats. Neither asyncio nor uvloop tells how long
each takes; but the timer is late by the rest of the callback that runs when it is due. Hence the longest delay is less
than the longest callback by at most `PERIOD_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from node.runtime.histogram import Histogram

PERIOD_S: Final = 0.1
"""Interval of the timer: a shorter one would find shorter callbacks, and wake an idle node more often."""

WINDOW_S: Final = 60.0
"""The longest delay is that of the present window and of the one before it: a scraper that comes less often than once a
minute misses some, one that comes more often sees each several times."""

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LoopWatch:
    """Measures one event loop."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """now_s: monotonic time in seconds, of the clock that the loop's timers use."""
        self._now_s = now_s
        self.lag = Histogram(BOUNDS_S)
        self._longest = (0.0, 0.0)
        """Of the window before, and of the present one."""
        self._window_ends = now_s() + WINDOW_S
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure from now on, on the running loop."""
        self._due = self._now_s() + PERIOD_S
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._beat)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self.measured(max(0.0, self._now_s() - self._due))
        self.start()

    def measured(self, late_s: float) -> None:
        """Count a delay."""
        self.lag.observe(late_s)
        self._turn_window()
        before, present = self._longest
        self._longest = before, max(present, late_s)

    @property
    def longest_s(self) -> float:
        """The longest delay of the last one to two windows."""
        self._turn_window()
        return max(self._longest)

    def _turn_window(self) -> None:
        now = self._now_s()
        if now >= self._window_ends:
            was_long_ago = now >= self._window_ends + WINDOW_S
            self._longest = (0.0 if was_long_ago else self._longest[1]), 0.0
            self._window_ends = now + WINDOW_S
