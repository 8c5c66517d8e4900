"""Nodes whose clients log in with passwords."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.node.real_nodes import RealNodes
from tidelog import Consumer, Sasl, sync
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.sasl_client import SaslClient

ALICE = Sasl("alice", "tulip")


def knows_alice(nodes: RealNodes, number: int) -> bool:
    image = nodes.nodes[number].node.image
    return image is not None and len(image.scram) == 2


def inside(nodes: RealNodes) -> str:
    return ",".join(map(str, nodes.addresses))


def outside(nodes: RealNodes) -> str:
    return ",".join(map(str, nodes.outside))


@asynccontextmanager
async def transport_of(sasl: Sasl | None) -> AsyncIterator[GrpcTransport]:
    transport = GrpcTransport(sasl=None if sasl is None else SaslClient(sasl, random.Random(5)))
    try:
        yield transport
    finally:
        await transport.close()


async def ensure_records_arrive(nodes: RealNodes, sasl: Sasl, records: list[bytes | None]) -> None:
    """Read the topic `orders` from its start: exactly these records are there."""
    async with Consumer(outside(nodes), sasl=sasl) as consumer:
        consumer.assign([("orders", 0)])
        read: list[bytes | None] = []
        while len(read) < len(records):
            read += [record.value for record in await consumer.poll()]
    assert read == records


async def topics_of_a_synchronous_client(nodes: RealNodes, sasl: Sasl) -> list[str]:
    """The names of the topics that a synchronous client lists, in a thread as a program without a loop would."""

    def listed() -> list[str]:
        with sync.Admin(outside(nodes), sasl=sasl) as admin:
            return [topic.name for topic in admin.list_topics()]

    return await asyncio.get_running_loop().run_in_executor(None, listed)
