"""Builds v2 record batches, byte for byte like Kafka's Java producer.

The base timestamp is that of the first record, or the delete horizon if there is one. Deltas, counts and the largest
timestamp follow from the appended records, which are compressed together when the batch is built. A cleaner that
removes records keeps the batch's range of offsets; a batch without remaining records keeps its header (`empty_batch`).
Invariants: the result passes `RecordBatch.ensure_valid` and decodes to the appended records.
Not here: when a batch is full (client/accumulator.py), its offset and leader epoch (`stamp`).
Source: KIP-98, KIP-534 (delete horizon); Kafka's MemoryRecordsBuilder and DefaultRecordBatch.writeEmptyHeader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.errors import InvalidRequest, InvalidTimestamp, OffsetsNotMonotonic
from tidelog.records.v2.batch import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    RecordBatch,
)
from tidelog.records.v2.compression import checked_level, compress
from tidelog.records.v2.fast_paths import RecordsBuffer
from tidelog.records.v2.header import HEADER, LENGTH_MIN, BatchHeader
from tidelog.records.v2.record import Header, Record
from tidelog.records.v2.records_buffer import Fields, with_checksum
from tidelog.types import INT32_MAX, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Codec, TimestampType

MAGIC: Final = 2
_FIELDS_BEHIND_ATTRIBUTES: Final = BatchHeader._fields.index("attributes") + 1


class RecordBatchBuilder:
    """One batch under construction. A rejected `append` leaves nothing behind.

    level: of the codec; None for its default. log_append_time: with LOG_APPEND_TIME, the timestamp of every record;
    None for the largest appended timestamp. leader_epoch, base_offset: set later by the leader; a producer omits them.
    delete_horizon_ms, last_offset (the end of the range, regardless of the records): used by the cleaner.
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
            raise InvalidRequest("a record batch v2 needs a timestamp type: create time or log append time")
        if log_append_time is not None and timestamp_type is not TimestampType.LOG_APPEND_TIME:
            raise InvalidRequest("log append time was given for a batch with create time: choose one")
        if delete_horizon_ms is not None and delete_horizon_ms < 0:
            raise InvalidTimestamp(f"delete horizon {delete_horizon_ms} is before 1970: omit it for none")
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
        self._log_append_time, self._span_end = log_append_time, last_offset
        self.records = RecordsBuffer(base_offset, delete_horizon_ms)

    @property
    def count(self) -> int:
        """Number of records appended so far."""
        return self.records.count

    def append(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Iterable[Header] = (),
        offset: int | None = None,
    ) -> None:
        """Append one record. timestamp: milliseconds since 1970, or -1 for none. offset: None for the next one.

        Raises InvalidTimestamp below -1, OffsetsNotMonotonic, InvalidRecord (header key), RecordTooLarge (2 GiB).
        """
        self.records.append(key, value, timestamp, headers, offset)

    def extend(self, records: Iterable[Fields]) -> None:
        """Append records given as (key, value, timestamp, headers). Raises as `append`; records before the rejected one
        are kept."""
        self.records.extend(records)

    def build(self) -> bytes:
        """Return the encoded batch. May be called again after more appends.

        Raises InvalidRequest without a record, OffsetsNotMonotonic if the range ends before the last record,
        UnsupportedCompressionType if the codec's library is missing.
        """
        if not self.records.count:
            raise InvalidRequest("a batch needs at least one record: append one first")
        last_record = self.records.last_offset
        last_offset = last_record if self._span_end is None else self._span_end
        if not 0 <= last_offset - last_record <= INT32_MAX - (last_record - self._base_offset):
            raise OffsetsNotMonotonic(
                f"a batch cannot end at offset {last_offset}: it starts at {self._base_offset} and has a record at "
                f"{last_record}"
            )
        stamped = self._log_append_time is not None
        fields = (
            self._attributes,
            last_offset - self._base_offset,
            self.records.base_timestamp,
            self._log_append_time if stamped else self.records.max_timestamp,
            *self._producer,
            self.records.count,
        )
        if self._codec is Codec.NONE:
            return self.records.batch(_head(self.records.size, self._base_offset, self._leader_epoch, fields))
        with memoryview(self.records.payload()) as payload:
            records = compress(self._codec, payload, self._level)
        return _assembled(records, self._base_offset, self._leader_epoch, fields)


def _head(size: int, base_offset: int, leader_epoch: int, fields: tuple[int | None, ...]) -> bytes:
    """Return a header without its checksum. size: bytes of the records. fields: those after the checksum."""
    return HEADER.pack(base_offset, LENGTH_MIN + size, leader_epoch, MAGIC, 0, *fields)


def _assembled(records: bytes, base_offset: int, leader_epoch: int, fields: tuple[int | None, ...]) -> bytes:
    """Return header and records in one piece."""
    return with_checksum(_head(len(records), base_offset, leader_epoch, fields), records)


def empty_batch(batch: RecordBatch) -> bytes:
    """Return a batch without records: the header alone, without codec and base timestamp. The cleaner keeps it if the
    producer's last sequence or the log's last offset depends on it.

    Raises OffsetsNotMonotonic for a batch with an empty range of offsets.
    """
    if batch.last_offset < batch.base_offset:
        raise OffsetsNotMonotonic(f"the batch at offset {batch.base_offset} ends at {batch.last_offset}: it is corrupt")
    attributes = batch.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return _assembled(
        b"",
        batch.base_offset,
        batch.partition_leader_epoch,
        (
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


def recompressed(batch: RecordBatch, data: bytes | memoryview, codec: Codec, level: int | None = None) -> bytes:
    """Return the batch in another codec, otherwise unchanged. data: its records, uncompressed.

    Raises InvalidConfig for a level that the codec does not have, UnsupportedCompressionType if its library is missing.
    """
    header = batch.header
    return _assembled(
        compress(codec, data, level),
        header.base_offset,
        header.leader_epoch,
        (header.attributes & ~CODEC_BITS | codec, *header[_FIELDS_BEHIND_ATTRIBUTES:]),
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
    """Return one batch of these records with their offsets. base_offset: None for that of the first record.

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
