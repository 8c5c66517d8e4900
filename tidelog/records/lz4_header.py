"""The header of an lz4 frame, and the checksum byte at its end that old Kafka computed over the wrong bytes.

    magic 4 | FLG 1 | BD 1 | content size 8, if FLG has bit 3 | dictionary id 4, if FLG has bit 0 | checksum 1

The checksum is the second byte of XXH32 over the descriptor, which begins at FLG. Kafka before 0.10 took the magic in
as well; its brokers and clients wrote so and checked so, so within v0 messages it stays that way for good (KIP-57).
v1 and v2 have the right one.
Kept true: the only byte changed is that one. On reading it is not compared in v0 (Kafka does not either): the message's
CRC-32 covers it.
Source: KIP-57; the LZ4 frame format 1.6.2; the description of XXH32.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_MAGIC_BYTES: Final = 4
_FIXED_BYTES: Final = 6
_CONTENT_SIZE_BIT: Final = 0x08
_DICTIONARY_BIT: Final = 0x01

_PRIME_1: Final = 2654435761
_PRIME_2: Final = 2246822519
_PRIME_3: Final = 3266489917
_PRIME_4: Final = 668265263
_PRIME_5: Final = 374761393
_LANES: Final = Struct("<IIII")
_WORD: Final = Struct("<I")
_MASK: Final = 0xFFFFFFFF


def checksum_position(frame: bytes | bytearray | memoryview) -> int:
    """Where the header's checksum byte stands; the frame may end before it."""
    flags = frame[_MAGIC_BYTES] if len(frame) > _MAGIC_BYTES else 0
    return _FIXED_BYTES + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)


def with_old_checksum(frame: bytes) -> bytes:
    """The frame, or its beginning, as v0 messages hold it: the checksum taken from the magic on."""
    position = checksum_position(frame)
    return frame[:position] + bytes([_checksum(frame[:position])]) + frame[position + 1 :]


def with_right_checksum(frame: bytes | bytearray | memoryview) -> bytes:
    """The frame as the format demands it, whatever checksum it had. One cut short before its checksum stays so."""
    position = checksum_position(frame)
    if len(frame) <= position:
        return bytes(frame)
    changed = bytearray(frame)
    changed[position] = _checksum(bytes(frame[_MAGIC_BYTES:position]))
    return bytes(changed)


def _checksum(descriptor: bytes) -> int:
    return xxh32(descriptor) >> 8 & 0xFF


def xxh32(data: bytes, seed: int = 0) -> int:
    """The hash XXH32, for inputs of some bytes."""
    position = 0
    if len(data) >= _LANES.size:
        lanes = [seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed, seed - _PRIME_1]
        while position + _LANES.size <= len(data):
            words = _LANES.unpack_from(data, position)
            lanes = [_rotate(lane + word * _PRIME_2, 13) * _PRIME_1 for lane, word in zip(lanes, words, strict=True)]
            position += _LANES.size
        result = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        result = seed + _PRIME_5
    result += len(data)
    while position + _WORD.size <= len(data):
        (word,) = _WORD.unpack_from(data, position)
        result = _rotate(result + word * _PRIME_3, 17) * _PRIME_4
        position += _WORD.size
    for byte in data[position:]:
        result = _rotate(result + byte * _PRIME_5, 11) * _PRIME_1
    result &= _MASK
    result = (result ^ result >> 15) * _PRIME_2 & _MASK
    result = (result ^ result >> 13) * _PRIME_3 & _MASK
    return result ^ result >> 16


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
