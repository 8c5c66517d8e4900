"""Clients of Kafka's listener that mean harm: they connect and never ask, announce frames and never send them, or go
away in the middle. Others must be served.

Not here: bytes that are no request (test_kafka_frames.py), made-up requests (tests/fuzz/kafka_requests.py).
"""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from node.api.metadata import TopicMetadata
from node.listeners.kafka import kafka_connection, kafka_tls
from node.listeners.kafka.frame_budget import SMALL_BYTES
from node.listeners.kafka.kafka_server import ANSWER_COPIES
from node.listeners.kafka.unread_answers import UnreadAnswers
from node.runtime.memory_budget import AnswerCharge, Kind, MemoryBudget
from tests.certificates import Authority
from tests.node.kafka_frames import FRAME_BYTES_MAX, Listener, both_ways, fetch, framed, kafka_listener, metadata
from tests.node.kafka_tls_clients import client_of, principal_of, tls_of

CONNECTIONS = 10_000


@asynccontextmanager
async def without_defects() -> AsyncIterator[None]:
    """Fails if the loop is told of an exception that nobody has handled."""
    loop, found = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: found.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)
    assert found == []


async def must_serve(listener: Listener) -> None:
    client = await listener.connect()
    client.send(metadata("topic", correlation_id=5))
    assert await client.correlation_id() == 5


# --- connections --------------------------------------------------------------------------------------------------


async def test_a_client_that_resets_its_connection_before_it_is_accepted_harms_nothing() -> None:
    """Its socket has no address any more. The listener took that for a defect."""
    async with kafka_listener() as listener, without_defects():
        for _ in range(20):
            with socket.create_connection((listener.address.host, listener.address.port)) as gone:
                gone.send(metadata("topic"))
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await must_serve(listener)
        await listener.until(lambda: len(listener.state.accepted) == 1)


