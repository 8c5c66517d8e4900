"""Calls and streams to nodes over gRPC: one connection per address, typed errors, bounded waits.

Used by the client and, as `tidelog.protocol.network.Transport`, between nodes.
Invariants: every failure is a TidelogError that names the address and the call. A machine that disappears is detected
within `KEEPALIVE_MS` plus `KEEPALIVE_TIMEOUT_MS`; a process that is frozen, whose system still answers for it, after
`KEEPALIVE_MS` plus gRPC's 60 s, unless the caller has a timeout. Nothing is resent automatically (gRPC's own retries
are off). A new stream uses the certificates that are on disk now, a call those of some seconds ago.
Not here: retries and the choice of the node.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from ipaddress import ip_address
from typing import Any, Final, Generic, NoReturn

import grpc
from google.protobuf.message import DecodeError

from tidelog import forks
from tidelog.errors import (
    ClientCertificateRejected,
    ConnectionFailed,
    ConnectionLost,
    InvalidConfig,
    SaslSessionEnded,
    TidelogError,
    TlsHandshakeFailed,
    UnknownServerError,
)
from tidelog.protocol import status, wire
from tidelog.protocol.methods import SASL_AUTHENTICATE
from tidelog.protocol.rpc import Answer, CallKind, Method, Request
from tidelog.protocol.sasl_client import SESSION_KEY, SaslClient
from tidelog.protocol.v1 import sasl_pb2
from tidelog.security.diagnosis import diagnose
from tidelog.security.tls_files import Tls, TlsFiles
from tidelog.types import Endpoint

_log = logging.getLogger("tidelog.tls")

KEEPALIVE_MS: Final = 5_000
KEEPALIVE_TIMEOUT_MS: Final = 3_000
"""Ping interval of an idle connection and timeout of a ping; together about Kafka's session timeout."""

CONNECT_TIMEOUT_MS: Final = 3_000
"""Timeout of one connection attempt. gRPC's default of 20 s is longer than the session timeout of a node."""

ACCEPT_TIMEOUT_MS: Final = KEEPALIVE_MS + KEEPALIVE_TIMEOUT_MS
"""How long a node may take to accept the session of a new stream. One that hangs must not hold up its callers."""

CLIENT_ID_KEY: Final = "tidelog-client-id"
"""Metadata key of a call or stream: the name that a client gives itself, for logs and quotas."""

ON_BEHALF_KEY: Final = "tidelog-on-behalf-bin"
"""Metadata key of a call: on whose behalf a node asks. The value is that of `behalf`."""

MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Default of the largest message. Most messages have about 256 KiB, but a batch is never split, and topics may allow
large batches."""


LOOK_AGAIN_S: Final = 5.0
"""Calls look at the certificates on disk this often; a new stream and a failed call do so in any case."""

DIAGNOSE_AGAIN_S: Final = 5.0
"""The cause of a failed TLS connection is looked for again after this time; until then the last one is reported."""

DIAGNOSE_MS: Final = 2_000
"""Limit of the connections that tell whether a name is refused at all of its addresses."""

LOOK_UP_AGAIN_S: Final = 1.0
"""A channel without a connection is replaced from this age on, so that the name of the node is looked up again: a pod
that starts again has its name and another address. gRPC itself tries the last address first, which takes
`CONNECT_TIMEOUT_MS` if nothing is there any more. It looks for a name that it does not find, as that of a pod that is
away, 1, 1.6, 2.6, 4.1 s later and so on, up to 2 minutes. Neither can be set."""

WARN_AGAIN_S: Final = 60.0
"""Interval of the warnings about failed TLS connections of one transport."""

_ENDED_BY_NODE: Final = ("socket closed", "reset", "closed by peer", "broken pipe", "eof")
"""What gRPC reports when a connection was made and the node ended it at once, as a TLS port does with plain text."""

_WRITE_FAILED: Final = "Internal error from Core"
"""What gRPC for Python reports, with INTERNAL, if the node ends a stream while a message is written to it. The error of
the node is lost then."""


def _is_address(host: str) -> bool:
    """Whether the host is an IP address, and no name that may have several."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


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


