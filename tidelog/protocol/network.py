"""Interface for messages to nodes, from clients and from other nodes, independent of any network.

Implementations: gRPC (`tidelog/protocol/grpc_transport.py`, `node/listeners/grpc/server.py`), and the in-memory one of
the simulator. Both guarantee: messages of one stream arrive in the order in which they were sent, each once, or the
stream breaks. A call either returns the answer or raises a `TidelogError`.

A service of a node is an object with one async method for each of its RPCs, named in snake_case:
    async def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse
    async def fetch_stream(self, stream: MessageStream[FetchResponse, FetchRequest], context: RequestContext) -> None
A stream ends when its method returns. A `TidelogError` raised by a method reaches the caller as that error.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.types import Endpoint

Sent_contra = TypeVar("Sent_contra", contravariant=True)
Received_co = TypeVar("Received_co", covariant=True)


class MessageStream(Protocol[Sent_contra, Received_co]):
    """One side of an open stream. Any number of tasks may send while one receives. On the calling side a cancelled
    `send` or `receive` ends the stream."""

    async def send(self, message: Sent_contra, /) -> None:
        """Send one message; waits while the other side does not keep up. Raises ConnectionFailed on a broken stream."""
        ...

    async def receive(self) -> Received_co | None:
        """Return the next message; None once the other side has ended the stream. Raises the error with which the other
        side ended it, or ConnectionFailed on a broken stream."""
        ...

    async def end(self) -> None:
        """Send nothing more. The other side reads what was sent, then the end; its messages can still be received.
        Raises ConnectionFailed on a broken stream."""
        ...

    def close(self) -> None:
        """End the stream at once; what the other side has not read yet may be lost. Pending calls raise
        ConnectionFailed. A second call has no effect."""
        ...


class Transport(Protocol):
    """Calls to nodes. Connections are kept open and shared by endpoint."""

    async def call(self, to: Endpoint, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        """Call a unary method. Raises the TidelogError of the answer; ConnectionFailed if the node cannot be reached,
        ConnectionLost if the connection breaks; RequestTimedOut after `timeout_ms` (milliseconds, including the
        connection)."""
        ...

    async def open_stream(self, to: Endpoint, method: Method[Request, Answer]) -> MessageStream[Request, Answer]:
        """Open a stream. ConnectionFailed for an unreachable node, and the error of a node that rejects the stream, are
        raised here or at the first receive."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class NodeTransport(Transport, Protocol):
    """Calls between nodes."""

    async def is_refused(self, to: Endpoint, *, timeout_ms: int) -> bool:
        """Whether the address refuses connections: its machine runs, and no process listens there. False if a process
        accepts the connection, which is closed at once, or if nothing answers within `timeout_ms` (milliseconds)."""
        ...
