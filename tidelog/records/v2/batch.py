"""A record batch v2 as a view over a buffer: read its header, check it, stamp it, iterate its records; copy nothing.

Kept true:
  1. Reading a header touches 61 bytes; key and value bytes are copied only when records are asked for.
  2. `ensure_valid` is the one place where bytes from outside become a batch that may be believed.
  3. `stamp` changes only what the checksum leaves out, so it needs no new one; `set_log_append_time` computes it anew.
Left to others: rules of a topic (storage and the leader's validation), offsets growing from batch to batch (storage).
Source: KIP-98, KIP-32, KIP-534 (delete horizon); Kafka's DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from tidelog.errors import CorruptRecord, UnsupportedCompressionType, UnsupportedForMessageFormat
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.compression import DECOMPRESSED_BYTES_MAX, decompress
from tidelog.records.v2.fast_paths import decode_records, record_list
from tidelog.records.v2.header import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    BatchHeader,
    ByteBuffer,
    header_problem,
    read_header,
)
from tidelog.records.v2.record import Record
from tidelog.records.v2.varint import INT32_MAX
from tidelog.types import NO_SEQUENCE, Codec, LeaderEpoch, Millis, Offset, ProducerId, TimestampType

CODEC_BITS: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40


CODECS: Final = tuple(Codec)
"""By number: less time than a call of the enumeration."""
MAGICS: Final = frozenset({2})


class RecordBatch:
    """One batch within a buffer. It keeps a reference to the buffer: valid as long as those bytes do not change.

    Its properties are those of a batch of any format; `LegacyRecordBatch` is the one that v0 and v1 have, and
    `batches.view` chooses. Raises CorruptRecord where the buffer holds no whole batch at `position`,
    UnsupportedForMessageFormat for one of another format.
    """

    __slots__ = ("_data", "header")

    _magics = MAGICS

    header: BatchHeader
    """All header fields at once, as read when the view was made; `header.position` is where the batch starts."""

    def __init__(self, buffer: ByteBuffer, position: int = 0, *, header: BatchHeader | None = None) -> None:
        """header: what `walk_headers` said about this very position, where the caller has it already."""
        self._data = buffer
        self.header = header if header is not None else read_header(buffer, position)
        if self.header.magic not in self._magics:
            raise UnsupportedForMessageFormat(
                f"the batch at byte {self.header.position}, offset {self.header.base_offset}, is of format "
                f"v{self.header.magic}: read it through iter_batches, which knows all formats"
            )

    def __repr__(self) -> str:
        return f"RecordBatch(offsets {self.base_offset}..{self.last_offset}, {self.count} records, {self.size} bytes)"

    @property
    def buffer(self) -> memoryview:
        """Exactly this batch's bytes, no copy."""
        return memoryview(self._data)[self.header.position : self.header.end]

    @property
    def position(self) -> int:
        """Where the batch starts in the buffer that it was made from."""
        return self.header.position

    @property
    def size(self) -> int:
        """Bytes of the whole batch, the 12 of offset and length included."""
        return self.header.size

    @property
    def base_offset(self) -> Offset:
        return self.header.base_offset

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, or of the last one there was before compaction."""
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
        """The checksum as stored."""
        return self.header.crc

    @property
    def attributes(self) -> int:
        return self.header.attributes

    @property
    def codec(self) -> Codec:
        """Raises UnsupportedCompressionType for a number that names no codec of the format."""
        number = self.header.attributes & CODEC_BITS
        try:
            return CODECS[number]
        except IndexError as error:
            raise UnsupportedCompressionType(
                f"the batch at offset {self.header.base_offset} names codec {number}, which is none: "
                f"known are {', '.join(f'{codec.value} ({codec.name.lower()})' for codec in Codec)}"
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
        """When the cleaner may drop the batch's tombstones or marker; it then takes the base timestamp's place
        (KIP-534)."""
        return self.header.base_timestamp if self.header.attributes & DELETE_HORIZON_BIT else None

    @property
    def base_timestamp(self) -> Millis:
        """What the records' timestamp deltas are added to."""
        return self.header.base_timestamp

    @property
    def max_timestamp(self) -> Millis:
        """Largest timestamp of the records; with log append time, the timestamp of each."""
        return self.header.max_timestamp

    @property
    def producer_id(self) -> ProducerId:
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        """Sequence of the first record, -1 where the producer numbers none."""
        return self.header.base_sequence

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record: counted with the offsets, and back to 0 behind 2**31 - 1."""
        base = self.header.base_sequence
        if base == NO_SEQUENCE:
            return NO_SEQUENCE
        return (base + self.header.last_offset_delta) & INT32_MAX

    @property
    def count(self) -> int:
        """How many records the batch holds; compaction may leave fewer than its offsets span, even none."""
        return self.header.record_count

    def computed_crc(self) -> int:
        """The checksum of the bytes as they are."""
        header = self.header
        position = header.position
        return crc32c(memoryview(self._data)[position + ATTRIBUTES_AT : position + LOG_OVERHEAD + header.length])

    def ensure_valid(self) -> None:
        """Check what a header alone allows to check, then the checksum: what comes from outside is believed only after
        this.

        Raises CorruptRecord, or UnsupportedCompressionType for an unknown codec under a right checksum.
        Source: Kafka's DefaultRecordBatch.ensureValid; the count as its LogValidator checks it, loosened for compacted
        batches.
        """
        header = self.header
        computed = self.computed_crc()
        if computed != header.crc:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} has checksum {computed:#010x}, its header says "
                f"{header.crc:#010x}: its bytes were damaged on the way or on disk; fetch or send it again"
            )
        problem = header_problem(header)
        if problem is not None:
            raise CorruptRecord(f"the batch at offset {header.base_offset} {problem}: its writer is faulty")
        count, delta = header.record_count, header.last_offset_delta
        if not 0 <= count <= delta + 1:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} declares {count} records over a last offset delta of "
                f"{delta}: no such batch can be; its writer is faulty"
            )
        if self.codec is Codec.NONE and count == 0 and header.size != HEADER_BYTES:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} declares no records, but {header.size - HEADER_BYTES} bytes "
                "follow its header; its writer is faulty"
            )

    def records(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """The records in order. Does not check the CRC: that is `ensure_valid`.

        max_bytes: most bytes that the records may take when decompressed.
        Raises CorruptRecord for bytes that are no records, RecordTooLarge beyond max_bytes, UnsupportedCompressionType
        for a codec that is unknown or not installed.
        """
        header = self.header
        return decode_records(
            self.payload(max_bytes=max_bytes),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            self.append_time,
        )

    def record_list(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
        """All records at once, in less time than one by one. Raises as `records`."""
        header = self.header
        return record_list(
            self.payload(max_bytes=max_bytes),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            self.append_time,
        )

    @property
    def append_time(self) -> Millis | None:
        """The timestamp of every record where the broker's clock counts, else None."""
        return self.header.max_timestamp if self.header.attributes & TIMESTAMP_TYPE_BIT else None

    def payload(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes | memoryview:
        """The records as bytes, decompressed; a view of the buffer where they are not compressed. Raises as `records`,
        for a negative number of records too."""
        header = self.header
        if header.record_count < 0:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} declares {header.record_count} records: it is damaged"
            )
        position = header.position
        data = memoryview(self._data)[position + HEADER_BYTES : position + LOG_OVERHEAD + header.length]
        if not header.attributes & CODEC_BITS:
            return data
        return decompress(self.codec, data, max_bytes)


