"""Prepares a producer's batches for the leader's log: validates the records, assigns offsets and timestamps, and
rewrites the batch only if codec or format must change.

    v2, codec stays                         one batch: stamped in place (KIP-98)
    v2, codec changes                       records are recompressed unchanged, under a new header
    v1 wrapper, codec stays, offsets 0..n-1 one wrapper: stamped in place, not recompressed (KIP-31)
    bare v0 or v1 messages, stay bare       each is stamped in place
    anything else, another format           decoded and rebuilt as one batch or message set

Several wrappers in one v0 or v1 set, or wrappers mixed with bare messages, become one wrapper in the codec of the last
compressed one, and the size is checked again (KAFKA-1718). Two v2 batches are rejected.
"In place" means in a copy of the header if the buffer is read-only; the producer's bytes follow that header.
Invariants: an error leaves the buffer unchanged. The result passes `analyze` again. Only timestamps are dropped, for
v0; everything else that the target format does not support is rejected.
Not here: `analyze`, which runs before; order, segment sizes and producer state (storage/log).
Source: Kafka's LogValidator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from tidelog.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge, UnsupportedForMessageFormat
from tidelog.records.analysis import Analysis
from tidelog.records.batches import iter_batches
from tidelog.records.legacy.message import ATTRIBUTES_AT, InnerMessage
from tidelog.records.legacy.message_builder import MessageSetBuilder
from tidelog.records.legacy.message_check import check_messages
from tidelog.records.legacy.message_set import LegacyRecordBatch, set_message_timestamp, stamp_message
from tidelog.records.producible import ensure_producible
from tidelog.records.v2.batch import RecordBatch, stamped_header
from tidelog.records.v2.builder import RecordBatchBuilder, recompressed
from tidelog.records.v2.compression import DECOMPRESSED_BYTES_MAX, checked_codec
from tidelog.records.v2.fast_paths import check_records, decode_records
from tidelog.records.v2.header import HEADER, HEADER_BYTES, RESERVED_ATTRIBUTES, BatchHeader, read_header, walk_headers
from tidelog.records.v2.record import Record
from tidelog.records.v2.record_check import PROBLEMS_MAX, Problem, ProblemKind, RecordFacts, Rules
from tidelog.records.v2.records_buffer import TIMESTAMP_MS_MAX
from tidelog.types import NO_PRODUCER_ID, NO_TIMESTAMP, Buffer, Codec, Millis, Offset, RecordError, TimestampType


@dataclass(frozen=True, slots=True)
class AppendRules:
    """A topic's rules for its records, with Kafka's setting names."""

    magic: int = 2
    """`message.format`."""
    codec: Codec | None = None
    """`compression.type`, None for "producer"."""
    level: int | None = None
    """The compression level of that codec."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    """`message.timestamp.type`."""
    timestamp_before_max_ms: int | None = None
    """`message.timestamp.{before,after}.max.ms`, None for no bound."""
    timestamp_after_max_ms: int | None = None
    key_required: bool = False
    """The topic is compacted."""
    batch_bytes_max: int | None = None
    """`max.message.bytes`, None for no limit."""
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    """Memory limit for one request's records."""

    def __post_init__(self) -> None:
        if self.magic not in (0, 1, 2):
            raise UnsupportedForMessageFormat(f"message format v{self.magic} does not exist: use v0, v1 or v2")

    def at(self, now: int) -> Rules:
        """Return the rules for single records at a wall-clock time. Before 1970 only -1 (none) is allowed. The largest
        64-bit number is never allowed: nobody could write the record again (records_buffer.bad_timestamp)."""
        before = after = None
        if self.timestamp_type is TimestampType.CREATE_TIME:
            before, after = self.timestamp_before_max_ms, self.timestamp_after_max_ms
        return Rules(
            self.key_required,
            0 if before is None else max(0, now - before),
            TIMESTAMP_MS_MAX if after is None else min(TIMESTAMP_MS_MAX, now + after),
        )


class Assigned(NamedTuple):
    """Records ready for the log, and the properties that assignment changes."""

    parts: tuple[bytes | memoryview, ...]
    """Consecutive parts of the bytes. If `rewritten` is False they are the buffer's own bytes, all of them or all after
    a header."""
    headers: tuple[BatchHeader, ...]
    """The headers of the batches."""
    first_offset: Offset
    last_offset: Offset
    max_timestamp: Millis
    log_append_time: Millis
    """-1 with create time."""
    record_count: int
    """Number of records."""
    rewritten: bool
    converted: int
    """Records whose format changed."""

    @property
    def records(self) -> bytes | memoryview:
        """Return the bytes in one piece; a copy if there are several parts."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


class Inspected(NamedTuple):
    """A v2 batch whose records were validated and, if the topic requires it, recompressed. This is the expensive part
    of `assign_offsets`; it needs neither the log nor its thread."""

    rules: AppendRules
    """The rules used for validation."""
    analysis: Analysis
    facts: RecordFacts
    codec: Codec
    payload: bytes | memoryview
    """Its records, decompressed."""
    recompressed: bytes | None
    """The batch in the topic's codec, None if it keeps its own."""


