"""Collects the uncompressed records of one batch: the pure-Python reference of the compiled encoder.

Invariants: `size` is exact after every record; a rejected `append` leaves nothing behind; offsets increase.
Not here: header, checksum and compression (builder.py).
Source: KIP-98; KIP-534 (a delete horizon replaces the base timestamp).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeAlias

from tidelog.errors import CorruptRecord, InvalidTimestamp, OffsetsNotMonotonic, RecordTooLarge
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.header import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES
from tidelog.records.v2.record import Header, encode_record
from tidelog.types import INT32_MAX, INT64_MAX, NO_TIMESTAMP, Buffer

Fields: TypeAlias = tuple[bytes | None, bytes | None, int, Iterable[Header]]
"""A producer's record: key, value, timestamp, headers."""
_CRC: Final = Struct(">I")
PAYLOAD_BYTES_MAX: Final = INT32_MAX - HEADER_BYTES


class RecordsBuffer:
    """Encodes record by record. base_timestamp: None for that of the first record.

    count: number of records. size: their bytes. last_offset: of the last record. max_timestamp: the largest, -1 before
    the first record. base_timestamp: base of the deltas, -1 until it is set.
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
        """Append one record; return `size`. timestamp: milliseconds since 1970, or -1 for none. offset: None for the
        next one.

        Raises InvalidTimestamp below -1, OffsetsNotMonotonic, InvalidRecord (header key), RecordTooLarge (2 GiB).
        """
        if not NO_TIMESTAMP <= timestamp <= TIMESTAMP_MS_MAX:
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
        """Append records; return `size`. Raises as `append`; earlier records are kept."""
        for key, value, timestamp, headers in records:
            self.append(key, value, timestamp, headers)
        return self.size

    def payload(self) -> bytes:
        """Return the records as they follow the header of a batch."""
        return b"".join(self._parts)

    def batch(self, head: Buffer) -> bytes:
        """Return the uncompressed records behind a header of 61 bytes, whose checksum is set here."""
        return with_checksum(head, self.payload())


def with_checksum(head: Buffer, payload: Buffer) -> bytes:
    """Return a batch in one piece. head: its header without the checksum."""
    whole = bytearray(head)
    _CRC.pack_into(whole, CRC_AT, crc32c(payload, crc32c(memoryview(whole)[ATTRIBUTES_AT:])))
    return b"".join((whole, payload))


TIMESTAMP_MS_MAX: Final = INT64_MAX - 1
"""The largest timestamp that can be written, see `bad_timestamp`."""


def bad_timestamp(timestamp: int) -> InvalidTimestamp:
    """Return the error for an invalid timestamp. The largest 64-bit number is invalid too: after a record without a
    timestamp, which counts as -1, its delta would not fit."""
    if timestamp > 0:
        return InvalidTimestamp(f"timestamp {timestamp} exceeds 64 bits: use milliseconds since 1970")
    return InvalidTimestamp(f"timestamp {timestamp} is before 1970: use milliseconds since 1970, or -1 for none")


def not_behind(offset: int, last_offset: int) -> OffsetsNotMonotonic:
    """Return the error for an offset that does not increase."""
    return OffsetsNotMonotonic(f"offset {offset} does not follow {last_offset}: offsets must increase within a batch")


def too_large(size: int, offset: int, filled: int, base_offset: int) -> RecordTooLarge:
    """Return the error for a record that does not fit into the batch."""
    return RecordTooLarge(
        f"a record of {size} bytes at offset {offset} does not fit into a batch of {HEADER_BYTES + filled} bytes that "
        f"starts at offset {base_offset}: build this batch and start another"
    )


def damaged_column(what: str, row: int) -> CorruptRecord:
    """Return the error for an Arrow array whose ends are outside its bytes."""
    return CorruptRecord(f"row {row} of the column {what} is outside its bytes: the array is corrupt")
