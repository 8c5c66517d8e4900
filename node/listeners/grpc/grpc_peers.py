"""Requests of this node to other nodes over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from node.api.api import Answered, Api, Asked
from node.api.peers import ValueStream
from node.listeners.grpc.codec import ApiCodec
from node.listeners.grpc.codecs import codec_of
from tidelog.errors import ConnectionFailed, UnknownServerError
from tidelog.protocol.network import MessageStream, NodeTransport
from tidelog.types import Endpoint


class GrpcPeers:
    """The `Peers` of a node: converts values with the codecs and sends the messages over a transport."""

    def __init__(self, transport: NodeTransport) -> None:
        self._transport = transport
        self.when_failed: list[Callable[[Endpoint], None]] = []

    async def call(self, to: Endpoint, api: Api[Asked, Answered], asked: Asked, *, timeout_ms: int) -> Answered:
        codec = codec_of(api.name)
        assert codec.write_request is not None, f"no node sends {api} to another"
        try:
            message = await self._transport.call(to, codec.method, codec.write_request(asked), timeout_ms=timeout_ms)
        except ConnectionFailed:
            self._failed(to)
            raise
        return cast("Answered", _answer(codec, message))

    async def open_stream(self, to: Endpoint, api: Api[Asked, Answered]) -> ValueStream[Asked, Answered]:
        codec = codec_of(api.name)
        try:
            stream = await self._transport.open_stream(to, codec.method)
        except ConnectionFailed:
            self._failed(to)
            raise
        return PeerStream(stream, codec, lambda: self._failed(to))

    async def is_refused(self, to: Endpoint, *, timeout_ms: int) -> bool:
        return await self._transport.is_refused(to, timeout_ms=timeout_ms)

    def _failed(self, to: Endpoint) -> None:
        for call in self.when_failed:
            call(to)


class PeerStream:
    """A stream of messages as a stream of values. Reports when its connection breaks."""

    __slots__ = ("_codec", "_failed", "_stream", "_write", "close")

    def __init__(self, stream: MessageStream[Any, Any], codec: ApiCodec[Any, Any], failed: Callable[[], None]) -> None:
        assert codec.write_request is not None, f"no node opens {codec.api} to another"
        self._stream, self._codec, self._write, self._failed = stream, codec, codec.write_request, failed
        self.close = stream.close

    def send(self, value: Any, /) -> Coroutine[Any, Any, None]:
        return self._stream.send(self._write(value))

    async def receive(self) -> Any:
        try:
            message = await self._stream.receive()
        except ConnectionFailed:
            self._failed()
            raise
        return message if message is None or self._codec.read_answer is None else _answer(self._codec, message)


def _answer(codec: ApiCodec[Any, Any], message: Any) -> Any:
    assert codec.read_answer is not None, f"the messages of {codec.api} are values"
    try:
        return codec.read_answer(message)
    except ValueError as error:
        raise UnknownServerError(
            f"{codec.method}: the answer of the other node is malformed ({error}); check that it runs this version"
        ) from None
