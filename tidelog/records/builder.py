"""Builds a record batch v2 from records, byte for byte as Kafka's Java producer does.

The base timestamp is that of the first record; deltas, counts and the largest timestamp follow from what is appended;
records are compressed as a whole when the batch is built.
Kept true: what is built passes `RecordBatch.ensure_valid` and reads back to what was appended.
Left to others: when a batch is full (the producer), its place in the log (`stamp`).
Source: KIP-98; Kafka's MemoryRecordsBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.errors import InvalidRequest, InvalidTimestamp, OffsetsNotMonotonic, RecordTooLarge
from tidelog.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.records.checksum import crc32c
from tidelog.records.compression import checked_level, compress
from tidelog.records.header import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LENGTH_MIN
from tidelog.records.record import Header, Record, Unplaced, encode_record, encode_records
from tidelog.records.varint import INT32_MAX
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Codec, TimestampType

MAGIC: Final = 2
RECORD_OVERHEAD_MAX: Final = 36
"""Most bytes of a record beside key, value and headers: attributes 1, timestamp 10, five numbers of 5."""
HEADER_OVERHEAD_MAX: Final = 10
UTF8_BYTES_MAX: Final = 4
"""Most bytes of a character."""


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Iterable[Header] = ()) -> int:
    """An upper bound, cheap to compute, of what a record adds to an uncompressed batch."""
    size = RECORD_OVERHEAD_MAX + (len(key) if key else 0) + (len(value) if value else 0)
    for name, data in headers:
        size += HEADER_OVERHEAD_MAX + UTF8_BYTES_MAX * len(name) + (len(data) if data else 0)
    return size


class RecordBatchBuilder:
    """One batch in the making. Nothing is kept of what `append` refused.

    level: of the codec, its default where None. With LOG_APPEND_TIME readers see the largest appended timestamp on
    every record. leader_epoch and base_offset are stamped by the leader; a producer leaves them.
    """

    def __init__(
        self,
        codec: Codec = Codec.NONE,
        *,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> None:
        if timestamp_type is TimestampType.NO_TIMESTAMP_TYPE:
            raise InvalidRequest("a record batch v2 has a timestamp type: create time or log append time")
        checked_level(codec, level)
        self._codec, self._level = codec, level
        self._base_offset, self._leader_epoch = base_offset, leader_epoch
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._attributes = (
            codec
            | timestamp_type << 3
            | (TRANSACTIONAL_BIT if is_transactional else 0)
            | (CONTROL_BIT if is_control else 0)
        )
        self._parts: list[bytes] = []
        self._count = 0
        self._size = HEADER_BYTES
        self._last_offset = base_offset - 1
        self._base_timestamp: int = NO_TIMESTAMP
        self._max_timestamp: int = NO_TIMESTAMP

    @property
    def count(self) -> int:
        """Records appended so far."""
        return self._count

    @property
    def estimated_size(self) -> int:
        """Bytes of the batch if it were built now without compression."""
        return self._size

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp appended so far, -1 before the first."""
        return self._max_timestamp

    def append(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Iterable[Header] = (),
        offset: int | None = None,
    ) -> None:
        """Add one record. timestamp: milliseconds since 1970, or -1 for none. offset: the next one where None.

        Raises InvalidTimestamp below -1, OffsetsNotMonotonic, InvalidRecord (header key), RecordTooLarge (2 GiB).
        """
        if timestamp < NO_TIMESTAMP:
            raise _before_1970(timestamp)
        if offset is None:
            offset = self._last_offset + 1
        elif offset <= self._last_offset:
            raise OffsetsNotMonotonic(
                f"offset {offset} does not follow {self._last_offset}: offsets grow within a batch"
            )
        offset_delta = offset - self._base_offset
        base_timestamp = self._base_timestamp if self._count else timestamp
        data = encode_record(offset_delta, timestamp - base_timestamp, key, value, headers)
        if offset_delta > INT32_MAX or self._size + len(data) > INT32_MAX:
            raise RecordTooLarge(
                f"a record of {len(data)} bytes at offset {offset} does not fit a batch of {self._size} bytes that "
                f"begins at offset {self._base_offset}: build this batch and begin another"
            )
        self._parts.append(data)
        self._count += 1
        self._size += len(data)
        self._last_offset, self._base_timestamp = offset, base_timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)

    def extend(self, records: Sequence[Unplaced]) -> None:
        """Add many records, each at the next offset, as `append` would one by one. Raises as that does, and then none
        of them was added."""
        if not records:
            return
        timestamps = [record[2] for record in records]
        if min(timestamps) < NO_TIMESTAMP:
            raise _before_1970(min(timestamps))
        base_timestamp = self._base_timestamp if self._count else timestamps[0]
        first = self._last_offset + 1
        pieces, size = encode_records(records, offset_delta=first - self._base_offset, base_timestamp=base_timestamp)
        last_offset = self._last_offset + len(records)
        if last_offset - self._base_offset > INT32_MAX or self._size + size > INT32_MAX:
            raise RecordTooLarge(
                f"{len(records)} records of {size} bytes at offset {first} do not fit a batch of {self._size} bytes "
                f"that begins at offset {self._base_offset}: build this batch and begin another"
            )
        self._parts += pieces
        self._count += len(records)
        self._size += size
        self._last_offset, self._base_timestamp = last_offset, base_timestamp
        timestamps.append(self._max_timestamp)
        self._max_timestamp = max(timestamps)

    def build(self) -> bytes:
        """The whole batch. May be called again, with more records appended in between.

        Raises InvalidRequest without a record, UnsupportedCompressionType where the codec's library is missing.
        """
        if not self._parts:
            raise InvalidRequest("a batch needs at least one record: append one first")
        parts = self._parts
        if self._codec is not Codec.NONE:
            parts = [compress(self._codec, b"".join(parts), self._level)]
        fields = (
            self._attributes,
            self._last_offset - self._base_offset,
            self._base_timestamp,
            self._max_timestamp,
            *self._producer,
            self._count,
        )
        body = b"".join((HEADER.pack(0, 0, 0, 0, 0, *fields)[ATTRIBUTES_AT:], *parts))  # what the checksum covers
        length = LENGTH_MIN - HEADER_BYTES + ATTRIBUTES_AT + len(body)
        head = HEADER.pack(self._base_offset, length, self._leader_epoch, MAGIC, crc32c(body), *fields)
        return head[:ATTRIBUTES_AT] + body


def _before_1970(timestamp: int) -> InvalidTimestamp:
    return InvalidTimestamp(f"timestamp {timestamp} lies before 1970: use milliseconds since then, or -1 for none")


def build_batch(
    records: Iterable[Record],
    codec: Codec = Codec.NONE,
    *,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    base_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """One batch of these records, offsets as they say. base_offset: that of the first record where None.

    Raises as `RecordBatchBuilder`.
    """
    records = list(records)
    if base_offset is None:
        base_offset = records[0].offset if records else 0
    builder = RecordBatchBuilder(
        codec,
        level=level,
        timestamp_type=timestamp_type,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
    )
    for record in records:
        builder.append(
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=record.headers,
            offset=record.offset,
        )
    return builder.build()
