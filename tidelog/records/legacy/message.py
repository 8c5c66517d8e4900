"""Layout of a message: a record in format v0 or v1.

    offset        int64    0   of the record; of a wrapper, that of its last record; relative inside a v1 wrapper
    message size  int32    8   bytes after this field
    CRC-32        uint32  12   of everything from the magic on
    magic         int8    16   0 or 1
    attributes    int8    17   bits 0-2 codec; in v1 bit 3 timestamp type
    timestamp     int64   18   v1 only
    key length    int32        -1 is null; the key follows
    value length  int32        -1 is null; the value follows: of a wrapper, a compressed message set

A message set is a sequence of messages without a header or a count.
Invariants: key and value lie within the message and fill it exactly; otherwise CorruptRecord.
Not here: wrappers (message_set.py), writing (message_writer.py).
Source: KIP-31 (relative offsets), KIP-32 (timestamps); Kafka's LegacyRecord.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tidelog.errors import CorruptRecord
from tidelog.records.v2.checksum import crc32
from tidelog.records.v2.header import LENGTH_MIN_V0, LENGTH_MIN_V1, LOG_OVERHEAD
from tidelog.types import NO_TIMESTAMP, Buffer

CODEC_BITS: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08

OFFSET_AT: Final = 0
SIZE_AT: Final = 8
CRC_AT: Final = 12
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 17
TIMESTAMP_AT: Final = 18
KEY_AT: Final = (18, 26)
"""Position of the key length, by magic."""
MESSAGE_OVERHEAD: Final = (LENGTH_MIN_V0, LENGTH_MIN_V1)
"""Bytes of a message beside key and value, by magic; without offset and size."""

_INNER: Final = Struct(">qiIBB")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class InnerMessage(NamedTuple):
    """One message of a message set, with its fields as stored; `at` and `end` are its bounds in the set."""

    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    at: int
    end: int


def entry_size(magic: int, key: bytes | None, value: bytes | None) -> int:
    """Return the size of an uncompressed message in a set, including offset and size."""
    return LOG_OVERHEAD + MESSAGE_OVERHEAD[magic] + len(key or b"") + len(value or b"")


def payload_bounds(buffer: Buffer, at: int, end: int, magic: int) -> tuple[int, int, int]:
    """Return the position of key and value in the message between `at` and `end`: (key start, key end, value start).

    The key end is -1 for a null key, the value start -1 for a null value; the value ends with the message.
    Raises CorruptRecord if the two do not fill the message exactly.
    """
    start = at + KEY_AT[magic] + 4
    (length,) = _INT32.unpack_from(buffer, start - 4)
    behind = start + length if length > 0 else start
    if length < -1 or behind + 4 > end:
        raise CorruptRecord(f"its key claims {length} bytes, {end - start - 4} are left")
    (value_length,) = _INT32.unpack_from(buffer, behind)
    value_at = behind + 4
    if value_length == -1 and value_at == end:
        value_at = -1
    elif value_length != end - value_at:
        raise CorruptRecord(f"its value claims {value_length} bytes, {end - value_at} are left")
    return start, -1 if length < 0 else behind, value_at


def read_payload(data: Buffer, at: int, end: int, magic: int) -> tuple[bytes | None, bytes | None]:
    """Return key and value of the message between `at` and `end`. Raises as `payload_bounds`."""
    start, behind, value_at = payload_bounds(data, at, end, magic)
    if not isinstance(data, bytes):
        view = memoryview(data)
        return (None if behind < 0 else bytes(view[start:behind])), (
            None if value_at < 0 else bytes(view[value_at:end])
        )
    return (None if behind < 0 else data[start:behind]), (None if value_at < 0 else data[value_at:end])


def walk_set(data: bytes, *, partial_tail_ends: bool) -> list[InnerMessage]:
    """Return the messages of a decompressed message set, headers only.

    partial_tail_ends: ignore a partial last message, as Kafka's readers do; otherwise it raises CorruptRecord.
    Raises CorruptRecord for an invalid size and for a magic other than 0 and 1.
    """
    found: list[InnerMessage] = []
    at, total = 0, len(data)
    unpack, unpack_timestamp = _INNER.unpack_from, _INT64.unpack_from
    while total - at >= _INNER.size:
        offset, size, crc, magic, attributes = unpack(data, at)
        end = at + LOG_OVERHEAD + size
        if size < LENGTH_MIN_V0 or end > total:
            break
        timestamp: int = NO_TIMESTAMP
        if magic == 1 and size >= LENGTH_MIN_V1:
            (timestamp,) = unpack_timestamp(data, at + TIMESTAMP_AT)
        elif magic != 0:
            raise CorruptRecord(f"its message {len(found) + 1} of {size} bytes has magic {magic}")
        found.append(tuple.__new__(InnerMessage, (offset, crc, magic, attributes, timestamp, at, end)))
        at = end
    if at < total:
        left = total - at
        size = _INT32.unpack_from(data, at + SIZE_AT)[0] if left >= LOG_OVERHEAD else LENGTH_MIN_V0
        if size < LENGTH_MIN_V0:
            raise CorruptRecord(f"its message {len(found) + 1} has size {size}, less than the minimum of any format")
        if not partial_tail_ends:
            raise CorruptRecord(f"its message {len(found) + 1} is truncated: only {left} bytes of it are present")
    return found


def message_crc(buffer: Buffer, at: int, end: int) -> int:
    """Return the CRC-32 of the message between `at` and `end`, computed from its bytes."""
    return crc32(memoryview(buffer)[at + MAGIC_AT : end])
