"""The header of an lz4 frame, and its checksum byte, which old Kafka versions computed over the wrong bytes.

    magic 4 | FLG 1 | BD 1 | content size 8, if FLG has bit 3 | dictionary id 4, if FLG has bit 0 | checksum 1

The checksum is the second byte of XXH32 over the descriptor, which starts at FLG. Brokers and clients of Kafka before
0.10 computed it with the magic included, on both sides. v0 messages keep that checksum (KIP-57), v1 and v2 messages
have the correct one.
Invariants: only this byte is changed. It is not verified when reading v0, as in Kafka: the message's CRC-32 covers it.
Source: KIP-57; the LZ4 frame format 1.6.2.
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh32_intdigest

_MAGIC_BYTES: Final = 4
_FIXED_BYTES: Final = 6
_CONTENT_SIZE_BIT: Final = 0x08
_DICTIONARY_BIT: Final = 0x01


def checksum_position(frame: bytes | bytearray | memoryview) -> int:
    """Return the position of the header's checksum byte; the frame may end before it."""
    flags = frame[_MAGIC_BYTES] if len(frame) > _MAGIC_BYTES else 0
    return _FIXED_BYTES + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)


def with_old_checksum(frame: bytes) -> bytes:
    """Return the frame, or its start, as v0 messages contain it: with the checksum from the magic on."""
    position = checksum_position(frame)
    return frame[:position] + bytes([_checksum(frame[:position])]) + frame[position + 1 :]


def with_right_checksum(frame: bytes | bytearray | memoryview) -> bytes:
    """Return the frame with the correct checksum. A frame truncated before its checksum is returned unchanged."""
    position = checksum_position(frame)
    if len(frame) <= position:
        return bytes(frame)
    changed = bytearray(frame)
    changed[position] = _checksum(bytes(frame[_MAGIC_BYTES:position]))
    return bytes(changed)


def _checksum(descriptor: bytes) -> int:
    return xxh32_intdigest(descriptor) >> 8 & 0xFF
