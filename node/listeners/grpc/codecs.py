"""The codec of each API: a written one, or one that is derived from the fields of its values and messages.

The API `Data.Fetch` has the RPC `Fetch` of the service `tidelog.v1.Data`. Values of other nodes are passed on
unchecked: the handlers check them (`node/quorum/checks.py`), after they have checked that the request is meant for this
cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from google.protobuf.message import DecodeError

from node.api.api import Api
from node.api.controller_requests import Envelope, EnvelopeAnswer
from node.api.table import APIS, CONTROLLER_ENVELOPE
from node.boundary.boundary import ensure_small
from node.listeners.grpc.codec import ApiCodec
from node.listeners.grpc.converters import CONVERTERS
from node.listeners.grpc.data_codec import DATA_CODECS
from node.security.principals import USER
from tidelog.errors import InvalidRequest, UnsupportedVersion
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import MessageMapping
from tidelog.protocol.rpc import Method
from tidelog.protocol.v1 import controller_pb2

_METHODS: Final = {str(method): method for method in methods.ALL}


@cache
def codec_of(name: str) -> ApiCodec[Any, Any]:
    """The codec of an API."""
    return _WRITTEN.get(name) or _derived(APIS[name], _METHODS[name])


def _derived(api: Api[Any, Any], method: Method[Any, Any]) -> ApiCodec[Any, Any]:
    """The codec of an RPC whose request and answer have the same fields as their messages (message_mapping.py)."""
    read_request, write_request = _conversion(api.asked, method.request)
    read_answer, write_answer = _conversion(api.answered, method.answer)
    return ApiCodec(api, method, read_request, write_answer, write_request, read_answer)


def _conversion(value_type: Any, message_type: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How to read a value, which raises ValueError for an id that does not have 16 bytes, and how to write it."""
    return (
        lambda message: _mapping(value_type, message_type).from_message(message),
        lambda value: message_type(**_mapping(value_type, message_type).to_fields(value)),
    )


@cache
def _mapping(value_type: type[Any], message_type: type[Any]) -> MessageMapping[Any]:
    """Derived when the first such value is read or written: those of all APIs take 0.6 MiB, and 30 ms of the start."""
    return MessageMapping(value_type, message_type.DESCRIPTOR, converters=CONVERTERS)


# --- changes that a node forwards ---


def _forwarded(name: str) -> Api[Any, Any]:
    """The API of a message in an envelope. Raises UnsupportedVersion, InvalidRequest."""
    api = APIS.get(name)
    if api is None:
        raise UnsupportedVersion(
            f"this node does not know the request {name[:100]!r}: run the same version on all nodes"
        )
    if not api.is_forwarded:  # another one in an envelope would reach its handler without its checks
        raise InvalidRequest(f"{api} is not a request that nodes forward to the controller: send it as it is")
    return api


def _write_envelope(envelope: Envelope) -> controller_pb2.EnvelopeRequest:
    codec = codec_of(envelope.api.name)
    assert codec.write_request is not None, f"{envelope.api} is forwarded"
    request = codec.write_request(envelope.asked).SerializeToString()
    return controller_pb2.EnvelopeRequest(api=envelope.api.name, request=request, principal=envelope.principal)


def _read_envelope(message: controller_pb2.EnvelopeRequest) -> Envelope:
    api, principal = _forwarded(message.api), message.principal
    if principal and not principal.startswith(USER):
        raise InvalidRequest(f"{api} is forwarded for {principal[:100]!r}, which is not a principal (User:NAME)")
    ensure_small(api, len(message.request))
    return Envelope(api, codec_of(api.name).decode(message.request), principal)


def _write_envelope_answer(answer: EnvelopeAnswer) -> controller_pb2.EnvelopeResponse:
    response = codec_of(answer.api.name).encode(answer.answered, 0)
    return controller_pb2.EnvelopeResponse(api=answer.api.name, response=response)


def _read_envelope_answer(message: controller_pb2.EnvelopeResponse) -> EnvelopeAnswer:
    api = APIS.get(message.api)
    if api is None or not api.is_forwarded:
        raise ValueError(f"{message.api[:100]!r} is not forwarded")
    codec = codec_of(api.name)
    assert codec.read_answer is not None, f"{api} is forwarded"
    try:
        return EnvelopeAnswer(api, codec.read_answer(codec.method.answer.FromString(message.response)))
    except DecodeError as error:
        raise ValueError(f"{api}: {error}") from None


_ENVELOPE: Final = ApiCodec(
    CONTROLLER_ENVELOPE,
    methods.CONTROLLER_ENVELOPE,
    _read_envelope,
    _write_envelope_answer,
    _write_envelope,
    _read_envelope_answer,
)
_WRITTEN: Final[Mapping[str, ApiCodec[Any, Any]]] = {codec.api.name: codec for codec in (*DATA_CODECS, _ENVELOPE)}
