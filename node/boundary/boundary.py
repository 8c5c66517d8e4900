"""The boundary of a node: the path of every request, whatever its protocol, as a sequence of steps.

  1. authenticated?  a caller that has not proved its identity is refused, and the failure is recorded
  2. audience        a node-only API is refused to others, before the request is decoded
  3. limits          open calls, the size of the request, and the wait that a quota asks for
  4. decode          the codec of the protocol makes a value of the bytes
  5. authorize       by the ACLs; topics that are answered one by one are decided by the handler
  6. audit, handler  an audited API is recorded with its outcome
  7. encode, throttle, meter

A listener brings bytes, a caller and a codec, and sends what it gets back. `serve` handles a request by itself: several
may be open at once on one connection, and a protocol with ordered answers sends them in the order of its requests.
`serve_stream` handles a stream, whose messages pass steps 3 to 7 one by one.

Invariants: a `TidelogError` that a handler raises reaches the caller as that error. Any other exception is a defect: it
is logged and becomes UnknownServerError. No handler receives a request that the authorizer does not allow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sized
from copy import copy
from dataclasses import field
from typing import Any, Final, Protocol

from node.api.api import Api, Audience
from node.api.caller import Caller
from node.api.controller_requests import Envelope
from node.quotas.open_calls import OpenCalls
from node.quotas.throttle import NO_THROTTLE, Quotas
from node.requests.context import RequestContext
from node.requests.gate import Gate
from node.requests.recorded_changes import audited
from node.runtime.request_meter import MeteredRequest, RequestMeters, name_of
from node.security.authorizer import AuditTrail, Authorizer
from tidelog.errors import (
    IllegalSaslState,
    InvalidRequest,
    NodeShuttingDown,
    SaslSessionEnded,
    TidelogError,
    UnknownServerError,
)
from tidelog.record_exchange import ProduceRequest
from tidelog.values import dataclass

_log = logging.getLogger("node.requests")

REQUEST_BYTES_MAX: Final = 8 << 20
"""Bytes of a request without records: twice what 10,000 partitions named by topics with the longest names take. Parsed
strings, and errors that quote them, take several times their bytes on the wire."""

ENVELOPE_BYTES_MAX: Final = 4_096
"""Bytes that an envelope adds to the request in it, which another node has accepted: mostly the principal."""


class ProtocolCodec(Protocol):
    """The conversion between the bytes of one API in one protocol and its values."""

    @property
    def tells_throttle(self) -> bool:
        """Whether its answers have a field for the time for which the caller is throttled. Others are not encoded
        again when that is known."""

    def decode(self, data: Any, /) -> Any:
        """The value of a request. Raises InvalidRequest."""

    def encode(self, answer: Any, throttle_time_ms: int, /) -> Sized:
        """The bytes of an answer, or pieces of it with the length of all; some pieces may be ranges of a file.
        Empty if the protocol has no answer to the request (a produce request with acks=0). throttle_time_ms: how long
        the caller is throttled, for answers that have a field for it."""


class Request:
    """A request as a listener has received it."""

    __slots__ = ("_data", "codec", "queue_ns", "size")

    def __init__(self, data: Sized, codec: ProtocolCodec, queue_ns: int = 0) -> None:
        """queue_ns: how long it has waited since it arrived, by the clock of the meters."""
        self._data: Sized | None = data
        self.codec, self.size, self.queue_ns = codec, len(data), queue_ns

    def decode(self) -> Any:
        """The value, once. Raises InvalidRequest."""
        # The value refers to the bytes it needs. A second reference here would keep the rest while it is handled.
        data, self._data = self._data, None
        return self.codec.decode(data)

    def drop(self) -> None:
        """Release the bytes of a request that is refused before it is decoded."""
        self._data = None


class EncodedAnswer:
    """An answer to send."""

    __slots__ = ("data", "throttle_time_ms", "value")

    def __init__(self, data: Any, value: object, throttle_time_ms: int) -> None:
        self.data = data
        self.value = value
        """The listener keeps it until `data` is sent: it holds the share of the memory budget."""
        self.throttle_time_ms = throttle_time_ms
        """A listener that mutes its callers reads no further request of this one for this time."""


class ByteStream(Protocol):
    """The listener's side of an open stream."""

    async def receive(self) -> Sized | None:
        """The bytes of the next message; None after the last one."""

    def send(self, answer: EncodedAnswer, /) -> Coroutine[Any, Any, None]:
        """Send one message; waits while the caller does not keep up. Counts its bytes once it is written: a caller that
        does not read has not received the messages that are queued for it."""

    def close(self) -> None:
        """End the stream and cancel the handler."""

    async def accept(self) -> None:
        """The caller is admitted: tell it, if the protocol does."""

    def end_of_cancelled(self) -> TidelogError | None:
        """The handler was cancelled: the error with which the node ends the stream, None if it was closed. Raises
        CancelledError if the caller went away."""

    async def settle(self) -> None:
        """Wait until the last message is sent, or cannot be."""


