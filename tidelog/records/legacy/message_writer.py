"""Writes messages of formats v0 and v1: fields in order; lengths and checksums are filled in afterwards.

The length of a compressed value is known only after it was written. So the places of its length and of the checksum are
reserved, and filled in once the bytes are written.
Invariants: the output decodes to the input; bytes are copied only into the stream's segments.
Not here: offsets within wrappers, counts, timestamps of wrappers (message_builder.py).
Source: Kafka's MessageWriter; KIP-31, KIP-32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final, TypeAlias

from tidelog.errors import InvalidTimestamp, RecordTooLarge, UnsupportedForMessageFormat
from tidelog.records.legacy.buffering_output_stream import BufferingOutputStream
from tidelog.records.legacy.message import TIMESTAMP_TYPE_BIT
from tidelog.records.v2.checksum import crc32
from tidelog.types import INT32_MAX, NO_TIMESTAMP, Codec, TimestampType

_INT8: Final = Struct(">b")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_ENTRY: Final = Struct(">qiI")
_V0: Final = Struct(">bbi")
_V1: Final = Struct(">bbqi")
_NULL: Final = _INT32.pack(-1)


class MessageWriter(BufferingOutputStream):
    """A stream of messages under construction."""

    def write_int8(self, value: int) -> None:
        self.write(_INT8.pack(value))

    def write_int32(self, value: int) -> None:
        self.write(_INT32.pack(value))

    def write_int64(self, value: int) -> None:
        self.write(_INT64.pack(value))

    @contextmanager
    def length_prefix(self) -> Iterator[None]:
        """Put an int32 before the bytes written in the block: their number. An error leaves it zero."""
        place, before = self.reserve(_INT32.size), self.size
        yield
        length = self.size - before
        _check_size(length)
        place.write(_INT32.pack(length))

    @contextmanager
    def crc32_prefix(self) -> Iterator[None]:
        """Put a uint32 before the bytes written in the block: their CRC-32. An error leaves it zero."""
        place, mark = self.reserve(_UINT32.size), self.mark()
        yield
        crc = 0
        for piece in self.pieces(mark):
            crc = crc32(piece, crc)
        place.write(_UINT32.pack(crc))

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
        """Write one message, from its checksum on. value: bytes, None for null, or a function that writes it.

        Timestamp and type are written in v1 only; v0 does not have them. Raises UnsupportedForMessageFormat for another
        magic, InvalidTimestamp below -1, RecordTooLarge beyond 2 GiB.
        """
        head = _head(magic, codec, timestamp, timestamp_type, key)
        if callable(value):
            with self.crc32_prefix():
                self.write(head)
                with self.length_prefix():
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
        """Write one message with offset and size, as in a message set. Raises as `write_message`."""
        if callable(value):
            self.write(_INT64.pack(offset))
            with self.length_prefix():
                self.write_message(
                    magic, key=key, value=value, timestamp=timestamp, timestamp_type=timestamp_type, codec=codec
                )
        else:
            message = _known(_head(magic, codec, timestamp, timestamp_type, key), value)
            self.write(_ENTRY.pack(offset, len(message) + _UINT32.size, crc32(message)) + message)


def _head(magic: int, codec: Codec, timestamp: int, timestamp_type: TimestampType, key: bytes | None) -> bytes:
    """Return the fields of a message that the checksum covers, up to the key."""
    if timestamp < NO_TIMESTAMP:
        raise InvalidTimestamp(f"timestamp {timestamp} is before 1970: use milliseconds since 1970, or -1 for none")
    length = -1 if key is None else len(key)
    _check_size(length)
    if magic == 1:
        attributes = codec | TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else codec
        head = _V1.pack(magic, attributes, timestamp, length)
    elif magic == 0:
        head = _V0.pack(magic, codec, length)
    else:
        raise UnsupportedForMessageFormat(f"format v{magic} has no messages: write a record batch")
    return head + key if key else head


def _known(head: bytes, value: bytes | None) -> bytes:
    """Return all bytes that the checksum covers, for a message whose value is complete: nothing needs reserving."""
    if value is None:
        return head + _NULL
    _check_size(len(head) + len(value))
    return b"".join((head, _INT32.pack(len(value)), value))


Payload: TypeAlias = bytes | Callable[[MessageWriter], object] | None
"""The value of a message: bytes, null, or a function that writes it."""


def _check_size(size: int) -> None:
    if size > INT32_MAX:
        raise RecordTooLarge(f"a message of {size} bytes exceeds the format's limit of 2 GiB: split it")
