"""Codecs derived from the fields of a value and of its message, which have the same names (message_mapping.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from node.api.api import Answered, Api, Asked
from node.listeners.grpc.codec import ApiCodec
from node.listeners.grpc.converters import CONVERTERS
from tidelog.protocol.message_mapping import MessageMapping
from tidelog.protocol.rpc import Method

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

V = TypeVar("V", bound="DataclassInstance")


class Conversion(Generic[V]):
    """The conversion between the values of a dataclass and a message type.

    write(value): the message. read(message): the value; raises ValueError for an id that does not have 16 bytes.
    """

    def __init__(self, value_type: type[V], message_type: type[Any]) -> None:
        mapping = MessageMapping(value_type, message_type.DESCRIPTOR, converters=CONVERTERS)
        self.read: Callable[[Any], V] = mapping.from_message
        self.write: Callable[[V], Any] = lambda value: message_type(**mapping.to_fields(value))


def derived(api: Api[Asked, Answered], method: Method[Any, Any]) -> ApiCodec[Asked, Answered]:
    """The codec of an RPC whose request and answer have the same fields as their messages."""
    request: Conversion[Any] = Conversion[Any](api.asked, method.request)
    answer: Conversion[Any] = Conversion[Any](api.answered, method.answer)
    return ApiCodec(api, method, request.read, answer.write, request.write, answer.read)
