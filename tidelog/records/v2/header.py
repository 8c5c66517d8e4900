"""The 61-byte header of a v2 record batch, and the walk over the headers of a buffer with batches of any format.

    base offset        int64    0   set by the leader
    batch length       int32    8   bytes after this field
    leader epoch       int32   12   set by the leader
    magic              int8    16   2
    CRC-32C            uint32  17   of everything from the attributes on
    attributes         int16   21   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon,
                                    7-15 reserved: readers ignore them, a leader rejects them from a client
    last offset delta  int32   23
    base timestamp     int64   27   of the first record; the delete horizon if bit 6 is set
    max timestamp      int64   35
    producer id        int64   43
    producer epoch     int16   51
    base sequence      int32   53
    record count       int32   57   records follow, compressed together

All formats have offset, length and magic at the same positions, so one log may contain v0, v1 and v2. A v0 or v1
message (layout: message.py) is returned as a header too; fields that it does not have are set to "none".

Invariants: only bytes within the buffer are used; reading a header costs one unpack.
Not here: the checksum and the meaning of the fields (batch.py, message_set.py), records (record.py).
Source: KIP-98; Kafka's DefaultRecordBatch and ByteBufferLogInputStream (which tail is partial and which is corrupt).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, Literal, NamedTuple, TypeAlias

from tidelog.errors import CorruptRecord
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
    LeaderEpoch,
    Millis,
    Offset,
    ProducerId,
)

PartialTail: TypeAlias = Literal["stop", "raise"]

LOG_OVERHEAD: Final = 12
"""Bytes of offset and length, which the length does not count, in every format."""
HEADER_BYTES: Final = 61
MAGIC_AT: Final = 16
LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD
LENGTH_MIN_V0: Final = 14
"""Smallest length of any format: a v0 message with null key and null value."""
LENGTH_MIN_V1: Final = 22
"""The same plus a timestamp."""
UNKNOWN_COUNT: Final = -1
"""The record count in a wrapper's header; it is known only after decompression."""

BASE_OFFSET_AT: Final = 0
LEADER_EPOCH_AT: Final = 12
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_AT: Final = 43

HEADER: Final = Struct(">qiibIhiqqqhii")
_OFFSET_LENGTH: Final = Struct(">qi")
_MESSAGE: Final = Struct(">qiIBB")
_TIMESTAMP: Final = Struct(">q")
LENGTHS_MIN: Final = (LENGTH_MIN_V0, LENGTH_MIN_V1, LENGTH_MIN)
"""By magic."""
_MESSAGE_ATTRIBUTES: Final = (0x07, 0x0F)
"""By magic, the defined attribute bits: codec; in v1 also the timestamp type."""
RESERVED_ATTRIBUTES: Final = (~0x07, ~0x0F, ~0x7F)
"""By magic, the reserved attribute bits. Kafka's readers ignore them, so a log may contain them."""
_OFFSET_MAX: Final = 2**63 - 2
"""Chosen so that the next offset still fits into 64 bits."""


class BatchHeader(NamedTuple):
    """The fields of one batch header as stored, and the position of the batch in the buffer.

    For a v0 or v1 message, `base_offset` is the message's offset; for a wrapper this is the offset of its *last*
    record, `record_count` is `UNKNOWN_COUNT`, and the first offset needs decompression. Both timestamps are the
    message's.
    """

    position: int
    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: Millis
    max_timestamp: Millis
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch, including offset and length."""
        return LOG_OVERHEAD + self.length

    @property
    def end(self) -> int:
        """End position of the batch in the buffer."""
        return self.position + LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record; after compaction, of the last record before compaction."""
        return Offset(self.base_offset + self.last_offset_delta)


def header_problem(header: BatchHeader) -> str | None:
    """Return what is impossible in this header, for any format, or None.

    Appends (`ensure_valid`) and all walks along a stored log use this check, so that they agree on what is corrupt.
    """
    if header.last_offset_delta < 0:
        return f"has a last offset delta of {header.last_offset_delta}"
    if not 0 <= header.base_offset <= _OFFSET_MAX - header.last_offset_delta:
        return f"has offsets from {header.base_offset} on, outside of 0 to {_OFFSET_MAX}"
    return None


