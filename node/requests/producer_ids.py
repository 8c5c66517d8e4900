"""Producer ids that this process may give away: a block of them, and another one from the controller when it is empty.

Kept true: no id is given twice, by this process or by any other: a block belongs to one life of one process, and what
is left of it when that ends is never used.
Left to others: which block comes next (replication/controller/controller.py). Source: KIP-730, Kafka's
RPCProducerIdManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from replication.controller.events import ProducerIdBlock
from tidelog.types import ProducerId


class ProducerIds:
    """The block of producer ids that this process gives away."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        """allocate: asks the active controller for a block."""
        self._allocate = allocate
        self._next = self._end = 0
        self._turn = asyncio.Lock()

    async def take(self) -> ProducerId:
        """An id that nobody has. Raises as `allocate` does, with nothing taken."""
        async with self._turn:
            if self._next == self._end:
                block = await self._allocate()
                self._next, self._end = block.first_producer_id, block.first_producer_id + block.count
            taken = ProducerId(self._next)
            self._next += 1
            return taken