def inspect(
    buffer: Buffer, analysis: Analysis, rules: AppendRules, *, now: int, by_broker: bool = False
) -> Inspected | None:
    """Validate a batch before `assign_offsets`, on any thread. Returns None if only `assign_offsets` can do it: for v0
    and v1 messages, and if the format must change. Raises as `assign_offsets`."""
    if analysis.magic != rules.magic or rules.magic < 2:
        return None
    target = checked_codec(analysis.codec if rules.codec is None else rules.codec, rules.magic)
    return _inspect(memoryview(buffer)[: analysis.valid_bytes], analysis, rules, target, now, by_broker=by_broker)


def assign_offsets(
    buffer: Buffer,
    analysis: Analysis,
    rules: AppendRules,
    *,
    first_offset: int,
    leader_epoch: int,
    now: int,
    by_broker: bool = False,
    inspected: Inspected | None = None,
) -> Assigned:
    """Validate, number and stamp the batches of `buffer`: in place if nothing else must change and the buffer is
    writable, behind a copied header if it is read-only.

    analysis: result of `analyze` for this buffer, with at least one batch. now: wall-clock time. by_broker: written by
    a coordinator, so control batches are allowed. inspected: result of `inspect`; ignored if the rules have changed
    since. Raises InvalidRecord and InvalidTimestamp (with `record_errors` for single records), CorruptRecord,
    RecordTooLarge, UnsupportedForMessageFormat, UnsupportedCompressionType.
    """
    assert analysis.batch_count, "a buffer without a batch has nothing to assign"
    if analysis.magic is None:
        raise InvalidRecord("the records were rejected: they mix message formats; send one format per request")
    target = checked_codec(analysis.codec if rules.codec is None else rules.codec, rules.magic)
    view = memoryview(buffer)[: analysis.valid_bytes]
    append_time = Millis(now) if rules.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    if analysis.magic == 2 and (inspected is None or inspected.rules is not rules):
        inspected = _inspect(view, analysis, rules, target, now, by_broker=by_broker)
    order = _Order(rules, analysis.magic, target, Offset(first_offset), leader_epoch, now, append_time)
    if inspected is None:
        return _assign_messages(view, analysis, order)
    return _stamp_batch(view, inspected, order) if rules.magic == 2 else _convert_batch(view, inspected, order)


class _Order(NamedTuple):
    """What to do. magic: of the producer's records. append_time: None with create time."""

    rules: AppendRules
    magic: int
    codec: Codec
    first_offset: Offset
    leader_epoch: int
    now: int
    append_time: Millis | None


def _assigned(
    parts: tuple[bytes | memoryview, ...],
    headers: tuple[BatchHeader, ...],
    count: int,
    order: _Order,
    codec: Codec | None = None,
) -> Assigned:
    """What was done. codec: that of records that were rewritten. Raises RecordTooLarge if these exceed the limit
    (KAFKA-1718)."""
    rules, append_time = order.rules, order.append_time
    if codec is not None and rules.batch_bytes_max is not None:
        for header in headers:
            if header.size > rules.batch_bytes_max:
                raise RecordTooLarge(
                    f"the records take {header.size} bytes as stored by the topic (format v{rules.magic}, codec "
                    f"{codec.name.lower()}), but max.message.bytes allows {rules.batch_bytes_max}: send smaller "
                    "batches, or raise the topic's limit"
                )
    return Assigned(
        parts,
        headers,
        order.first_offset,
        Offset(order.first_offset + count - 1),
        max([header.max_timestamp for header in headers], default=NO_TIMESTAMP),
        NO_TIMESTAMP if append_time is None else append_time,
        count,
        codec is not None,
        count if order.magic != rules.magic else 0,
    )


# --- v2 ----------------------------------------------------------------------------------------------------------


