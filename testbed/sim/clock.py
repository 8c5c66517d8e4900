"""A node's clock in virtual time: the wall clock may be wrong and jump, the monotonic one may run slightly fast or
slow."""

from __future__ import annotations

import asyncio

from testbed.sim.loop import SimLoop
from tidelog.types import Millis

WORLD_BEGAN_MS = 1_700_000_000_000  # an arbitrary moment of 2023


class SimClock:
    """See tidelog/clock.py. `rate`: milliseconds of this clock per millisecond of virtual time."""

    def __init__(self, loop: SimLoop, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        self._loop, self._rate = loop, rate
        self._wall_offset_ms = wall_offset_ms
        self._jumps: list[tuple[int, Millis]] = []  # when it was set, and its time just before

    def jump(self, ms: int) -> None:
        """Set the wall clock forward or back."""
        self._jumps.append((self._loop.now_us, self.wall_ms()))
        self._wall_offset_ms += ms

    def latest_ms(self, since_us: int) -> Millis:
        """The latest wall clock time that it has shown since that moment of virtual time."""
        return max([self.wall_ms(), *(said for at_us, said in self._jumps if at_us >= since_us)])

    def wall_ms(self) -> Millis:
        return Millis(WORLD_BEGAN_MS + self.monotonic_ms() + self._wall_offset_ms)

    def monotonic_ms(self) -> Millis:
        return Millis(int(self._loop.now_us * self._rate) // 1000)

    async def sleep_ms(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000 / self._rate)  # noqa: TID251 - the one place that waits in virtual time
