"""A gRPC listener of a node: serves the node's services by the table of RPCs (tidelog/protocol/methods.py).

Invariants: a `TidelogError` that a service raises reaches the caller as that error. Any other exception is a defect: it
is logged and reaches the caller as UnknownServerError. Bytes that are not a message of the method are answered with
InvalidRequest. A call that its caller ends is cancelled.
A message of a request that carries no records is limited in size and fields before it is parsed; messages that gRPC
would have to decompress are not accepted. The connection of a caller that does not read the answer of a call is closed.
Stopping takes two steps, because streams do not end by themselves: `refuse` rejects new calls, `stop` ends open streams
with NodeShuttingDown.
Not here: the services (node/requests/), when the node is ready (node/listeners/grpc/health.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, NoReturn

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from node.api.api import Api, Audience
from node.api.caller import ANONYMOUS
from node.api.table import APIS
from node.listeners.grpc.connections import ConnectionShutdown, host_of
from node.listeners.grpc.incomplete_messages import INCOMPLETE_BYTES_MAX, IncompleteMessages
from node.listeners.grpc.request_limits import ensure_few_fields, ensure_small
from node.listeners.grpc.server_tls import UNPROVED, ServerTls
from node.listeners.grpc.unread_answer import UnreadAnswer
from node.quotas.open_calls import OpenCalls
from node.requests.boundary import Boundary
from node.requests.context import RequestContext
from node.runtime.limits import SLOW_READER_MS
from node.runtime.request_meter import RequestMeter, name_of
from node.security.sasl_authenticator import SaslAuthenticator
from node.security.sasl_sessions import SaslSession
from replication.controller.scram_users import CLUSTER_USER
from tidelog.errors import (
    ConnectionLost,
    IllegalSaslState,
    InvalidConfig,
    InvalidRequest,
    NodeShuttingDown,
    SaslSessionEnded,
    TidelogError,
    UnknownServerError,
)
from tidelog.protocol import methods, wire
from tidelog.protocol import status as _status
from tidelog.protocol.grpc_transport import CLIENT_ID_KEY, KEEPALIVE_MS, MESSAGE_BYTES_MAX
from tidelog.protocol.methods import CallKind, Method, WireMessage
from tidelog.protocol.sasl_client import SESSION_KEY
from tidelog.types import Endpoint

_log = logging.getLogger("node.requests")

CONCURRENT_STREAMS_MAX: Final = 10_000
"""Limit of open calls and streams on one connection. A stream takes some KiB; a client opens a few."""

CONNECTIONS_MAX: Final = 10_000
"""Limit of connections of a listener. Each takes some KiB and a file descriptor."""

HANDSHAKE_MS: Final = 10_000
"""Timeout of a new connection for its HTTP/2 settings. gRPC's default is two minutes."""

PING_TIMEOUT_MS: Final = 60_000
"""Timeout of a ping to a process that does not answer it, gRPC's default: on a slow network a ping follows megabytes of
records. If the other machine does not acknowledge its bytes, the system ends the connection after `KEEPALIVE_MS`."""

_COMPRESSED: Final = (b"\x1f", b"\x78")
"""The first byte of a message compressed with gzip or deflate. No request begins with these: the first names no valid
wire type, the second is field 15 as a number, which no request has."""

_ACCEPTED: Final = ((SESSION_KEY, "accepted"),)
"""Answers a stream at once, so that its caller sends nothing with a session that has ended."""

NAME_BYTES_MAX: Final = 4_096
"""Limit of the bytes of a request of the health and reflection services, which contains one name."""

CLIENT_ID_MAX: Final = 255
"""Limit of characters of a client id; the rest is dropped."""


