"""A clock for stories that wait long."""

from __future__ import annotations

from tests.client.memory_cluster import CLOCK
from tidelog.clock import MachineClock
from tidelog.types import Millis


class WaitsNotAtAll(MachineClock):
    """A clock that stands still, and jumps when it is waited for."""

    def __init__(self) -> None:
        self._now_ms = 0

    def monotonic_ms(self) -> Millis:
        return Millis(self._now_ms)

    async def sleep_ms(self, ms: int) -> None:
        self._now_ms += ms
        await CLOCK.sleep_ms(0)
