"""A node assigns each id of its block once, and requests another block when it is empty."""

from __future__ import annotations

import asyncio

import pytest

from node.requests.producer_ids import ProducerIds
from replication.controller.events import ProducerIdBlock
from tidelog.errors import NotController
from tidelog.types import ProducerId


class Blocks:
    """A controller that is slow, and sometimes not there."""

    def __init__(self) -> None:
        self.asked = 0
        self.there = True

    async def allocate(self) -> ProducerIdBlock:
        await asyncio.get_running_loop().create_task(_soon())
        if not self.there:
            raise NotController("there is no leader")
        self.asked += 1
        return ProducerIdBlock(ProducerId(self.asked * 100), 3)


async def _soon() -> None:
    """A turn of the loop."""


async def test_each_id_is_given_once_however_many_ask_at_once() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    assert await asyncio.gather(*(ids.take() for _ in range(7))) == [100, 101, 102, 200, 201, 202, 300]
    assert blocks.asked == 3


async def test_without_a_controller_an_empty_block_is_an_error_and_is_requested_again() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    blocks.there = False
    with pytest.raises(NotController):
        await ids.take()
    blocks.there = True
    assert await ids.take() == 100
