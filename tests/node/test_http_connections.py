"""The HTTP port of a node under peers that are slow on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from node.listeners.http.http_tls import HttpTls
from node.observability import metrics_server
from node.observability.metrics_server import MetricsServer
from tests.certificates import Authority
from tests.node.kafka_tls_clients import client_of
from tidelog.clock import MachineClock
from tidelog.types import Endpoint

MOST = 8
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "HTTP_CONNECTIONS_MAX", MOST)


@asynccontextmanager
async def serving(text: Callable[[], Awaitable[bytes]], tls: HttpTls | None = None) -> AsyncIterator[Endpoint]:
    server = MetricsServer(text, tls=None if tls is None else tls.context)
    yield await server.start(Endpoint("127.0.0.1", 0))
    await server.stop()


async def metrics() -> bytes:
    return b"one 1\n"


async def connected(address: Endpoint, data: bytes) -> Streams:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the node has closed the connection, without an answer."""
    with suppress(ConnectionResetError):
        return await reader.read() == b""
    return True


async def test_peers_that_never_end_their_requests_keep_no_scraper_out() -> None:
    """The one that has waited longest makes room."""
    async with serving(metrics) as address:
        slow = [await connected(address, b"GET /metrics HTTP/1.1\r\nX: ") for _ in range(MOST)]
        reader, writer = await connected(address, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"one 1\n")
        assert await is_closed(slow[0][0])
        slow[1][1].write(b"y\r\n\r\n")
        assert (await slow[1][0].read()).endswith(b"one 1\n"), "only one of them had to go"
        for _, each in [*slow, (reader, writer)]:
            each.close()


async def test_peers_that_begin_no_handshake_keep_no_scraper_out(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    tls = HttpTls("GRPC_SSL", authority.node(), MachineClock())
    async with serving(metrics, tls) as address:
        silent = [await connected(address, b"") for _ in range(MOST)]
        client = client_of(authority.client("scraper"))
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=client)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"one 1\n")
        assert await is_closed(silent[0][0])
        for _, each in [*silent, (reader, writer)]:
            each.close()


async def test_a_scraper_over_tls_that_waits_no_longer_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Scrapers have a timeout, and people leave pages before they are there."""
    authority = Authority(tmp_path / "certificates")
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow_metrics() -> bytes:
        begun.set()
        await go_on.wait()
        return b"one 1\n"

    async def scrape(path: str) -> Streams:
        client = client_of(authority.client("scraper"))
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=client)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        return reader, writer

    async with serving(slow_metrics, HttpTls("GRPC_SSL", authority.node(), MachineClock())) as address:
        _, impatient = await scrape("/metrics")
        await begun.wait()
        impatient.transport.abort()
        for path, answer in (("/healthz", b"alive\n"), ("/metrics", b"one 1\n")):
            reader, writer = await scrape(path)
            if path == "/metrics":
                go_on.set()
            assert (await reader.read()).endswith(answer)
            writer.close()
    assert caplog.messages == []


async def test_probes_are_answered_while_scrapes_wait_and_an_answer_that_is_being_made_is_not_closed() -> None:
    """A text of all metrics takes seconds on a node of many partitions: scrapes that wait for it would fill the port,
    and a kubelet would restart the node."""
    begun: list[asyncio.Event] = []
    go_on = asyncio.Event()

    async def slow_metrics() -> bytes:
        begun.append(go_on)
        await go_on.wait()
        return b"one 1\n"

    async with serving(slow_metrics) as address:
        scrapers = [await connected(address, b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(MOST)]
        for path, answer in (("/healthz", b"alive\n"), ("/readyz", b"ready\n")):
            reader, writer = await connected(address, f"GET {path} HTTP/1.1\r\n\r\n".encode())
            assert (await reader.read()).endswith(answer)
            writer.close()
        assert len(begun) == 4
        # One may have been closed for both probes: the first of them had gone when the second came.
        assert await is_closed(scrapers[4][0]), "the first that waits has made room"
        go_on.set()
        for each, _ in [*scrapers[:4], scrapers[-1]]:
            assert (await each.read()).endswith(b"one 1\n")
        assert len(begun) in (MOST - 1, MOST - 2), "no text is made for one that was closed"
        for _, each_writer in scrapers:
            each_writer.close()


class Refusing:
    """Pages that read no form."""

    async def read_body(self, head: bytes, reader: asyncio.StreamReader, /) -> bytes:
        return b""

    async def answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter, /) -> bytes:
        return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large"


@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.parametrize("header", ["Content-Length: 4000000", "Transfer-Encoding: chunked"])
async def test_the_answer_to_a_form_that_is_refused_arrives(header: str, has_tls: bool, tmp_path: Path) -> None:
    """A form is sent whole before its answer is read. The kernel reset the connection, for the bytes that were not
    read."""
    authority = Authority(tmp_path / "certificates") if has_tls else None
    tls = None if authority is None else HttpTls("GRPC_SSL", authority.node(), MachineClock()).context
    client = None if authority is None else client_of(authority.client("browser"))
    server = MetricsServer(metrics, pages=Refusing(), tls=tls)
    address = await server.start(Endpoint("127.0.0.1", 0))
    for _ in range(5):
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=client)
        writer.write(f"POST /topics HTTP/1.1\r\n{header}\r\n\r\n".encode() + bytes(4_000_000))
        await writer.drain()
        assert (await reader.readuntil(b"too large")).startswith(b"HTTP/1.1 400")
        writer.close()
    await server.stop()
