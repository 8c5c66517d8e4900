"""Serves `GET /metrics` over HTTP on the node's own loop, where the metrics are written.

A minimal HTTP/1.1 server for a scraper: one request per connection, bounded in size and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.errors import InvalidConfig
from tidelog.types import Endpoint

_REQUEST_BYTES_MAX: Final = 16 * 1024
_REQUEST_S_MAX: Final = 5


class MetricsServer:
    """Answers with the result of `text`."""

    def __init__(self, text: Callable[[], Awaitable[bytes]]) -> None:
        self._text = text
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
            return _reply("405 Method Not Allowed", "text/plain", b"only GET\n")
        if path != b"/metrics":
            return _reply("404 Not Found", "text/plain", b"metrics are at /metrics\n")
        return _reply(
            "200 OK", "text/plain; version=0.0.4; charset=utf-8", await self._text(), with_body=method == b"GET"
        )


def _reply(status: str, kind: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if with_body else b"")
