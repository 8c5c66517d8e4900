"""Records of one batch in the making, uncompressed: the pure-Python reference of the compiled encoder.

Kept true: `size` is exact after every record; what `append` refused has left nothing behind; offsets grow.
Left to others: header, checksum and compression (builder.py).
Source: KIP-98; KIP-534 (a delete horizon takes the base timestamp's place).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeAlias

from tidelog.errors import CorruptRecord, InvalidTimestamp, OffsetsNotMonotonic, RecordTooLarge
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.header import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, ByteBuffer
from tidelog.records.v2.record import Header, encode_record
from tidelog.records.v2.varint import INT32_MAX, INT64_MAX
from tidelog.types import NO_TIMESTAMP

Fields: TypeAlias = tuple[bytes | None, bytes | None, int, Iterable[Header]]
"""What a producer gives: key, value, timestamp, headers."""
_CRC: Final = Struct(">I")
PAYLOAD_BYTES_MAX: Final = INT32_MAX - HEADER_BYTES


class RecordsBuffer:
    """Encodes record by record. base_timestamp: that of the first record where None.

    count: records so far. size: bytes they take. last_offset: of the last one. max_timestamp: the largest, -1 before
    the first. base_timestamp: what deltas count from, -1 while nothing has set it.
    """

    __slots__ = ("_parts", "base_offset", "base_timestamp", "last_offset", "max_timestamp", "size")

    def __init__(self, base_offset: int = 0, base_timestamp: int | None = None) -> None:
        self._parts: list[bytes] = []
        self.size = 0
        self.base_offset = base_offset
        self.last_offset = base_offset - 1
        self.base_timestamp: int | None = base_timestamp
        self.max_timestamp: int = NO_TIMESTAMP

    @property
    def count(self) -> int:
        return len(self._parts)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Iterable[Header] = (),
        offset: int | None = None,
    ) -> int:
        """Add one record; returns `size`. timestamp: milliseconds since 1970, or -1 for none. offset: the next one
        where None.

        Raises InvalidTimestamp below -1, OffsetsNotMonotonic, InvalidRecord (header key), RecordTooLarge (2 GiB).
        """
        if not NO_TIMESTAMP <= timestamp < INT64_MAX:
            raise bad_timestamp(timestamp)
        if offset is None:
            offset = self.last_offset + 1
        elif offset <= self.last_offset:
            raise not_behind(offset, self.last_offset)
        base_timestamp = timestamp if self.base_timestamp is None else self.base_timestamp
        offset_delta = offset - self.base_offset
        data = encode_record(offset_delta, timestamp - base_timestamp, key, value, headers)
        size = self.size + len(data)
        if offset_delta > INT32_MAX or size > PAYLOAD_BYTES_MAX:
            raise too_large(len(data), offset, self.size, self.base_offset)
        self._parts.append(data)
        self.size, self.last_offset, self.base_timestamp = size, offset, base_timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return size

    def extend(self, records: Iterable[Fields]) -> int:
        """Add records one behind the other; returns `size`. Raises as `append`, with the records before it kept."""
        for key, value, timestamp, headers in records:
            self.append(key, value, timestamp, headers)
        return self.size

    def payload(self) -> bytes:
        """The records as they follow the header of a batch."""
        return b"".join(self._parts)

    def batch(self, head: ByteBuffer) -> bytes:
        """The records, uncompressed, behind a header of 61 bytes, whose checksum is set here."""
        return with_checksum(head, self.payload())


def with_checksum(head: ByteBuffer, payload: ByteBuffer) -> bytes:
    """A batch in one piece. head: its header but for the checksum."""
    whole = bytearray(head)
    _CRC.pack_into(whole, CRC_AT, crc32c(payload, crc32c(memoryview(whole)[ATTRIBUTES_AT:])))
    return b"".join((whole, payload))


def bad_timestamp(timestamp: int) -> InvalidTimestamp:
    """The error for a timestamp that no record has. The last one of 64 bits is none either: behind a record without a
    timestamp, which counts as -1, its delta would not fit."""
    if timestamp > 0:
        return InvalidTimestamp(f"timestamp {timestamp} lies beyond 64 bits: use milliseconds since 1970")
    return InvalidTimestamp(f"timestamp {timestamp} lies before 1970: use milliseconds since then, or -1 for none")


def not_behind(offset: int, last_offset: int) -> OffsetsNotMonotonic:
    """The error for an offset that does not grow."""
    return OffsetsNotMonotonic(f"offset {offset} does not follow {last_offset}: offsets grow within a batch")


def too_large(size: int, offset: int, filled: int, base_offset: int) -> RecordTooLarge:
    """The error for a record that the batch has no room for."""
    return RecordTooLarge(
        f"a record of {size} bytes at offset {offset} does not fit a batch of {HEADER_BYTES + filled} bytes that "
        f"begins at offset {base_offset}: build this batch and begin another"
    )


def damaged_column(what: str, row: int) -> CorruptRecord:
    """The error for an Arrow array whose ends lie outside its bytes."""
    return CorruptRecord(f"row {row} of the column {what} lies outside its bytes: the array is damaged")
