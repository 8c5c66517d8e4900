"""Builds a record batch v2 from records, byte for byte as Kafka's Java producer does.

The base timestamp is that of the first record, or the delete horizon where there is one; deltas, counts and the largest
timestamp follow from what is appended; records are compressed as a whole when the batch is built. A cleaner, which
leaves records out, keeps the batch's span of offsets, and a batch from which all are gone keeps its header:
`empty_batch`.
Kept true: what is built passes `RecordBatch.ensure_valid` and reads back to what was appended.
Left to others: when a batch is full (the producer), its place in the log (`stamp`).
Source: KIP-98, KIP-534 (delete horizon); Kafka's MemoryRecordsBuilder and DefaultRecordBatch.writeEmptyHeader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.errors import InvalidRequest, InvalidTimestamp, OffsetsNotMonotonic, RecordTooLarge
from tidelog.records.batch import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    RecordBatch,
)
from tidelog.records.checksum import crc32c
from tidelog.records.compression import checked_level, compress
from tidelog.records.header import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LENGTH_MIN, BatchHeader
from tidelog.records.record import Header, Record, encode_record
from tidelog.records.varint import INT32_MAX
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Codec, TimestampType

MAGIC: Final = 2
RECORD_OVERHEAD_MAX: Final = 36
"""Most bytes of a record beside key, value and headers: attributes 1, timestamp 10, five numbers of 5."""
HEADER_OVERHEAD_MAX: Final = 10
_FIELDS_BEHIND_ATTRIBUTES: Final = BatchHeader._fields.index("attributes") + 1
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

    level: of the codec, its default where None. With LOG_APPEND_TIME readers see log_append_time on every record, or
    the largest appended timestamp where that is None. leader_epoch and base_offset are stamped by the leader; a
    producer leaves them. delete_horizon_ms and last_offset (the span's end, whatever was appended) are the cleaner's.
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
        log_append_time: int | None = None,
        delete_horizon_ms: int | None = None,
        last_offset: int | None = None,
    ) -> None:
        if timestamp_type is TimestampType.NO_TIMESTAMP_TYPE:
            raise InvalidRequest("a record batch v2 has a timestamp type: create time or log append time")
        if log_append_time is not None and timestamp_type is not TimestampType.LOG_APPEND_TIME:
            raise InvalidRequest("a log append time was given for a batch with create time: choose one")
        if delete_horizon_ms is not None and delete_horizon_ms < 0:
            raise InvalidTimestamp(f"delete horizon {delete_horizon_ms} lies before 1970: leave it out for none")
        checked_level(codec, level)
        self._codec, self._level = codec, level
        self._base_offset, self._leader_epoch = base_offset, leader_epoch
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._attributes = (
            codec
            | timestamp_type << 3
            | (TRANSACTIONAL_BIT if is_transactional else 0)
            | (CONTROL_BIT if is_control else 0)
            | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
        )
        self._log_append_time, self._delete_horizon, self._span_end = log_append_time, delete_horizon_ms, last_offset
        self._parts: list[bytes] = []
        self._size = HEADER_BYTES
        self._last_offset = base_offset - 1
        self._base_timestamp: int = NO_TIMESTAMP
        self._max_timestamp: int = NO_TIMESTAMP

    @property
    def count(self) -> int:
        """Records appended so far."""
        return len(self._parts)

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
            raise InvalidTimestamp(
                f"timestamp {timestamp} lies before 1970: use milliseconds since then, or -1 for none"
            )
        if offset is None:
            offset = self._last_offset + 1
        elif offset <= self._last_offset:
            raise OffsetsNotMonotonic(
                f"offset {offset} does not follow {self._last_offset}: offsets grow within a batch"
            )
        offset_delta = offset - self._base_offset
        base_timestamp = self._base_timestamp
        if not self._parts:
            base_timestamp = timestamp if self._delete_horizon is None else self._delete_horizon
        data = encode_record(offset_delta, timestamp - base_timestamp, key, value, headers)
        if offset_delta > INT32_MAX or self._size + len(data) > INT32_MAX:
            raise RecordTooLarge(
                f"a record of {len(data)} bytes at offset {offset} does not fit a batch of {self._size} bytes that "
                f"begins at offset {self._base_offset}: build this batch and begin another"
            )
        self._parts.append(data)
        self._size += len(data)
        self._last_offset, self._base_timestamp = offset, base_timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)

    def build(self) -> bytes:
        """The whole batch. May be called again, with more records appended in between.

        Raises InvalidRequest without a record, OffsetsNotMonotonic where the span ends before the last one,
        UnsupportedCompressionType where the codec's library is missing.
        """
        if not self._parts:
            raise InvalidRequest("a batch needs at least one record: append one first")
        last_offset = self._last_offset if self._span_end is None else self._span_end
        if not 0 <= last_offset - self._last_offset <= INT32_MAX - (self._last_offset - self._base_offset):
            raise OffsetsNotMonotonic(
                f"a batch cannot end at offset {last_offset}: it begins at {self._base_offset} and holds a record at "
                f"{self._last_offset}"
            )
        records = b"".join(self._parts)
        if self._codec is not Codec.NONE:
            records = compress(self._codec, records, self._level)
        stamped = self._log_append_time is not None
        return _assembled(
            records,
            base_offset=self._base_offset,
            leader_epoch=self._leader_epoch,
            fields=(
                self._attributes,
                last_offset - self._base_offset,
                self._base_timestamp,
                self._log_append_time if stamped else self._max_timestamp,
                *self._producer,
                len(self._parts),
            ),
        )


def _assembled(records: bytes, *, base_offset: int, leader_epoch: int, fields: tuple[int | None, ...]) -> bytes:
    """Header and payload in one piece. fields: those of the header behind the checksum."""
    out = bytearray(HEADER_BYTES + len(records))
    out[HEADER_BYTES:] = records
    length = LENGTH_MIN + len(records)
    HEADER.pack_into(out, 0, base_offset, length, leader_epoch, MAGIC, 0, *fields)
    crc = crc32c(memoryview(out)[ATTRIBUTES_AT:])
    HEADER.pack_into(out, 0, base_offset, length, leader_epoch, MAGIC, crc, *fields)
    return bytes(out)


def empty_batch(batch: RecordBatch) -> bytes:
    """What the cleaner leaves of a batch all of whose records are gone, where its producer's last sequence or the log's
    last offset hangs on it: the header alone, without codec and base timestamp.

    Raises OffsetsNotMonotonic for a batch that spans no offsets.
    """
    if batch.last_offset < batch.base_offset:
        raise OffsetsNotMonotonic(f"the batch at offset {batch.base_offset} ends at {batch.last_offset}: it is damaged")
    attributes = batch.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return _assembled(
        b"",
        base_offset=batch.base_offset,
        leader_epoch=batch.partition_leader_epoch,
        fields=(
            attributes,
            batch.last_offset - batch.base_offset,
            NO_TIMESTAMP,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            0,
        ),
    )


def recompressed(batch: RecordBatch, data: bytes, codec: Codec, level: int | None = None) -> bytes:
    """The batch in another codec, all else as it is. data: its records, uncompressed.

    Raises InvalidConfig for a level that the codec does not have, UnsupportedCompressionType where its library is
    missing.
    """
    header = batch.header
    return _assembled(
        compress(codec, data, level),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        fields=(header.attributes & ~CODEC_BITS | codec, *header[_FIELDS_BEHIND_ATTRIBUTES:]),
    )


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
    log_append_time: int | None = None,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
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
        log_append_time=log_append_time,
        delete_horizon_ms=delete_horizon_ms,
        last_offset=last_offset,
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
