"""The regular ticks of one owner, less those at which nothing would happen.

Ticks are `tick_ms` apart. After each one its owner says by when it wants the next; until then this is asleep, however
many ticks go by. Whatever comes up meanwhile asks for an earlier one (`soon`, `by`).

Kept true: the owner is called at ticks only, and at the first one at or after what it has asked for. A process that was
held up itself counts the ticks that it slept through on purpose, not those that it missed.
Left to others: what a tick does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from node.runtime.clock import Clock
from tidelog.types import Millis

TICKS_MAX: Final = 1 << 20
"""Slept through at most: with ticks of 25 ms more than seven hours."""


class Ticker:
    """See the module's words."""

    def __init__(self, clock: Clock, tick_ms: int, tick: Callable[[Millis, int], Millis | None]) -> None:
        """tick: called with the present time and the number of ticks since its last call, one where none was slept
        through; returns by when it wants to be called again, None: not until it is asked for."""
        self._clock = clock
        self._tick_ms = tick_ms
        self._tick = tick
        self._tasks: asyncio.TaskGroup | None = None
        self._sleeper: asyncio.Task[None] | None = None
        self._began = Millis(0)
        self._ticks = 1
        """How many ticks after `_began` the owner is called."""

    async def run(self) -> None:
        """Tick until cancelled, or a tick raises."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._began, self._ticks = self._clock.monotonic_ms(), 1
            self._sleeper = tasks.create_task(self._sleep(self._tick_ms))
            try:
                await asyncio.get_running_loop().create_future()  # until cancelled, also by a sleeper that fails
            finally:
                self._tasks = None  # a group that is ending takes no more sleepers

    async def _sleep(self, first_ms: int) -> None:
        """Sleep and tick, until another sleeper has taken over, which wakes earlier."""
        clock = self._clock
        await clock.sleep_ms(first_ms)
        while self._sleeper is asyncio.current_task():
            now, ticks = clock.monotonic_ms(), self._ticks
            self._began, self._ticks = now, 1  # what is asked for meanwhile is in what the call returns
            self._ticks = self._until(self._tick(now, ticks))
            await clock.sleep_ms(self._ticks * self._tick_ms)

    def _until(self, due: Millis | None) -> int:
        """Ticks from `_began` to the first one at or after that time."""
        if due is None:
            return TICKS_MAX
        return min(TICKS_MAX, max(1, -((self._began - due) // self._tick_ms)))

    def soon(self) -> None:
        """Call with the next tick."""
        if self._ticks > 1:
            self._wake_by(self._clock.monotonic_ms())

    def by(self, due: Millis) -> None:
        """Call with the first tick at or after that time, if not before."""
        if self._ticks > 1 and self._until(due) < self._ticks:
            self._wake_by(due)

    def _wake_by(self, due: Millis) -> None:
        """Let another sleeper take over. The one that slept too long ends when it wakes."""
        if self._tasks is None:
            return
        now = self._clock.monotonic_ms()
        passed = (now - self._began) // self._tick_ms
        ticks = max(self._until(due), passed + 1)
        if ticks < self._ticks:
            self._ticks = ticks
            left_ms = self._began + ticks * self._tick_ms - now
            self._sleeper = self._tasks.create_task(self._sleep(left_ms))
