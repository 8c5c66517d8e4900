"""Names of nodes that mean nothing for a while, and then another address, as that of a pod that starts again."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tests.node.echo_server import serving
from tidelog.clock import MachineClock
from tidelog.errors import ConnectionFailed
from tidelog.protocol import grpc_transport, methods
from tidelog.protocol.grpc_transport import CONNECT_TIMEOUT_MS, LOOK_UP_AGAIN_S, GrpcTransport
from tidelog.protocol.v1 import data_pb2
from tidelog.types import Endpoint

A_RECORD = 1
NAME = "tidelog-1.tidelog-nodes"


class NameServer(asyncio.DatagramProtocol):
    """Answers for one name: with its address, or that no such name exists."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.lookups = 0
        """Questions for the address that found none."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        end = data.index(0, 12) + 5
        question, (kind,) = data[12:end], struct.unpack(">H", data[end - 4 : end - 2])
        answer, code = b"", 0
        if self.address is None:
            self.lookups += kind == A_RECORD
            code = 3
        elif kind == A_RECORD:
            # The name is that of the question; class IN, 30 s, four bytes.
            answer = struct.pack(">HHHIH", 0xC00C, A_RECORD, 1, 30, 4) + socket.inet_aton(self.address)
        head = data[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, int(bool(answer)), 0, 0)
        self._transport.sendto(head + question + answer, addr)


@asynccontextmanager
async def looked_up(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[NameServer, GrpcTransport]]:
    """A transport that asks a name server of the test."""
    connection, names = await asyncio.get_running_loop().create_datagram_endpoint(
        NameServer, local_addr=("127.0.0.1", 0)
    )
    host, port = connection.get_extra_info("sockname")
    monkeypatch.setattr(grpc_transport, "_target", lambda to: f"dns://{host}:{port}/{to.host}:{to.port}")
    transport = GrpcTransport()
    try:
        yield names, transport
    finally:
        await transport.close()
        connection.close()


async def reach(transport: GrpcTransport, port: int) -> None:
    request = data_pb2.GetReplicaLogInfoRequest()
    await transport.call(Endpoint(NAME, port), methods.DATA_GET_REPLICA_LOG_INFO, request, timeout_ms=10_000)


async def test_a_name_that_was_long_unknown_is_used_as_soon_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who waits for a node reaches it when it is there, however long it was away. Method: a name that has no
    address until it was looked up five times, which gRPC would do within 11 s, and the sixth time some 6 s later."""
    loop, clock = asyncio.get_running_loop(), MachineClock()
    async with looked_up(monkeypatch) as (names, transport), serving() as node:
        while names.lookups < 5:
            with pytest.raises(ConnectionFailed):
                await reach(transport, node.address.port)
            await clock.sleep_ms(50)
        names.address = node.address.host
        known_at = loop.time()
        while True:
            try:
                await reach(transport, node.address.port)
                break
            except ConnectionFailed:
                await clock.sleep_ms(50)
        assert loop.time() - known_at < 4 * LOOK_UP_AGAIN_S
        assert not transport._former, "one connection is left"


async def test_a_node_that_has_another_address_is_not_looked_for_at_the_former_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: the first call after a pod was replaced reaches it. Method: a node ends, and its name has another address,
    while nothing answers at the former one: gRPC would try that one first, for three seconds."""
    loop, clock = asyncio.get_running_loop(), MachineClock()
    async with looked_up(monkeypatch) as (names, transport):
        names.address = "127.0.0.2"
        async with serving(at=Endpoint("127.0.0.2", 0)) as former:
            port = former.address.port
            await reach(transport, port)
            connected_at = loop.time()
            while loop.time() - connected_at < LOOK_UP_AGAIN_S:
                await clock.sleep_ms(50)
        with socket.create_server(("127.0.0.2", port)):
            names.address = "127.0.0.3"
            async with serving(at=Endpoint("127.0.0.3", port)):
                began = loop.time()
                await reach(transport, port)
                assert loop.time() - began < CONNECT_TIMEOUT_MS / 1_000