def _inspect(
    view: memoryview, analysis: Analysis, rules: AppendRules, codec: Codec, now: int, *, by_broker: bool
) -> Inspected:
    if analysis.batch_count > 1:
        raise InvalidRecord(
            f"the records were rejected: the request has {analysis.batch_count} batches of format v2 for one "
            "partition; send one"
        )
    header = analysis.headers[0]
    batch = RecordBatch(view, header=header)
    if not by_broker:
        ensure_producible(batch)
    elif header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(f"the batch was rejected: {batch.count} records span {batch.last_offset_delta + 1} offsets")
    data = batch.payload(max_bytes=rules.decompressed_bytes_max)
    limits = rules.at(now)
    facts = check_records(
        data,
        header.record_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        rules=limits,
    )
    if facts.problems:
        _refuse(facts.problems, facts.record_count, limits)
    if analysis.codec is Codec.NONE and codec is not Codec.NONE and batch.is_control:
        codec = Codec.NONE  # markers stay uncompressed unless their coordinator compressed them
    rebuilt = None
    if analysis.codec is not codec and rules.magic == analysis.magic:
        rebuilt = recompressed(batch, data, codec, rules.level if codec is rules.codec else None)
    return Inspected(rules, analysis, facts, codec, data, rebuilt)


def _stamp_batch(view: memoryview, inspected: Inspected, order: _Order) -> Assigned:
    """Stamp a batch that stays a v2 batch: the common case."""
    header, codec = inspected.analysis.headers[0], None
    if inspected.recompressed is not None:
        view, codec = memoryview(inspected.recompressed), inspected.codec
        header = read_header(view)
    payload = view[HEADER_BYTES:]
    stamped = stamped_header(
        header,
        payload,
        base_offset=order.first_offset,
        leader_epoch=order.leader_epoch,
        timestamp_type=order.rules.timestamp_type,
        max_timestamp=Millis(inspected.facts.max_timestamp) if order.append_time is None else order.append_time,
    )
    head = HEADER.pack(*stamped[1:])
    parts: tuple[bytes | memoryview, ...] = (head, payload)
    if not (codec is not None or view.readonly):
        view[:HEADER_BYTES] = head
        parts = (view,)
    return _assigned(parts, (stamped,), inspected.facts.record_count, order, codec)


def _convert_batch(view: memoryview, inspected: Inspected, order: _Order) -> Assigned:
    """Convert a v2 batch for a topic of v0 or v1."""
    batch = RecordBatch(view, header=inspected.analysis.headers[0])
    _ensure_fits(batch, inspected.facts, order.rules.magic)
    records = decode_records(inspected.payload, batch.count, batch.base_offset, batch.base_timestamp)
    return _built(records, order)


def _ensure_fits(batch: RecordBatch, facts: RecordFacts, magic: int) -> None:
    """Reject a batch with properties that the older format does not support."""
    reason = None
    if batch.is_control:
        reason = "it is a control batch"
    elif batch.is_transactional:
        reason = "it is transactional"
    elif batch.producer_id != NO_PRODUCER_ID:
        reason = "its producer is idempotent"
    elif facts.with_headers:
        reason = f"{facts.with_headers} of its records have headers"
    if reason is not None:
        raise UnsupportedForMessageFormat(
            f"the batch was rejected: {reason}, which the topic's format v{magic} does not support; send it without, "
            "or use a topic of format v2"
        )


# --- v0 and v1 ---------------------------------------------------------------------------------------------------


def _assign_messages(view: memoryview, analysis: Analysis, order: _Order) -> Assigned:
    rules, limits = order.rules, order.rules.at(order.now)
    batches = [batch for batch in iter_batches(view) if isinstance(batch, LegacyRecordBatch)]
    if any(batch.timestamp_type is TimestampType.LOG_APPEND_TIME for batch in batches):
        raise InvalidTimestamp(
            "the messages were rejected: they claim log append time, which only a broker sets; send them with create "
            "time"
        )
    for batch in batches:
        if view[batch.position + ATTRIBUTES_AT] & RESERVED_ATTRIBUTES[batch.magic]:
            raise InvalidRecord(
                f"the messages were rejected: one of format v{batch.magic} has attributes "
                f"{view[batch.position + ATTRIBUTES_AT]:#04x} with reserved bits set; this is a defect of the "
                "producer's library"
            )
    checked, problems = list[_Checked](), list[Problem]()
    count = decompressed = 0
    for run in _runs(batches):
        if run[0].is_wrapper:
            found = _check_wrapper(run[0], limits, rules.decompressed_bytes_max - decompressed)
        else:
            found = _check_bare(view, run, limits)
        checked.append(found)
        if len(problems) < PROBLEMS_MAX:
            problems += [problem._replace(record=problem.record + count) for problem in found.facts.problems]
        count += found.facts.record_count
        decompressed += len(found.data)
    _refuse(tuple(problems[:PROBLEMS_MAX]), count, limits)
    if rules.magic == analysis.magic and len(checked) == 1:
        if not batches[0].is_wrapper and order.codec is Codec.NONE:
            return _stamp_bare(view, batches, order)
        if batches[0].is_wrapper and _may_stay(checked[0], order):
            return _stamp_wrapper(view, checked[0].facts, order)
    return _built(_numbered(checked), order)


