"""A gRPC listener of a node: serves the node's services by the table of RPCs (tidelog/protocol/methods.py).

It brings the bytes of requests, their callers and the codecs; everything else happens in the boundary of the node
(node/boundary/boundary.py).

Invariants: a call that its caller ends is cancelled. Messages that gRPC would have to decompress are not accepted. The
connection of a caller that does not read the answer of a call is closed.
Stopping takes two steps, because streams do not end by themselves: `refuse` rejects new calls, `stop` ends open streams
with NodeShuttingDown.
Not here: messages and values (codec.py), the handlers (node/requests/), when the node is ready (health.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from node.api.api import Api, Audience
from node.api.caller import ANONYMOUS, Caller
from node.api.table import APIS
from node.boundary.boundary import Boundary, EncodedAnswer, ProtocolCodec, Request, shutting_down
from node.listeners.grpc.codecs import codec_of
from node.listeners.grpc.connections import ConnectionShutdown, host_of
from node.listeners.grpc.incomplete_messages import INCOMPLETE_BYTES_MAX, IncompleteMessages
from node.listeners.grpc.server_tls import ServerTls
from node.listeners.grpc.unread_answer import UnreadAnswer
from node.listeners.listener_certificates import UNPROVED
from node.quotas.open_calls import OpenCalls
from node.requests.gate import Gate
from node.runtime.limits import IDLE_MS, SLOW_READER_MS
from node.runtime.request_meter import RequestMeter
from node.security.sasl_authenticator import SaslAuthenticator
from node.security.sasl_sessions import SaslSession
from replication.controller.scram_users import CLUSTER_USER
from tidelog.errors import ClusterAuthorizationFailed, ConnectionLost, InvalidConfig, InvalidRequest, TidelogError
from tidelog.protocol import methods
from tidelog.protocol import status as _status
from tidelog.protocol.grpc_transport import CLIENT_ID_KEY, KEEPALIVE_MS, MESSAGE_BYTES_MAX, ON_BEHALF_KEY
from tidelog.protocol.sasl_client import SESSION_KEY
from tidelog.types import Endpoint

CONCURRENT_STREAMS_MAX: Final = 10_000
"""Limit of open calls and streams on one connection. A stream takes some KiB; a client opens a few."""

CONNECTIONS_MAX: Final = 10_000
"""Limit of connections of a listener. Each takes some KiB and a file descriptor."""

HANDSHAKE_MS: Final = 10_000
"""Timeout of a new connection for its HTTP/2 settings. gRPC's default is two minutes."""

PING_TIMEOUT_MS: Final = 60_000
"""Timeout of a ping to a process that does not answer it, gRPC's default: on a slow network a ping follows megabytes of
records. If the other machine does not acknowledge its bytes, the system ends the connection after `KEEPALIVE_MS`."""

_ACCEPTED: Final = ((SESSION_KEY, "accepted"),)
"""Answers a stream at once, so that its caller sends nothing with a session that has ended."""

NAME_BYTES_MAX: Final = 4_096
"""Limit of the bytes of a request of the health and reflection services, which contains one name."""

REQUEST_COPIES: Final = 2
"""Copies of a request's records: gRPC's own, and the message that contains them."""

ANSWER_COPIES: Final = 3
"""Copies of an answer's records while it is sent: as read, as serialized, and gRPC's own."""

