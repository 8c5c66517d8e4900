"""Validation of appends on leader and follower, and the assignment of offsets on the leader. Pure: bytes in, bytes out.

Invariants:
  1. The result contains only whole batches with correct checksums. A partial batch at the end is dropped; any other
     invalid input is rejected.
  2. On a leader, records leave in the topic's format and codec, with the offsets, epoch and timestamps of the log. If
     nothing else must change, only a header is copied.
  3. On a follower, batches leave unchanged. Their offsets grow and start at or above the log end; holes are allowed.
Not here: how records are checked and rewritten (tidelog.records), segment sizes, producer sequences, changes of a log
(log.py).
Source: Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from storage.append_info import LogAppendInfo, Origin
from storage.log_config import LogConfig
from storage.segment.segment_bases import SPAN_MAX
from tidelog.errors import CorruptRecord, OffsetsNotMonotonic
from tidelog.records.analysis import analyze
from tidelog.records.assignment import AppendRules, Inspected, assign_offsets, inspect
from tidelog.records.batches import batch_at
from tidelog.records.v2.batch import CODEC_BITS, TRANSACTIONAL_BIT, RecordBatch
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.fast_paths import check_records
from tidelog.records.v2.header import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LOG_OVERHEAD, MAGIC_AT, BatchHeader
from tidelog.types import (
    INT64_MAX,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Buffer,
    LeaderEpoch,
    Millis,
    Offset,
    TimestampType,
)

_QUICK_BYTES: Final = 8 << 10
"""Decompressing at most this many bytes takes less time than a switch of threads."""


class Prepared(NamedTuple):
    """Batches ready to be written: their buffers in order, their headers as stored, and the result so far."""

    buffers: Sequence[Buffer]
    headers: Sequence[BatchHeader]
    info: LogAppendInfo

    def batch(self, index: int) -> RecordBatch:
        """One of the batches for inspection; a copy if there are several buffers."""
        data = self.buffers[0] if len(self.buffers) == 1 else b"".join(self.buffers)
        return batch_at(data, sum(header.size for header in self.headers[:index]))


def append_rules(config: LogConfig) -> AppendRules:
    """The requirements for records that follow from a topic's settings."""
    before, after = config.timestamp_before_ms_max, config.timestamp_after_ms_max
    return AppendRules(
        magic=config.magic,
        codec=config.codec,
        level=config.compression_level,
        timestamp_type=config.timestamp_type,
        timestamp_before_max_ms=None if before == INT64_MAX else before,
        timestamp_after_max_ms=None if after == INT64_MAX else after,
        key_required=config.compact,
        batch_bytes_max=config.max_message_bytes,
    )


def takes_time(records: Buffer, rules: AppendRules) -> bool:
    """True if a client's records take so much (de)compression that another thread should inspect them first."""
    if len(records) < _QUICK_BYTES or records[MAGIC_AT] != rules.magic or rules.magic < 2:
        return False
    return bool(records[ATTRIBUTES_AT + 1] & CODEC_BITS or rules.codec)


def is_transactional(records: Buffer) -> bool:
    """True if a client's records are a batch of a transaction, according to its header."""
    return (
        len(records) >= HEADER_BYTES and records[MAGIC_AT] == 2 and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)
    )


def inspect_sent(records: Buffer, rules: AppendRules, now: Millis) -> Inspected | None:
    """The part of an append that needs no log: for a client's records, on any thread. None if there is no whole batch.

    rules: the rules of the log. Raises like `prepare_leader`.
    """
    records = memoryview(records).toreadonly()
    analysis = analyze(records, batch_bytes_max=rules.batch_bytes_max)
    return inspect(records, analysis, rules, now=now) if analysis.batch_count else None


def prepare_leader(
    records: Buffer,
    rules: AppendRules,
    *,
    log_start: Offset,
    log_end: Offset,
    leader_epoch: LeaderEpoch,
    now: Millis,
    origin: Origin,
    inspected: Inspected | None = None,
) -> Prepared | None:
    """Validate records in depth and assign their offsets. None if there is no whole batch.

    inspected: the result of `inspect_sent`; ignored if the rules have changed since.

    Raises CorruptRecord, RecordTooLarge, InvalidRecord, InvalidTimestamp, UnsupportedForMessageFormat,
    UnsupportedCompressionType.
    """
    if inspected is None and origin is not Origin.COORDINATOR:
        usual = _prepare_usual(records, rules, log_start=log_start, log_end=log_end, leader_epoch=leader_epoch, now=now)
        if usual is not None:
            return usual
    records = memoryview(records).toreadonly()  # the sender's bytes stay unchanged
    if inspected is not None and inspected.rules is rules:
        analysis = inspected.analysis
    else:
        analysis, inspected = analyze(records, batch_bytes_max=rules.batch_bytes_max), None
    if not analysis.batch_count:
        return None
    assigned = assign_offsets(
        records,
        analysis,
        rules,
        first_offset=log_end,
        leader_epoch=leader_epoch,
        now=now,
        by_broker=origin is Origin.COORDINATOR,
        inspected=inspected,
    )
    size = analysis.valid_bytes if not assigned.rewritten else sum(header.size for header in assigned.headers)
    info = LogAppendInfo(
        assigned.first_offset,
        assigned.last_offset,
        leader_epoch,
        assigned.max_timestamp,
        assigned.log_append_time,
        log_start,
        assigned.record_count,
        size,
        converted_records=assigned.converted,
        checksum=assigned.headers[0].crc if len(assigned.headers) == 1 and assigned.headers[0].magic == 2 else None,
    )
    return Prepared(assigned.parts, assigned.headers, info)


