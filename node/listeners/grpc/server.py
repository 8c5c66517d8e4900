"""A gRPC listener of a node: serves the node's services by the table of RPCs (tidelog/protocol/methods.py).

Invariants: a `TidelogError` that a service raises reaches the caller as that error. Any other exception is a defect: it
is logged and reaches the caller as UnknownServerError. Bytes that are not a message of the method are answered with
InvalidRequest. A call that its caller ends is cancelled.
Stopping takes two steps, because streams do not end by themselves: `refuse` rejects new calls, `stop` ends open streams
with NodeShuttingDown.
Not here: the services (node/requests/), when the node is ready (node/listeners/grpc/health.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, NoReturn

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from node.listeners.grpc.connections import shut_down_connection
from node.listeners.grpc.field_limit import ensure_few_fields
from node.observability.meters.request_meter import RequestMeter, name_of
from node.requests.boundary import Boundary, Quotas
from node.requests.types.context import RequestContext
from node.runtime.limits import SLOW_READER_MS
from tidelog.errors import (
    ConnectionLost,
    InvalidConfig,
    InvalidRequest,
    NodeShuttingDown,
    TidelogError,
    UnknownServerError,
)
from tidelog.protocol import methods
from tidelog.protocol import status as _status
from tidelog.protocol.grpc_transport import KEEPALIVE_MS, MESSAGE_BYTES_MAX
from tidelog.protocol.methods import CallKind, Method, WireMessage
from tidelog.types import Endpoint

_log = logging.getLogger("node.requests")

CONCURRENT_STREAMS_MAX: Final = 10_000
"""Limit of open calls and streams on one connection. A stream takes some KiB; a client opens a few."""


CLIENT_ID_KEY: Final = "tidelog-client-id"
"""Metadata key of a call or stream: the name that a client gives itself, for logs and quotas."""

CLIENT_ID_MAX: Final = 255
"""Limit of characters of a client id; the rest is dropped."""


class GrpcServer:
    """A listener. It is bound first, so that its port is known; then the services are added and it is started."""

    def __init__(self, listener: str, *, boundary: Boundary, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.listener = listener
        self._boundary = boundary
        self._server = grpc.aio.server(options=_server_options(message_bytes_max))
        self._streams: set[ServerStream] = set()
        self._refusing = False
        self._names: list[str] = []

    def bind(self, address: Endpoint) -> Endpoint:
        """Bind the address (port 0: any free port). Returns the bound address. Raises InvalidConfig."""
        host = f"[{address.host}]" if ":" in address.host else address.host
        try:
            port = self._server.add_insecure_port(f"{host}:{address.port}")
        except RuntimeError as error:
            raise InvalidConfig(
                f"listener {self.listener!r}: {address} cannot be bound ({error}). Another process may use the port, "
                "or the address is not one of this machine. Change the address in `listeners`, or use port 0."
            ) from None
        return Endpoint(address.host, port)

    def serve(self, services: Mapping[str, object]) -> None:
        """Add services by their full names (`tidelog.v1.Data`): objects with one async method for each RPC."""
        for name, service in services.items():
            handlers = {method.name: self._handler(method, service) for method in methods.of_service(name)}
            assert handlers, f"the table of RPCs has no service {name}"
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
            self._names.append(name)

    def serve_health(self, servicer: health_pb2_grpc.HealthServicer) -> None:
        """Add gRPC's health service."""
        health_pb2_grpc.add_HealthServicer_to_server(servicer, self._server)
        self._names.append(health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)

    async def start(self) -> None:
        """Start to serve. Reflection lists the services from now on."""
        reflection.enable_server_reflection((*self._names, reflection.SERVICE_NAME), self._server)
        await self._server.start()

    def refuse(self) -> None:
        """Reject every new call with NodeShuttingDown. Open calls and streams continue."""
        self._refusing = True

    async def stop(self, grace_ms: int) -> None:
        """End all streams with NodeShuttingDown, let unary calls finish for `grace_ms`, close all connections."""
        self._refusing = True
        for stream in list(self._streams):
            stream.end()
        await self._server.stop(grace_ms / 1000)

    def _handler(self, method: Method[WireMessage, WireMessage], service: object) -> grpc.RpcMethodHandler[Any, Any]:
        serve = getattr(service, method.attribute)
        meter = self._boundary.meters.of(str(method))
        make: Callable[..., grpc.RpcMethodHandler[Any, Any]]
        if method.kind is CallKind.UNARY:
            make, handle = grpc.unary_unary_rpc_method_handler, self._unary(method, serve, meter)
        else:
            make, handle = grpc.stream_stream_rpc_method_handler, self._stream(method, serve, meter)
        return make(
            handle,
            request_deserializer=_reader(method),
            response_serializer=_writer(meter, self._boundary.quotas),
        )

    def _unary(
        self,
        method: Method[WireMessage, WireMessage],
        serve: Callable[[Any, RequestContext], Coroutine[Any, Any, WireMessage]],
        meter: RequestMeter,
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        async def handle(received: tuple[Any, int], call: Any) -> tuple[WireMessage, RequestContext]:
            message, size = received
            context = self._context(call, meter)
            request = context.begin(wait_ms=_wait_of(message))
            meter.request_bytes += size
            try:
                if self._refusing:
                    raise self._shutting_down()
                if isinstance(message, InvalidRequest):
                    raise message
                if throttle_ms := self._boundary.quotas.charge(context, size):
                    await asyncio.sleep(throttle_ms / 1000)
                answer = await request.on_loop(serve(message, context))
            except Exception as cause:  # noqa: BLE001 (the boundary: everything becomes a status)
                error = _as_tidelog_error(cause, doing=method)
                request.fail(error)
                await _abort(call, error)
            request.entry_ended()
            answered_ns = meter.now_ns()
            call.add_done_callback(lambda _call: _sent(meter, answered_ns))
            return answer, context

        return handle

    def _stream(
        self,
        method: Method[WireMessage, WireMessage],
        serve: Callable[[Any, RequestContext], Coroutine[Any, Any, None]],
        meter: RequestMeter,
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        async def handle(_requests: Any, call: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            context = self._context(call, meter)
            stream = ServerStream(call, task, context, self._boundary.quotas)
            self._streams.add(stream)
            meter.streams_open += 1
            outcome = "ok"
            try:
                error = await self._serve_stream(serve(stream, context), method, stream)
                await stream.settle()
                if error is not None:
                    outcome = name_of(error)
                    await _abort(call, error)
            except asyncio.CancelledError:  # the caller went away
                outcome = "ended"
                raise
            finally:
                self._streams.discard(stream)
                meter.stream_ended(outcome)

        return handle

    def _context(self, call: Any, meter: RequestMeter) -> RequestContext:
        left_s = call.time_remaining()
        return RequestContext(
            self.listener,
            call.peer(),
            client_id=_client_id(call.invocation_metadata()),
            deadline_ms=None if left_s is None else int(left_s * 1000),
            meter=meter,
            authorizer=self._boundary.authorizer,
        )

    async def _serve_stream(
        self, serving: Coroutine[Any, Any, None], method: object, stream: ServerStream
    ) -> TidelogError | None:
        """Run the method of the service. Returns the error to end the stream with; None for success."""
        if self._refusing:
            serving.close()
            return self._shutting_down()
        try:
            await serving
        except asyncio.CancelledError:
            if not stream.end_wanted:
                raise
            stream.take_back_cancel()
            return None if stream.closed else self._shutting_down()
        except Exception as cause:  # noqa: BLE001 (the boundary: everything becomes a status)
            return _as_tidelog_error(cause, doing=method)
        return None

    def _shutting_down(self) -> NodeShuttingDown:
        return _status.shutting_down("the node")


class ServerStream:
    """The server side of an open stream (`tidelog.protocol.network.MessageStream`). Several tasks may send."""

    def __init__(self, call: Any, task: asyncio.Task[Any], context: RequestContext, quotas: Quotas) -> None:
        self._call = call
        self._context, self._meter, self._quotas = context, context.meter, quotas
        # Read at the start: gRPC crashes (SIGSEGV) if it is queried for the peer after the caller has gone.
        self._peer = context.connection
        self._serving = task
        self._last_write: asyncio.Task[None] | None = None
        self.closed = False
        self.end_wanted = False

    async def send(self, message: WireMessage, /) -> None:
        """Send one message; waits while the caller does not keep up. A message once begun is sent completely."""
        # gRPC can neither cancel a write nor end a stream during one: the write of a cancelled sender continues.
        loop = asyncio.get_running_loop()
        self._last_write = loop.create_task(self._write(message, self._last_write))
        del message  # freed when it is written, even if the frame of a cancelled sender is kept
        written: asyncio.Future[None] = loop.create_future()
        self._last_write.add_done_callback(partial(_report, written))
        await written

    async def receive(self) -> Any:
        """The next request; None after the caller has sent its last one."""
        try:
            received = await self._call.read()
        except grpc.aio.BaseError as error:
            raise self._lost(error) from None
        if received is grpc.aio.EOF:
            return None
        message, size = received
        del received  # only the caller of this method keeps the message
        self._meter.request_bytes += size
        if isinstance(message, InvalidRequest):
            self._context.begin().fail(message)
            raise message
        if throttle_ms := self._quotas.charge(self._context, size):
            await asyncio.sleep(throttle_ms / 1000)
        return message

    def close(self) -> None:
        """End the stream and cancel the method that serves it. If a message is being written, the caller's connection
        is shut down: otherwise gRPC would keep the message for as long as the caller does not read."""
        self.closed = True
        if self._last_write is not None and not self._last_write.done():
            shut_down_connection(self._peer)
        self.end()

    def end(self) -> None:
        """End the stream because the node stops."""
        if not self.end_wanted:
            self.end_wanted = True
            self._serving.cancel()

    def take_back_cancel(self) -> None:
        """Undo the cancellation by `end`, so that the task can await again."""
        self._serving.uncancel()

    async def settle(self) -> None:
        """Wait until the last write has ended; only then gRPC can end the stream. The connection of a caller that does
        not read is shut down: otherwise it would keep the message."""
        if self._last_write is not None:
            _, unread = await asyncio.wait((self._last_write,), timeout=SLOW_READER_MS / 1000)
            if unread:
                shut_down_connection(self._peer)
                await asyncio.wait(unread)

    async def _write(self, message: WireMessage, previous: asyncio.Task[None] | None) -> None:
        """Write after the previous message: gRPC accepts one write at a time."""
        meter = self._meter
        began_ns = meter.now_ns()
        if previous is not None and not previous.done():
            await asyncio.wait((previous,))
        try:
            await self._call.write((message, self._context))
            meter.send_ns += meter.now_ns() - began_ns
        except grpc.aio.BaseError as error:
            raise self._lost(error) from None
        finally:
            del message, previous  # the task keeps the error, and the error keeps this frame

    def _lost(self, error: Exception) -> ConnectionLost:
        return ConnectionLost(f"the caller at {self._peer} went away ({error})")


def _reader(method: Method[WireMessage, WireMessage]) -> Callable[[bytes], tuple[WireMessage | InvalidRequest, int]]:
    """A function that parses a request and returns it with its size. It returns an InvalidRequest instead of raising
    it: gRPC only logs a traceback for an exception here."""

    kind = descriptor_pool.Default().FindMessageTypeByName(f"tidelog.v1.{method.request.__name__}")

    def read(data: bytes) -> tuple[WireMessage | InvalidRequest, int]:
        size = len(data)
        try:
            ensure_few_fields(data, kind)
            return method.request.FromString(data), size
        except InvalidRequest as error:
            return error, size
        except DecodeError as error:
            return InvalidRequest(f"the {size} bytes sent to {method} are no {method.request.__name__}: {error}"), size

    return read


def _writer(meter: RequestMeter, quotas: Quotas) -> Callable[[tuple[WireMessage, RequestContext]], bytes]:
    """A function that serializes answers, counts their bytes and charges the quotas."""

    def write(answer: tuple[WireMessage, RequestContext]) -> bytes:
        message, context = answer
        data = message.SerializeToString()
        meter.response_bytes += len(data)
        quotas.charge(context, len(data))
        return data

    return write


def _sent(meter: RequestMeter, began_ns: int) -> None:
    meter.send_ns += meter.now_ns() - began_ns


def _client_id(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    for key, value in metadata or ():
        if key == CLIENT_ID_KEY:
            return str(value)[:CLIENT_ID_MAX]
    return ""


def _wait_of(message: object) -> int:
    """The wait that a call requests, for records or for reading a damaged log (milliseconds)."""
    wait_ms: int = getattr(message, "max_wait_ms", 0) or getattr(message, "look_ms", 0)
    return wait_ms


def _report(written: asyncio.Future[None], write: asyncio.Task[None]) -> None:
    """Pass the outcome of a write to its sender. If that was cancelled, no one raises the error of the write."""
    error = None if write.cancelled() else write.exception()
    if written.done():
        return
    if write.cancelled():
        written.cancel()
    elif error is None:
        written.set_result(None)
    else:
        written.set_exception(error)


def _server_options(message_bytes_max: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_send_message_length", message_bytes_max),
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_concurrent_streams", CONCURRENT_STREAMS_MAX),
        ("grpc.so_reuseport", 0),  # two nodes on one port must fail, not share it
        ("grpc.keepalive_time_ms", 2 * KEEPALIVE_MS),  # to notice a client that has vanished
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),  # Tidelog clients ping while a fetch waits
    ]


async def _abort(call: Any, error: TidelogError) -> NoReturn:
    details: Iterable[tuple[str, bytes]] = ((_status.DETAILS_KEY, _status.to_details(error)),)
    await call.abort(_status.status_code(error), error.message, details)
    raise AssertionError("abort raises")


def _as_tidelog_error(error: Exception, *, doing: object) -> TidelogError:
    """The error for the caller of a failed handler. An exception other than TidelogError is a defect: it is logged with
    its traceback and becomes UnknownServerError."""
    if isinstance(error, TidelogError):
        return error
    _log.error("a defect: %s failed", doing, exc_info=error)
    return UnknownServerError(
        f"{doing} failed on the node by a defect ({type(error).__name__}); see the traceback in the node's log"
    )
