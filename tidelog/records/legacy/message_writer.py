"""Writes messages of formats v0 and v1: each field in its order, lengths and checksums filled in afterwards.

Nobody knows how long a compressed value becomes before it is written. So the place of its length is reserved, and the
one of the checksum over it, and both are filled in when the bytes are there.
Kept true: what is written reads back; nothing is copied but into the stream's own segments.
Left to others: offsets within wrappers, counts, timestamps of wrappers (message_builder.py).
Source: the seed document on Kafka's MessageWriter; KIP-31, KIP-32.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from types import TracebackType
from typing import Final, TypeAlias

from tidelog.errors import InvalidTimestamp, RecordTooLarge, UnsupportedForMessageFormat
from tidelog.records.legacy.buffering_output_stream import BufferingOutputStream, ReservedOutput, Segment
from tidelog.records.legacy.message import TIMESTAMP_TYPE_BIT
from tidelog.records.v2.checksum import crc32
from tidelog.records.v2.varint import INT32_MAX
from tidelog.types import NO_TIMESTAMP, Codec, TimestampType

_INT8: Final = Struct(">b")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_ENTRY: Final = Struct(">qiI")
_V0: Final = Struct(">bbi")
_V1: Final = Struct(">bbqi")
_NULL: Final = _INT32.pack(-1)


class MessageWriter(BufferingOutputStream):
    """A stream of messages in the making."""

    def write_int8(self, value: int) -> None:
        self.write(_INT8.pack(value))

    def write_int32(self, value: int) -> None:
        self.write(_INT32.pack(value))

    def write_int64(self, value: int) -> None:
        self.write(_INT64.pack(value))

    def length_prefix(self) -> LengthPrefix:
        """`with writer.length_prefix():` puts an int32 before what the block writes: how many bytes that is."""
        return LengthPrefix(self)

    def crc32_prefix(self) -> Crc32Prefix:
        """`with writer.crc32_prefix():` puts a uint32 before what the block writes: its CRC-32."""
        return Crc32Prefix(self)

    def write_message(
        self,
        magic: int,
        *,
        key: bytes | None,
        value: Payload,
        timestamp: int = NO_TIMESTAMP,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        codec: Codec = Codec.NONE,
    ) -> None:
        """One message, from its checksum on. value: bytes, None for null, or what writes them into this writer.

        A timestamp and its type are written in v1 only; v0 has no place for them. Raises
        UnsupportedForMessageFormat for another magic, InvalidTimestamp below -1, RecordTooLarge beyond 2 GiB.
        """
        head = _head(magic, codec, timestamp, timestamp_type, key)
        if callable(value):
            with Crc32Prefix(self):
                self.write(head)
                with LengthPrefix(self):
                    value(self)
        else:
            message = _known(head, value)
            self.write(_UINT32.pack(crc32(message)) + message)

    def write_entry(
        self,
        offset: int,
        magic: int,
        *,
        key: bytes | None,
        value: Payload,
        timestamp: int = NO_TIMESTAMP,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        codec: Codec = Codec.NONE,
    ) -> None:
        """One message with its offset and size before it, as a message set holds it. Raises as `write_message`."""
        if callable(value):
            self.write(_INT64.pack(offset))
            with LengthPrefix(self):
                self.write_message(
                    magic, key=key, value=value, timestamp=timestamp, timestamp_type=timestamp_type, codec=codec
                )
        else:
            message = _known(_head(magic, codec, timestamp, timestamp_type, key), value)
            self.write(_ENTRY.pack(offset, len(message) + _UINT32.size, crc32(message)) + message)


def _head(magic: int, codec: Codec, timestamp: int, timestamp_type: TimestampType, key: bytes | None) -> bytes:
    """The fields of a message that the checksum covers, up to the key."""
    if timestamp < NO_TIMESTAMP:
        raise InvalidTimestamp(f"timestamp {timestamp} lies before 1970: use milliseconds since then, or -1 for none")
    length = -1 if key is None else len(key)
    _check_size(length)
    if magic == 1:
        attributes = codec | TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else codec
        head = _V1.pack(magic, attributes, timestamp, length)
    elif magic == 0:
        head = _V0.pack(magic, codec, length)
    else:
        raise UnsupportedForMessageFormat(f"there are no messages of format v{magic}: write a record batch")
    return head + key if key else head


def _known(head: bytes, value: bytes | None) -> bytes:
    """All that the checksum covers, of a message whose value is there already: nothing needs to be reserved then."""
    if value is None:
        return head + _NULL
    _check_size(len(head) + len(value))
    return b"".join((head, _INT32.pack(len(value)), value))


Payload: TypeAlias = bytes | Callable[[MessageWriter], object] | None
"""The value of a message: its bytes, null, or what writes them."""


class LengthPrefix:
    """The length of what is written between entering and leaving, in the four bytes before it."""

    __slots__ = ("_before", "_place", "_writer")

    _place: ReservedOutput
    _before: int

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        self._place = self._writer.reserve(_INT32.size)
        self._before = self._writer.size

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            length = self._writer.size - self._before
            _check_size(length)
            self._place.write(_INT32.pack(length))


class Crc32Prefix:
    """The CRC-32 of what is written between entering and leaving, in the four bytes before it."""

    __slots__ = ("_mark", "_place", "_writer")

    _place: ReservedOutput
    _mark: tuple[Segment, int]

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        self._place = self._writer.reserve(_UINT32.size)
        self._mark = self._writer.mark()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            crc = 0
            for piece in self._writer.pieces(self._mark):
                crc = crc32(piece, crc)
            self._place.write(_UINT32.pack(crc))


def _check_size(size: int) -> None:
    if size > INT32_MAX:
        raise RecordTooLarge(f"a message of {size} bytes does not fit the format's 2 GiB: send it in pieces")
