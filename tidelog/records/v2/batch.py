"""A v2 record batch as a view over a buffer: reads and verifies the header, stamps it, iterates the records.

Invariants:
  1. Reading a header touches 61 bytes; key and value bytes are copied only when records are requested.
  2. `ensure_valid` is the only check that makes external bytes trustworthy.
  3. `stamp` changes only fields that the checksum does not cover; `stamped_header` computes the checksum again.
Not here: rules of a topic (producible.py, assignment.py), the order of batches (storage/log).
Source: KIP-98, KIP-32, KIP-534 (delete horizon); Kafka's DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from tidelog.errors import CorruptRecord, UnsupportedCompressionType, UnsupportedForMessageFormat
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.compression import DECOMPRESSED_BYTES_MAX, decompress
from tidelog.records.v2.fast_paths import decode_records, located_records, record_list
from tidelog.records.v2.header import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    PRODUCER_AT,
    BatchHeader,
    header_problem,
    read_header,
)
from tidelog.records.v2.record import Located, Record
from tidelog.types import INT32_MAX, NO_SEQUENCE, Buffer, Codec, LeaderEpoch, Millis, Offset, ProducerId, TimestampType

CODEC_BITS: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40


CODECS: Final = tuple(Codec)
"""Lookup by number; faster than calling the enumeration."""
MAGICS: Final = frozenset({2})


class RecordBatch:
    """One batch within a buffer. It keeps a reference to the buffer and is valid while those bytes do not change.

    The properties exist for batches of any format; `LegacyRecordBatch` is the subclass for v0 and v1, and
    `batches.view` chooses. Raises CorruptRecord if the buffer has no complete batch at `position`,
    UnsupportedForMessageFormat for a batch of another format.
    """

    __slots__ = ("_data", "header")

    _magics = MAGICS

    header: BatchHeader
    """All header fields, read when the view was created; `header.position` is the start of the batch."""

    def __init__(self, buffer: Buffer, position: int = 0, *, header: BatchHeader | None = None) -> None:
        """header: the result of `walk_headers` for this position, if the caller has it."""
        self._data = buffer
        self.header = header if header is not None else read_header(buffer, position)
        if self.header.magic not in self._magics:
            raise UnsupportedForMessageFormat(
                f"the batch at byte {self.header.position}, offset {self.header.base_offset}, has format "
                f"v{self.header.magic}: read it with iter_batches, which supports all formats"
            )

    def __repr__(self) -> str:
        return f"RecordBatch(offsets {self.base_offset}..{self.last_offset}, {self.count} records, {self.size} bytes)"

    @property
    def buffer(self) -> memoryview:
        """The bytes of this batch, without a copy."""
        return memoryview(self._data)[self.header.position : self.header.end]

    @property
    def position(self) -> int:
        """Start of the batch in its buffer."""
        return self.header.position

    @property
    def size(self) -> int:
        """Size of the whole batch, including the 12 bytes of offset and length."""
        return self.header.size

    @property
    def base_offset(self) -> Offset:
        return self.header.base_offset

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record; after compaction, of the last record before compaction."""
        return self.header.last_offset

    @property
    def next_offset(self) -> Offset:
        return Offset(self.header.last_offset + 1)

    @property
    def last_offset_delta(self) -> int:
        return self.header.last_offset_delta

    @property
    def partition_leader_epoch(self) -> LeaderEpoch:
        return self.header.leader_epoch

    @property
    def magic(self) -> int:
        return self.header.magic

    @property
    def crc(self) -> int:
        """The stored checksum."""
        return self.header.crc

    @property
    def attributes(self) -> int:
        return self.header.attributes

    @property
    def codec(self) -> Codec:
        """The codec. Raises UnsupportedCompressionType for an unknown number."""
        number = self.header.attributes & CODEC_BITS
        try:
            return CODECS[number]
        except IndexError as error:
            raise UnsupportedCompressionType(
                f"the batch at offset {self.header.base_offset} has the unknown codec {number}; "
                f"valid codecs: {', '.join(f'{codec.value} ({codec.name.lower()})' for codec in Codec)}"
            ) from error

    @property
    def timestamp_type(self) -> TimestampType:
        if self.header.attributes & TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.header.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.header.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> Millis | None:
        """Time from which the cleaner may remove the batch's tombstones or marker; stored in place of the base
        timestamp (KIP-534)."""
        return self.header.base_timestamp if self.header.attributes & DELETE_HORIZON_BIT else None

    @property
    def base_timestamp(self) -> Millis:
        """The timestamp to which the records' timestamp deltas are added."""
        return self.header.base_timestamp

    @property
    def max_timestamp(self) -> Millis:
        """Largest timestamp of the records; with log append time, the timestamp of every record."""
        return self.header.max_timestamp

    @property
    def producer_id(self) -> ProducerId:
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        """Sequence of the first record; -1 if the producer does not number its records."""
        return self.header.base_sequence

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record: it increases with the offset, and 0 follows 2**31 - 1."""
        base = self.header.base_sequence
        if base == NO_SEQUENCE:
            return NO_SEQUENCE
        return (base + self.header.last_offset_delta) & INT32_MAX

    @property
    def count(self) -> int:
        """Number of records; after compaction it may be smaller than the range of offsets, even 0."""
        return self.header.record_count

    def computed_crc(self) -> int:
        """The checksum computed from the bytes."""
        header = self.header
        position = header.position
        return crc32c(memoryview(self._data)[position + ATTRIBUTES_AT : position + LOG_OVERHEAD + header.length])

    def ensure_valid(self) -> None:
        """Verify what the header alone can show, then the checksum. External bytes must pass this before they are used.

        Raises CorruptRecord, or UnsupportedCompressionType for an unknown codec with a correct checksum.
        Source: Kafka's DefaultRecordBatch.ensureValid; the record count as in its LogValidator, relaxed for compacted
        batches.
        """
        header = self.header
        computed = self.computed_crc()
        if computed != header.crc:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} has checksum {computed:#010x}, but its header has "
                f"{header.crc:#010x}: its bytes are corrupt; fetch or send it again"
            )
        problem = header_problem(header)
        if problem is not None:
            raise CorruptRecord(f"the batch at offset {header.base_offset} {problem}: its writer is faulty")
        count, delta = header.record_count, header.last_offset_delta
        if not 0 <= count <= delta + 1:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} declares {count} records over a last offset delta of "
                f"{delta}, which is impossible: its writer is faulty"
            )
        if self.codec is Codec.NONE and count == 0 and header.size != HEADER_BYTES:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} declares no records, but {header.size - HEADER_BYTES} bytes "
                "follow its header: its writer is faulty"
            )

    def records(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Yield the records in order. Does not verify the CRC (see `ensure_valid`).

        max_bytes: limit of the decompressed size. Raises CorruptRecord for invalid records, RecordTooLarge beyond
        max_bytes, UnsupportedCompressionType for a codec that is unknown or not installed.
        """
        return decode_records(*self._to_decode(max_bytes))

    def record_list(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
        """Return all records as a list, faster than one by one. Raises as `records`."""
        return record_list(*self._to_decode(max_bytes))

    def located_records(
        self,
        kind: type[Located],
        topic: str,
        partition: int,
        first: int,
        leader_epoch: LeaderEpoch,
        *,
        max_bytes: int = DECOMPRESSED_BYTES_MAX,
    ) -> list[Located]:
        """Return the records from offset `first` on as instances of `kind`. leader_epoch: that of the records; no
        checksum covers the one in the header. Raises as `records`."""
        return located_records(
            *self._to_decode(max_bytes), first, kind, topic, partition, self.timestamp_type, leader_epoch
        )

    def _to_decode(self, max_bytes: int) -> tuple[bytes | memoryview, int, Offset, Millis, Millis | None]:
        header = self.header
        payload = self.payload(max_bytes=max_bytes)
        return payload, header.record_count, header.base_offset, header.base_timestamp, self.append_time

    @property
    def append_time(self) -> Millis | None:
        """The timestamp of every record with log append time, else None."""
        return self.header.max_timestamp if self.header.attributes & TIMESTAMP_TYPE_BIT else None

    def payload(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes | memoryview:
        """Return the decompressed records as bytes; a view of the buffer if they are not compressed. Raises as
        `records`, and CorruptRecord for a negative number of records."""
        header = self.header
        if header.record_count < 0:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} declares {header.record_count} records: it is corrupt"
            )
        position = header.position
        data = memoryview(self._data)[position + HEADER_BYTES : position + LOG_OVERHEAD + header.length]
        if not header.attributes & CODEC_BITS:
            return data
        return decompress(self.codec, data, max_bytes)


