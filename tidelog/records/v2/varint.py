"""Zigzag varints: the integers in a v2 record.

Signed numbers are mapped to unsigned ones (0, -1, 1, -2 ... become 0, 1, 2, 3 ...) and written in groups of seven bits,
low bits first; the top bit of a byte is set if more bytes follow. At most 5 bytes encode 32 bits, at most 10 bytes
encode 64; anything longer or larger is rejected.
Source: Protocol Buffers' encoding of sint32 and sint64, used by KIP-98.
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import CorruptRecord
from tidelog.types import Buffer

_SMALL_MIN: Final = -64
_SMALL_MAX: Final = 8191
"""Bounds of the kept encodings: all of one byte and the positive ones of two bytes, which cover most fields."""


def encode_unsigned_varint(value: int) -> bytes:
    """Return the encoding of a non-negative number without zigzag, as KIP-482 writes lengths."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode(value: int) -> bytes:
    return encode_unsigned_varint(value << 1 if value >= 0 else ((-value) << 1) - 1)


UNFOLDED: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
"""The number that each one-byte encoding stands for: readers look it up without a call."""


class _Small(dict[int, bytes]):
    """The encodings that were used: a process with compiled code encodes few numbers here, and all take 0.4 MiB."""

    def __missing__(self, value: int) -> bytes:
        encoded = self[value] = _encode(value)
        return encoded


_SMALL: Final = _Small()


def encode_varint(value: int) -> bytes:
    """Return the encoding of a signed integer. The caller ensures the range of 32 or 64 bits."""
    if _SMALL_MIN <= value <= _SMALL_MAX:
        return _SMALL[value]
    return _encode(value)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read a 32-bit integer at `position`: (value, end position). Raises IndexError if the data ends within it."""
    folded, position = _read(data, position, 32)
    return (folded >> 1) ^ -(folded & 1), position


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Read a 64-bit integer at `position`: (value, end position). Raises IndexError if the data ends within it."""
    folded, position = _read(data, position, 64)
    return (folded >> 1) ^ -(folded & 1), position


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read a 32-bit integer without zigzag, as KIP-482 writes lengths: (value, end position)."""
    return _read(data, position, 32)


def _read(data: Buffer, position: int, bits: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    start, value, shift = position, byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise CorruptRecord(f"the varint at byte {start} is longer than {bits} bits allow: the bytes are corrupt")
    if value >> bits:
        raise CorruptRecord(f"the varint at byte {start} exceeds {bits} bits: the bytes are corrupt")
    return value, position + 1
