"""Codecs: the conversion between gRPC messages and the values of `node/api`.

An `ApiCodec` names the RPC of an `Api` and its conversions. `GrpcService` serves RPCs with handlers of values;
`node/listeners/grpc/grpc_peers.py` sends values to other nodes; `node/listeners/grpc/codecs.py` has the codec of each
API.

Invariants: no handler receives a malformed message (for example an id that does not have 16 bytes): it is refused with
InvalidRequest. No handler receives a request that the listener's authorizer does not allow. The audit trail receives
each administrative request with its outcome. Record bytes are passed on, never copied.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic

from node.api.api import Answered, Api, Asked
from node.requests.context import RequestContext
from node.requests.gate import Gate
from node.requests.recorded_changes import audited
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.protocol.methods import CallKind, Method
from tidelog.protocol.network import MessageStream


@dataclass(frozen=True, slots=True)
class ApiCodec(Generic[Asked, Answered]):
    """The RPC of an API and its conversions. `write_request` and `read_answer`: for requests of this node to others.

    The read functions raise ValueError or InvalidRequest for a malformed message.
    """

    api: Api[Asked, Answered]
    method: Method[Any, Any]
    read_request: Callable[[Any], Asked]
    write_answer: Callable[[Answered], Any]
    write_request: Callable[[Asked], Any] | None = None
    read_answer: Callable[[Any], Answered] | None = None

    def request_from(self, message: Any) -> Asked:
        """The value of a request. Raises InvalidRequest."""
        try:
            return self.read_request(message)
        except ValueError as error:
            raise InvalidRequest(f"{self.method}: {error}") from None


class GrpcService:
    """A service for a listener: one method for each RPC, which converts the request and calls the handler."""

    def __init__(self, gate: Gate, codecs: Iterable[ApiCodec[Any, Any]]) -> None:
        for codec in codecs:
            handle = gate.handler(codec.api)
            serve = _call(codec, handle) if codec.method.kind is CallKind.UNARY else _stream(codec, handle)
            setattr(self, codec.method.attribute, serve)


class ConvertedStream:
    """A stream of messages as a stream of values."""

    __slots__ = ("_read", "_stream", "_write", "close")

    def __init__(
        self, stream: MessageStream[Any, Any], write: Callable[[Any], Any], read: Callable[[Any], Any]
    ) -> None:
        self._stream, self._write, self._read = stream, write, read
        self.close = stream.close

    def send(self, value: Any, /) -> Coroutine[Any, Any, None]:
        return self._stream.send(self._write(value))

    async def receive(self) -> Any:
        message = await self._stream.receive()
        return None if message is None else self._read(message)


def _call(codec: ApiCodec[Any, Any], handle: Callable[..., Any]) -> Callable[..., Any]:
    handle = audited(codec.api, handle)

    async def call(message: Any, context: RequestContext) -> Any:
        asked = codec.request_from(message)
        context.authorizer.ensure_allowed(context, codec.api, asked)
        return codec.write_answer(await handle(asked, context))

    return call


def _stream(codec: ApiCodec[Any, Any], handle: Callable[..., Any]) -> Callable[..., Any]:
    api, request_from = codec.api, codec.request_from

    async def serve(stream: MessageStream[Any, Any], context: RequestContext) -> None:
        ensure_allowed = context.authorizer.ensure_allowed

        def read(message: Any) -> Any:
            try:
                asked = request_from(message)
                ensure_allowed(context, api, asked)
            except TidelogError as error:
                context.begin().fail(error)
                raise
            return asked

        await handle(ConvertedStream(stream, codec.write_answer, read), context)

    return serve
