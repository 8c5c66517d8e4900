"""Callers that misuse connections, headers and messages, over real sockets: each is refused at a bounded cost, and the
listener serves others."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from node.boundary.boundary import Boundary
from node.config import parse
from node.listeners.grpc import connections as connections_module
from node.listeners.grpc import server, unread_answer
from node.listeners.grpc.codecs import codec_of
from node.listeners.grpc.connections import shut_down_connections
from node.listeners.grpc.health import READY, Health
from node.listeners.grpc.server import GrpcServer
from node.process.process import connections_of
from node.quotas.open_calls import OpenCalls
from node.requests.context import RequestContext
from node.runtime.memory_budget import AnswerCharge, Kind, MemoryBudget
from tests.client.memory_cluster import start, until
from tests.node.echo_server import PATIENCE_MS, EchoData, Fixture, serving
from tests.node.incomplete import PREFACE, frame, headers_of
from tests.node.message_services import gates_of, messages_of
from tests.record_values import fetched, sent
from tidelog.errors import InvalidRequest, TidelogError, UnsupportedVersion
from tidelog.protocol import methods
from tidelog.protocol.status import from_rpc_error
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchAnswer, ProduceRequest
from tidelog.types import Endpoint

S = PATIENCE_MS / 1000
CONNECTIONS = 10_000
"""Or as many as the system allows this process, which has both ends."""


WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


async def serves(at: Fixture) -> bool:
    """Whether a call on a new connection is answered by its handler."""
    async with grpc.aio.insecure_channel(str(at.address), [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call: Any = channel.unary_unary(methods.DATA_OFFSET_FOR_LEADER_EPOCH.path)
        return bool(await call(b"", timeout=S) == b"")


async def refusal(at: Fixture, request: bytes, **options: Any) -> grpc.aio.AioRpcError:
    """The error of a call to `Data.Fetch`."""
    async with grpc.aio.insecure_channel(str(at.address), [("grpc.max_send_message_length", -1)]) as channel:
        call: Any = channel.unary_unary(methods.DATA_FETCH.path)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(request, timeout=S, **options)
        return refused.value


@contextlib.asynccontextmanager
async def connections(
    at: Fixture | Endpoint, count: int
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    """Open TCP connections to the listener."""
    address = at if isinstance(at, Endpoint) else at.address
    opened = [await asyncio.open_connection(address.host, address.port) for _ in range(count)]
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


# --- messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_message_compressed_by_grpc_is_not_expanded(codec: grpc.Compression) -> None:
    """64 MiB in 64 KiB: the limit of a message, and more, for a thousandth of the bytes."""
    bomb = data_pb2.FetchRequest(rack="a" * (64 << 20)).SerializeToString()
    async with serving() as at:
        error = from_rpc_error(await refusal(at, bomb, compression=codec), address=at.address, phase="a test")
        assert isinstance(error, InvalidRequest)
        assert "gRPC's compression is not supported" in error.message
        assert at.meters.of("Data.Fetch").request_bytes < 100_000, "what was received, not what it expands to"
        assert await serves(at)


async def test_a_request_without_records_is_limited_far_below_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.boundary.boundary.REQUEST_BYTES_MAX", 10_000)
    request = data_pb2.FetchRequest(rack="a" * 10_001).SerializeToString()
    async with serving() as at:
        error = from_rpc_error(await refusal(at, request), address=at.address, phase="a test")
        assert isinstance(error, InvalidRequest)
        assert "at most 10000 are allowed" in error.message
        stream = await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM)
        large = sent(bytes(500_000), correlation_id=7, partition=3)
        await stream.send(ProduceRequest(-1, 0, [large]))
        answer = await stream.receive()
        assert answer is not None
        assert answer.partitions[0].base_offset == 500_000, "records are limited by the topic"


@pytest.mark.parametrize(
    "headers",
    [
        [("x-large", "v" * 65_536)],
        [(f"x-many-{number}", "v" * 100) for number in range(1_000)],
        [("tidelog-client-id", "v" * 65_536)],
        [("x-binary-bin", bytes(65_536))],
    ],
    ids=["one large", "many", "client id", "binary"],
)
async def test_a_flood_of_headers_is_refused(headers: list[tuple[str, str | bytes]]) -> None:
    async with serving() as at:
        refused = await refusal(at, b"", metadata=headers)
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await serves(at)


async def test_an_error_that_quotes_the_request_arrives_as_itself() -> None:
    """A longer status exceeded the limit of the caller's headers, and the caller got an error of gRPC instead."""

    class Quoting(EchoData):
        async def list_offsets(self, request: Any, context: RequestContext) -> data_pb2.ListOffsetsResponse:
            raise UnsupportedVersion("\u20ac" * 500_000)

    async with serving(Quoting()) as at:
        with pytest.raises(UnsupportedVersion, match=r"^\u20ac+\u2026$"):
            await at.transport.call(
                at.address, methods.DATA_LIST_OFFSETS, data_pb2.ListOffsetsRequest(), timeout_ms=PATIENCE_MS
            )


