"""Interfaces through which a client uses time and the network.

Implementations: `tidelog/client/machine.py`, `tidelog/protocol/grpc_transport.py`, and the simulator's own.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from tidelog.protocol.methods import Answer, Method, Request, WireMessage
from tidelog.types import Endpoint, Millis

Sent_contra = TypeVar("Sent_contra", bound=WireMessage, contravariant=True)
Received_co = TypeVar("Received_co", bound=WireMessage, covariant=True)


class ClientClock(Protocol):
    """Wall-clock time for timestamps, monotonic time for delays, and sleeping."""

    def wall_ms(self) -> Millis:
        """Return milliseconds since 1970 (UTC). May jump."""
        ...

    def monotonic_ms(self) -> Millis:
        """Return milliseconds from an arbitrary start. Never decreases."""
        ...

    async def sleep_ms(self, ms: int) -> None:
        """Return after at least `ms` milliseconds (0: let other tasks run once)."""
        ...


class ClientStream(Protocol[Sent_contra, Received_co]):
    """An open stream. One task may send while another one receives."""

    async def send(self, message: Sent_contra, /) -> None:
        """Send one message; waits while the receiver does not keep up. Raises ConnectionFailed on a broken stream."""
        ...

    async def receive(self) -> Received_co | None:
        """Return the next message, or None once the peer has ended the stream. Raises the error with which the peer
        ended it, or ConnectionFailed on a broken stream."""
        ...

    def close(self) -> None:
        """End the stream at once; waiting calls raise ConnectionFailed. Idempotent."""
        ...


class ClientTransport(Protocol):
    """Connections to nodes, cached by endpoint."""

    async def call(self, to: Endpoint, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        """Call a unary method. Raises the error of the answer, ConnectionFailed if the node cannot be reached,
        ConnectionLost if the connection breaks, RequestTimedOut after `timeout_ms`."""
        ...

    async def open_stream(self, to: Endpoint, method: Method[Request, Answer]) -> ClientStream[Request, Answer]:
        """Open a stream. ConnectionFailed for an unreachable node, and the error of a node that rejects the stream, are
        raised here or at the first receive."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