@dataclass(slots=True)
class Boundary:
    """The boundary of a node, or of one listener. The defaults allow every request."""

    meters: RequestMeters = field(default_factory=RequestMeters)
    authorizer: Authorizer = field(default_factory=Authorizer)
    quotas: Quotas = field(default_factory=Quotas)
    audit: AuditTrail = field(default_factory=AuditTrail)
    calls: OpenCalls = field(default_factory=OpenCalls)
    gates: Mapping[str, Gate] = field(default_factory=dict)
    """The handlers by service, as `Data`."""
    _closed: bool = False

    def close(self) -> None:
        """Refuse new requests with NodeShuttingDown, and those that wait because of a quota."""
        self._closed = True
        self.quotas.close()

    async def serve(self, api: Api[Any, Any], request: Request, caller: Caller) -> EncodedAnswer:
        """Handle one request. Raises the TidelogError to answer with."""
        try:
            context = self._admit(api, caller)
        except TidelogError:
            request.drop()
            raise
        measured = context.begin(queue_ns=request.queue_ns)
        context.meter.request_bytes += request.size
        try:
            self._open_call(context)
            try:
                ensure_small(api, request.size)
                if context.throttle.applies:
                    await self._throttle(context, request.size, measured)
                value, data = await measured.on_loop(self._handle(api, request, context, measured))
            finally:
                self.calls.close(context.host, context.principal)
        except asyncio.CancelledError:
            measured.abandon()
            raise
        except TidelogError as error:
            measured.fail(error)
            request.drop()
            raise _without_frames(error)  # noqa: B904 (it is the same error)
        except Exception as defect:
            raise _failed(measured, _failure(defect, doing=api)) from defect
        measured.entry_ended()
        context.meter.response_bytes += len(data)
        return _answer(context, request.codec, value, data)

    async def serve_stream(self, api: Api[Any, Any], stream: ByteStream, codec: ProtocolCodec, caller: Caller) -> None:
        """Handle the messages of a stream until it ends. Raises the TidelogError to end it with."""
        context = self._admit(api, caller)
        context.meter.streams_open += 1
        outcome = "ok"
        error: TidelogError | None = None
        try:
            try:
                self._open_call(context)
                try:
                    await stream.accept()
                    await self._handler(api)(_ServedStream(api, stream, codec, context), context)
                finally:
                    self.calls.close(context.host, context.principal)
            except asyncio.CancelledError:
                error = stream.end_of_cancelled()
            except TidelogError as refused:
                error = refused
            except Exception as defect:  # noqa: BLE001 (the caller must get an answer)
                error = _failure(defect, doing=api)
                error.__cause__ = defect
            await stream.settle()
            if error is not None:
                outcome = name_of(error)
                raise _without_frames(error)
        except asyncio.CancelledError:  # the caller went away
            outcome = "ended"
            raise
        finally:
            context.meter.stream_ended(outcome)
            del error  # its traceback has this frame

    def _admit(self, api: Api[Any, Any], caller: Caller) -> RequestContext:
        """The context of the requests of this caller. Raises if it is not authenticated or not of the audience."""
        meter = self.meters.of(api.name)
        # The names that a caller gives before it is authenticated are made up: charged, they would push out the quotas
        # of clients, of which a node keeps a bounded number.
        quotas = self.quotas.throttle(api.name, caller.principal, caller.client_id)
        throttle = quotas if caller.unauthenticated is None else NO_THROTTLE
        context = RequestContext(
            caller.listener,
            caller.connection,
            caller.principal,
            caller.for_nodes,
            caller.client_id,
            caller.deadline_ms,
            caller.host,
            caller.mutes,
            caller.request_copies,
            caller.answer_copies,
            caller.unauthenticated,
            caller.appends,
            caller.asked_from,
            meter,
            self.authorizer,
            self.audit,
            throttle,
        )
        try:
            if caller.unauthenticated is not None:
                self._record_failure(caller, caller.unauthenticated)
                # A copy: the caller keeps the error, and the traceback of the one that is raised keeps the caller.
                raise copy(caller.unauthenticated)
            if api.audience is Audience.NODES:
                context.ensure_for_nodes(api)
        except TidelogError as error:
            context.begin().fail(error)
            raise
        return context

    def _record_failure(self, caller: Caller, error: TidelogError) -> None:
        if isinstance(error, SaslSessionEnded):  # an end is no failure: the caller authenticates again
            return
        mechanism = "SASL" if isinstance(error, IllegalSaslState) else "SSL"
        self.audit.authentication_failed(
            listener=caller.listener, address=caller.connection, mechanism=mechanism, reason=error.message
        )

    def _open_call(self, context: RequestContext) -> None:
        """Count an open call or stream, to be closed at its end. Raises NodeShuttingDown, ThrottlingQuotaExceeded."""
        self._ensure_open()
        self.calls.open(context.host, context.principal)

    def _ensure_open(self) -> None:
        if self._closed:
            raise shutting_down()

    async def _throttle(self, context: RequestContext, size: int, measured: MeteredRequest) -> None:
        """Charge the request. One whose listener does not mute its callers waits for its turn."""
        if context.mutes:
            context.throttle.reserve(size)
            return
        await context.throttle.admit(size, context.deadline_ms)
        self._ensure_open()
        measured.admitted()

    async def _handle(
        self, api: Api[Any, Any], request: Request, context: RequestContext, measured: MeteredRequest
    ) -> tuple[Any, Sized]:
        asked = request.decode()
        measured.waits(api.wait_of(asked))
        self.authorizer.ensure_allowed(context, api, asked)
        value = await audited(api, self._handler(api))(asked, context)
        return value, request.codec.encode(value, 0)

    def _handler(self, api: Api[Any, Any]) -> Callable[[Any, RequestContext], Coroutine[Any, Any, Any]]:
        return self.gates[api.service].handler(api)


