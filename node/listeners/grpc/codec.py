"""Codecs: the conversion between the bytes of gRPC's messages and the values of `node/api`.

An `ApiCodec` names the RPC of an `Api` and its conversions. The boundary decodes requests and encodes answers with it;
`node/listeners/grpc/grpc_peers.py` sends values to other nodes; `node/listeners/grpc/codecs.py` has the codec of each
API.

Invariants: no handler receives a malformed message (for example an id that does not have 16 bytes): it is refused with
InvalidRequest. Record bytes are passed on, never copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from node.api.api import Answered, Api, Asked
from node.listeners.grpc.request_limits import ensure_few_fields
from tidelog.errors import InvalidRequest
from tidelog.protocol.rpc import Method

_COMPRESSED: Final = (b"\x1f", b"\x78")
"""The first byte of a message compressed with gzip or deflate. No request begins with these: the first names no valid
wire type, the second is field 15 as a number, which no request has."""


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

    @property
    def tells_throttle(self) -> bool:
        """Whether the message of an answer has `throttle_time_ms`."""
        return tells_throttle(self.method)

    def decode(self, data: bytes) -> Asked:
        """The value of a request. Raises InvalidRequest."""
        try:
            return self.read_request(parse(self.method, data))
        except ValueError as error:
            raise InvalidRequest(f"{self.method}: {error}") from None

    def encode(self, answer: Answered, throttle_time_ms: int) -> bytes:
        """The message of an answer. throttle_time_ms: above 0 only for a message that has a field for it."""
        message = self.write_answer(answer)
        if throttle_time_ms:
            message.throttle_time_ms = throttle_time_ms
        data: bytes = message.SerializeToString()
        return data


def parse(method: Method[Any, Any], data: bytes) -> Any:
    """The message of a request. Raises InvalidRequest."""
    ensure_few_fields(data, _descriptor_of(method.request.__name__))
    try:
        return method.request.FromString(data)
    except DecodeError as error:
        reason = "gRPC's compression is not supported" if data[:1] in _COMPRESSED else str(error)
        size = len(data)
        raise InvalidRequest(f"the {size} bytes sent to {method} are no {method.request.__name__}: {reason}") from None


@cache
def tells_throttle(method: Method[Any, Any]) -> bool:
    """Whether answers say for how long their caller is throttled."""
    return "throttle_time_ms" in _descriptor_of(method.answer.__name__).fields_by_name


@cache
def _descriptor_of(name: str) -> Descriptor:
    return descriptor_pool.Default().FindMessageTypeByName(f"tidelog.v1.{name}")
