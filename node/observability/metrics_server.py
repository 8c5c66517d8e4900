"""Serves the metrics and the health of the node over HTTP, on the node's own loop.

    GET /metrics   all metrics
    GET /healthz   200 while the process answers: it does not depend on other nodes
    GET /readyz    200 if the node is ready as gRPC's health service says (health.py), else 503 and why not

A minimal HTTP/1.1 server for scrapers and probes: one request per connection, bounded in size and time; connections are
bounded in number (http_connections.py). All other paths are those of the web console, if the node has one
(node/listeners/http/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from node.observability.http_connections import HttpConnections, HttpPeer
from tidelog.errors import InvalidConfig
from tidelog.types import Endpoint

_REQUEST_S_MAX: Final = 5
"""Time for a handshake, for a whole request with its form, for an answer of this file, and for its way to the peer."""
HTTP_CONNECTIONS_MAX: Final = 256
"""Browsers open six at once for a page, scrapers and probes one."""
_UNREAD_BYTES_MAX: Final = 16 << 20
"""Of a body that is refused: its peer may send all of it before it reads the answer."""
_SCRAPES_MAX: Final = 4
"""Texts of all metrics that are made at once: each takes megabytes on a node of many partitions."""
_PLAIN: Final = "text/plain; charset=utf-8"
OWN_PATHS: Final = (b"/metrics", b"/healthz", b"/readyz")
"""All others are those of the console, if there is one."""


class HttpPages(Protocol):
    """What answers all other paths, with a limit of time of its own."""

    async def read_body(self, head: bytes, reader: asyncio.StreamReader, /) -> bytes:
        """The rest of a request. head: of it."""

    async def answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter, /) -> bytes:
        """The bytes of an answer. head, body: of the request. writer: says who asks."""


class MetricsServer:
    """One address."""

    def __init__(
        self,
        text: Callable[[], Awaitable[bytes]],
        why_not_ready: Callable[[], str] = str,
        pages: HttpPages | None = None,
        *,
        tls: Any = None,
    ) -> None:
        """text: writes the metrics. why_not_ready: empty if the node is ready. pages: answers all other paths. tls: the
        `ssl.SSLContext` of the port; None for plain text."""
        self._text, self._why_not_ready, self._pages, self._tls = text, why_not_ready, pages, tls
        self._connections = HttpConnections(HTTP_CONNECTIONS_MAX)
        self._scrapes = asyncio.Semaphore(_SCRAPES_MAX)
        self._server: asyncio.Server | None = None

    async def start(self, bind: Endpoint) -> Endpoint:
        """Start serving. Returns the bound address. Raises InvalidConfig if it cannot be bound."""
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: self._connections.protocol(self._answer, self._tls, _REQUEST_S_MAX),
                # As bytes: uvloop passes each text through the tables of international names, 0.3 MiB.
                [bind.host.encode() if bind.host.isascii() else bind.host],  # type: ignore[list-item]
                bind.port,
                reuse_port=False,
            )
        except OSError as error:
            raise InvalidConfig(
                f"metrics.listener = {str(bind)!r}: cannot be bound ({error}). Name a free address of this machine, or "
                "remove the setting."
            ) from None
        return Endpoint(bind.host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, connection: HttpPeer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b""
        try:
            async with asyncio.timeout(_REQUEST_S_MAX) as limit:
                head = await reader.readuntil(b"\r\n\r\n")
                if self._pages is None or _path_of(head) in OWN_PATHS:
                    answer = await self._response(connection, head)
                else:
                    body = await self._pages.read_body(head, reader)
                    self._connections.begin(connection)
                    limit.reschedule(None)
                    answer = await self._pages.answer(head, body, writer)
                    limit.reschedule(asyncio.get_running_loop().time() + _REQUEST_S_MAX)
                self._connections.answered(connection)
                if writer.is_closing():
                    return  # the peer has gone: asyncio logs an error for limits of a TLS connection that has ended
                # With other limits the last 64 KiB of an answer would wait, after `close`, without end for a peer that
                # does not read.
                writer.transport.set_write_buffer_limits(high=0)
                writer.write(answer)
                await writer.drain()
                if _is_unread(head, body):
                    # Bytes that nobody has read at the close let the kernel reset the connection, and the answer,
                    # which says what was wrong, would be lost.
                    await _discard(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # No scraper, or one that has gone or does not read: `close` would keep what it has not read for ever.
            writer.transport.abort()
        finally:
            writer.close()

    async def _response(self, connection: HttpPeer, head: bytes) -> bytes:
        method = head.partition(b" ")[0]
        if method not in (b"GET", b"HEAD"):
            return _reply("405 Method Not Allowed", _PLAIN, b"only GET\n")
        with_body = method == b"GET"
        match _path_of(head):
            case b"/metrics":
                kind = "text/plain; version=0.0.4; charset=utf-8"
                async with self._scrapes:
                    # Not before its turn: scrapes that wait give way to probes where the port is full.
                    if not self._connections.begin(connection):
                        return b""
                    return _reply("200 OK", kind, await self._text(), with_body=with_body)
            case b"/healthz":
                return _reply("200 OK", _PLAIN, b"alive\n", with_body=with_body)
            case b"/readyz":
                why_not = self._why_not_ready()
                status = "503 Service Unavailable" if why_not else "200 OK"
                return _reply(status, _PLAIN, f"{why_not or 'ready'}\n".encode(), with_body=with_body)
        return _reply("404 Not Found", _PLAIN, b"there are /metrics, /healthz and /readyz\n", with_body=with_body)


def _is_unread(head: bytes, body: bytes) -> bool:
    """Whether the peer sends another body than the one that was read: one that is refused is not read."""
    headers = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    length = b"%d" % len(body)
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != length)
        for name, _, value in headers
    )


async def _discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what the peer still sends, in the time of its answer."""
    if writer.can_write_eof():
        writer.write_eof()
    unread = _UNREAD_BYTES_MAX
    while unread > 0 and (data := await reader.read(unread)):
        unread -= len(data)


def _path_of(head: bytes) -> bytes:
    return head.partition(b" ")[2].partition(b" ")[0].partition(b"?")[0]


def _reply(status: str, kind: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if with_body else b"")
