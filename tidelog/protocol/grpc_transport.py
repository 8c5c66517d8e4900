"""Calls and streams to nodes over gRPC: one connection per address, typed errors, bounded waits.

Used by the client and, as `tidelog.protocol.network.Transport`, between nodes.
Invariants: every failure is a TidelogError that names the address and the call. A peer that disappears is detected
within `KEEPALIVE_MS` plus `KEEPALIVE_TIMEOUT_MS`. Nothing is resent automatically (gRPC's own retries are off).
Not here: retries and the choice of the node.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, Generic, NoReturn

import grpc
from google.protobuf.message import DecodeError

from tidelog.errors import ConnectionLost, TidelogError, UnknownServerError
from tidelog.protocol import status
from tidelog.protocol.methods import Answer, CallKind, Method, Request
from tidelog.types import Endpoint

KEEPALIVE_MS: Final = 5_000
KEEPALIVE_TIMEOUT_MS: Final = 3_000
"""Ping interval of an idle connection and timeout of a ping; together about Kafka's session timeout."""

CONNECT_TIMEOUT_MS: Final = 3_000
"""Timeout of one connection attempt. gRPC's default of 20 s is longer than the session timeout of a node."""

MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Default of the largest message. Most messages have about 256 KiB, but a batch is never split, and topics may allow
large batches."""


def channel_options(message_bytes_max: int = MESSAGE_BYTES_MAX) -> list[tuple[str, int | str]]:
    """Return the options of every channel to a node.

    message_bytes_max: largest message sent or received (bytes); a larger one fails its call, not the connection.
    """
    return [
        ("grpc.max_send_message_length", message_bytes_max),
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.max_pings_without_data", 0),  # no limit: a fetch may wait long without data
        ("grpc.initial_reconnect_backoff_ms", 50),  # a restarted node is back within a second or two
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),  # despite its name, the timeout of one attempt
        ("grpc.dns_min_time_between_resolutions_ms", 500),  # a restarted pod has the same name and another address
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),  # nodes are reached directly, regardless of http_proxy
        ("grpc.use_local_subchannel_pool", 1),  # a closed transport closes only its own connections
    ]


class GrpcTransport:
    """Unary calls and bidirectional streams to any number of nodes; belongs to one running event loop."""

    def __init__(self, *, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._options = channel_options(message_bytes_max)
        self._channels: dict[Endpoint, grpc.aio.Channel] = {}
        self._callables: dict[tuple[Endpoint, str], Any] = {}

    async def call(self, to: Endpoint, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        """Call a unary method; see `tidelog.protocol.network.Transport.call`."""
        assert method.kind is CallKind.UNARY, f"{method} is a stream"
        invoke = self._callables.get((to, method.path)) or self._make_callable(to, method)
        try:
            answer: Answer = await invoke(request, timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc_error(error, address=to, phase=str(method)) from None
        except DecodeError as error:
            raise _unreadable(to, method, error) from error
        except asyncio.CancelledError:
            _raise_unless_cancelled(ConnectionLost(f"{method} at {to}: this side closed the connection"))
        return answer

    async def open_stream(self, to: Endpoint, method: Method[Request, Answer]) -> GrpcStream[Request, Answer]:
        """Open a stream and wait for the connection. Raises ConnectionFailed if the node cannot be reached. If the node
        rejects the stream, its error is raised here or by `receive` and `send`."""
        assert method.kind is CallKind.STREAM, f"{method} is not a stream"
        invoke = self._callables.get((to, method.path)) or self._make_callable(to, method)
        stream: GrpcStream[Request, Answer] = GrpcStream(invoke(), to, method)
        await stream.wait_connected()
        return stream

    async def is_refused(self, to: Endpoint, *, timeout_ms: int) -> bool:
        """Open and close a TCP connection; see `tidelog.protocol.network.NodeTransport.is_refused`. A paused or starved
        process still listens: its system accepts the connection. Of several addresses of a host name, none may accept
        and one must refuse."""
        loop, refused = asyncio.get_running_loop(), False
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                for family, kind, number, _, address in await loop.getaddrinfo(
                    to.host, to.port, type=socket.SOCK_STREAM
                ):
                    with socket.socket(family, kind, number) as probe:
                        probe.settimeout(0)
                        try:
                            await loop.sock_connect(probe, address)
                        except ConnectionRefusedError:
                            refused = True
                        except OSError:
                            continue  # no route by this family of addresses
                        else:
                            return False
        except (TimeoutError, OSError, ValueError, OverflowError):  # the last two: no address of this form exists
            return False
        return refused

    async def close(self) -> None:
        """Close all connections; open calls and streams fail with ConnectionFailed."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._callables.clear()
        for channel in channels:
            await channel.close()

    async def forget(self, endpoint: Endpoint) -> None:
        """Close the connection to an address that is no longer used."""
        for key in [key for key in self._callables if key[0] == endpoint]:
            del self._callables[key]
        channel = self._channels.pop(endpoint, None)
        if channel is not None:
            await channel.close()

    def _make_callable(self, to: Endpoint, method: Method[Request, Answer]) -> Any:
        channel = self._channels.get(to)
        if channel is None:
            channel = grpc.aio.insecure_channel(_target(to), options=self._options)
            self._channels[to] = channel
        make = channel.unary_unary if method.kind is CallKind.UNARY else channel.stream_stream
        invoke = make(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        self._callables[to, method.path] = invoke
        return invoke


class GrpcStream(Generic[Request, Answer]):
    """The calling side of an open stream; see `tidelog.protocol.network.MessageStream`. Several tasks may send.

    Cancelling a `send` or `receive` (for example by a timeout) ends the whole stream: gRPC cannot cancel one operation.
    """

    def __init__(self, call: Any, to: Endpoint, method: Method[Request, Answer]) -> None:
        self._call = call
        self._lock = asyncio.Lock()
        self._to = to
        self._method = method

    async def wait_connected(self) -> None:
        """Return once connected. Raises ConnectionFailed if the connection fails, or the node's error if the call has
        already ended."""
        try:
            await self._call.wait_for_connection()
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        except asyncio.CancelledError:
            self._call.cancel()
            _raise_unless_cancelled(self._closed())

    async def send(self, message: Request, /) -> None:
        """Send one message; waits while the receiver does not keep up."""
        try:
            async with self._lock:  # gRPC allows one write at a time
                await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        except asyncio.InvalidStateError:  # the call has already ended
            raise await self._ending() from None
        except asyncio.CancelledError:
            _raise_unless_cancelled(self._closed())

    async def receive(self) -> Answer | None:
        """Return the next message, or None once the node has ended the stream."""
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        except DecodeError as error:
            self.close()
            raise _unreadable(self._to, self._method, error) from error
        except asyncio.CancelledError:
            _raise_unless_cancelled(self._closed())
        if message is grpc.aio.EOF:
            return None
        answer: Answer = message
        return answer

    def close(self) -> None:
        """End the stream at once. Pending calls raise ConnectionFailed."""
        self._call.cancel()

    async def _ending(self) -> TidelogError:
        """Return the reason why the call has ended."""
        if self._call.cancelled():
            return self._closed()
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return ConnectionLost(f"{self._method} at {self._to}: the node ended the stream; open a new one")
        error = grpc.aio.AioRpcError(
            code,
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
            details=await self._call.details(),
        )
        return self._error_of(error)

    def _error_of(self, error: grpc.aio.AioRpcError) -> TidelogError:
        return status.from_rpc_error(error, address=self._to, phase=str(self._method))

    def _closed(self) -> TidelogError:
        return ConnectionLost(f"{self._method} at {self._to}: this side closed the stream")


def _target(to: Endpoint) -> str:
    return f"dns:///[{to.host}]:{to.port}" if ":" in to.host else f"dns:///{to.host}:{to.port}"


def _unreadable(to: Endpoint, method: object, error: DecodeError) -> TidelogError:
    return UnknownServerError(
        f"{method} at {to}: the answer is unreadable ({error}). Is another program listening there?"
    )


def _raise_unless_cancelled(error: TidelogError) -> NoReturn:
    """Tell a cancelled task from a cancelled call: gRPC raises CancelledError for both. Only the former is
    re-raised."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    raise error from None
