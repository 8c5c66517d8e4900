"""Clocks: every part of a node and of a client receives its time from one, by its constructor.

The simulator gives them a virtual clock, so no other module of `node/` or `tidelog/client/` reads the machine's clocks
or sleeps directly.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from tidelog.types import Millis, WallClock


class Clock(WallClock, Protocol):
    """Also monotonic time for delays, and sleeping."""

    def monotonic_ms(self) -> Millis:
        """Milliseconds since an arbitrary start. Never decreases."""
        ...

    async def sleep_ms(self, ms: int) -> None:
        """Return after at least `ms` milliseconds. 0 lets other tasks run once."""
        ...


class MachineClock:
    """The clocks of this machine."""

    def wall_ms(self) -> Millis:
        """Milliseconds since 1970 (UTC)."""
        return Millis(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> Millis:
        """Milliseconds since an arbitrary start."""
        return Millis(time.monotonic_ns() // 1_000_000)

    async def sleep_ms(self, ms: int) -> None:
        """Return after at least `ms` milliseconds."""
        await asyncio.sleep(ms / 1000)