def _prepare_usual(
    records: Buffer, rules: AppendRules, *, log_start: Offset, log_end: Offset, leader_epoch: LeaderEpoch, now: Millis
) -> Prepared | None:
    """Fast path of `prepare_leader` for what producers usually send: one uncompressed v2 batch with create time, for a
    topic that keeps it as it is. None for anything else, valid or not: the general path decides, and names the error.
    """
    size = len(records)
    if size < HEADER_BYTES or records[MAGIC_AT] != 2:
        return None
    if rules.magic != 2 or rules.codec or rules.timestamp_type is not TimestampType.CREATE_TIME:
        return None  # the batch must be rebuilt or stamped
    fields = HEADER.unpack_from(records)
    base_offset, length, _, _, crc, attributes, delta, base_timestamp, max_timestamp = fields[:9]
    producer_id, epoch, sequence, count = fields[9:]
    if attributes or base_offset or length != size - LOG_OVERHEAD or not 0 < count == delta + 1:
        return None
    if producer_id != NO_PRODUCER_ID and (producer_id < 0 or epoch < 0 or sequence < 0):
        return None
    view = memoryview(records)
    if (rules.batch_bytes_max is not None and size > rules.batch_bytes_max) or crc32c(view[ATTRIBUTES_AT:]) != crc:
        return None
    payload = view[HEADER_BYTES:].toreadonly()
    facts = check_records(
        payload, count, base_offset=0, last_offset_delta=delta, base_timestamp=base_timestamp, rules=rules.at(now)
    )
    if facts.problems or facts.max_timestamp != max_timestamp:
        return None
    stamped = (log_end, length, leader_epoch, *fields[3:])
    header: BatchHeader = tuple.__new__(BatchHeader, (0, *stamped))  # like BatchHeader(), with one call less
    last = Offset(log_end + delta)
    info = LogAppendInfo(
        log_end,
        last,
        leader_epoch,
        Millis(max_timestamp),
        NO_TIMESTAMP,
        log_start,
        count,
        size,
        checksum=crc,
    )
    return Prepared((HEADER.pack(*stamped), payload), (header,), info)


def prepare_follower(
    records: Buffer, *, log_start: Offset, log_end: Offset, last_epoch: LeaderEpoch
) -> Prepared | None:
    """Validate batches that a leader has stamped. last_epoch: leader epoch of the last record in the log. None if there
    is no whole batch.

    Raises CorruptRecord, OffsetsNotMonotonic, UnsupportedCompressionType.
    """
    analysis = analyze(records)
    headers = analysis.headers
    if not headers:
        return None
    if headers[0].base_offset < log_end or not analysis.offsets_grow:
        raise _not_growing(headers, log_end)
    for header in headers:
        if header.last_offset - header.base_offset > SPAN_MAX:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} ends at offset {header.last_offset}: no leader can write a "
                "batch of so many offsets; fetch it again"
            )
    return Prepared(
        [records if analysis.valid_bytes == len(records) else memoryview(records)[: analysis.valid_bytes]],
        headers,
        LogAppendInfo(
            headers[0].base_offset,
            analysis.last_offset,
            _last_epoch(headers, last_epoch),
            analysis.max_timestamp,
            NO_TIMESTAMP,
            log_start,
            analysis.record_count,
            analysis.valid_bytes,
        ),
    )


def _last_epoch(headers: Sequence[BatchHeader], epoch: LeaderEpoch) -> LeaderEpoch:
    """Leader epoch of the last batch that has one; -1 if none has. Raises CorruptRecord if an epoch is lower than
    `epoch` or than that of an earlier batch: no checksum covers it."""
    last = NO_LEADER_EPOCH
    for header in headers:
        if header.magic < 2:
            continue
        last = header.leader_epoch
        if last < epoch:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} has leader epoch {last}, below the previous epoch {epoch}: "
                "fetch it again"
            )
        epoch = last
    return last


def _not_growing(headers: Sequence[BatchHeader], log_end: Offset) -> OffsetsNotMonotonic:
    base = headers[0].base_offset
    if base < log_end:
        return OffsetsNotMonotonic(
            f"a batch starts at offset {base}, below the log end {log_end}: fetch from the log end"
        )
    for before, header in pairwise(headers):
        if header.base_offset <= before.last_offset:
            return OffsetsNotMonotonic(
                f"a batch starts at offset {header.base_offset}, but the previous one ends at {before.last_offset}: "
                "fetch it again"
            )
    raise AssertionError("their offsets grow")
