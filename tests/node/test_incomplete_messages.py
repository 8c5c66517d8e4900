"""Messages that are never completed: gRPC keeps what has arrived of them, and the node bounds how much that is."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from node.boundary.boundary import Boundary
from node.listeners.grpc import incomplete_messages
from node.listeners.grpc.connections import Address, Traffic, traffic_of
from node.listeners.grpc.incomplete_messages import IncompleteMessages
from node.listeners.grpc.server import GrpcServer
from tests.client.memory_cluster import start, until
from tests.node.echo_server import PATIENCE_MS, EchoData, produce, serving
from tests.node.incomplete import EndlessSender
from tests.node.message_services import gates_of, messages_of
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.rpc import Method
from tidelog.types import Endpoint

MIB = 1 << 20
ATTACKER, CLIENT = "192.0.2.1", "192.0.2.2"


class Sockets:
    """What the kernel reports of the connections of a listener, and those that were shut down."""

    def __init__(self, bytes_max: int = 10 * MIB) -> None:
        self.traffic: dict[Address, Traffic] = {}
        self.closed: set[Address] = set()
        self.incomplete = IncompleteMessages(
            bytes_max, memory=lambda: 0, traffic=lambda _port: self.traffic, shut_down=self._shut_down
        )

    def _shut_down(self, addresses: Collection[Address]) -> None:
        self.closed |= set(addresses)
        for address in addresses:
            del self.traffic[address]

    def receive(self, host: str, size: int, *, port: int = 1, sent: int = 0) -> None:
        """Bytes of any kind arrive."""
        before = self.traffic.get((host, port), Traffic(0, 0))
        self.traffic[host, port] = Traffic(before.sent + sent, before.received + size)

    def complete(self, host: str, size: int, *, port: int = 1) -> None:
        """A whole message arrives, and is given to the node."""
        self.receive(host, size + size // 200 + 300, port=port)
        self.incomplete.delivered(f"ipv4:{host}:{port}", size)


def test_the_connection_with_the_most_is_closed_first() -> None:
    """One connection with 64 calls occupied 3.7 GB."""
    sockets = Sockets()
    sockets.receive(ATTACKER, 4 * MIB, port=1)
    sockets.receive(ATTACKER, 6 * MIB, port=2)
    sockets.incomplete.examine(0.25)
    assert not sockets.closed
    sockets.receive(ATTACKER, MIB, port=1)
    sockets.incomplete.examine(0.25)
    assert sockets.closed == {(ATTACKER, 2)}


def test_an_address_with_many_connections_does_not_get_those_of_others_closed() -> None:
    sockets = Sockets()
    sockets.receive(CLIENT, 4 * MIB)
    for port in range(1, 101):
        sockets.receive(ATTACKER, MIB // 2, port=port)
    sockets.incomplete.examine(0.25)
    assert {host for host, _ in sockets.closed} == {ATTACKER}
    assert len(sockets.closed) == 88


def test_what_was_delivered_is_not_held_however_much_it_was() -> None:
    """Frames, headers and TLS cost bytes besides the messages, of every connection for as long as it lives."""
    sockets = Sockets()
    for number in range(20_000):
        sockets.complete(CLIENT, 100 if number % 2 else 100_000)
        sockets.receive(CLIENT, 200, sent=100_000)  # acknowledgements of answers
        if number % 100 == 0:
            sockets.incomplete.examine(0.25)
    sockets.incomplete.examine(0.25)
    assert not sockets.closed
    sockets.receive(CLIENT, 11 * MIB)
    sockets.incomplete.examine(0.25)
    assert sockets.closed == {(CLIENT, 1)}


def test_idle_connections_are_kept_for_days() -> None:
    """Keepalive pings in TLS, for a week: they looked like buffered messages, and honest clients were disconnected."""
    sockets, minute = Sockets(), 60
    for _ in range(7 * 24 * 60):
        for port in range(1, 11):
            sockets.receive(CLIENT, 10 * minute, sent=10 * minute, port=port)
        sockets.incomplete.examine(minute)
    assert not sockets.closed
    sockets.receive(CLIENT, 11 * MIB, sent=11 * MIB)
    sockets.incomplete.examine(minute)
    assert sockets.closed == {(CLIENT, 1)}


def test_a_message_that_arrives_slowly_counts() -> None:
    """The node answers nothing, so that what it receives is no keepalive."""
    sockets = Sockets()
    for _ in range(70_000):
        sockets.receive(ATTACKER, 160)
        sockets.incomplete.examine(10)
    assert sockets.closed == {(ATTACKER, 1)}


def test_complete_messages_buy_no_room_for_incomplete_ones() -> None:
    """A million small messages explain a gigabyte of overhead that did not arrive."""
    sockets = Sockets()
    for _ in range(100):
        for _ in range(1_000):
            sockets.complete(ATTACKER, 10)
        sockets.incomplete.examine(0.25)
    sockets.receive(ATTACKER, 11 * MIB)
    sockets.incomplete.examine(0.25)
    assert sockets.closed == {(ATTACKER, 1)}


def test_a_connection_that_is_gone_leaves_nothing() -> None:
    sockets = Sockets()
    for port in range(1, 1_001):
        sockets.complete(CLIENT, 100, port=port)
    sockets.incomplete.examine(0.25)
    assert len(sockets.incomplete._delivered) == len(sockets.incomplete._buffered) == 1_000
    sockets.traffic.clear()
    sockets.incomplete.examine(0.25)
    assert not sockets.incomplete._delivered
    assert not sockets.incomplete._buffered


@pytest.mark.parametrize(
    ("memory", "examined"),
    [
        ([100, 115, 130, 130, 130], 1),  # it has grown by 16 MiB
        ([100, 110, 100, 110, 100], 0),
        ([100, 150, 100, 116, 116], 2),  # it fell in between
        ([100, *[150] * 9], 2),  # it stays high: again after 2 s
    ],
)
async def test_connections_are_examined_when_the_memory_grows_or_stays_high(
    memory: list[int], examined: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle node examines nothing. Memory that was released stays with the process and need not grow again."""
    looks: list[int] = []
    now, used = 100.0, memory[0]

    def look(port: int) -> dict[Address, Traffic]:
        looks.append(port)
        return {}

    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    incomplete = IncompleteMessages(memory=lambda: used * MIB, traffic=look)
    incomplete.start(1)
    for value in memory[1:]:
        now, used = now + incomplete_messages.CHECK_MS / 1_000, value
        incomplete._check()
    incomplete.stop()
    assert len(looks) == examined


