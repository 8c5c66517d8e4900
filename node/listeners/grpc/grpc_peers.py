"""Requests of this node to other nodes over gRPC."""

from __future__ import annotations

from typing import Any, cast

from node.listeners.grpc.codec import ApiCodec, ConvertedStream
from node.listeners.grpc.codecs import codec_of
from node.requests.types.api import Answered, Api, Asked
from node.runtime.peers import ValueStream
from tidelog.errors import UnknownServerError
from tidelog.protocol.network import Transport
from tidelog.types import Endpoint


class GrpcPeers:
    """The `Peers` of a node: converts values with the codecs and sends the messages over a transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def call(self, to: Endpoint, api: Api[Asked, Answered], asked: Asked, *, timeout_ms: int) -> Answered:
        codec = codec_of(api.name)
        assert codec.write_request is not None, f"no node sends {api} to another"
        message = await self._transport.call(to, codec.method, codec.write_request(asked), timeout_ms=timeout_ms)
        return cast("Answered", _answer(codec, message))

    async def open_stream(self, to: Endpoint, api: Api[Asked, Answered]) -> ValueStream[Asked, Answered]:
        codec = codec_of(api.name)
        assert codec.write_request is not None, f"no node opens {api} to another"
        stream = await self._transport.open_stream(to, codec.method)
        return ConvertedStream(stream, codec.write_request, lambda message: _answer(codec, message))


def _answer(codec: ApiCodec[Any, Any], message: Any) -> Any:
    assert codec.read_answer is not None, f"{codec.api} has no answer that this node reads"
    try:
        return codec.read_answer(message)
    except ValueError as error:
        raise UnknownServerError(
            f"{codec.method}: the answer of the other node is malformed ({error}); check that it runs this version"
        ) from None
