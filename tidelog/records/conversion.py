"""Conversion between the formats v0, v1 and v2, and what is lost on the way.

A reader that knows only an older format gets the log converted down: headers, timestamps, producers, markers and all
else that the format has no place for is left out, and the result counts it. A writer never drops anything but
timestamps under v0; it refuses instead (assignment.py).
Kept true: each record keeps its offset, key and value; a batch stays a batch, in its codec; what is not counted as
dropped is there.
Source: Kafka's RecordsUtil.downConvert (which drops in silence) and MemoryRecordsBuilder; KIP-31, KIP-32, KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from tidelog.errors import UnsupportedForMessageFormat
from tidelog.records.batch import RecordBatch
from tidelog.records.batches import iter_batches
from tidelog.records.builder import RecordBatchBuilder
from tidelog.records.compression import DECOMPRESSED_BYTES_MAX
from tidelog.records.header import ByteBuffer
from tidelog.records.message_builder import MessageSetBuilder
from tidelog.records.record import Record
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, Offset, TimestampType


@dataclass(frozen=True, slots=True)
class Dropped:
    """How much was left out, by kind; all 0 where nothing was.

    headers, timestamps: records that had some. control_records: markers left out whole. producers, leader_epochs,
    delete_horizons: batches that had one. empty_batches: batches of a cleaned log without a record, left out whole.
    """

    headers: int = 0
    timestamps: int = 0
    control_records: int = 0
    producers: int = 0
    leader_epochs: int = 0
    delete_horizons: int = 0
    empty_batches: int = 0

    def __add__(self, other: Dropped) -> Dropped:
        return Dropped(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __bool__(self) -> bool:
        return any(astuple(self))


@dataclass(frozen=True, slots=True)
class Converted:
    """Batches in another format, and what they lost. record_count: of the records in batches that were converted."""

    records: bytes
    record_count: int
    dropped: Dropped


def convert(buffer: ByteBuffer, magic: int, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Converted:
    """All whole batches of `buffer` in format `magic`, older and newer ones converted.

    max_bytes: most bytes that one batch may take when decompressed. Raises as `RecordBatch.records`, and
    UnsupportedCompressionType for zstd below v2, UnsupportedForMessageFormat for a magic that is none.
    """
    return _converted(buffer, magic, max_bytes, first_offset=Offset(0), keep_older=False)


def down_convert(
    buffer: ByteBuffer, magic: int, *, first_offset: int = 0, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Converted:
    """All whole batches of `buffer` for a reader that knows formats up to `magic`: older ones stay as they are.

    first_offset: where the reader begins; records before it in uncompressed batches are left out, since each becomes a
    message of its own below v2. Raises as `convert`.
    """
    return _converted(buffer, magic, max_bytes, first_offset=Offset(first_offset), keep_older=True)


def _converted(buffer: ByteBuffer, magic: int, max_bytes: int, *, first_offset: Offset, keep_older: bool) -> Converted:
    checked_magic(magic)
    parts: list[bytes] = []
    count, dropped = 0, Dropped()
    for batch in iter_batches(buffer):
        if batch.magic == magic or (keep_older and batch.magic < magic):
            parts.append(bytes(batch.buffer))
            continue
        records = list(batch.records(max_bytes=max_bytes))
        dropped += what_is_lost(batch, records, magic)
        if magic < 2 and batch.is_control:
            continue
        if magic < 2 and batch.codec == 0:
            records = [record for record in records if record.offset >= first_offset]
        if records:
            parts.append(_rebuilt(batch, records, magic))
            count += len(records)
    return Converted(b"".join(parts), count, dropped)


def checked_magic(magic: int) -> int:
    """The magic, if it is one. Raises UnsupportedForMessageFormat."""
    if magic not in (0, 1, 2):
        raise UnsupportedForMessageFormat(f"there is no format v{magic}: v0, v1 and v2 are known")
    return magic


def what_is_lost(batch: RecordBatch, records: Iterable[Record], magic: int) -> Dropped:
    """What of a batch and its records format `magic` has no place for."""
    records = tuple(records)
    if magic >= batch.magic:
        return Dropped()
    timestamps = sum(record.timestamp != NO_TIMESTAMP for record in records) if magic == 0 else 0
    if batch.magic < 2:
        return Dropped(timestamps=timestamps)
    if batch.is_control:
        return Dropped(control_records=len(records))
    if not records:
        return Dropped(empty_batches=1)
    return Dropped(
        headers=sum(bool(record.headers) for record in records),
        timestamps=timestamps,
        producers=int(batch.producer_id != NO_PRODUCER_ID),
        leader_epochs=int(batch.partition_leader_epoch != NO_LEADER_EPOCH),
        delete_horizons=int(batch.delete_horizon_ms is not None),
    )


def _rebuilt(batch: RecordBatch, records: list[Record], magic: int) -> bytes:
    stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME and magic > 0
    timestamp_type = TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME
    append_time = batch.max_timestamp if stamped else None
    builder: MessageSetBuilder | RecordBatchBuilder
    if magic < 2:
        builder = MessageSetBuilder(
            magic,
            batch.codec,
            timestamp_type=timestamp_type,
            log_append_time=append_time,
            base_offset=records[0].offset,
        )
    else:
        builder = RecordBatchBuilder(
            batch.codec, timestamp_type=timestamp_type, log_append_time=append_time, base_offset=records[0].offset
        )
    for record in records:
        builder.append(
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=record.headers if magic == 2 else (),
            offset=record.offset,
        )
    return builder.build()
