"""RPCs: path, message types, and whether the RPC is a stream."""

# ruff: noqa: N802 (the methods of a message are named as protobuf names them)

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Generic, Protocol, Self, TypeVar


class WireMessage(Protocol):
    """A message of a method: a protobuf class, or a class of `tidelog/protocol/wire.py`."""

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, s: bytes, /) -> Self: ...


Request = TypeVar("Request", bound=WireMessage)
Answer = TypeVar("Answer", bound=WireMessage)


@cache
def _with_underscores(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class CallKind(Enum):
    """Message flow of a method."""

    UNARY = "one request, one answer"
    STREAM = "requests and answers on one open stream, independent of each other"


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Answer]):
    """One RPC. `service` is the full name (`tidelog.v1.Data`), `name` is the one in the proto file (`FetchStream`)."""

    service: str
    name: str
    request: type[Request]
    answer: type[Answer]
    kind: CallKind = CallKind.UNARY

    @property
    def path(self) -> str:
        """gRPC path: `/tidelog.v1.Data/FetchStream`."""
        return f"/{self.service}/{self.name}"

    @property
    def attribute(self) -> str:
        """Name of the handler method on the service object: `fetch_stream`."""
        return _with_underscores(self.name)

    def __str__(self) -> str:
        return f"{self.service.rpartition('.')[2]}.{self.name}"
