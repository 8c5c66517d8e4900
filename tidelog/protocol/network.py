"""What a client needs from time and from the network: interfaces only.

The real ones are `tidelog/client/machine.py` and `tidelog/protocol/grpc_transport.py`; the simulator brings its own.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from tidelog.protocol.methods import Answer, Method, Request, WireMessage
from tidelog.types import Endpoint, Millis

Sent_contra = TypeVar("Sent_contra", bound=WireMessage, contravariant=True)
Received_co = TypeVar("Received_co", bound=WireMessage, covariant=True)


class Clock(Protocol):
    """Wall-clock time for timestamps, monotonic time for delays, and waiting."""

    def wall_ms(self) -> Millis:
        """Milliseconds since 1970 (UTC). May jump."""
        ...

    def monotonic_ms(self) -> Millis:
        """Milliseconds from an arbitrary start. Never goes back."""
        ...

    async def sleep_ms(self, ms: int) -> None:
        """Return after at least `ms` milliseconds (0: let other tasks run once)."""
        ...


class MessageStream(Protocol[Sent_contra, Received_co]):
    """An open stream. One task may send while another one receives."""

    async def send(self, message: Sent_contra, /) -> None:
        """Send one message; waits while the other side does not keep up. Raises ConnectionFailed on a broken stream."""
        ...

    async def receive(self) -> Received_co | None:
        """The next message; None once the other side has ended the stream. Raises the error with which the other side
        ended it, or ConnectionFailed on a broken stream."""
        ...

    def close(self) -> None:
        """End the stream at once; what waits on it is woken with ConnectionFailed. Calling it twice is fine."""
        ...


class Transport(Protocol):
    """Connections to nodes, kept and shared by endpoint."""

    async def call(self, to: Endpoint, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        """Call a unary method. Raises the error of the answer; ConnectionFailed where the node cannot be reached,
        ConnectionLost where the connection breaks; RequestTimedOut after `timeout_ms`."""
        ...

    async def open_stream(self, to: Endpoint, method: Method[Request, Answer]) -> MessageStream[Request, Answer]:
        """Open a stream. A node that cannot be reached shows up as ConnectionFailed here or at the first receive; the
        error of a node that refuses the stream at once, too."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