def stamp(buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the v2 batch at `position`, in place; the checksum does not cover them.

    Raises UnsupportedForMessageFormat, with nothing changed, for a v0 or v1 message (`message_set.stamp_message`).
    """
    _ensure_v2(buffer, position)
    struct.pack_into(">q", buffer, position + BASE_OFFSET_AT, base_offset)
    struct.pack_into(">i", buffer, position + LEADER_EPOCH_AT, leader_epoch)


def stamped_header(
    header: BatchHeader,
    payload: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> BatchHeader:
    """Return the header of a v2 batch with these values, for a batch whose bytes must not change. payload: the bytes
    after the header. The checksum is computed only if type or timestamp changes."""
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT | timestamp_type << 3
    fields = list(header)
    fields[1], fields[3] = base_offset, leader_epoch
    if (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
        fields[6], fields[9] = attributes, max_timestamp
        fields[5] = crc32c(payload, crc32c(memoryview(HEADER.pack(*fields[1:]))[ATTRIBUTES_AT:]))
    made: BatchHeader = tuple.__new__(BatchHeader, fields)
    return made


def _ensure_v2(buffer: Buffer, position: int) -> None:
    """Raise for a v0 or v1 message, which has other fields at these positions."""
    magic = buffer[position + MAGIC_AT]
    if magic != 2:
        raise UnsupportedForMessageFormat(
            f"the message at byte {position} has format v{magic}, which lacks the fields to be set: only v2 has them"
        )


def set_producer(
    buffer: bytearray | memoryview, position: int, *, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Give the v2 batch at `position` these numbers of its producer, in place, and update its checksum: an idempotent
    producer continues in another epoch (KIP-98, KIP-360).

    Raises UnsupportedForMessageFormat, with nothing changed, for a v0 or v1 message, which has none.
    """
    _ensure_v2(buffer, position)
    end = read_header(buffer, position).end
    struct.pack_into(">qhi", buffer, position + PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    struct.pack_into(">I", buffer, position + CRC_AT, crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end]))
