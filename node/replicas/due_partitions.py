"""Partitions of which the metadata has news, carried out a few in each turn of the loop.

An image may be about thousands of partitions: a deleted topic, a node that has failed. What is not done in the turn in
which it came is done in the next ones; until then a partition is where it would be had the image come later. It is
always the newest image that is acted on.
Left to others: what is done (replica_manager.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice

from node.runtime.clock import Clock
from tidelog.types import PartitionKey


class DuePartitions:
    """In the order in which they came; one that is due already keeps its place."""

    def __init__(self, clock: Clock, at_once: int, carry_out: Callable[[PartitionKey], None]) -> None:
        """at_once: so many in one turn."""
        self._clock, self._at_once, self._carry_out = clock, at_once, carry_out
        self._due: dict[PartitionKey, None] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """These have news."""
        self._due.update(dict.fromkeys(keys))

    def carry_out_some(self) -> None:
        """As many as one turn may take."""
        for key in list(islice(self._due, self._at_once)):
            self._due.pop(key, None)
            self._carry_out(key)
        if self._due:
            self._wake.set()

    def clear(self) -> None:
        """Nothing is to be carried out any more."""
        self._due.clear()

    async def run(self) -> None:
        """Carry out the rest, turn by turn, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._clock.sleep_ms(0)
            self.carry_out_some()
