"""Codecs: the conversion between the bytes of gRPC's messages and the values of `node/api`.

An `ApiCodec` names the RPC of an `Api` and its conversions. The boundary decodes requests and encodes answers with it;
`node/listeners/grpc/grpc_peers.py` sends values to other nodes; `node/listeners/grpc/codecs.py` has the codec of each
API.

Invariants: no handler receives a malformed message (for example an id that does not have 16 bytes): it is refused with
InvalidRequest. Record bytes are passed on, never copied.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Generic

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from node.api.api import Answered, Api, Asked
from node.listeners.grpc.request_limits import ensure_few_fields
from tidelog.errors import InvalidRequest
from tidelog.protocol import wire
from tidelog.protocol.rpc import Method
from tidelog.values import dataclass

_COMPRESSED: Final = (b"\x1f", b"\x78")
"""The first byte of a message compressed with gzip or deflate. No request begins with these: the first names no valid
wire type, the second is field 15 as a number, which no request has."""


@dataclass(frozen=True, slots=True)
class ApiCodec(Generic[Asked, Answered]):
    """The RPC of an API, and how its messages become values. The read functions raise ValueError or InvalidRequest for
    a malformed message. None: the message is the value."""

    api: Api[Asked, Answered]
    method: Method[Any, Any]
    read_request: Callable[[Any], Asked] | None
    write_answer: Callable[[Answered], Any] | None
    write_request: Callable[[Asked], Any] | None = None
    """For requests of this node to others; None: it sends none."""
    read_answer: Callable[[Any], Answered] | None = None
    """For the answers to these."""

    @property
    def tells_throttle(self) -> bool:
        """Whether the message of an answer has `throttle_time_ms`."""
        return tells_throttle(self.method)

    def decode(self, data: bytes) -> Asked:
        """The value of a request. Raises InvalidRequest."""
        kind = self.method.request
        ensure_few_fields(data, _descriptor_of(wire.name_of(kind)))
        try:
            message = wire.reader(kind)(data)
            return message if self.read_request is None else self.read_request(message)
        except DecodeError as error:
            reason = "gRPC's compression is not supported" if data[:1] in _COMPRESSED else str(error)
            raise InvalidRequest(
                f"the {len(data)} bytes sent to {self.method} are no {wire.name_of(kind)}: {reason}"
            ) from None
        except ValueError as error:
            raise InvalidRequest(f"{self.method}: {error}") from None

    def encode(self, answer: Answered, throttle_time_ms: int) -> bytes:
        """The message of an answer. throttle_time_ms: above 0 only for a message that has a field for it."""
        message: Any = answer
        if self.write_answer is not None:
            message = self.write_answer(answer)
            if throttle_time_ms:
                message.throttle_time_ms = throttle_time_ms
        elif throttle_time_ms:
            message = message._replace(throttle_time_ms=throttle_time_ms)
        return wire.writer(self.method.answer)(message)


@cache
def tells_throttle(method: Method[Any, Any]) -> bool:
    """Whether answers say for how long their caller is throttled."""
    return "throttle_time_ms" in _descriptor_of(wire.name_of(method.answer)).fields_by_name


@cache
def _descriptor_of(name: str) -> Descriptor:
    return descriptor_pool.Default().FindMessageTypeByName(f"tidelog.v1.{name}")