class _Checked(NamedTuple):
    """Validated outer messages: one wrapper with its content, or a run of bare messages."""

    batches: list[LegacyRecordBatch]
    facts: RecordFacts
    data: bytes = b""
    inner: list[InnerMessage] | None = None


def _runs(batches: list[LegacyRecordBatch]) -> Iterator[list[LegacyRecordBatch]]:
    """Yield each wrapper by itself, and runs of bare messages between wrappers."""
    for is_wrapper, run in groupby(batches, key=lambda batch: batch.is_wrapper):
        if is_wrapper:
            yield from ([wrapper] for wrapper in run)
        else:
            yield list(run)


def _check_wrapper(batch: LegacyRecordBatch, limits: Rules, max_bytes: int) -> _Checked:
    data, found = batch.inner_messages(max_bytes=max_bytes, tail="raise")
    what = f"the wrapper at offset {batch.last_offset}"
    return _Checked([batch], check_messages(data, found, batch.magic, limits, what=what), data, found)


def _check_bare(view: memoryview, batches: list[LegacyRecordBatch], limits: Rules) -> _Checked:
    messages = (
        InnerMessage(h.base_offset, h.crc, h.magic, h.attributes, h.max_timestamp, h.position, h.end)
        for h in (batch.header for batch in batches)
    )
    what = "the message set"
    facts = check_messages(view, messages, batches[0].magic, limits, what=what, check_crcs=False)
    return _Checked(batches, facts)


def _may_stay(wrapper: _Checked, order: _Order) -> bool:
    """Whether a wrapper's compressed bytes can be kept; never in v0, whose inner offsets are absolute."""
    (batch,) = wrapper.batches
    return batch.magic == 1 and batch.codec is order.codec and wrapper.facts.consecutive


def _writable(view: memoryview) -> memoryview:
    return memoryview(bytearray(view)) if view.readonly else view


def _stamp_bare(view: memoryview, batches: list[LegacyRecordBatch], order: _Order) -> Assigned:
    view = _writable(view)
    for index, batch in enumerate(batches):
        stamp_message(view, batch.position, offset=order.first_offset + index)
        if order.append_time is not None and batch.magic > 0:
            set_message_timestamp(view, batch.position, TimestampType.LOG_APPEND_TIME, order.append_time)
    return _assigned((view,), tuple(walk_headers(view)), len(batches), order)


def _stamp_wrapper(view: memoryview, facts: RecordFacts, order: _Order) -> Assigned:
    view = _writable(view)
    stamp_message(view, 0, offset=order.first_offset + facts.record_count - 1)
    timestamp = facts.max_timestamp if order.append_time is None else order.append_time
    set_message_timestamp(view, 0, order.rules.timestamp_type, timestamp)
    return _assigned((view,), tuple(walk_headers(view)), facts.record_count, order)


def _numbered(checked: list[_Checked]) -> Iterator[Record]:
    for batches, _, data, inner in checked:
        for batch in batches:
            yield from batch.records() if inner is None else batch.records_of(data, inner)


# --- both --------------------------------------------------------------------------------------------------------


def _built(records: Iterator[Record], order: _Order) -> Assigned:
    """Rebuild all records in the topic's format and codec, numbered from the first offset on."""
    rules = order.rules
    level = rules.level if order.codec is rules.codec else None
    builder: MessageSetBuilder | RecordBatchBuilder
    if rules.magic < 2:
        stamped = order.append_time is not None and rules.magic == 1
        builder = MessageSetBuilder(
            rules.magic,
            order.codec,
            level=level,
            timestamp_type=TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME,
            log_append_time=order.append_time if stamped else None,
            base_offset=order.first_offset,
        )
    else:
        builder = RecordBatchBuilder(
            order.codec,
            level=level,
            timestamp_type=rules.timestamp_type,
            log_append_time=order.append_time,
            base_offset=order.first_offset,
            leader_epoch=order.leader_epoch,
        )
    for record in records:
        builder.append(key=record.key, value=record.value, timestamp=record.timestamp, headers=record.headers)
    built = builder.build()
    return _assigned((built,), tuple(walk_headers(built)), builder.count, order, order.codec)


def _refuse(problems: tuple[Problem, ...], count: int, limits: Rules) -> None:
    """Raise for records that violate a rule. Source: KIP-467; Kafka's RecordValidationException."""
    if not problems:
        return
    first = problems[0]
    kind = InvalidTimestamp if any(p.kind is ProblemKind.TIMESTAMP for p in problems) else InvalidRecord
    raise kind(
        f"{len(problems)} of {count} records were rejected, and their batch with them; record {first.record}: "
        f"{first.describe(limits)}",
        record_errors=tuple(RecordError(p.record, p.describe(limits)) for p in problems),
    )