# --- real sockets ---


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are examined all the time."""
    monkeypatch.setattr(incomplete_messages, "CHECK_MS", 10)
    monkeypatch.setattr(incomplete_messages, "GROWTH_BYTES", -(1 << 60))


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("method", [methods.DATA_PRODUCE, methods.DATA_PRODUCE_STREAM], ids=str)
async def test_a_caller_that_completes_nothing_is_disconnected_and_others_are_not(method: Method) -> None:  # type: ignore[type-arg]
    server, transport = GrpcServer("client", boundary=Boundary(), incomplete_bytes_max=4 * MIB), GrpcTransport()
    address = server.bind(Endpoint("127.0.0.1", 0))
    server.serve(gates_of({methods.DATA: EchoData()}), codec_of=messages_of)
    await server.start()
    try:
        async with asyncio.timeout(PATIENCE_MS / 1_000):
            slow = EndlessSender(method.path, 1, MIB, host="127.0.0.2")
            slowly = start(slow.run(address))
            await until(lambda: slow.sent == MIB - 1)
            hostile = [EndlessSender(method.path, 8, 2 * MIB) for _ in range(3)]
            await asyncio.gather(*(each.run(address) for each in hostile))
            assert sum(each.sent for each in hostile) > 2 * MIB
            assert not slow.closed
            stream = await transport.open_stream(address, methods.DATA_PRODUCE_STREAM)
            await stream.send(produce(bytes(100_000)))
            assert await stream.receive() is not None
            slowly.cancel()
    finally:
        await transport.close()
        await server.stop(0)


@pytest.mark.usefixtures("often")
async def test_a_stream_of_many_complete_messages_goes_on() -> None:
    async with serving() as at:
        at.server._incomplete._bytes_max = 1_200_000  # more than one message, far less than all
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)
        for _ in range(100):
            await stream.send(produce(bytes(1_000_000)))
            assert await stream.receive() is not None


def test_looking_at_the_connections_opens_nothing() -> None:
    """A copy of each file that is no socket was left open."""
    own = Path("/proc/self/fd")
    before = len(list(own.iterdir()))
    assert [traffic_of(1) for _ in range(3)] == [{}] * 3
    assert len(list(own.iterdir())) == before