# --- connections --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"PRI * HTTP/2.0\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(range(256)) * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    ],
    ids=["nothing", "half a preface", "HTTP/1.1", "junk", "TLS"],
)
async def test_a_connection_that_never_speaks_http2_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_MS", 200)
    async with serving() as at, connections(at, 3) as opened:
        for reader, writer in opened:
            writer.write(sent)
            with contextlib.suppress(ConnectionError):
                while await reader.read(65_536):
                    pass
        assert await serves(at)


async def test_connections_without_calls_whose_other_side_is_frozen_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were never probed, and counted for `max.connections` for ever. The system of a frozen process still
    acknowledges bytes; a connection whose other side answers pings is kept."""
    monkeypatch.setattr(server, "KEEPALIVE_MS", 50)
    monkeypatch.setattr(server, "PING_TIMEOUT_MS", 1_000)
    settings, ping = frame(4, 0, 0, b"") + frame(4, 1, 0, b""), 6

    async def until_closed(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                pass

    async def answer_pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == ping and not head[4]:
                writer.write(frame(ping, 1, 0, payload))

    async with serving() as at, connections(at, 4) as opened:
        for _, writer in opened:
            writer.write(PREFACE + settings)
        alive = start(answer_pings(*opened[0]))
        await asyncio.gather(*(until_closed(reader) for reader, _ in opened[1:]))
        assert not alive.done()
        alive.cancel()
        assert await serves(at)


async def test_many_open_connections_do_not_keep_others_out() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    count = min(CONNECTIONS, (hard - 500) // 2)

    try:
        async with serving() as at, connections(at, count) as opened:
            for _, writer in opened:
                writer.write(PREFACE + frame(4, 0, 0, b""))  # SETTINGS: the handshake is complete
            for reader, _ in opened:
                assert await reader.readexactly(9), "the other side's settings"
            assert await serves(at)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connections_above_the_limit_are_closed_until_others_end() -> None:
    """A process without a free file descriptor could open no segment and took its log directory offline."""

    async def is_served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(PREFACE + frame(4, 0, 0, b""))
        try:
            return bool(await reader.read(9))
        except ConnectionError:
            return False

    listener = GrpcServer("client", boundary=Boundary(), connections_max=20)
    address = listener.bind(Endpoint("127.0.0.1", 0))
    listener.serve(gates_of({methods.DATA: EchoData()}), codec_of=messages_of)
    await listener.start()
    opened = [await asyncio.open_connection(address.host, address.port) for _ in range(30)]
    served = [await is_served(*each) for each in opened]
    assert served == [True] * 20 + [False] * 10
    opened[7][1].close()
    async with asyncio.timeout(S):
        while not await is_served(*await asyncio.open_connection(address.host, address.port)):
            pass
    for _, writer in opened:
        writer.close()
    await listener.stop(0)


async def test_idle_connections_are_closed() -> None:
    """A client that goes on later connects again, and is not told."""
    listener = GrpcServer("client", boundary=Boundary(), idle_ms_max=50)
    address = listener.bind(Endpoint("127.0.0.1", 0))
    listener.serve(gates_of({methods.DATA: EchoData()}), codec_of=messages_of)
    await listener.start()
    async with grpc.aio.insecure_channel(str(address)) as channel, asyncio.timeout(S):
        await channel.channel_ready()
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        assert channel.get_state() is grpc.ChannelConnectivity.IDLE
        await channel.channel_ready()
    await listener.stop(0)


def test_half_of_the_files_remain_for_logs() -> None:
    text = 'listeners = ["GRPC://127.0.0.1:9192"]\n"controller.quorum.bootstrap.servers" = ["127.0.0.1:9192"]'
    config = parse(text, {}, source="a test", host_name="node-1")
    assert connections_of(config, files=1_024) == 512
    assert connections_of(config, files=resource.RLIM_INFINITY) == config.connections_max == 10_000
    listeners = (*config.listeners, replace(config.listeners[0], name="nodes"))
    assert connections_of(replace(config, listeners=listeners), files=1_024) == 256
    assert connections_of(replace(config, connections_max=9), files=1_024) == 9


# --- callers that do not read, or do not write ----------------------------------------------------------------------


def call_without_a_window(path: str, message: bytes = b"") -> bytes:
    """A call in frames of HTTP/2, by a caller that allows the other side to send 0 bytes of an answer (RFC 9113)."""
    return (
        PREFACE
        + frame(4, 0, 0, struct.pack(">HI", 4, 0))  # SETTINGS: INITIAL_WINDOW_SIZE = 0
        + frame(1, 4, 1, headers_of(path))  # HEADERS, END_HEADERS
        + frame(0, 1, 1, struct.pack(">BI", 0, len(message)) + message)  # DATA, END_STREAM
    )


async def test_the_connection_of_a_caller_that_does_not_read_an_answer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer of a unary call was kept for as long as the connection."""

    class Answers(EchoData):
        async def fetch(self, request: data_pb2.FetchRequest, context: RequestContext) -> FetchAnswer:
            return FetchAnswer([fetched(records=bytes(1_000_000))])

    shut: list[str] = []

    def shut_down(peers: set[str]) -> int:
        shut.extend(peers)
        return shut_down_connections(peers)

    monkeypatch.setattr(unread_answer, "UNREAD_ANSWER_MS", 300)
    monkeypatch.setattr(connections_module, "shut_down_connections", shut_down)
    async with serving(Answers()) as at, connections(at, 1) as [(reader, writer)]:
        for _ in range(3):
            await at.transport.call(at.address, methods.DATA_FETCH, data_pb2.FetchRequest(), timeout_ms=PATIENCE_MS)
        writer.write(call_without_a_window(methods.DATA_FETCH.path))
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                pass
        port = writer.get_extra_info("sockname")[1]
        assert shut == [f"ipv4:127.0.0.1:{port}"], "an answer that is read closes nothing"
        assert at.meters.of("Data.Fetch").response_bytes > 4_000_000, "the answer was made"
        assert await serves(at)


