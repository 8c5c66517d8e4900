"""RPCs: path, message types, and whether the RPC is a stream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


@cache
def _with_underscores(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class CallKind(Enum):
    """Message flow of a method."""

    UNARY = "one request, one answer"
    STREAM = "requests and answers on one open stream, independent of each other"


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Answer]):
    """One RPC."""

    service: str
    """The full name, for example `tidelog.v1.Data`."""
    name: str
    """The name in the proto file, for example `FetchStream`."""
    request: type[Request]
    """A protobuf class, or a value that `tidelog/protocol/wire.py` writes and reads; so is `answer`."""
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
