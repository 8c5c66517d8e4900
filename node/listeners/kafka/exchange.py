"""One request of a Kafka client and its answer: the row of the table, the header, and the bytes of both.

    frame     int32 size, header, body
    request   int16 key, int16 version, int32 correlation id, nullable string client id; from the first flexible version
              of the API on tagged fields
    answer    int32 correlation id; from the first flexible version on tagged fields, but never with ApiVersions

Bytes behind the body of a request are ignored, as Kafka does: librdkafka sends some.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from node.api.api import Api
from node.listeners.kafka.error_codes import CLOSES
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.protocol.kafka.message_codec import Data, MalformedMessage, MessageCodec, Structure, UnencodableMessage
from tidelog.protocol.kafka.messages.request_header import REQUEST_HEADER
from tidelog.values import dataclass

ERROR_TEXT_MAX: Final = 1_000
"""Characters that remain of the text of an error which is too long for its message."""

ELEMENTS_MAX: Final = 100_000
"""Elements of arrays in one request. Each is an object; a client asks of at most 10,000 partitions."""

NO_OPERATIONS: Final = -(2**31)
"""In an answer without the operations that its caller is permitted (KIP-430)."""

JOINED_BYTES_MAX: Final = 4_096
"""An answer of up to this size is one piece: to copy it takes less time than to hand several pieces to the system."""

_HEAD: Final = struct.Struct(">hhi")
HEAD_BYTES: Final = _HEAD.size
"""Key, version, correlation id."""

HEADER_BYTES_MIN: Final = HEAD_BYTES + 2
"""The smallest request, with no client id."""

_PREFIX: Final = struct.Struct(">ii")
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class KafkaApi:
    """One API of Kafka's protocol."""

    versions: range
    """The offered ones."""
    request: MessageCodec[Any]
    response: MessageCodec[Any]
    api: Api[Any, Any]
    """The kind of request that it is to the boundary."""
    read: Callable[[Any, int], Any]
    """The value of a message of this version. Raises TidelogError for what Tidelog does not do."""
    write: Callable[[Any, Any, int], Any]
    """The answer's message, from the request's message, the value of the answer and the version. None: the protocol has
    no answer."""
    refuse: Callable[[Any, TidelogError, int], Any]
    """The answer's message if the whole request is refused. None: the connection is closed."""
    announced_from: int | None = None
    """The first announced version, if it is one that is not served."""
    is_pipelined: bool = False
    """True if further requests of this API are handled before it is answered; the answers keep their order."""
    api_of: Callable[[Data, int, int], Api[Any, Any]] | None = None
    """The kind of a request of which there are several: of its frame, its version, and where its body begins. Raises
    MalformedMessage."""
    ends_if_refused: bool = False
    """True if the connection ends after the answer to a refused request."""

    @property
    def key(self) -> int:
        """Its number."""
        return self.request.api_key


class Head(NamedTuple):
    """The part of a header that all versions have."""

    key: int
    version: int
    correlation_id: int


def head_of(frame: Data) -> Head:
    """The head of a frame of at least HEADER_BYTES_MIN bytes."""
    return Head(*_HEAD.unpack_from(frame))


def client_of(frame: Data, *, is_flexible: bool) -> tuple[str, int]:
    """The client id in a frame, and where the body begins. Raises MalformedMessage."""
    header, end = REQUEST_HEADER.decode(frame, 2 if is_flexible else 1, elements_max=ELEMENTS_MAX)
    return header.client_id or "", end


class KafkaAnswer:
    """The bytes of an answer, in pieces; record batches are not copied, but for small answers. Empty: there is none to
    send."""

    __slots__ = ("_size", "pieces")

    def __init__(self, pieces: Sequence[Data]) -> None:
        self.pieces = pieces
        self._size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._size


NO_ANSWER: Final = KafkaAnswer(())


def answer_of(body: Sequence[Data], correlation_id: int, *, is_flexible: bool) -> KafkaAnswer:
    """An answer with its header."""
    tags = b"\0" if is_flexible else b""
    size = 4 + len(tags) + sum(map(len, body))
    pieces = (_PREFIX.pack(size, correlation_id) + tags, *body)
    return KafkaAnswer((b"".join(pieces),) if size <= JOINED_BYTES_MAX else pieces)


def sized(data: bytes) -> KafkaAnswer:
    """An answer without a header."""
    return KafkaAnswer([_SIZE.pack(len(data)), data])


class Exchange:
    """A request and its answer, as the codec of the boundary."""

    __slots__ = ("_body_at", "_correlation_id", "_kafka", "_message", "_version")

    tells_throttle = True

    def __init__(self, kafka: KafkaApi, head: Head, body_at: int) -> None:
        self._kafka, self._version, self._correlation_id = kafka, head.version, head.correlation_id
        self._body_at = body_at
        self._message: Any = None
        """The message of the request; None until it is decoded."""

    def decode(self, frame: Data, /) -> Any:
        """The value of a request. Raises InvalidRequest if the frame is malformed, TidelogError if it is refused."""
        codec = self._kafka.request
        try:
            self._message, _ = codec.decode(frame, self._version, self._body_at, elements_max=ELEMENTS_MAX)
        except MalformedMessage as error:
            raise InvalidRequest(str(error)) from None
        return self._kafka.read(self._message, self._version)

    def encode(self, answer: Any, throttle_time_ms: int, /) -> KafkaAnswer:
        """The bytes of an answer; NO_ANSWER if the request has none."""
        return self._encoded(self._kafka.write(self._message, answer, self._version), throttle_time_ms)

    def refuse(self, error: TidelogError) -> KafkaAnswer | None:
        """The bytes of the answer to a refused request; None if the connection is to be closed: the request could not
        be read, has no answer, or another node is to be asked."""
        if self._message is None or isinstance(error, CLOSES):
            return None
        message = self._kafka.refuse(self._message, error, self._version)
        return None if message is None else self._encoded(message, getattr(error, "throttle_time_ms", 0))

    def _encoded(self, message: Any, throttle_time_ms: int) -> KafkaAnswer:
        if message is None:
            return NO_ANSWER
        if throttle_time_ms and hasattr(message, "throttle_time_ms"):  # what brokers answer each other has none
            message = message.replace(throttle_time_ms=max(throttle_time_ms, message.throttle_time_ms))
        codec, version = self._kafka.response, self._version
        try:
            body = codec.encode_parts(message, version)
        except UnencodableMessage:  # an error quotes a name of the request, and is longer than a string may be
            body = codec.encode_parts(_with_short_errors(message), version)
        return answer_of(body, self._correlation_id, is_flexible=version >= codec.flexible_from)


def _with_short_errors(message: Any) -> Any:
    """The message with the texts of all its errors cut."""
    changes: dict[str, Any] = {}
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "error_message" and value is not None:
            changes[name] = value[:ERROR_TEXT_MAX]
        elif isinstance(value, tuple) and value and isinstance(value[0], Structure):
            changes[name] = tuple(map(_with_short_errors, value))
    return message.replace(**changes) if changes else message
