"""What may be appended: the checks of leader and follower, and the leader's stamping. Pure: bytes in, bytes out.

Kept true:
  1. What passes is whole batches whose checksums agree; a partial batch at the end is left out, everything else is
     refused.
  2. A leader's batch leaves with the offsets, epoch and timestamp type of its log; only a new timestamp costs a copy.
  3. A follower's batches leave as they came; their offsets grow and start at or above the log end. Holes are fine.
Left to others: sizes of segments, producers' sequences, and everything that changes a log (log.py).
Source: Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator, as far as headers go; records in depth come
later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage.append_info import LogAppendInfo, Origin
from storage.config import LogConfig
from storage.files import Buffer
from storage.segment import Extent
from tidelog.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    OffsetsNotMonotonic,
    RecordTooLarge,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from tidelog.records.batch import MAGICS, RecordBatch, set_log_append_time, stamp
from tidelog.records.batches import iter_batches
from tidelog.records.header import HEADER_BYTES
from tidelog.types import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Codec,
    LeaderEpoch,
    Millis,
    Offset,
    TimestampType,
)

_STAMPED_BYTES: Final = HEADER_BYTES
"""A leader writes its own copy of the header and the sender's bytes behind it."""


class Prepared(NamedTuple):
    """Batches ready to be written: the buffers to write one behind the other, what they are, and the result so far."""

    buffers: Sequence[Buffer]
    extents: Sequence[Extent]
    info: LogAppendInfo


def prepare_leader(
    records: Buffer,
    config: LogConfig,
    *,
    log_start: Offset,
    log_end: Offset,
    leader_epoch: LeaderEpoch,
    now: Millis,
    origin: Origin,
) -> Prepared | None:
    """Check one batch and give it its place in the log. None where there is no whole batch.

    Raises CorruptRecord, RecordTooLarge, InvalidRecord, InvalidTimestamp, UnsupportedVersion,
    UnsupportedForMessageFormat.
    """
    batches = list(iter_batches(records))
    if not batches:
        return None
    if len(batches) > 1:
        raise InvalidRecord(
            f"{len(batches)} batches in one append: a producer sends exactly one batch per partition at a time"
        )
    batch = batches[0]
    header = batch.header
    _ensure_v2(batch)
    if header.size > config.max_message_bytes:
        raise RecordTooLarge(
            f"the batch has {header.size} bytes, the topic's max.message.bytes allows {config.max_message_bytes}: "
            "send smaller batches or raise the limit"
        )
    batch.ensure_valid()
    if origin is Origin.CLIENT:
        _check_client(batch, config, now)
    log_append_time = NO_TIMESTAMP
    max_timestamp = header.max_timestamp
    view = memoryview(records)[header.position : header.end]
    if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
        log_append_time = max_timestamp = now
        head = bytearray(view)
        set_log_append_time(head, 0, now)
        buffers: list[Buffer] = [head]
    else:
        head = bytearray(view[:_STAMPED_BYTES])
        buffers = [head, view[_STAMPED_BYTES:]]
    stamp(head, 0, base_offset=log_end, leader_epoch=leader_epoch)
    last_offset = Offset(log_end + header.last_offset_delta)
    codec = batch.codec
    info = LogAppendInfo(
        log_end,
        last_offset,
        leader_epoch,
        max_timestamp,
        last_offset,
        log_append_time,
        log_start,
        codec,
        codec,
        1,
        batch.count,
        header.size,
    )
    return Prepared(buffers, (Extent(log_end, last_offset, header.size, max_timestamp, leader_epoch),), info)


def _ensure_v2(batch: RecordBatch) -> None:
    if batch.magic not in MAGICS:
        raise UnsupportedForMessageFormat(
            f"the batch at offset {batch.header.base_offset} has message format v{batch.magic}, logs of this version "
            "hold v2: send record batches of magic 2"
        )


def _check_client(batch: RecordBatch, config: LogConfig, now: Millis) -> None:
    """What only a producer can do wrong. Source: Kafka's LogValidator.validateBatch."""
    header = batch.header
    if header.base_offset != 0:
        raise InvalidRecord(
            f"the batch's base offset is {header.base_offset}, a producer sends 0: the leader gives offsets"
        )
    if batch.count <= 0 or batch.count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"the batch declares {batch.count} records over a last offset delta of {header.last_offset_delta}: "
            "a producer's batch has records, and an offset for each"
        )
    if batch.is_control:
        raise InvalidRecord("the batch is a control batch: only nodes write those")
    if batch.is_transactional or header.producer_id != NO_PRODUCER_ID:
        raise UnsupportedVersion(
            f"the batch comes from the idempotent or transactional producer {header.producer_id}, which this version "
            "does not support yet: send it with producer id -1 (enable_idempotence off)"
        )
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestamp(
            "the batch says that it has log append time: only the leader gives that, send creation time"
        )
    if (
        config.timestamp_type is TimestampType.CREATE_TIME
        and header.max_timestamp - now > config.timestamp_after_ms_max
    ):
        raise InvalidTimestamp(
            f"the batch has timestamp {header.max_timestamp}, more than message.timestamp.after.max.ms = "
            f"{config.timestamp_after_ms_max} ahead of the node's clock ({now}): check the sender's clock"
        )


def prepare_follower(
    records: Buffer, *, log_start: Offset, log_end: Offset, last_epoch: LeaderEpoch
) -> Prepared | None:
    """Check batches that a leader has stamped. last_epoch: of the log's last record. None where there is no whole
    batch.

    Raises CorruptRecord, OffsetsNotMonotonic, UnsupportedForMessageFormat.
    """
    extents: list[Extent] = []
    next_offset, epoch = log_end, last_epoch
    max_timestamp, max_offset = NO_TIMESTAMP, Offset(-1)
    source, count, size = Codec.NONE, 0, 0
    for batch in iter_batches(records):
        header = batch.header
        _ensure_v2(batch)
        batch.ensure_valid()
        if header.base_offset < next_offset:
            raise OffsetsNotMonotonic(_not_growing(header.base_offset, next_offset, log_end))
        if header.leader_epoch < epoch:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, but epoch {epoch} "
                "came before it: fetch it again"
            )
        last_offset = header.last_offset
        extents.append(Extent(header.base_offset, last_offset, header.size, header.max_timestamp, header.leader_epoch))
        if header.max_timestamp > max_timestamp:
            max_timestamp, max_offset = header.max_timestamp, last_offset
        codec = batch.codec
        if codec is not Codec.NONE:
            source = codec
        count += batch.count
        size += header.size
        next_offset, epoch = Offset(last_offset + 1), header.leader_epoch
    if not extents:
        return None
    info = LogAppendInfo(
        extents[0].base_offset,
        extents[-1].last_offset,
        extents[-1].leader_epoch,
        max_timestamp,
        max_offset,
        NO_TIMESTAMP,
        log_start,
        source,
        source,
        len(extents),
        count,
        size,
    )
    return Prepared([records if size == len(records) else memoryview(records)[:size]], extents, info)


def _not_growing(base_offset: int, next_offset: int, log_end: int) -> str:
    if base_offset < log_end:
        return f"a batch starts at offset {base_offset}, below the log end {log_end}: fetch from the log end"
    return f"a batch starts at offset {base_offset}, the one before it reaches to {next_offset - 1}: fetch it again"
