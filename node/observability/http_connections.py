"""The connections of the HTTP port: how many there are at once, counted from before the handshake of TLS.

Invariant: at most `most` connections are open, and neither a slow peer nor a request that waits for its turn keeps
others out: where the port is full, the connection is closed that has waited longest. Few answers are made at once, so
that a probe always finds one. Not here: how long a request may take (metrics_server.py).
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

_HEAD_BYTES_MAX: Final = 16 * 1024


class HttpPeer:
    """One connection, from its acceptance on."""


Serve: TypeAlias = Callable[[HttpPeer, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class HttpConnections:
    """The connections of one port."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[HttpPeer, asyncio.WriteTransport] = {}
        """Those that wait for their peer or for their turn, the one that began first at the front."""
        self._busy: dict[HttpPeer, asyncio.WriteTransport] = {}
        """Those whose answer this node makes."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    def accept(self, connection: HttpPeer, transport: asyncio.BaseTransport) -> bool:
        """A peer has connected. Returns False if there is no room."""
        if len(self) >= self._most:
            if not self._waiting:
                return False
            oldest = next(iter(self._waiting))
            self._waiting.pop(oldest).abort()
        self._waiting[connection] = cast("asyncio.WriteTransport", transport)
        return True

    def begin(self, connection: HttpPeer) -> bool:
        """Its answer is being made: it is not closed for others until that is done. Returns False if it was closed
        before."""
        if connection not in self._waiting:
            return False
        self._busy[connection] = self._waiting.pop(connection)
        return True

    def answered(self, connection: HttpPeer) -> None:
        """The answer is made: its peer has to read it."""
        if connection in self._busy:
            self._waiting[connection] = self._busy.pop(connection)

    def leave(self, connection: HttpPeer) -> None:
        """The connection is closed."""
        self._waiting.pop(connection, None)
        self._busy.pop(connection, None)

    def protocol(self, serve: Serve, tls: ssl.SSLContext | None, timeout_s: float) -> asyncio.BaseProtocol:
        """The protocol of a new socket. serve: called with its streams, after the handshake. timeout_s: of the
        handshake, and of the end of TLS."""
        connection, reader = HttpPeer(), asyncio.StreamReader(limit=_HEAD_BYTES_MAX)
        if tls is None:
            return _Plain(self, connection, reader, lambda *streams: serve(connection, *streams))
        inner = asyncio.StreamReaderProtocol(reader, lambda *streams: serve(connection, *streams))
        return _Encrypted(self, connection, inner, tls, timeout_s)


class _Counted(asyncio.BaseProtocol):
    """The part of a protocol that counts its connection. The protocol itself is the next base class."""

    _connections: HttpConnections
    _connection: HttpPeer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._connections.accept(self._connection, transport):
            super().connection_made(transport)
        else:
            cast("asyncio.WriteTransport", transport).abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.leave(self._connection)
        super().connection_lost(cast("Exception | None", exc))


class _Plain(_Counted, asyncio.StreamReaderProtocol):
    def __init__(
        self,
        connections: HttpConnections,
        connection: HttpPeer,
        reader: asyncio.StreamReader,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    ) -> None:
        super().__init__(reader, serve)
        self._connections, self._connection = connections, connection


class _Encrypted(_Counted, SSLProtocol):
    """asyncio's servers tell of a connection with TLS only after its handshake."""

    def __init__(
        self,
        connections: HttpConnections,
        connection: HttpPeer,
        inner: asyncio.StreamReaderProtocol,
        tls: ssl.SSLContext,
        timeout_s: float,
    ) -> None:
        waiter: Any = None  # nobody waits for the handshake
        limit: Any = timeout_s
        super().__init__(
            asyncio.get_running_loop(),
            inner,
            tls,
            waiter,
            server_side=True,
            ssl_handshake_timeout=limit,
            ssl_shutdown_timeout=limit,
        )
        self._connections, self._connection = connections, connection