class GrpcServer:
    """A listener. It is bound first, so that its port is known; then the services are added and it is started."""

    def __init__(
        self,
        listener: str,
        *,
        boundary: Boundary,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
        for_nodes: bool = True,
        tls: ServerTls | None = None,
        incomplete_bytes_max: int = INCOMPLETE_BYTES_MAX,
    ) -> None:
        """connections_max: further connections are closed when they are made. for_nodes: serve what only nodes may ask.
        tls: None for plain text. incomplete_bytes_max: what incomplete messages may occupy."""
        self.listener = listener
        self._boundary = boundary
        self._for_nodes, self._tls = for_nodes, tls
        options = [*_server_options(message_bytes_max), ("grpc.max_allowed_incoming_connections", connections_max)]
        self._server = grpc.aio.server(options=options if tls is None else [*options, *tls.options()])
        self._streams: set[ServerStream] = set()
        self._shutdown = ConnectionShutdown()
        self._incomplete = IncompleteMessages(incomplete_bytes_max)
        self._port = 0
        self._refusing = False
        self._names: list[str] = []
        self._sasl: SaslAuthenticator | None = None

    def bind(self, address: Endpoint) -> Endpoint:
        """Bind the address (port 0: any free port). Returns the bound address. Raises InvalidConfig."""
        host = f"[{address.host}]" if ":" in address.host else address.host
        target = f"{host}:{address.port}"
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(target)
            else:
                port = self._server.add_secure_port(target, self._tls.credentials())
        except RuntimeError as error:
            raise InvalidConfig(
                f"listener {self.listener!r}: {address} cannot be bound ({error}). Another process may use the port, "
                "or the address is not one of this machine. Change the address in `listeners`, or use port 0."
            ) from None
        self._port = port
        return Endpoint(address.host, port)

    def serve(self, services: Mapping[str, object], sasl: SaslAuthenticator | None = None) -> None:
        """Add services by their full names (`tidelog.v1.Data`): objects with one async method for each RPC. sasl: who
        the callers are, if it requires SASL for this listener."""
        self._sasl = sasl if sasl is not None and sasl.requires(self.listener) else None
        for name, service in services.items():
            handlers = {method.name: self._handler(method, service) for method in methods.of_service(name)}
            assert handlers, f"the table of RPCs has no service {name}"
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
            self._names.append(name)

    def serve_health(self, servicer: health_pb2_grpc.HealthServicer) -> None:
        """Add gRPC's health service."""
        counted = _CountedHealth(servicer, self._boundary.calls)
        health_pb2_grpc.add_HealthServicer_to_server(counted, self._server)
        self._names.append(health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)

    async def start(self) -> None:
        """Start to serve. Reflection lists the services from now on."""
        names = (*self._names, reflection.SERVICE_NAME)
        add_reflection: Any = reflection_pb2_grpc.add_ServerReflectionServicer_to_server
        add_reflection(_CountedReflection(names, self._boundary.calls), self._server)
        await self._server.start()
        self._incomplete.start(self._port)

    def refuse(self) -> None:
        """Reject every new call with NodeShuttingDown, and those that wait because of a quota. Open calls and streams
        continue."""
        self._refusing = True
        self._boundary.quotas.close()

    async def stop(self, grace_ms: int) -> None:
        """End all streams with NodeShuttingDown, let unary calls finish for `grace_ms`, close all connections."""
        self.refuse()
        for stream in list(self._streams):
            stream.end()
        await self._server.stop(grace_ms / 1000)
        self._incomplete.stop()

    def _handler(self, method: Method[WireMessage, WireMessage], service: object) -> grpc.RpcMethodHandler[Any, Any]:
        meter = self._boundary.meters.of(str(method))
        serve, write = getattr(service, method.attribute), _writer(method, meter)
        if method.kind is CallKind.UNARY:  # parses the request by itself, once the caller is known
            return grpc.unary_unary_rpc_method_handler(self._unary(method, serve, meter), response_serializer=write)
        return grpc.stream_stream_rpc_method_handler(
            self._stream(method, serve, meter), request_deserializer=_reader(method), response_serializer=write
        )

    def _unary(
        self,
        method: Method[WireMessage, WireMessage],
        serve: Callable[[Any, RequestContext], Coroutine[Any, Any, WireMessage]],
        meter: RequestMeter,
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        """The handler of a unary RPC. It parses a request only after `_context` has let its caller in."""
        read, api = _reader(method), APIS[str(method)]

        async def handle(data: bytes, call: Any) -> tuple[WireMessage, RequestContext]:
            self._incomplete.delivered(call.peer(), len(data))
            context, _ = await self._context(call, meter, api)
            message, size = read(data)
            del data  # the message has it
            request = context.begin(wait_ms=_wait_of(message))
            meter.request_bytes += size
            try:
                with self._counted(context):
                    if isinstance(message, InvalidRequest):
                        raise message
                    if context.throttle.applies:
                        await context.throttle.admit(size, context.deadline_ms)
                        self._ensure_serving()
                        request.admitted()
                    answer = await request.on_loop(serve(message, context))
            except asyncio.CancelledError:
                request.abandon()
                raise
            except Exception as cause:  # noqa: BLE001 (the boundary: everything becomes a status)
                error = _as_tidelog_error(cause, doing=method)
                request.fail(error)
                await _abort(call, error)
            request.entry_ended()
            answered_ns = meter.now_ns()
            unread = UnreadAnswer(answer, context.connection, self._shutdown)
            call.add_done_callback(lambda _call: _sent(meter, answered_ns, unread))
            return answer, context

        return handle

    def _stream(
        self,
        method: Method[WireMessage, WireMessage],
        serve: Callable[[Any, RequestContext], Coroutine[Any, Any, None]],
        meter: RequestMeter,
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        api = APIS[str(method)]

        async def handle(_requests: Any, call: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._incomplete.delivered(call.peer(), 0)
            context, session = await self._context(call, meter, api)
            stream = ServerStream(call, task, context, self._shutdown, self._incomplete)
            self._streams.add(stream)
            if session is not None:
                session.streams.add(stream)
            begin = serve if session is None else _accepting(call, serve)
            meter.streams_open += 1
            outcome = "ok"
            try:
                error = await self._serve_stream(partial(begin, stream, context), method, stream)
                await stream.settle()
                if error is not None:
                    outcome = name_of(error)
                    await _abort(call, error)
            except asyncio.CancelledError:  # the caller went away
                outcome = "ended"
                raise
            finally:
                self._streams.discard(stream)
                if session is not None:
                    session.streams.discard(stream)
                meter.stream_ended(outcome)

        return handle

    async def _context(
        self, call: Any, meter: RequestMeter, api: Api[Any, Any]
    ) -> tuple[RequestContext, SaslSession | None]:
        """The origin of a call, and its session where the listener has SASL. Ends the call if its certificate belongs
        to no principal, if it has no valid session, or if only nodes may make it and the caller is none."""
        left_s, peer, metadata = call.time_remaining(), call.peer(), call.invocation_metadata()
        identity, session, principal = UNPROVED, None, ANONYMOUS
        try:
            if self._tls is not None:
                identity = self._tls.identity(call, has_sasl=self._sasl is not None)
                principal = identity.principal
            if self._sasl is not None and api.audience is not Audience.ANYONE:
                session = self._sasl.session_of(self.listener, _value_of(SESSION_KEY, metadata))
                principal = session.principal
        except TidelogError as error:
            RequestContext(self.listener, peer, meter=meter).begin().fail(error)
            if not isinstance(error, SaslSessionEnded):  # an end is no failure: the caller authenticates again
                mechanism = "SASL" if isinstance(error, IllegalSaslState) else "SSL"
                self._boundary.audit.authentication_failed(
                    listener=self.listener, address=peer, mechanism=mechanism, reason=error.message
                )
            await _abort(call, error)
        is_cluster = session is not None and session.user == CLUSTER_USER
        client_id = (_value_of(CLIENT_ID_KEY, metadata) or "")[:CLIENT_ID_MAX]
        context = RequestContext(
            self.listener,
            peer,
            principal,
            for_nodes=self._for_nodes and (identity.is_node if self._sasl is None else is_cluster),
            client_id=client_id,
            deadline_ms=None if left_s is None else int(left_s * 1000),
            meter=meter,
            authorizer=self._boundary.authorizer,
            host=host_of(peer),
            audit=self._boundary.audit,
            throttle=self._boundary.quotas.throttle(meter.api, principal, client_id),
        )
        if api.audience is Audience.NODES:
            try:
                context.ensure_for_nodes(api)
            except TidelogError as error:
                context.begin().fail(error)
                await _abort(call, error)
        return context, session

    @contextmanager
    def _counted(self, context: RequestContext) -> Iterator[None]:
        """Count an open call or stream. Raises NodeShuttingDown, ThrottlingQuotaExceeded."""
        self._ensure_serving()
        calls, address = self._boundary.calls, context.host
        calls.open(address, context.principal)
        try:
            yield
        finally:
            calls.close(address, context.principal)

    def _ensure_serving(self) -> None:
        if self._refusing:
            raise self._shutting_down()

    async def _serve_stream(
        self, serve: Callable[[], Coroutine[Any, Any, None]], method: object, stream: ServerStream
    ) -> TidelogError | None:
        """Run the method of the service. Returns the error to end the stream with; None for success."""
        try:
            with self._counted(stream.context):
                await serve()
        except asyncio.CancelledError:
            if not stream.end_wanted:
                raise
            stream.take_back_cancel()
            return None if stream.closed else stream.reason or self._shutting_down()
        except Exception as cause:  # noqa: BLE001 (the boundary: everything becomes a status)
            return _as_tidelog_error(cause, doing=method)
        return None

    def _shutting_down(self) -> NodeShuttingDown:
        return _status.shutting_down("the node")


class ServerStream:
    """The server side of an open stream (`tidelog.protocol.network.MessageStream`). Several tasks may send."""

    def __init__(
        self,
        call: Any,
        task: asyncio.Task[Any],
        context: RequestContext,
        shutdown: ConnectionShutdown,
        incomplete: IncompleteMessages,
    ) -> None:
        self._call, self._shutdown, self._incomplete = call, shutdown, incomplete
        self.context, self._meter, self._throttle = context, context.meter, context.throttle
        # Read at the start: gRPC crashes (SIGSEGV) if it is queried for the peer after the caller has gone.
        self._peer = context.connection
        self._serving = task
        self._last_write: asyncio.Task[None] | None = None
        self.closed = False
        self.end_wanted = False
        self.reason: TidelogError | None = None
        """Why the node ends the stream; None: it stops, or the stream does not end."""

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
        """The next request; None after the caller has sent its last one. Nothing is read from a caller that must wait
        because of a quota: what it sends waits on its side of the connection."""
        if self._throttle.applies:
            await self._throttle.wait_to_read()
        try:
            received = await self._call.read()
        except grpc.aio.BaseError as error:
            raise self._lost(error) from None
        if received is grpc.aio.EOF:
            return None
        message, size = received
        del received  # only the caller of this method keeps the message
        self._meter.request_bytes += size
        self._incomplete.delivered(self._peer, size)
        if isinstance(message, InvalidRequest):
            self.context.begin().fail(message)
            raise message
        self._throttle.received(size)
        return message

    def close(self) -> None:
        """End the stream and cancel the method that serves it. If a message is being written, the caller's connection
        is shut down: otherwise gRPC would keep the message for as long as the caller does not read."""
        self.closed = True
        if self._last_write is not None and not self._last_write.done():
            self._shutdown.request(self._peer)
        self.end()

    def end(self) -> None:
        """End the stream because the node stops."""
        if not self.end_wanted:
            self.end_wanted = True
            self._serving.cancel()

    def end_with(self, error: TidelogError) -> None:
        """End the stream because the session of its caller has ended."""
        if not self.end_wanted:
            self.reason = error
            self.end()

    def take_back_cancel(self) -> None:
        """Undo the cancellation by `end`, so that the task can await again."""
        self._serving.uncancel()

    async def settle(self) -> None:
        """Wait until the last write has ended; only then gRPC can end the stream. The connection of a caller that does
        not read is shut down: otherwise it would keep the message."""
        if self._last_write is not None:
            _, unread = await asyncio.wait((self._last_write,), timeout=SLOW_READER_MS / 1000)
            if unread:
                self._shutdown.request(self._peer)
                await asyncio.wait(unread)

    async def _write(self, message: WireMessage, previous: asyncio.Task[None] | None) -> None:
        """Write after the previous message: gRPC accepts one write at a time."""
        meter = self._meter
        began_ns = meter.now_ns()
        if previous is not None and not previous.done():
            await asyncio.wait((previous,))
        try:
            await self._call.write((message, self.context))
            meter.send_ns += meter.now_ns() - began_ns
        except grpc.aio.BaseError as error:
            raise self._lost(error) from None
        finally:
            del message, previous  # the task keeps the error, and the error keeps this frame

    def _lost(self, error: Exception) -> ConnectionLost:
        return ConnectionLost(f"the caller at {self._peer} went away ({error})")


class _CountedHealth(health_pb2_grpc.HealthServicer):
    """The health service, whose watches are open calls of their address like those of other services."""

    def __init__(self, servicer: Any, calls: OpenCalls) -> None:
        self._servicer, self._calls = servicer, calls

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's names)
        return await self._servicer.Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802
        async with _open_call(self._calls, context):
            await _ensure_few_bytes(request, context)
            await self._servicer.Watch(request, context)


class _CountedReflection:
    """gRPC's reflection, whose streams are open calls of their address."""

    def __init__(self, names: Iterable[str], calls: OpenCalls) -> None:
        self._servicer: Any = reflection.aio.ReflectionServicer(names)
        self._calls = calls

    async def ServerReflectionInfo(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async def small() -> AsyncIterator[Any]:
            async for request in requests:
                await _ensure_few_bytes(request, context)
                yield request

        async with _open_call(self._calls, context):
            async for answer in self._servicer.ServerReflectionInfo(small(), context):
                yield answer


@asynccontextmanager
async def _open_call(calls: OpenCalls, context: Any) -> AsyncIterator[None]:
    """Count a call of a service that answers everyone. Ends it if its address has too many."""
    address = host_of(context.peer())
    try:
        calls.open(address, ANONYMOUS)
    except TidelogError as error:
        await _abort(context, error)
    try:
        yield
    finally:
        calls.close(address, ANONYMOUS)


async def _ensure_few_bytes(request: Message, context: Any) -> None:
    """End a call of a service that answers everyone if its request, which the call or its answer keeps, is large."""
    if (size := request.ByteSize()) > NAME_BYTES_MAX:
        await _abort(context, InvalidRequest(f"the request has {size} bytes, at most {NAME_BYTES_MAX} are allowed"))


def _reader(method: Method[WireMessage, WireMessage]) -> Callable[[bytes], tuple[WireMessage | InvalidRequest, int]]:
    """A function that parses a request and returns it with its size. It returns an InvalidRequest instead of raising
    it: gRPC only logs a traceback for an exception here."""
    kind = _descriptor_of(method.request)

    def read(data: bytes) -> tuple[WireMessage | InvalidRequest, int]:
        size = len(data)
        try:
            ensure_small(size, method)
            ensure_few_fields(data, kind)
            return method.request.FromString(data), size
        except InvalidRequest as error:
            return error, size
        except DecodeError as error:
            reason = "gRPC's compression is not supported" if data[:1] in _COMPRESSED else str(error)
            return InvalidRequest(f"the {size} bytes sent to {method} are no {method.request.__name__}: {reason}"), size

    return read


def _writer(
    method: Method[WireMessage, WireMessage], meter: RequestMeter
) -> Callable[[tuple[WireMessage, RequestContext]], bytes]:
    """A function that serializes answers, counts their bytes, charges the quotas, and adds how long the caller must
    wait."""
    tells = "throttle_time_ms" in _descriptor_of(method.answer).fields_by_name

    def write(answer: tuple[WireMessage, RequestContext]) -> bytes:
        message, context = answer
        data = message.SerializeToString()
        meter.response_bytes += len(data)
        throttle_ms = context.throttle.sent(len(data))
        return wire.with_throttle_time(data, throttle_ms) if throttle_ms and tells else data

    return write


def _descriptor_of(message: type[WireMessage]) -> Descriptor:
    return descriptor_pool.Default().FindMessageTypeByName(f"tidelog.v1.{message.__name__}")


def _accepting(
    call: Any, serve: Callable[[Any, RequestContext], Coroutine[Any, Any, None]]
) -> Callable[[Any, RequestContext], Coroutine[Any, Any, None]]:
    """Tell the caller of a stream that its session is valid, then serve the stream."""

    async def accept_and_serve(stream: Any, context: RequestContext) -> None:
        await call.send_initial_metadata(_ACCEPTED)
        await serve(stream, context)

    return accept_and_serve


def _sent(meter: RequestMeter, began_ns: int, unread: UnreadAnswer) -> None:
    """The answer of a call was sent completely, or its connection has ended."""
    unread.sent()
    meter.send_ns += meter.now_ns() - began_ns


def _value_of(wanted: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    return next((str(value) for key, value in metadata or () if key == wanted), None)


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
        ("grpc.per_message_decompression", 0),  # 128 KiB would become 128 MiB, before anything is checked
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.so_reuseport", 0),  # two nodes on one port must fail, not share it
        ("grpc.keepalive_time_ms", 2 * KEEPALIVE_MS),  # to notice a client that has vanished
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
        ("grpc.keepalive_permit_without_calls", 1),  # connections without calls count for `max.connections` too
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),  # Tidelog clients ping while a fetch waits
    ]


async def _abort(call: Any, error: TidelogError) -> NoReturn:
    details: Iterable[tuple[str, bytes]] = ((_status.DETAILS_KEY, _status.to_details(error)),)
    await call.abort(_status.status_code(error), _status.short_message(error), details)
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
