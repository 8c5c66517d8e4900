"""Services in messages: handlers of values as tests call them, and handlers of messages as a listener takes them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from google.protobuf.message import Message

from node.api.table import APIS
from node.listeners.grpc.codec import ApiCodec
from node.listeners.grpc.codecs import codec_of
from node.requests.context import RequestContext
from node.requests.gate import Gate
from node.requests.recorded_changes import audited
from testbed.message_bytes import bytes_of
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.network import MessageStream
from tidelog.protocol.rpc import CallKind, Method
from tidelog.protocol.v1 import controller_pb2

METHODS = {str(method): method for method in methods.ALL}


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


class MessageCodec:
    """A codec for handlers of messages: the message is the value."""

    def __init__(self, method: Method[Any, Any]) -> None:
        self._codec = ApiCodec(APIS[str(method)], method, None, None)
        self.tells_throttle = self._codec.tells_throttle

    def decode(self, data: bytes) -> Any:
        return self._codec.decode(data)

    def encode(self, answer: Any, throttle_time_ms: int) -> bytes:
        if throttle_time_ms and isinstance(answer, Message):
            answer.throttle_time_ms = throttle_time_ms  # type: ignore[attr-defined]
            throttle_time_ms = 0
        return self._codec.encode(answer, throttle_time_ms)


def messages_of(api: str) -> MessageCodec:
    return MessageCodec(METHODS[api])


def enveloped(method: Method[Any, Any], request: Any, principal: str = "") -> controller_pb2.EnvelopeRequest:
    """A change as a node forwards it."""
    data = bytes_of(request)
    return controller_pb2.EnvelopeRequest(api=str(method), request=data, principal=principal)


def codecs_of(service: str) -> list[ApiCodec[Any, Any]]:
    """The codecs of a service (`Data`), in the order of the proto file."""
    return [codec_of(name) for name in METHODS if APIS[name].service == service]


def written(codec: ApiCodec[Any, Any], answer: Any) -> Any:
    """The message of an answer."""
    return answer if codec.write_answer is None else codec.write_answer(answer)


def gates_of(services: Mapping[str, object]) -> dict[str, Gate]:
    """The gates of services of messages by full name (`tidelog.v1.Data`)."""
    return {name.rpartition(".")[2]: Gate(name.rpartition(".")[2], service) for name, service in services.items()}


def message_services(gates: Mapping[str, Gate]) -> dict[str, object]:
    """The services of handlers of values, by full name."""
    return {f"tidelog.v1.{name}": MessageService(gate) for name, gate in gates.items()}


class MessageService:
    """A service with one method for each RPC, which takes a message and the context of its caller."""

    def __init__(self, gate: Gate) -> None:
        for name, method in METHODS.items():
            if APIS[name].service == gate.service:
                make = _call if method.kind is CallKind.UNARY else _stream
                setattr(self, method.attribute, make(codec_of(name), gate.handler(APIS[name])))


def _call(codec: ApiCodec[Any, Any], handle: Callable[..., Any]) -> Callable[..., Any]:
    handle = audited(codec.api, handle)

    async def call(message: Any, context: RequestContext) -> Any:
        asked = _read(codec, message)
        context.authorizer.ensure_allowed(context, codec.api, asked)
        return written(codec, await handle(asked, context))

    return call


def _stream(codec: ApiCodec[Any, Any], handle: Callable[..., Any]) -> Callable[..., Any]:
    async def serve(stream: MessageStream[Any, Any], context: RequestContext) -> None:
        def read(message: Any) -> Any:
            try:
                asked = _read(codec, message)
                context.authorizer.ensure_allowed(context, codec.api, asked)
            except TidelogError as error:
                context.begin().fail(error)
                raise
            return asked

        await handle(ConvertedStream(stream, partial(written, codec), read), context)

    return serve


def _read(codec: ApiCodec[Any, Any], message: Any) -> Any:
    try:
        return message if codec.read_request is None else codec.read_request(message)
    except ValueError as error:
        raise InvalidRequest(f"{codec.method}: {error}") from None
