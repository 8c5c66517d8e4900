"""Nodes whose clients log in with passwords."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.node.real_nodes import RealNodes
from tidelog import Sasl
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