async def test_an_unread_answer_gives_back_memory_that_others_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a call had the consumers' memory for a minute, and a stream for 10 s. A caller that keeps no memory
    of theirs is left alone."""
    budget = MemoryBudget(1_000_000)

    class Answers(EchoData):
        async def fetch(self, request: Any, context: RequestContext) -> Any:
            charge = AnswerCharge(budget, Kind.CONSUMER_FETCH, 3)
            if request.max_wait_ms:
                return FetchAnswer([])
            charge.add(250_000, budget.charge(Kind.CONSUMER_FETCH, 0))
            return FetchAnswer([], charge)

    shut: list[str] = []

    def shut_down(peers: set[str]) -> int:
        shut.extend(peers)
        return shut_down_connections(peers)

    monkeypatch.setattr(unread_answer, "SLOW_READER_MS", 100)
    monkeypatch.setattr(connections_module, "shut_down_connections", shut_down)
    async with serving(Answers(), codec_of) as at, connections(at, 2) as [(_, small), (reader, large)]:
        path, calls = methods.DATA_FETCH.path, at.meters.of("Data.Fetch")
        small.write(call_without_a_window(path, data_pb2.FetchRequest(max_wait_ms=1).SerializeToString()))
        large.write(call_without_a_window(path))
        await until(lambda: calls.answered == 2)
        assert budget.figures.used[Kind.CONSUMER_FETCH] == 750_000
        (await budget.take(Kind.CONSUMER_FETCH, 100_000)).release()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        assert shut == [f"ipv4:127.0.0.1:{large.get_extra_info('sockname')[1]}"]
        assert budget.figures.used[Kind.CONSUMER_FETCH] == 0


async def test_calls_that_are_reset_at_once_leave_nothing_behind() -> None:
    """The rapid reset of HTTP/2 (CVE-2023-44487): more calls than gRPC lets wait, each ended as soon as it is begun."""
    async with serving() as at, connections(at, 1) as [(reader, writer)]:
        writer.write(PREFACE + frame(4, 0, 0, b"") + frame(4, 1, 0, b""))
        headers = headers_of(methods.DATA_FETCH_STREAM.path)
        for stream in range(1, 20_001, 2):
            writer.write(frame(1, 4, stream, headers) + frame(3, 0, stream, struct.pack(">I", 8)))
        await writer.drain()
        served = False
        while not served:  # meanwhile gRPC ends calls that it has no room to let wait
            with contextlib.suppress(grpc.aio.AioRpcError):
                served = await serves(at)
        await until(lambda: at.meters.of("Data.FetchStream").streams_open == 0)
        assert at.boundary.calls._by_ip == {}
        assert at.meters.of("Data.FetchStream").streams_ended, "some were begun"
        assert not reader.at_eof()


async def test_streams_that_never_send_cost_others_nothing() -> None:
    async with serving() as at:
        silent = [await at.transport.open_stream(at.address, methods.DATA_PRODUCE_STREAM) for _ in range(300)]
        assert await serves(at)
        await until(lambda: at.meters.of("Data.ProduceStream").streams_open == 300)
        silent[7].close()
        with pytest.raises(TidelogError):
            await silent[7].receive()


@contextlib.asynccontextmanager
async def answering_everyone(boundary: Boundary | None = None) -> AsyncIterator[tuple[Health, Endpoint]]:
    """A listener with the services that need no credentials."""
    health = Health(())
    health.alive()
    listener = GrpcServer("client", boundary=boundary or Boundary())
    address = listener.bind(Endpoint("127.0.0.1", 0))
    listener.serve_health(health.servicer)
    await listener.start()
    try:
        yield health, address
    finally:
        await listener.stop(0)


async def test_watches_of_the_health_service_are_open_calls_of_their_address() -> None:
    """They were counted nowhere: a caller without any permission could open 10,000 on each connection."""
    boundary = Boundary(calls=OpenCalls(per_ip=2))
    async with answering_everyone(boundary) as (_, address), grpc.aio.insecure_channel(str(address)) as channel:
        watch: Any = channel.unary_stream(WATCH)
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        first, second = watch(b"", timeout=S), watch(b"", timeout=S)
        assert await first.read() == await second.read()
        with pytest.raises(grpc.aio.AioRpcError, match=r"max\.open\.calls\.per\.ip"):
            await watch(b"", timeout=S).read()
        assert await check(b"", timeout=S), "a probe is answered"
        first.cancel()
        await until(lambda: boundary.calls._by_ip == {"127.0.0.1": 1})


async def test_streams_of_reflection_are_open_calls_of_their_address() -> None:
    """As the watches were: open for ever, counted nowhere, and without credentials."""
    boundary = Boundary(calls=OpenCalls(per_ip=2))
    async with answering_everyone(boundary) as (_, address), grpc.aio.insecure_channel(str(address)) as channel:
        reflect: Any = channel.stream_stream(REFLECTION)
        silent = [reflect(timeout=S) for _ in range(2)]
        for each in silent:
            await each.write(reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString())
            assert b"grpc.health.v1.Health" in await each.read()
        with pytest.raises(grpc.aio.AioRpcError, match=r"max\.open\.calls\.per\.ip"):
            await reflect(timeout=S).read()
        silent.pop().cancel()
        await until(lambda: boundary.calls._by_ip == {"127.0.0.1": 1})


@pytest.mark.parametrize("path", [WATCH, REFLECTION])
async def test_requests_of_services_for_everyone_contain_a_name_and_no_more(path: str) -> None:
    """A watch keeps its request for as long as it is open, and an answer of reflection repeats it."""
    large = health_pb2.HealthCheckRequest(service="x" * 1_000_000).SerializeToString()
    async with answering_everyone() as (_, address), grpc.aio.insecure_channel(str(address)) as channel:
        call: Any = channel.stream_stream(path)(timeout=S)
        await call.write(large)
        with pytest.raises(grpc.aio.AioRpcError, match="1000004 bytes, at most 4096 are allowed"):
            await call.read()


async def test_a_watcher_that_does_not_read_keeps_the_node_from_nothing() -> None:
    """Without credentials, it kept the node from becoming ready, and from reporting that it was not any more: the state
    could change only after the watcher had read."""
    boundary, answer = Boundary(), health_pb2.HealthCheckResponse
    request = health_pb2.HealthCheckRequest(service=READY).SerializeToString()
    async with answering_everyone(boundary) as (health, at), connections(at, 1) as [(_, writer)]:
        writer.write(call_without_a_window(WATCH, request))
        await until(lambda: boundary.calls._by_ip)
        async with grpc.aio.insecure_channel(str(at)) as channel, asyncio.timeout(S):
            begin: Any = channel.unary_stream(WATCH, response_deserializer=answer.FromString)
            watch = begin(request)
            assert (await watch.read()).status == answer.NOT_SERVING
            health.ready(is_ready=True)
            assert (await watch.read()).status == answer.SERVING