def behalf(principal: str, host: str, address: str) -> tuple[str, bytes]:
    """The metadata of a call that a node makes for somebody else. host, address: of that caller, without and with the
    port."""
    return ON_BEHALF_KEY, f"{host}\n{address}\n{principal}".encode()


def _credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """gRPC checks the name of the node and requires TLS 1.2 or later."""
    return grpc.ssl_channel_credentials(files.pem.ca, files.pem.key, files.pem.certificate)


def blocking_channel(address: str, tls: Tls | None) -> grpc.Channel:
    """A channel without an event loop, for single queries. tls: None for plain text. Raises InvalidConfig."""
    forks.require_grpc()
    options = [("grpc.enable_http_proxy", 0)]
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, _credentials(TlsFiles(tls)), options=options)


class GrpcTransport:
    """Unary calls and bidirectional streams to any number of nodes; belongs to one running event loop."""

    def __init__(
        self,
        *,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        tls: Tls | None = None,
        sasl: SaslClient | None = None,
        client_id: str = "",
        tls_failures: logging.Logger | None = None,
    ) -> None:
        """tls: the files for TLS, None for plain text. sasl: authenticates at each node before the first call; None:
        calls have no session. client_id: the name of this client for the nodes' logs and quotas, printable ASCII.
        tls_failures: warns of a failed TLS connection when it fails, once a minute; None: only its caller learns of it.
        Raises InvalidConfig if the files cannot be used, UsedAfterFork in a forked child where gRPC cannot work."""
        forks.require_grpc()
        self._options = channel_options(message_bytes_max)
        self._tls = None if tls is None else TlsFiles(tls)
        self._credentials = None if self._tls is None else _credentials(self._tls)
        self._looked_at = -LOOK_AGAIN_S
        self._sasl = sasl
        if sasl is not None:
            sasl.connect(self._send_handshake, is_encrypted=tls is not None)
        self._tls_failures, self._warn_again_at = tls_failures, 0.0
        self._metadata = ((CLIENT_ID_KEY, client_id),) if client_id else ()
        self._channels: dict[Endpoint, grpc.aio.Channel] = {}
        self._made_at: dict[Endpoint, float] = {}
        """When each of these was made."""
        self._former: dict[Endpoint, grpc.aio.Channel] = {}
        """The channels before these ones: streams may end on the connections that they had."""
        self._callables: dict[tuple[Endpoint, str], Any] = {}
        self._replaced: list[grpc.aio.Channel] = []
        """The channels with the certificate before the present one: their streams continue."""
        self._diagnoses: dict[Endpoint, tuple[float, ConnectionFailed | None]] = {}

    async def call(self, to: Endpoint, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        """Call a unary method; see `tidelog.protocol.network.Transport.call`."""
        return await self._call_in_session(to, method, request, timeout_ms)

    async def call_for(
        self,
        on_behalf: tuple[str, bytes],
        to: Endpoint,
        method: Method[Request, Answer],
        request: Request,
        *,
        timeout_ms: int,
    ) -> Answer:
        """As `call`, by a node for somebody else. on_behalf: from `behalf`."""
        return await self._call_in_session(to, method, request, timeout_ms, (on_behalf,))

    async def _call_in_session(
        self,
        to: Endpoint,
        method: Method[Request, Answer],
        request: Request,
        timeout_ms: int,
        more: tuple[tuple[str, bytes], ...] = (),
    ) -> Answer:
        if self._sasl is None:
            return await self._call(to, method, request, timeout_ms, more=more)
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_ms / 1000
        token = await self._sasl.token_of(to, timeout_ms)
        try:
            return await self._call(to, method, request, _left_ms(loop, end), token, more)
        except SaslSessionEnded:  # refused before it was handled
            self._sasl.refused(to, token)
        token = await self._sasl.token_of(to, _left_ms(loop, end))
        return await self._call(to, method, request, _left_ms(loop, end), token, more)

    async def _send_handshake(
        self, to: Endpoint, request: sasl_pb2.AuthenticateRequest, timeout_ms: int
    ) -> sasl_pb2.AuthenticateResponse:
        return await self._call(to, SASL_AUTHENTICATE, request, timeout_ms)

    async def _call(
        self,
        to: Endpoint,
        method: Method[Request, Answer],
        request: Request,
        timeout_ms: int,
        token: str = "",
        more: tuple[tuple[str, bytes], ...] = (),
    ) -> Answer:
        assert method.kind is CallKind.UNARY, f"{method} is a stream"
        if self._tls is not None and asyncio.get_running_loop().time() - self._looked_at >= LOOK_AGAIN_S:
            await self._refresh_certificates()
        invoke = await self._callable(to, method)
        try:
            answer: Answer = await invoke(request, timeout=timeout_ms / 1000, metadata=self._metadata_of(token, more))
        except grpc.aio.AioRpcError as error:
            failure = status.from_rpc_error(error, address=to, phase=str(method))
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not self._is_connected(to):
                failure = ConnectionFailed(
                    f"{method} at {to}: no connection within {timeout_ms} ms. Is this the address of a node, and does "
                    "a firewall let connections to it pass?"
                )
        except DecodeError as error:
            raise _unreadable(to, method, error) from error
        except asyncio.CancelledError:
            _raise_unless_cancelled(ConnectionLost(f"{method} at {to}: this side closed the connection"))
        else:
            await self._connected(to)
            return answer
        # Not in the handler: gRPC's error would be the context of this one and keep its call, and a call keeps its
        # closed channel connecting, and logging, for as long as the error exists.
        raise await self._explained(failure, to, method)

    async def open_stream(self, to: Endpoint, method: Method[Request, Answer]) -> GrpcStream[Request, Answer]:
        """Open a stream and wait for the connection. Raises ConnectionFailed if the node cannot be reached. If the node
        rejects the stream, its error is raised here or by `receive` and `send`."""
        if self._sasl is None:
            return await self._open(to, method)
        token = await self._sasl.token_of(to, CONNECT_TIMEOUT_MS)
        try:
            return await self._open(to, method, token)
        except SaslSessionEnded:
            self._sasl.refused(to, token)
        token = await self._sasl.token_of(to, CONNECT_TIMEOUT_MS)
        return await self._open(to, method, token)

    async def _open(
        self, to: Endpoint, method: Method[Request, Answer], token: str = ""
    ) -> GrpcStream[Request, Answer]:
        """token: of a session; then the stream is returned once the node has accepted it."""
        assert method.kind is CallKind.STREAM, f"{method} is not a stream"
        await self._refresh_certificates()
        invoke = await self._callable(to, method)
        call = invoke(metadata=self._metadata_of(token))
        stream: GrpcStream[Request, Answer] = GrpcStream(call, to, method)
        try:
            await stream.wait_connected()
            if token:
                await stream.wait_accepted()
        except ConnectionFailed as failure:
            raise await self._explained(failure, to, method) from None
        await self._connected(to)
        if self._sasl is not None:
            stream_ended = self._sasl.stream_opened(to)
            call.add_done_callback(lambda _call: stream_ended())
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
        if self._sasl is not None:
            await self._sasl.close()
        channels = [*self._channels.values(), *self._former.values(), *self._replaced]
        self._channels.clear()
        self._callables.clear()
        self._former.clear()
        self._replaced.clear()
        for channel in channels:
            await channel.close()
        if channels:
            forks.note_closed(self)
            await _last_event()

    async def forget(self, endpoint: Endpoint) -> None:
        """Close the connection to an address that is no longer used."""
        if self._sasl is not None:
            await self._sasl.forget(endpoint)
        self._diagnoses.pop(endpoint, None)
        for channel in (self._detach(endpoint), self._former.pop(endpoint, None)):
            if channel is not None:
                await channel.close()

    def _detach(self, endpoint: Endpoint) -> grpc.aio.Channel | None:
        """The channel to an address, which no call uses from now on."""
        for key in [key for key in self._callables if key[0] == endpoint]:
            del self._callables[key]
        self._made_at.pop(endpoint, None)
        return self._channels.pop(endpoint, None)

    async def _callable(self, to: Endpoint, method: Method[Request, Answer]) -> Any:
        """What makes calls of a method to a node, through a channel that is connected, connects, or is new."""
        await self._look_up_again(to, grpc.ChannelConnectivity.IDLE)
        return self._callables.get((to, method.path)) or self._make_callable(to, method)

    async def _look_up_again(self, to: Endpoint, state: grpc.ChannelConnectivity) -> None:
        """Let calls use a new channel from now on if the present one has lost its connection (IDLE), or cannot connect
        (TRANSIENT_FAILURE)."""
        channel = self._channels.get(to)
        if channel is None or channel.get_state() is not state or _is_address(to.host):
            return
        if asyncio.get_running_loop().time() - self._made_at[to] < LOOK_UP_AGAIN_S:
            return
        former = self._former.pop(to, None)
        self._detach(to)
        self._former[to] = channel
        if former is not None:
            await former.close()

    async def _connected(self, to: Endpoint) -> None:
        """Close the channel before the present one, which is connected, if it still tries to connect."""
        former = self._former.get(to) if self._former else None
        if former is not None and former.get_state() is not grpc.ChannelConnectivity.IDLE:
            del self._former[to]
            await former.close()

    async def _explained(self, failure: TidelogError, to: Endpoint, method: object) -> TidelogError:
        """The error of a failed call: what is wrong with TLS, if that is why no connection was made; else `failure`."""
        error = await self._cause_of(failure, to, method)
        if isinstance(failure, ConnectionFailed):
            await self._look_up_again(to, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
        now = asyncio.get_running_loop().time()
        if self._tls_failures is not None and isinstance(error, TlsHandshakeFailed) and now >= self._warn_again_at:
            self._warn_again_at = now + WARN_AGAIN_S
            self._tls_failures.warning("%s", error.message)
        return error

    async def _cause_of(self, failure: TidelogError, to: Endpoint, method: object) -> TidelogError:
        if type(failure) not in (ConnectionFailed, ClientCertificateRejected):
            return failure
        await self._refresh_certificates()
        if isinstance(failure, ClientCertificateRejected):  # the node says so: nothing is left to find
            return failure
        reason = failure.message.lower()
        is_refused = "refused" in reason
        if is_refused:
            if _is_address(to.host):
                return failure
        elif self._tls is None and not any(words in reason for words in _ENDED_BY_NODE):
            return failure
        now = asyncio.get_running_loop().time()
        found_at, found = self._diagnoses.get(to, (now - 2 * DIAGNOSE_AGAIN_S, None))
        if now - found_at >= DIAGNOSE_AGAIN_S:
            self._diagnoses[to] = now, found  # other calls do not look for it meanwhile
            found = await self._diagnose(to, method, is_refused=is_refused)
            self._diagnoses[to] = now, found
        return failure if found is None else type(found)(found.message)

    async def _diagnose(self, to: Endpoint, method: object, *, is_refused: bool) -> ConnectionFailed | None:
        """is_refused: gRPC reports a refused connection. Of several addresses of a name it reports the last one, for
        `localhost` often that of IPv6, while the cause is what listens at another one."""
        if is_refused and await self.is_refused(to, timeout_ms=DIAGNOSE_MS):
            return None
        found = await diagnose(to, None if self._tls is None else self._tls.tls, str(method))
        if found is None and is_refused:
            return ConnectionFailed(
                f"{method} at {to}: one address of this name refuses connections, and nothing at another one answers "
                "as a node. Is this the port of a listener for Tidelog's clients (by default 9192; 9092 is for clients "
                "of Kafka)?"
            )
        return found

    async def _refresh_certificates(self) -> None:
        """Use new connections from now on if the certificates on disk have changed. Streams on the present ones
        continue until the node ends them, or until the certificates change again."""
        if self._tls is None:
            return
        self._looked_at = asyncio.get_running_loop().time()
        try:
            if not self._tls.refresh():
                return
        except InvalidConfig as error:
            _log.error("the former certificate is kept: %s", error.message)
            return
        self._credentials = _credentials(self._tls)
        outdated, self._replaced = self._replaced, list(self._channels.values())
        self._channels.clear()
        self._callables.clear()
        self._diagnoses.clear()
        for channel in outdated:
            await channel.close()

    def _is_connected(self, to: Endpoint) -> bool:
        """Whether the present channel has, or had until now, a connection: a request may have been sent."""
        channel = self._channels.get(to)
        return channel is None or channel.get_state() in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.IDLE)

    def _metadata_of(
        self, token: str, more: tuple[tuple[str, bytes], ...] = ()
    ) -> tuple[tuple[str, str | bytes], ...] | None:
        """What a call carries. token: of a session; empty for none."""
        if more:
            return (*self._metadata, *(((SESSION_KEY, token),) if token else ()), *more)
        return (*self._metadata, (SESSION_KEY, token)) if token else self._metadata or None

    def _make_callable(self, to: Endpoint, method: Method[Request, Answer]) -> Any:
        channel = self._channels.get(to)
        if channel is None:
            channel = (
                grpc.aio.insecure_channel(_target(to), options=self._options)
                if self._credentials is None
                else grpc.aio.secure_channel(_target(to), self._credentials, options=self._options)
            )
            self._channels[to] = channel
            self._made_at[to] = asyncio.get_running_loop().time()
            forks.note_connected(self)
        make = channel.unary_unary if method.kind is CallKind.UNARY else channel.stream_stream
        invoke = make(
            method.path,
            request_serializer=wire.writer(method.request),
            response_deserializer=wire.reader(method.answer),
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

    async def wait_accepted(self) -> None:
        """Return once the node has accepted the session of this side. Raises the node's error if it refuses it,
        ConnectionFailed if it does not answer."""
        try:
            async with asyncio.timeout(ACCEPT_TIMEOUT_MS / 1_000):
                answered = await self._call.initial_metadata()
            if not any(key == SESSION_KEY for key, _ in answered or ()):
                raise await self._ending()
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        except TimeoutError:
            self._call.cancel()
            raise ConnectionFailed(
                f"{self._method} at {self._to}: the node does not accept the stream within {ACCEPT_TIMEOUT_MS} ms"
            ) from None
        except asyncio.CancelledError:
            self._call.cancel()
            _raise_unless_cancelled(self._closed())

    async def send(self, message: Request, /) -> None:
        """Send one message; waits while the receiver does not keep up."""
        try:
            async with self._lock:  # gRPC allows one write at a time
                await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            if error.details() == _WRITE_FAILED:
                raise ConnectionLost(
                    f"{self._method} at {self._to}: the node ended the stream while a message was sent; open a new one"
                ) from None
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

    async def end(self) -> None:
        """Send nothing more; the node reads what was sent."""
        try:
            async with self._lock:
                await self._call.done_writing()
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        except asyncio.CancelledError:
            _raise_unless_cancelled(self._closed())

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


async def _last_event() -> None:
    """Return after gRPC has delivered the events of all calls of this loop that were cancelled before.

    gRPC delivers events of all loops of the process through one queue. An event for a loop that was closed meanwhile
    makes another loop log "Event loop is closed", with a traceback. Events of cancelled calls are in the queue when the
    cancellation returns; that of a new call is behind them.
    """
    channel = grpc.aio.insecure_channel("ipv4:127.0.0.1:1", options=[("grpc.use_local_subchannel_pool", 1)])
    call: Any = channel.unary_unary("/")
    try:
        await call(b"", timeout=0)  # its time is over: nothing is sent
    except grpc.aio.AioRpcError:
        pass
    finally:
        await channel.close()


def _left_ms(loop: asyncio.AbstractEventLoop, end: float) -> int:
    return max(1, int((end - loop.time()) * 1000))


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
