"""A listener of Kafka's protocol: the socket, and who connects to it. Its connections share the limits of memory.

Stopping takes two steps, as with gRPC: requests in progress are answered, then all connections end.
Not here: frames and requests (kafka_connection.py), which requests there are (kafka_apis.py).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from node.api.caller import ANONYMOUS, Caller
from node.boundary.boundary import Boundary
from node.listeners.kafka.api_versions import ApiVersions
from node.listeners.kafka.connection_log import ConnectionLog
from node.listeners.kafka.frame_budget import FrameBudget
from node.listeners.kafka.kafka_acls import without_authorizer
from node.listeners.kafka.kafka_apis import KAFKA_APIS
from node.listeners.kafka.kafka_connection import KafkaConnection, ListenerState
from node.listeners.kafka.kafka_tls import KafkaTls, TlsConnection
from node.listeners.kafka.unread_answers import UnreadAnswers
from node.requests.gate import Gate
from node.runtime.limits import IDLE_MS
from node.security.sasl_authenticator import SaslAuthenticator
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.types import Endpoint

BACKLOG: Final = 1_024
"""Connections that the system accepts before the node does."""

ANSWER_COPIES: Final = 2
"""How often the records of an answer are in memory until its client has read it: once as they were read from the log,
and once in the buffer of the transport."""

_UNREAD_SHARE: Final = 4
"""Answers that clients do not read have one part in so many of the memory for requests, and have it in addition."""

CHECK_MS: Final = 500
"""Interval of looking for idle and slow clients."""


class KafkaServer:
    """A listener. It is bound first, so that its port is known; then it is given the services, and started."""

    def __init__(
        self,
        listener: str,
        *,
        boundary: Boundary,
        frame_bytes_max: int,
        memory_bytes_max: int,
        connections_max: int,
        idle_ms_max: int = IDLE_MS,
        tls: KafkaTls | None = None,
    ) -> None:
        """frame_bytes_max: the largest request. memory_bytes_max: of all requests that are not answered, at least
        one. connections_max: further connections are closed when they are made. idle_ms_max: one without requests is
        closed after that. tls: None for plain text."""
        self.listener = listener
        self._tls = tls
        apis = KAFKA_APIS if boundary.authorizer.has_rules else tuple(map(without_authorizer, KAFKA_APIS))
        self._state = ListenerState(
            {each.key: each for each in apis},
            ApiVersions(KAFKA_APIS),
            boundary,
            frame_bytes_max,
            FrameBudget(memory_bytes_max, frame_bytes_max),
            UnreadAnswers(memory_bytes_max // _UNREAD_SHARE),
            ConnectionLog(listener),
            connections_max,
            idle_ms_max,
            self._client_of,
        )
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._checking: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """Open connections, with those in their handshake."""
        return len(self._state.accepted)

    def bind(self, address: Endpoint) -> Endpoint:
        """Bind the address (port 0: any free port). Returns the bound address. Raises InvalidConfig."""
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            bound = socket.socket(family, kind, protocol)
            self._socket = bound
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
        except OSError as error:
            self._close_socket()
            raise InvalidConfig(
                f"listener {self.listener!r}: {address} cannot be bound ({error}). Another process may use the port, "
                "or the address is not one of this machine. Change the address in `listeners`, or use port 0."
            ) from None
        return Endpoint(address.host, bound.getsockname()[1])

    def serve(
        self,
        gates: Mapping[str, Gate],
        sasl: SaslAuthenticator | None = None,
        feature_level: Callable[[], int] = lambda: 0,
    ) -> None:
        """Pass requests to these services. sasl: who the clients are, if it requires SASL for this listener.
        feature_level: of the metadata; 0 while it is unknown."""
        self._state.feature_level = feature_level
        self._state.sasl = sasl if sasl is not None and sasl.requires(self.listener) else None
        self._state.boundary = replace(self._state.boundary, gates=gates)

    async def start(self) -> None:
        """Accept connections."""
        assert self._socket is not None, "a listener is bound before it is started"
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accepted, sock=self._socket, backlog=BACKLOG)
        self._check()

    async def stop(self, grace_ms: int) -> None:
        """Accept no more connections and begin no request, let those in progress finish for `grace_ms`, end all
        connections."""
        if self._checking is not None:
            self._checking.cancel()
        if self._server is not None:
            self._server.close()
        self._close_socket()
        for connection in list(self._state.connections):
            connection.stop()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=grace_ms / 1_000)
        for connection, transport in list(self._state.accepted.items()):
            if connection in self._state.connections:
                connection.end()
            else:  # it is in its handshake
                transport.close()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks))

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._checking = loop.call_later(CHECK_MS / 1_000, self._check)  # first: a failed check must not be the last
        for connection in list(self._state.connections):
            connection.check()
        self._state.log.turn()

    def _accepted(self) -> asyncio.BaseProtocol:
        """The protocol of a new socket."""
        connection = KafkaConnection(self._state)
        return connection if self._tls is None else TlsConnection(connection, self._state, self._tls)

    def _client_of(self, transport: asyncio.Transport) -> tuple[Caller, int | None]:
        # None if the client has reset the connection before it was accepted.
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        principal, unauthenticated, lifetime_ms = ANONYMOUS, None, None
        if self._tls is not None:
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            try:
                principal = self._tls.identity(certificate, has_sasl=self._state.sasl is not None).principal
                lifetime_ms = self._tls.lifetime_ms(certificate)
            except TidelogError as error:
                unauthenticated = error.with_traceback(None)  # it has this frame, which has the error
        caller = Caller(
            self.listener,
            f"{host}:{port}",
            principal,
            for_nodes=False,
            host=host,
            mutes=True,
            unauthenticated=unauthenticated,
            appends=asyncio.Lock(),
            answer_copies=ANSWER_COPIES,
        )
        return caller, lifetime_ms
