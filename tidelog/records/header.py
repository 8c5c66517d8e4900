"""The 61-byte header of a v2 record batch: its layout, and the one walk over a buffer of batches.

    base offset        int64    0   set by the leader
    batch length       int32    8   bytes behind this field
    leader epoch       int32   12   set by the leader
    magic              int8    16   2
    CRC-32C            uint32  17   over everything from the attributes on
    attributes         int16   21   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
    last offset delta  int32   23
    base timestamp     int64   27   of the first record; the delete horizon where bit 6 is set
    max timestamp      int64   35
    producer id        int64   43
    producer epoch     int16   51
    base sequence      int32   53
    record count       int32   57   records follow, compressed as a whole

Kept true: nothing is believed that the buffer does not hold; a header costs one unpack.
Left to others: the checksum and the fields' sense (batch.py), records (record.py).
Source: KIP-98; Kafka's DefaultRecordBatch and ByteBufferLogInputStream (which tail is partial and which is corrupt).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, Literal, NamedTuple, TypeAlias

from tidelog.errors import CorruptRecord, UnsupportedForMessageFormat
from tidelog.types import LeaderEpoch, Millis, Offset, ProducerId

ByteBuffer: TypeAlias = bytes | bytearray | memoryview
PartialTail: TypeAlias = Literal["stop", "raise"]

LOG_OVERHEAD: Final = 12
"""Bytes of offset and length, before what the length counts, in every format."""
HEADER_BYTES: Final = 61
MAGIC_AT: Final = 16
LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD
LENGTH_MIN_V0: Final = 14
"""Smallest length of any format: a v0 message with null key and null value."""

BASE_OFFSET_AT: Final = 0
LEADER_EPOCH_AT: Final = 12
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35

HEADER: Final = Struct(">qiibIhiqqqhii")
_OFFSET_LENGTH: Final = Struct(">qi")


class BatchHeader(NamedTuple):
    """The fields of one batch header as stored, and where in the buffer the batch starts."""

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


def walk_headers(buffer: ByteBuffer, position: int = 0, *, partial_tail: PartialTail = "stop") -> Iterator[BatchHeader]:
    """The headers of the batches that lie one behind the other from `position` on, without touching their records.

    partial_tail: a batch that the buffer cuts short ends the walk ("stop"), or raises CorruptRecord ("raise").
    Raises CorruptRecord for an impossible length or an unknown magic, even in a batch that is cut short, and
    UnsupportedForMessageFormat for a v0 or v1 message.
    """
    size = len(buffer)
    unpack = HEADER.unpack_from
    while size - position >= HEADER_BYTES:
        fields = unpack(buffer, position)
        length = fields[1]
        if fields[3] != 2 or length < LENGTH_MIN:
            _refuse(position, fields[0], length, fields[3])
        end = position + LOG_OVERHEAD + length
        if end > size:
            break
        yield BatchHeader(position, *fields)
        position = end
    if position < size:
        _check_partial(buffer, position, size, partial_tail)


def read_header(buffer: ByteBuffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`. Raises as `walk_headers`; a batch cut short is CorruptRecord."""
    for header in walk_headers(buffer, position, partial_tail="raise"):
        return header
    raise CorruptRecord(f"no batch at byte {position}: the buffer ends at byte {len(buffer)}")


def _check_partial(buffer: ByteBuffer, position: int, size: int, partial_tail: PartialTail) -> None:
    """What is left holds no whole batch: refuse what could not become one by more bytes, else do as `partial_tail`
    says."""
    left = size - position
    if left >= LOG_OVERHEAD:
        offset, length = _OFFSET_LENGTH.unpack_from(buffer, position)
        magic = buffer[position + MAGIC_AT] if left > MAGIC_AT else None
        if length < LENGTH_MIN_V0 or magic not in (None, 2) or (magic == 2 and length < LENGTH_MIN):
            _refuse(position, offset, length, magic)
    if partial_tail == "raise":
        raise CorruptRecord(f"the batch at byte {position} is cut short: {left} bytes of it are there; send it whole")


def _refuse(position: int, offset: int, length: int, magic: int | None) -> None:
    """Raise the error for a header whose length or magic is not that of a v2 batch."""
    where = f"the batch at byte {position}, offset {offset},"
    if length < LENGTH_MIN_V0:
        raise CorruptRecord(f"{where} claims a length of {length}, less than any format has: the bytes are damaged")
    if magic in (0, 1):
        raise UnsupportedForMessageFormat(
            f"{where} is a message of format v{magic}: only record batches of format v2 are read; convert it first"
        )
    if magic != 2:
        raise CorruptRecord(f"{where} has magic {magic}, which no format has: the bytes are damaged")
    raise CorruptRecord(
        f"{where} claims a length of {length}, less than the header's {LENGTH_MIN}: the bytes are damaged"
    )
