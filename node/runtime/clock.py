"""Time, as everything inside a node sees it: a clock that comes in by the constructor.

A simulated node gets a virtual one, so nothing else in `node/` may look at the machine's clocks or sleep by itself.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from tidelog.types import Millis


class Clock(Protocol):
    """Wall-clock time for timestamps, monotonic time for delays, and waiting."""

    def wall_ms(self) -> Millis:
        """Milliseconds since 1970 (UTC). May jump; never measure a delay with it."""
        ...

    def monotonic_ms(self) -> Millis:
        """Milliseconds from an arbitrary start. Never goes back."""
        ...

    async def sleep_ms(self, ms: int) -> None:
        """Return after at least `ms` milliseconds (0: let other tasks run once)."""
        ...


class MachineClock:
    """The clocks of this machine."""

    def wall_ms(self) -> Millis:
        """Milliseconds since 1970 (UTC)."""
        return Millis(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> Millis:
        """Milliseconds from an arbitrary start."""
        return Millis(time.monotonic_ns() // 1_000_000)

    async def sleep_ms(self, ms: int) -> None:
        """Return after at least `ms` milliseconds."""
        await asyncio.sleep(ms / 1000)