_DATA: Final = attrgetter("data")
"""The bytes of an EncodedAnswer. gRPC keeps the answer until they are sent: it holds a share of the memory budget."""

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
        idle_ms_max: int = IDLE_MS,
        for_nodes: bool = True,
        tls: ServerTls | None = None,
        incomplete_bytes_max: int = INCOMPLETE_BYTES_MAX,
    ) -> None:
        """connections_max: further connections are closed when they are made. idle_ms_max: one without calls is closed
        after that. for_nodes: serve what only nodes may ask. tls: None for plain text. incomplete_bytes_max: what
        incomplete messages may occupy."""
        self.listener = listener
        self._boundary = boundary
        self._for_nodes, self._tls = for_nodes, tls
        options = [
            *_server_options(message_bytes_max),
            ("grpc.max_allowed_incoming_connections", connections_max),
            ("grpc.max_connection_idle_ms", idle_ms_max),
        ]
        self._server = grpc.aio.server(options=options if tls is None else [*options, *tls.options()])
        self._streams: set[ServerStream] = set()
        self._shutdown = ConnectionShutdown()
        self._incomplete = IncompleteMessages(incomplete_bytes_max)
        self.port = 0
        """The bound port."""
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
        self.port = port
        return Endpoint(address.host, port)

    def serve(
        self,
        gates: Mapping[str, Gate],
        sasl: SaslAuthenticator | None = None,
        *,
        codec_of: Callable[[str], ProtocolCodec] = codec_of,
    ) -> None:
        """Add services by name, as `Data`. sasl: who the callers are, if it requires SASL for this listener. codec_of:
        returns the codec of an API."""
        self._sasl = sasl if sasl is not None and sasl.requires(self.listener) else None
        self._boundary = replace(self._boundary, gates=gates)
        for service in gates:
            name = f"tidelog.v1.{service}"
            handlers = {
                method.name: self._handler(APIS[str(method)], codec_of(str(method)))
                for method in methods.of_service(name)
            }
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
        self._incomplete.start(self.port)

    def refuse(self) -> None:
        """Reject every new call with NodeShuttingDown, and those that wait because of a quota. Open calls and streams
        continue."""
        self._boundary.close()

    async def stop(self, grace_ms: int) -> None:
        """End all streams with NodeShuttingDown, let unary calls finish for `grace_ms`, close all connections."""
        self.refuse()
        for stream in list(self._streams):
            stream.end()
        await self._server.stop(grace_ms / 1000)
        self._incomplete.stop()

    def _handler(self, api: Api[Any, Any], codec: ProtocolCodec) -> grpc.RpcMethodHandler[Any, Any]:
        if api.is_stream:
            return grpc.stream_stream_rpc_method_handler(self._stream(api, codec), response_serializer=_DATA)
        return grpc.unary_unary_rpc_method_handler(self._unary(api, codec), response_serializer=_DATA)

    def _unary(self, api: Api[Any, Any], codec: ProtocolCodec) -> Callable[[Any, Any], Awaitable[Any]]:
        meter = self._boundary.meters.of(api.name)

        async def handle(data: bytes, call: Any) -> EncodedAnswer:
            self._incomplete.delivered(call.peer(), len(data))
            caller, _ = self._caller(call, api)
            request = Request(data, codec)
            del data  # the request has it
            try:
                answer = await self._boundary.serve(api, request, caller)
            except TidelogError as error:
                await _abort(call, error)
            answered_ns = meter.now_ns()
            unread = UnreadAnswer(answer.value, caller.connection, self._shutdown)
            call.add_done_callback(lambda _call: _sent(meter, answered_ns, unread))
            return answer

        return handle

    def _stream(self, api: Api[Any, Any], codec: ProtocolCodec) -> Callable[[Any, Any], Awaitable[Any]]:
        meter = self._boundary.meters.of(api.name)

        async def handle(_requests: Any, call: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._incomplete.delivered(call.peer(), 0)
            caller, session = self._caller(call, api)
            stream = ServerStream(
                call, task, caller, meter, self._shutdown, self._incomplete, has_session=session is not None
            )
            self._streams.add(stream)
            if session is not None:
                session.streams.add(stream)
            try:
                await self._boundary.serve_stream(api, stream, codec, caller)
            except TidelogError as error:
                await _abort(call, error)
            finally:
                self._streams.discard(stream)
                if session is not None:
                    session.streams.discard(stream)

        return handle

    def _caller(self, call: Any, api: Api[Any, Any]) -> tuple[Caller, SaslSession | None]:
        """The caller of an API, and its session where the listener has SASL. It is unauthenticated if its certificate
        belongs to no principal, or if it has no valid session."""
        left_s, peer, metadata = call.time_remaining(), call.peer(), call.invocation_metadata()
        identity, session, principal, unauthenticated = UNPROVED, None, ANONYMOUS, None
        try:
            if self._tls is not None:
                identity = self._tls.identity(call, has_sasl=self._sasl is not None)
                principal = identity.principal
            if self._sasl is not None and api.audience is not Audience.ANYONE:
                session = self._sasl.session_of(self.listener, _value_of(SESSION_KEY, metadata))
                principal = session.principal
        except TidelogError as error:
            unauthenticated = error.with_traceback(None)  # it has this frame, which has the error
        is_cluster = session is not None and session.user == CLUSTER_USER
        caller = Caller(
            self.listener,
            peer,
            principal,
            for_nodes=self._for_nodes and (identity.is_node if self._sasl is None else is_cluster),
            client_id=(_value_of(CLIENT_ID_KEY, metadata) or "")[:CLIENT_ID_MAX],
            deadline_ms=None if left_s is None else int(left_s * 1000),
            host=host_of(peer),
            request_copies=REQUEST_COPIES,
            answer_copies=ANSWER_COPIES,
            unauthenticated=unauthenticated,
        )
        asked_for = _value_of(ON_BEHALF_KEY, metadata)
        return (caller if asked_for is None else _on_behalf(caller, asked_for)), session


class ServerStream:
    """The server side of an open stream, as the boundary gets it. Several tasks may send."""

    def __init__(
        self,
        call: Any,
        task: asyncio.Task[Any],
        caller: Caller,
        meter: RequestMeter,
        shutdown: ConnectionShutdown,
        incomplete: IncompleteMessages,
        *,
        has_session: bool,
    ) -> None:
        self._call, self._shutdown, self._incomplete = call, shutdown, incomplete
        self._meter, self._has_session = meter, has_session
        # Read at the start: gRPC crashes (SIGSEGV) if it is queried for the peer after the caller has gone.
        self._peer = caller.connection
        self._serving = task
        self._last_write: asyncio.Task[None] | None = None
        self.closed = False
        self.end_wanted = False
        self.reason: TidelogError | None = None
        """Why the node ends the stream; None: it stops, or the stream does not end."""

    async def accept(self) -> None:
        """Tell a caller with a session that it is valid."""
        if self._has_session:
            await self._call.send_initial_metadata(_ACCEPTED)

    async def send(self, answer: EncodedAnswer, /) -> None:
        """Send one message; waits while the caller does not keep up. A message once begun is sent completely."""
        # gRPC can neither cancel a write nor end a stream during one: the write of a cancelled sender continues.
        loop = asyncio.get_running_loop()
        self._last_write = loop.create_task(self._write(answer, self._last_write))
        del answer  # freed when it is written, even if the frame of a cancelled sender is kept
        written: asyncio.Future[None] = loop.create_future()
        self._last_write.add_done_callback(partial(_report, written))
        await written

    async def receive(self) -> bytes | None:
        """The bytes of the next request; None after the caller has sent its last one."""
        try:
            received: Any = await self._call.read()
        except grpc.aio.BaseError as error:
            raise self._lost(error) from None
        if received is grpc.aio.EOF:
            return None
        self._incomplete.delivered(self._peer, len(received))
        data: bytes = received
        return data

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

    def end_of_cancelled(self) -> TidelogError | None:
        """As ByteStream's. Undoes the cancellation by `end`, so that the task can await again."""
        if not self.end_wanted:
            raise asyncio.CancelledError
        self._serving.uncancel()
        reason, self.reason = self.reason, None  # raised, its traceback has frames that have this stream
        return None if self.closed else reason or shutting_down()

    async def settle(self) -> None:
        """Wait until the last write has ended; only then gRPC can end the stream. The connection of a caller that does
        not read is shut down: otherwise it would keep the message."""
        if self._last_write is not None:
            _, unread = await asyncio.wait((self._last_write,), timeout=SLOW_READER_MS / 1000)
            if unread:
                self._shutdown.request(self._peer)
                await asyncio.wait(unread)

    async def _write(self, answer: EncodedAnswer, previous: asyncio.Task[None] | None) -> None:
        """Write after the previous message: gRPC accepts one write at a time."""
        meter = self._meter
        began_ns = meter.now_ns()
        if previous is not None and not previous.done():
            await asyncio.wait((previous,))
        try:
            await self._call.write(answer)
            meter.send_ns += meter.now_ns() - began_ns
            meter.response_bytes += len(answer.data)
        except grpc.aio.BaseError as error:
            raise self._lost(error) from None
        finally:
            del answer, previous  # the task keeps the error, and the error keeps this frame

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


def _sent(meter: RequestMeter, began_ns: int, unread: UnreadAnswer) -> None:
    """The answer of a call was sent completely, or its connection has ended."""
    unread.sent()
    meter.send_ns += meter.now_ns() - began_ns


def _value_of(wanted: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    found = next((value for key, value in metadata or () if key == wanted), None)
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def _on_behalf(caller: Caller, asked_for: str) -> Caller:
    """For whom a node asks: for a person at its console. It may do what that person may, and nothing that is for nodes.
    asked_for: from `behalf`."""
    if caller.unauthenticated is not None:
        return caller
    if not caller.for_nodes:
        # Served as itself, the caller could do more than the person whom it names: it may be a super user.
        refused = ClusterAuthorizationFailed(
            f"only a node may ask on behalf of others, and {caller.principal} at listener {caller.listener!r} is none"
        )
        return replace(caller, unauthenticated=refused)
    host, _, rest = asked_for.partition("\n")
    address, _, principal = rest.partition("\n")
    return replace(caller, principal=principal, host=host, for_nodes=False, asked_from=address)


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