def stamp(buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Give the v2 batch at `position` its place in the log, in place: the checksum leaves these two fields out.

    Raises UnsupportedForMessageFormat, with nothing changed, for a v0 or v1 message (`message_set.stamp_message`).
    """
    _ensure_v2(buffer, position)
    struct.pack_into(">q", buffer, position + BASE_OFFSET_AT, base_offset)
    struct.pack_into(">i", buffer, position + LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, position: int, timestamp: int) -> None:
    """Make `timestamp` that of every record of the v2 batch at `position`, in place, and compute its checksum anew.

    The records keep their own timestamps in their bytes; readers go by the header (KIP-32).
    """
    set_max_timestamp(buffer, position, TimestampType.LOG_APPEND_TIME, timestamp)


def set_max_timestamp(
    buffer: bytearray | memoryview, position: int, timestamp_type: TimestampType, timestamp: int
) -> None:
    """Set type and largest timestamp of the v2 batch at `position`, in place. Only where that changes something is the
    checksum computed anew.

    Raises UnsupportedForMessageFormat, with nothing changed, for a v0 or v1 message
    (`message_set.set_message_timestamp`).
    """
    _ensure_v2(buffer, position)
    header = read_header(buffer, position)
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT | timestamp_type << 3
    if (attributes, timestamp) == (header.attributes, header.max_timestamp):
        return
    struct.pack_into(">h", buffer, position + ATTRIBUTES_AT, attributes)
    struct.pack_into(">q", buffer, position + MAX_TIMESTAMP_AT, timestamp)
    struct.pack_into(">I", buffer, position + CRC_AT, crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : header.end]))


def stamped_header(
    header: BatchHeader,
    payload: ByteBuffer,
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> BatchHeader:
    """The header of a v2 batch with its place in the log and its largest timestamp: what `stamp` and
    `set_max_timestamp` make of it, for a batch whose bytes must stay as they are. payload: what follows the header.
    """
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT | timestamp_type << 3
    fields = list(header)
    fields[1], fields[3] = base_offset, leader_epoch
    if (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
        fields[6], fields[9] = attributes, max_timestamp
        fields[5] = crc32c(payload, crc32c(memoryview(HEADER.pack(*fields[1:]))[ATTRIBUTES_AT:]))
    made: BatchHeader = tuple.__new__(BatchHeader, fields)
    return made


def _ensure_v2(buffer: ByteBuffer, position: int) -> None:
    """Where v2 has its leader epoch and its timestamps, a v0 or v1 message has other fields."""
    magic = buffer[position + MAGIC_AT]
    if magic != 2:
        raise UnsupportedForMessageFormat(f"the batch at byte {position} is of format v{magic}: only v2 is stamped so")