class _ServedStream:
    """A stream as its handler gets it: in values."""

    __slots__ = ("_api", "_codec", "_context", "_stream", "close")

    def __init__(self, api: Api[Any, Any], stream: ByteStream, codec: ProtocolCodec, context: RequestContext) -> None:
        self._api, self._stream, self._codec, self._context = api, stream, codec, context
        self.close = stream.close

    async def receive(self) -> Any:
        """The next request; None after the last one. Nothing is read from a caller that must wait because of a quota:
        its messages wait on its side of the connection."""
        context = self._context
        if context.throttle.applies:
            await context.throttle.wait_to_read()
        data = await self._stream.receive()
        if data is None:
            return None
        size = len(data)
        context.meter.request_bytes += size
        try:
            ensure_small(self._api, size)
            context.throttle.received(size)  # before it is decoded: a malformed message is charged like another one
            asked = self._codec.decode(data)
            del data  # only the value refers to the bytes that it needs
            context.authorizer.ensure_allowed(context, self._api, asked)
        except TidelogError as error:
            context.begin().fail(error)
            raise
        return asked

    def send(self, value: Any, /) -> Coroutine[Any, Any, None]:
        """Send one answer."""
        # No coroutine of its own: its frame would keep the memory of the answer of a cancelled sender.
        return self._stream.send(_answer(self._context, self._codec, value, self._codec.encode(value, 0)))


def _answer(context: RequestContext, codec: ProtocolCodec, value: Any, data: Sized) -> EncodedAnswer:
    """Charge an answer, and put into it how long its caller is throttled."""
    throttle_ms = context.throttle.sent(len(data))
    if throttle_ms and codec.tells_throttle:
        data = codec.encode(value, throttle_ms)
    return EncodedAnswer(data, value, throttle_ms)


def shutting_down() -> NodeShuttingDown:
    """The error of requests to a node that stops."""
    return NodeShuttingDown("the node is shutting down and accepts no new requests; use another node")


def ensure_small(api: Api[Any, Any], size: int) -> None:
    """Raise InvalidRequest if a request that carries no records has more than `REQUEST_BYTES_MAX` bytes."""
    limit = REQUEST_BYTES_MAX + (ENVELOPE_BYTES_MAX if api.asked is Envelope else 0)
    if size > limit and api.asked is not ProduceRequest:
        raise InvalidRequest(
            f"the request to {api} has {size} bytes, at most {limit} are allowed: split it into several requests"
        )


def _without_frames(error: TidelogError) -> TidelogError:
    """The error without its traceback, whose frames hold the request: its caller may be slow to read the answer."""
    error.__context__ = None
    return error.with_traceback(None)


def _failed(measured: MeteredRequest, failure: UnknownServerError) -> UnknownServerError:
    """Count the failure. No frame of its traceback has it as a variable: that would be a cycle."""
    measured.fail(failure)
    return failure


def _failure(defect: Exception, *, doing: object) -> UnknownServerError:
    """The error for the caller of a handler with a defect, which is logged with its traceback."""
    _log.error("a defect: %s failed", doing, exc_info=defect)
    return UnknownServerError(
        f"{doing} failed on the node by a defect ({type(defect).__name__}); see the traceback in the node's log"
    )
