"""The 61-byte header of a v2 record batch: its layout, and the one walk over a buffer of batches of any format.

    base offset        int64    0   set by the leader
    batch length       int32    8   bytes behind this field
    leader epoch       int32   12   set by the leader
    magic              int8    16   2
    CRC-32C            uint32  17   over everything from the attributes on
    attributes         int16   21   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon,
                                    7-15 reserved: readers pass over them, a leader refuses them of a client
    last offset delta  int32   23
    base timestamp     int64   27   of the first record; the delete horizon where bit 6 is set
    max timestamp      int64   35
    producer id        int64   43
    producer epoch     int16   51
    base sequence      int32   53
    record count       int32   57   records follow, compressed as a whole

All formats have offset, length and magic in the same places, so one log may hold v0, v1 and v2 one behind the other.
A v0 or v1 message (layout: message.py) gives a header too, with what it has no field for left at "none".

Kept true: nothing is believed that the buffer does not hold; a header costs one unpack.
Left to others: the checksum and the fields' sense (batch.py, message_set.py), records (record.py).
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
    LeaderEpoch,
    Millis,
    Offset,
    ProducerId,
)

ByteBuffer: TypeAlias = bytes | bytearray | memoryview
PartialTail: TypeAlias = Literal["stop", "raise"]

LOG_OVERHEAD: Final = 12
"""Bytes of offset and length, before what the length counts, in every format."""
HEADER_BYTES: Final = 61
MAGIC_AT: Final = 16
LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD
LENGTH_MIN_V0: Final = 14
"""Smallest length of any format: a v0 message with null key and null value."""
LENGTH_MIN_V1: Final = 22
"""That, and a timestamp."""
UNKNOWN_COUNT: Final = -1
"""The record count of a wrapper's header: only its decompressed records tell."""

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
"""By magic, the attribute bits that mean something: codec; in v1 the timestamp type too."""
RESERVED_ATTRIBUTES: Final = (~0x07, ~0x0F, ~0x7F)
"""By magic, those that mean nothing. Kafka's readers pass over them, so a log may have them."""
_OFFSET_MAX: Final = 2**63 - 2
"""The next offset still fits into 64 bits."""


class BatchHeader(NamedTuple):
    """The fields of one batch header as stored, and where in the buffer the batch starts.

    Of a v0 or v1 message: `base_offset` is the message's offset, which for a wrapper is that of its *last* record
    (`record_count` is `UNKNOWN_COUNT` then; the first offset takes decompression); both timestamps are the message's.
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
        """Bytes of the whole batch, offset and length included."""
        return LOG_OVERHEAD + self.length

    @property
    def end(self) -> int:
        """Where in the buffer the batch ends."""
        return self.position + LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, or of the last one there was before compaction."""
        return Offset(self.base_offset + self.last_offset_delta)


def header_problem(header: BatchHeader) -> str | None:
    """What no batch of any format has, as far as its header alone shows; None where nothing is wrong.

    An append asks this of every batch (`ensure_valid`), and so does every walk along a stored log: what one accepts the
    other does not call damage.
    """
    if header.last_offset_delta < 0:
        return f"has a last offset delta of {header.last_offset_delta}"
    if not 0 <= header.base_offset <= _OFFSET_MAX - header.last_offset_delta:
        return f"has offsets from {header.base_offset} on, outside of 0 to {_OFFSET_MAX}"
    return None


def walk_headers(buffer: ByteBuffer, position: int = 0, *, partial_tail: PartialTail = "stop") -> Iterator[BatchHeader]:
    """The headers of the batches and messages that lie one behind the other from `position` on, of any format, without
    touching their records.

    partial_tail: a batch that the buffer cuts short ends the walk ("stop"), or raises CorruptRecord ("raise").
    Raises CorruptRecord for an impossible length or an unknown magic, even in a batch that is cut short.
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
                yield tuple.__new__(BatchHeader, (position, *fields))  # as its own, less a call
                position = end
                continue
        header = _message_header(buffer, position, size)
        if header is None:
            break
        yield header
        position += LOG_OVERHEAD + header.length
    if position < size and partial_tail == "raise":
        raise CorruptRecord(
            f"the batch at byte {position} is cut short: {size - position} bytes of it are there; send it whole"
        )


def peek_header(buffer: ByteBuffer, at: int = 0, *, position: int | None = None) -> BatchHeader | None:
    """The header of what begins at `at`, of any format, as it stands there: nothing in it is checked, a magic that no
    format has is left in it, and the buffer need not hold the batch behind it. For files, which are read in pieces.

    position: where the header says it is, `at` for None. Returns None where the buffer ends inside the header.
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


def read_header(buffer: ByteBuffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`. Raises as `walk_headers`; a batch cut short is CorruptRecord."""
    for header in walk_headers(buffer, position, partial_tail="raise"):
        return header
    raise CorruptRecord(f"no batch at byte {position}: the buffer ends at byte {len(buffer)}")


def _message_header(buffer: ByteBuffer, position: int, size: int) -> BatchHeader | None:
    """What begins at `position` and is no whole v2 batch: the header of a v0 or v1 message, or None where the buffer
    cuts a batch short. What could not become one by more bytes is refused."""
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


def _message_fields(buffer: ByteBuffer, at: int, position: int) -> BatchHeader:
    """A v0 or v1 message as a header."""
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


def _check_beginning(buffer: ByteBuffer, position: int, left: int) -> None:
    """Refuse the first bytes of a batch, fewer than any batch has, if what they hold already is impossible."""
    if left >= LOG_OVERHEAD:
        offset, length = _OFFSET_LENGTH.unpack_from(buffer, position)
        magic = buffer[position + MAGIC_AT] if left > MAGIC_AT else 0
        if magic > 2 or length < LENGTHS_MIN[magic]:
            raise _impossible(position, offset, length, magic)


def _impossible(position: int, offset: int, length: int, magic: int) -> CorruptRecord:
    claim = f"a length of {length}, less than format v{magic} has"
    if length < LENGTH_MIN_V0:
        claim = f"a length of {length}, less than any format has"
    elif magic > 2:
        claim = f"magic {magic}, which no format has"
    return CorruptRecord(f"the batch at byte {position}, offset {offset}, claims {claim}: the bytes are damaged")
