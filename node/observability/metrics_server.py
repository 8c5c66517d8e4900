"""Serves the metrics and the health of the node over HTTP, on the node's own loop.

    GET /metrics   all metrics
    GET /healthz   200 while the process answers: it does not depend on other nodes
    GET /readyz    200 if the node is ready as gRPC's health service says (health.py), else 503 and why not

A minimal HTTP/1.1 server for scrapers and probes: one request per connection, bounded in size and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.errors import InvalidConfig
from tidelog.types import Endpoint

_REQUEST_BYTES_MAX: Final = 16 * 1024
_REQUEST_S_MAX: Final = 5
_PLAIN: Final = "text/plain; charset=utf-8"


class MetricsServer:
    """One address."""

    def __init__(self, text: Callable[[], Awaitable[bytes]], why_not_ready: Callable[[], str] = str) -> None:
        """text: writes the metrics. why_not_ready: empty if the node is ready."""
        self._text, self._why_not_ready = text, why_not_ready
        self._server: asyncio.Server | None = None

    async def start(self, bind: Endpoint) -> Endpoint:
        """Start serving. Returns the bound address. Raises InvalidConfig if it cannot be bound."""
        try:
            self._server = await asyncio.start_server(
                self._answer, bind.host, bind.port, limit=_REQUEST_BYTES_MAX, reuse_port=False
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

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._response(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # no scraper, or it closed the connection
        finally:
            writer.close()

    async def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _reply("405 Method Not Allowed", _PLAIN, b"only GET\n")
        with_body = method == b"GET"
        match path:
            case b"/metrics":
                kind = "text/plain; version=0.0.4; charset=utf-8"
                return _reply("200 OK", kind, await self._text(), with_body=with_body)
            case b"/healthz":
                return _reply("200 OK", _PLAIN, b"alive\n", with_body=with_body)
            case b"/readyz":
                why_not = self._why_not_ready()
                status = "503 Service Unavailable" if why_not else "200 OK"
                return _reply(status, _PLAIN, f"{why_not or 'ready'}\n".encode(), with_body=with_body)
        return _reply("404 Not Found", _PLAIN, b"there are /metrics, /healthz and /readyz\n", with_body=with_body)


def _reply(status: str, kind: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if with_body else b"")
