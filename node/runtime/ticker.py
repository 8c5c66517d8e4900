"""Periodic calls of one owner, without the ticks that have no effect.

Ticks are `tick_ms` apart. After each call the owner returns the time of the next one it needs, and the ticker sleeps
until then, across any number of ticks. `soon` and `by` request an earlier call.

Invariants: the owner is called at ticks only, and at the first tick at or after the requested time. After a pause of
the process, the ticks that the ticker skipped on purpose are counted, those that it missed are not. One task sleeps,
however often an earlier call is requested.
Not here: what a tick does (the owner).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidelog.clock import Clock
from tidelog.types import Millis

TICKS_MAX: Final = 1 << 20
"""Maximum number of skipped ticks: more than seven hours with ticks of 25 ms."""


class Ticker:
    """Calls `tick` periodically, at the times that it needs."""

    def __init__(self, clock: Clock, tick_ms: int, tick: Callable[[Millis, int], Millis | None]) -> None:
        """tick: called with the present time and the number of ticks since its last call (1 if none was skipped).
        Returns the time of the next call; None: not until it is requested."""
        self._clock = clock
        self._tick_ms = tick_ms
        self._tick = tick
        self._tasks: asyncio.TaskGroup | None = None
        self._sleeper: asyncio.Task[None] | None = None
        self._began = Millis(0)
        self._ticks = 1
        """Number of ticks after `_began` at which the owner is called."""

    async def run(self) -> None:
        """Tick until cancelled, or until a tick raises."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._began, self._ticks = self._clock.monotonic_ms(), 1
            self._sleeper = tasks.create_task(self._sleep(self._tick_ms))
            try:
                await asyncio.get_running_loop().create_future()  # until cancelled, also by a failed sleeper
            finally:
                self._tasks = None  # an ending group accepts no new sleepers

    async def _sleep(self, first_ms: int) -> None:
        """Sleep and tick, until cancelled: another sleeper that wakes earlier has replaced this one."""
        clock = self._clock
        await clock.sleep_ms(first_ms)
        while True:
            now, ticks = clock.monotonic_ms(), self._ticks
            self._began, self._ticks = now, 1  # the call returns ticks that are requested during it
            self._ticks = self._until(self._tick(now, ticks))
            await clock.sleep_ms(self._ticks * self._tick_ms)

    def _until(self, due: Millis | None) -> int:
        """Number of ticks from `_began` to the first one at or after `due`."""
        if due is None:
            return TICKS_MAX
        return min(TICKS_MAX, max(1, -((self._began - due) // self._tick_ms)))

    def soon(self) -> None:
        """Call the owner at the next tick."""
        if self._ticks > 1:
            self._wake_by(self._clock.monotonic_ms())

    def by(self, due: Millis) -> None:
        """Call the owner at the first tick at or after `due`, or earlier."""
        if self._ticks > 1 and self._until(due) < self._ticks:
            self._wake_by(due)

    def _wake_by(self, due: Millis) -> None:
        """Replace the sleeper by one that wakes earlier."""
        if self._tasks is None or self._sleeper is None:
            return
        now = self._clock.monotonic_ms()
        passed = (now - self._began) // self._tick_ms
        ticks = max(self._until(due), passed + 1)
        if ticks < self._ticks:
            self._ticks = ticks
            left_ms = self._began + ticks * self._tick_ms - now
            self._sleeper.cancel()
            self._sleeper = self._tasks.create_task(self._sleep(left_ms))
