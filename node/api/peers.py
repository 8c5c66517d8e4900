"""Interface for requests from this node to other nodes, in values; the protocol between nodes is behind it.

Implementation: `node/listeners/grpc/grpc_peers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from node.api.api import Answered, Api, Asked
from tidelog.types import Endpoint

Sent_contra = TypeVar("Sent_contra", contravariant=True)
Received_co = TypeVar("Received_co", covariant=True)


class ValueStream(Protocol[Sent_contra, Received_co]):
    """One side of an open stream of values. Any number of tasks may send while one receives. On the calling side a
    cancelled `send` or `receive` ends the stream."""

    async def send(self, value: Sent_contra, /) -> None:
        """Send one value; waits while the other side does not keep up. Raises ConnectionFailed on a broken stream."""
        ...

    async def receive(self) -> Received_co | None:
        """The next value; None once the other side has ended the stream. Raises the error with which the other side
        ended it, ConnectionFailed on a broken stream, InvalidRequest for a message that stands for no value."""
        ...

    def close(self) -> None:
        """End the stream at once. Pending calls raise ConnectionFailed. A second call has no effect."""
        ...


class Peers(Protocol):
    """Requests to other nodes. Connections are kept, and shared by endpoint."""

    async def call(self, to: Endpoint, api: Api[Asked, Answered], asked: Asked, *, timeout_ms: int) -> Answered:
        """Ask another node. Raises the TidelogError of the answer; ConnectionFailed if the node cannot be reached or
        the connection breaks; RequestTimedOut after `timeout_ms` (milliseconds, including the connection);
        UnknownServerError for a message that stands for no value."""
        ...

    async def open_stream(self, to: Endpoint, api: Api[Asked, Answered]) -> ValueStream[Asked, Answered]:
        """Open a stream. For an unreachable node ConnectionFailed is raised here or by the first receive."""
        ...

    async def is_refused(self, to: Endpoint, *, timeout_ms: int) -> bool:
        """Whether the address refuses connections; see `tidelog.protocol.network.NodeTransport.is_refused`."""
        ...

    when_failed: list[Callable[[Endpoint], None]]
    """Called when a connection to this address breaks or cannot be made."""
