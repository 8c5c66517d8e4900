"""Producer ids that this node assigns: from a block, and from the controller's next block when it is exhausted.

Invariant: no id is assigned twice, by this process or any other. A block belongs to one incarnation; what that leaves
unused is never assigned.
Not here: the allocation of blocks (replication/controller/controller.py).
Source: KIP-730, Kafka's RPCProducerIdManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from replication.controller.events import ProducerIdBlock
from tidelog.types import ProducerId


class ProducerIds:
    """The current block of producer ids."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        """allocate: requests a block from the active controller."""
        self._allocate = allocate
        self._next = self._end = 0
        self._turn = asyncio.Lock()

    async def take(self) -> ProducerId:
        """An unused producer id. Raises as `allocate`; no id is taken then."""
        async with self._turn:
            if self._next == self._end:
                block = await self._allocate()
                self._next, self._end = block.first_producer_id, block.first_producer_id + block.count
            taken = ProducerId(self._next)
            self._next += 1
            return taken
