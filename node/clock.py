"""Time, as everything inside a node sees it: a clock that comes in by the constructor.

A simulated node gets a virtual one, so nothing else in `node/` may look at the machine's clocks or sleep by itself.
The real one is in `node/real.py`.
"""

from __future__ import annotations

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
