"""A client that is closed while answers arrive is closed, and has not failed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.memory_cluster import memory_cluster, until
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.errors import InvalidRequest
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.types import Endpoint


class HeldMetadata(GrpcTransport):
    """Holds the answers about metadata back until the event is set."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()
        self.held = 0

    async def call(self, to: Endpoint, method: Any, request: Any, *, timeout_ms: int) -> Any:
        answer = await super().call(to, method, request, timeout_ms=timeout_ms)
        if method is methods.ADMIN_GET_METADATA:
            self.held += 1
            await self.release.wait()
        return answer


@pytest.mark.parametrize("kind", [Consumer, Producer])
async def test_an_answer_in_the_turn_of_the_close_is_no_defect(kind: type[Consumer | Producer]) -> None:
    """The answer about the metadata wakes its task before the tasks are cancelled."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        transport = HeldMetadata()
        transport.release.set()
        client = kind(cluster.bootstrap, transport=transport)
        await client.start()
        if isinstance(client, Consumer):
            client.assign(await client.partitions("orders"))
            await client.poll(timeout=0)
        else:
            await client.send("orders", b"1")
        transport.release.clear()
        before = transport.held
        cluster.lead("orders", 0, 0)  # the client is refused for its epoch, and looks up the leader
        if isinstance(client, Producer):
            client.send_nowait("orders", b"2")
        await until(lambda: transport.held > before)
        transport.release.set()
        await client.close(**({} if isinstance(client, Consumer) else {"flush": False}))
        with pytest.raises(InvalidRequest, match=r"^the (consumer|producer) is closed: use it"):
            if isinstance(client, Consumer):
                await client.poll()
            else:
                await client.send("orders", b"3")
        await transport.close()