def walk_headers(buffer: Buffer, position: int = 0, *, partial_tail: PartialTail = "stop") -> Iterator[BatchHeader]:
    """Yield the headers of consecutive batches and messages of any format from `position` on, without reading records.

    partial_tail: a partial batch at the end ends the walk ("stop") or raises CorruptRecord ("raise").
    Raises CorruptRecord for an impossible length or an unknown magic, even in a partial batch.
    """
    size = len(buffer)
    unpack = HEADER.unpack_from
    while position < size:
        if size - position >= HEADER_BYTES and buffer[position + MAGIC_AT] == 2:
            fields = unpack(buffer, position)
            if fields[1] >= LENGTH_MIN:
                end = position + LOG_OVERHEAD + fields[1]
                if end > size:
                    break
                yield tuple.__new__(BatchHeader, (position, *fields))  # like BatchHeader(), with one call less
                position = end
                continue
        header = _message_header(buffer, position, size)
        if header is None:
            break
        yield header
        position += LOG_OVERHEAD + header.length
    if position < size and partial_tail == "raise":
        raise CorruptRecord(
            f"the batch at byte {position} is truncated: only {size - position} bytes of it are present; send it whole"
        )


def peek_header(buffer: Buffer, at: int = 0, *, position: int | None = None) -> BatchHeader | None:
    """Return the header at `at`, of any format, unverified: the magic may be unknown, and the buffer need not contain
    the rest of the batch. For files, which are read in pieces.

    position: value for the header's position; None for `at`. Returns None if the buffer ends within the header.
    """
    left = len(buffer) - at
    where = at if position is None else position
    if left <= MAGIC_AT:
        return None
    magic = buffer[at + MAGIC_AT]
    if magic > 1:
        return tuple.__new__(BatchHeader, (where, *HEADER.unpack_from(buffer, at))) if left >= HEADER_BYTES else None
    if left < _MESSAGE.size + magic * _TIMESTAMP.size:
        return None
    return _message_fields(buffer, at, where)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of the batch at `position`. Raises as `walk_headers`, and CorruptRecord for a partial batch."""
    for header in walk_headers(buffer, position, partial_tail="raise"):
        return header
    raise CorruptRecord(f"no batch at byte {position}: the buffer ends at byte {len(buffer)}")


def _message_header(buffer: Buffer, position: int, size: int) -> BatchHeader | None:
    """Return the header of a v0 or v1 message at `position`, or None for a partial batch. Raises CorruptRecord for
    bytes that more input could not complete."""
    left = size - position
    if left < _MESSAGE.size:
        _check_beginning(buffer, position, left)
        return None
    offset, length, _, magic, _ = _MESSAGE.unpack_from(buffer, position)
    if length < LENGTH_MIN_V0 or magic > 2 or length < LENGTHS_MIN[magic]:
        raise _impossible(position, offset, length, magic)
    if magic == 2 or LOG_OVERHEAD + length > left:
        return None
    return _message_fields(buffer, position, position)


def _message_fields(buffer: Buffer, at: int, position: int) -> BatchHeader:
    """Return a v0 or v1 message as a header."""
    offset, length, crc, magic, attributes = _MESSAGE.unpack_from(buffer, at)
    timestamp: int = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _TIMESTAMP.unpack_from(buffer, at + _MESSAGE.size)
    fields = (
        position,
        offset,
        length,
        NO_LEADER_EPOCH,
        magic,
        crc,
        attributes & _MESSAGE_ATTRIBUTES[magic],
        0,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        UNKNOWN_COUNT if attributes & 0x07 else 1,
    )
    return tuple.__new__(BatchHeader, fields)


def _check_beginning(buffer: Buffer, position: int, left: int) -> None:
    """Raise if the first bytes of a batch, fewer than the minimum of any format, are already impossible."""
    if left >= LOG_OVERHEAD:
        offset, length = _OFFSET_LENGTH.unpack_from(buffer, position)
        magic = buffer[position + MAGIC_AT] if left > MAGIC_AT else 0
        if magic > 2 or length < LENGTHS_MIN[magic]:
            raise _impossible(position, offset, length, magic)


def _impossible(position: int, offset: int, length: int, magic: int) -> CorruptRecord:
    claim = f"a length of {length}, less than the minimum of format v{magic}"
    if length < LENGTH_MIN_V0:
        claim = f"a length of {length}, less than the minimum of any format"
    elif magic > 2:
        claim = f"the unknown magic {magic}"
    return CorruptRecord(f"the batch at byte {position}, offset {offset}, has {claim}: the bytes are corrupt")