async def test_many_open_connections_do_not_keep_others_out() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(CONNECTIONS, (hard - 500) // 2)
    address: tuple[str, int]
    opened: list[socket.socket] = []
    try:
        async with kafka_listener(connections_max=count + 1) as listener, without_defects():
            address = listener.address.host, listener.address.port
            loop = asyncio.get_running_loop()
            for number in range(count):
                opened.append(socket.socket())
                opened[-1].settimeout(0)
                await loop.sock_connect(opened[-1], address)
                opened[-1].send(b"\0\0\0" if number % 2 else b"")
            await listener.until(lambda: len(listener.state.accepted) == count)
            assert listener.state.budget.used == 0
            await must_serve(listener)
    finally:
        for each in opened:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_handshakes_that_are_never_ended_count_as_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were bounded by nothing, and a listener that stopped left them open."""
    monkeypatch.setattr(kafka_tls, "HANDSHAKE_MS", 600)
    authority = Authority(tmp_path)
    async with kafka_listener(tls=tls_of(authority.node()), connections_max=3) as listener, without_defects():
        silent = [await listener.connect() for _ in range(2)]
        garbage = await listener.connect()
        await listener.until(lambda: len(listener.state.accepted) == 3)
        further = await listener.connect()
        assert await further.is_closed()
        garbage.send(bytes(100))
        assert await garbage.is_closed()
        await listener.until(lambda: len(listener.state.accepted) == 2)
        assert await principal_of(listener, await listener.connect(client_of(authority.client()))) == "User:CN=alice"
        assert [await each.is_closed() for each in silent] == [True, True]
        await listener.until(lambda: len(listener.state.accepted) == 1)


async def test_a_listener_that_stops_ends_handshakes(tmp_path: Path) -> None:
    async with kafka_listener(tls=tls_of(Authority(tmp_path).node())) as listener:
        silent = await listener.connect()
        await listener.until(lambda: listener.state.accepted)
        await listener.server.stop(0)
        assert await silent.is_closed()


async def test_what_follows_a_refused_frame_is_not_read(tmp_path: Path) -> None:
    """With TLS it has arrived already, and asyncio passes it on while the connection ends."""
    authority = Authority(tmp_path)
    async with kafka_listener(tls=tls_of(authority.node())) as listener, without_defects():
        for behind in (b"", bytes(3), bytes(20_000)):
            client = await listener.connect(client_of(authority.client()))
            client.send(struct.pack(">i", -1) + behind)
            assert await client.is_closed()
            client = await listener.connect(client_of(authority.client()))
            client.send(framed(struct.pack(">hhi", 9_999, 0, 1) + b"\xff\xff") + behind)
            assert await client.is_closed()
        assert listener.service.begun == []


async def test_a_client_that_is_gone_when_it_is_answered_leaves_no_memory_taken() -> None:
    """The write of the answer finds the connection reset. The request that waits behind it was begun then, and
    cancelled before its first step: its memory was never given back, and in the end the listener read no request."""
    requests = metadata("held"), metadata("behind")
    async with kafka_listener() as listener, without_defects():
        for number in range(1, 4):
            held = listener.service.holds["held"] = asyncio.Event()
            with socket.create_connection((listener.address.host, listener.address.port)) as gone:
                gone.send(b"".join(requests))
                await listener.service.until_begun(number)
                await listener.until(lambda: listener.state.budget.used == sum(map(len, requests)) - 2 * 4)
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            held.set()
            await listener.until(lambda: not listener.state.connections and not listener.state.tasks)
            assert listener.state.budget.used == 0
        await must_serve(listener)


async def test_a_client_that_reads_late_and_then_sends_garbage_ends_its_connection_once(tmp_path: Path) -> None:
    """asyncio calls the end of a connection twice if it is closed when its last bytes leave: each time an error with a
    traceback was logged."""
    authority = Authority(tmp_path)
    for tls in (None, authority):
        async with kafka_listener(tls=None if tls is None else tls_of(tls.node())) as listener, without_defects():
            listener.service.records = bytes(8 << 20)
            client = await listener.connect(None if tls is None else client_of(tls.client()))
            client.send(fetch())
            await listener.until(lambda: any(each._blocked_s is not None for each in listener.state.connections))
            client.send(framed(struct.pack(">hhi", 9_999, 0, 1) + b"\xff\xff"))
            await client.receive()
            assert await client.is_closed()
            await listener.until(lambda: not listener.state.connections)


async def test_an_answer_that_is_not_read_is_not_taken_for_sent_with_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio says so while all of it waits for the socket: its memory was free, the next request was begun, and nobody
    ended the connection."""
    authority = Authority(tmp_path)
    async with kafka_listener(tls=tls_of(authority.node())) as listener, without_defects():
        listener.service.records = bytes(16 << 20)
        client = await listener.connect(client_of(authority.client()))
        client.send(fetch(), fetch())
        await listener.service.until_begun(1)
        (connection,) = listener.state.connections
        await listener.until(lambda: connection.is_busy and not listener.state.tasks)
        assert connection._transport.get_write_buffer_size() > 8 << 20
        assert len(listener.service.begun) == 1
        monkeypatch.setattr(kafka_connection, "UNREAD_ANSWER_MS", 0)
        monkeypatch.setattr(kafka_connection, "SLOW_READER_MS", 0)
        connection.check()
        await listener.until(lambda: not listener.state.connections)


# --- answers that nobody reads ---------------------------------------------------------------------------------------

LONG = tuple(TopicMetadata("x" * 30_000) for _ in range(400))
"""12 MB: more than the system takes for a client that does not read."""


@pytest.mark.parametrize("has_tls", [False, True])
async def test_answers_that_nobody_reads_are_bounded_together(tmp_path: Path, *, has_tls: bool) -> None:
    """Each connection may have one, of any size, for a minute: with thousands of connections, the memory of the node
    was full. The first client keeps its answer, which it may be reading."""
    authority = Authority(tmp_path)
    async with kafka_listener(tls=tls_of(authority.node()) if has_tls else None) as listener, without_defects():
        listener.service.topics = LONG
        context = client_of(authority.client()) if has_tls else None
        first, *others = [await listener.connect(context) for _ in range(4)]
        first.send(metadata("first"))
        await listener.until(lambda: listener.state.unread.used > 0)
        for client in others:
            client.send(metadata("more"))
        await listener.until(lambda: len(listener.state.connections) == 1)
        assert listener.state.unread.used <= 12_100_000
        assert all([await each.ends_early() for each in others])
        assert len(await first.receive()) > 12_000_000
        await listener.until(lambda: listener.state.unread.used == 0)
        listener.service.topics = ()
        first.send(metadata("again", correlation_id=5))
        assert await first.correlation_id() == 5


async def test_a_client_that_asks_again_and_again_has_one_answer_in_memory() -> None:
    """Nor does the node keep the value of an answer beside its bytes."""
    async with kafka_listener() as listener:
        listener.service.topics = LONG
        client = await listener.connect()
        client.send(*[metadata("again")] * 20)
        await listener.until(lambda: listener.state.unread.used > 0)
        assert len(listener.service.begun) == 1
        (connection,) = listener.state.connections
        assert [each.value for each in connection._unsent] == [None]
        assert await client.correlation_id() == 1


async def test_what_surrounds_unread_records_is_counted() -> None:
    """Records are in the memory budget, twice. Their second copy hid as many bytes of names."""
    names, size = [f"{number:030000d}" for number in range(30)], 100_000
    module = both_ways("FetchRequest").module
    asked = tuple(module.FetchTopic(topic=each, partitions=(module.FetchPartition(0, 0, 1 << 20),)) for each in names)
    async with kafka_listener() as listener:
        budget = MemoryBudget(1 << 30)
        charge = AnswerCharge(budget, Kind.CONSUMER_FETCH, ANSWER_COPIES)
        charge.add(size * len(names), budget.charge(Kind.CONSUMER_FETCH, 0))
        listener.service.records, listener.service.charge = bytes(size), charge
        client = await listener.connect()
        await listener.until(lambda: listener.state.connections)
        (connection,) = listener.state.connections
        connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        client.send(fetch(topics=asked))
        await listener.until(lambda: connection._unsent)
        assert 100_000 < listener.state.unread.used < 1_000_000


def test_clients_at_other_addresses_keep_their_answers() -> None:
    """Of the address that has the most bytes, the newest connection ends."""

    @dataclass(eq=False)
    class Client:
        host: str
        has_ended: bool = False

        def end_unread(self) -> None:
            self.has_ended = True

    answers = UnreadAnswers(100)
    few, *many = [Client("few"), *(Client("many") for _ in range(3))]
    for client in many:
        answers.add(client, 25)
    answers.add(few, 20)
    assert answers.used == 95
    late = Client("few")
    answers.add(late, 20)
    assert [each.has_ended for each in (*many, few, late)] == [False, False, True, False, False]
    assert (answers.used, answers.is_short) == (90, True)
    for client in many[:2]:
        answers.remove(client)
    assert (answers.used, answers.is_short) == (40, False)


# --- frames that never come ------------------------------------------------------------------------------------------


async def test_announced_frames_delay_no_small_ones() -> None:
    """Four bytes announce a frame that has the memory: the next request waited ten seconds for each of them."""
    async with kafka_listener() as listener:
        announcing = [await listener.connect() for _ in range(20)]
        for client in announcing:
            client.send(struct.pack(">i", FRAME_BYTES_MAX))
        await listener.until(lambda: listener.state.budget.is_short(FRAME_BYTES_MAX))
        await must_serve(listener)
        assert listener.state.budget.used <= listener.state.budget.bytes_max


async def test_requests_that_wait_for_records_delay_no_heartbeats() -> None:
    """A request has its memory until it is answered. Fetches with bytes behind them, that each wait for a minute, took
    all that small requests have."""
    async with kafka_listener() as listener:
        budget = listener.state.budget
        listener.service.holds["fetch"] = asyncio.Event()
        request = fetch()[4:]
        padded = framed(request + bytes(SMALL_BYTES - len(request)))
        for number in range(1, budget._small.bytes_max // SMALL_BYTES + 1):
            (await listener.connect()).send(padded)
            await listener.service.until_begun(number)
        (await listener.connect()).send(padded)
        await listener.until(lambda: budget.is_short(SMALL_BYTES))
        await must_serve(listener)


async def test_small_frames_that_are_announced_are_ended_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that arrive at the required rate are not."""
    monkeypatch.setattr(kafka_connection, "FRAME_MS", 0)
    async with kafka_listener() as listener:
        budget = listener.state.budget
        count = budget._small.bytes_max // SMALL_BYTES
        announcing = [await listener.connect() for _ in range(count)]
        for client in announcing:
            client.send(struct.pack(">i", SMALL_BYTES))
        await listener.until(lambda: budget.used == count * SMALL_BYTES)
        announcing[0].send(bytes(SMALL_BYTES - 1))
        await listener.until(lambda: any(each._filled == SMALL_BYTES - 1 for each in listener.state.connections))
        client = await listener.connect()
        client.send(struct.pack(">i", SMALL_BYTES))
        await listener.until(lambda: budget.is_short(SMALL_BYTES))
        for connection in list(listener.state.connections):
            connection.check()
        assert all([await each.is_closed() for each in announcing[1:]])
        await listener.until(lambda: not budget.is_short(SMALL_BYTES))
        assert len(listener.state.connections) == 2
        await must_serve(listener)
