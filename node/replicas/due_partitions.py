"""The queue of partitions whose metadata changed, applied a few per turn of the loop.

An image may change thousands of partitions, for example when a topic is deleted or a node fails. Those that exceed the
limit of a turn are applied in later turns. A queued partition is in the state that it would have if the image had
arrived later. The newest image is always the one applied.
Not here: how an image is applied (replica_manager.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice

from tidelog.clock import Clock
from tidelog.types import PartitionKey


class DuePartitions:
    """Partitions in the order of their changes; a further change does not move a partition."""

    def __init__(self, clock: Clock, at_once: int, carry_out: Callable[[PartitionKey], None]) -> None:
        """at_once: partitions per turn. carry_out: applies the newest image to a partition."""
        self._clock, self._at_once, self._carry_out = clock, at_once, carry_out
        self._due: dict[PartitionKey, None] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """Queue partitions that changed."""
        self._due.update(dict.fromkeys(keys))

    def carry_out_some(self) -> None:
        """Apply the partitions of one turn."""
        for key in list(islice(self._due, self._at_once)):
            self._due.pop(key, None)
            self._carry_out(key)
        if self._due:
            self._wake.set()

    def clear(self) -> None:
        """Remove all partitions from the queue."""
        self._due.clear()

    async def run(self) -> None:
        """Apply the rest, turn by turn, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._clock.sleep_ms(0)
            self.carry_out_some()
