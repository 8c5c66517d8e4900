"""Requests of this node to other nodes over gRPC."""

from __future__ import annotations

from typing import Any, Final, cast

from node.listeners.grpc.admin_codec import ADMIN_CODECS
from node.listeners.grpc.codec import ApiCodec, ConvertedStream
from node.listeners.grpc.controller_codec import CONTROLLER_CODECS
from node.listeners.grpc.data_codec import DATA_CODECS
from node.listeners.grpc.quorum_codec import QUORUM_CODECS
from node.listeners.grpc.transport import Transport
from node.requests.types.api import Answered, Api, Asked
from node.runtime.peers import ValueStream
from tidelog.errors import UnknownServerError
from tidelog.types import Endpoint

ALL_CODECS: Final[tuple[ApiCodec[Any, Any], ...]] = (*DATA_CODECS, *ADMIN_CODECS, *CONTROLLER_CODECS, *QUORUM_CODECS)


class GrpcPeers:
    """The `Peers` of a node: converts values with the codecs and sends the messages over a transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._codecs = {codec.api.name: codec for codec in ALL_CODECS}

    async def call(self, to: Endpoint, api: Api[Asked, Answered], asked: Asked, *, timeout_ms: int) -> Answered:
        codec = self._codecs[api.name]
        assert codec.write_request is not None, f"no node sends {api} to another"
        message = await self._transport.call(to, codec.method, codec.write_request(asked), timeout_ms=timeout_ms)
        return cast("Answered", _answer(codec, message))

    async def open_stream(self, to: Endpoint, api: Api[Asked, Answered]) -> ValueStream[Asked, Answered]:
        codec = self._codecs[api.name]
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
