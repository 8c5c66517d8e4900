"""Record batches: round trips, stamping in place, and invalid input."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.reference import set_max_timestamp
from tidelog.client.accumulator import record_size
from tidelog.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    OffsetsNotMonotonic,
    RecordTooLarge,
    TidelogError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from tidelog.records import (
    HEADER_BYTES,
    BatchHeader,
    EndTxnMarker,
    Record,
    RecordBatch,
    RecordBatchBuilder,
    build_batch,
    build_message_set,
    control_batch,
    crc32c,
    iter_batches,
    set_producer,
    stamp,
    walk_headers,
)
from tidelog.records.producible import ensure_producible
from tidelog.records.v2.header import read_header
from tidelog.types import Codec, Millis, Offset, TimestampType

NOW = 1_700_000_000_000

some_bytes = st.none() | st.binary(max_size=40)
timestamps = st.integers(-1, 2**62)
header_lists = st.lists(st.tuples(st.text(max_size=8), some_bytes), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 8))):
        fields = (draw(some_bytes), draw(some_bytes), draw(header_lists))
        records.append(Record(Offset(offset), Millis(draw(timestamps)), *fields))
        offset += draw(st.integers(1, 1000))
    return records


def small_batch(codec: Codec = Codec.NONE, *, base_offset: int = 5) -> bytes:
    return build_batch(
        [
            Record(Offset(base_offset), Millis(NOW), b"k", b"value"),
            Record(Offset(base_offset + 1), Millis(NOW + 5), None, None, (("h", b"1"), ("h", None))),
            Record(Offset(base_offset + 2), Millis(NOW - 5), b"", b""),
        ],
        codec,
        leader_epoch=2,
        producer_id=7,
        producer_epoch=1,
        base_sequence=10,
    )


def with_fields(data: bytes, *, at: int, form: str, value: int) -> bytes:
    """Return the batch with one header field overwritten and a matching checksum: a faulty writer, not corruption."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


# --- round trips -------------------------------------------------------------------------------------------------


@given(record_lists(), st.sampled_from(Codec), st.integers(-1, 2**31 - 1), st.booleans(), st.integers(-1, 2**63 - 1))
def test_built_records_are_read_back(
    records: list[Record], codec: Codec, epoch: int, transactional: bool, producer_id: int
) -> None:
    data = build_batch(
        records,
        codec,
        leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=2**31 - 2,
        is_transactional=transactional,
    )
    batch = RecordBatch(data)
    batch.ensure_valid()
    assert list(batch.records()) == records
    assert (batch.base_offset, batch.last_offset) == (records[0].offset, records[-1].offset)
    assert batch.next_offset == records[-1].offset + 1
    assert (batch.count, batch.codec, batch.size, batch.magic) == (len(records), codec, len(data), 2)
    assert batch.max_timestamp == max(record.timestamp for record in records)
    assert batch.base_timestamp == records[0].timestamp
    assert (batch.partition_leader_epoch, batch.producer_id, batch.producer_epoch) == (epoch, producer_id, 3)
    assert batch.is_transactional == transactional
    assert not batch.is_control
    assert batch.delete_horizon_ms is None
    assert batch.timestamp_type is TimestampType.CREATE_TIME


def test_header_keys_that_are_not_utf8_keep_their_bytes() -> None:
    """Another producer may write any bytes; rewriting the record must give the same bytes."""
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    data = build_batch([Record(Offset(0), Millis(0), None, None, ((name, b"x"),))])
    assert b"caf\xe9" in data
    (record,) = RecordBatch(data).records()
    assert build_batch([record]) == data


def test_a_builder_continues_after_build_and_drops_rejected_records() -> None:
    builder = RecordBatchBuilder(base_offset=100)
    builder.append(key=None, value=b"a", timestamp=NOW)
    first = builder.build()
    for refused, error in [
        ({"timestamp": -2}, InvalidTimestamp),
        ({"timestamp": NOW, "offset": 100}, OffsetsNotMonotonic),
        ({"timestamp": NOW, "headers": [("\ud800", b"")]}, InvalidRecord),
        ({"timestamp": NOW, "offset": 2**40}, RecordTooLarge),
    ]:
        with pytest.raises(error):
            builder.append(key=None, value=b"x", **refused)  # type: ignore[arg-type]
    assert builder.build() == first
    builder.append(key=b"k", value=b"b", timestamp=NOW - 1, offset=105)
    assert [record.offset for record in RecordBatch(builder.build()).records()] == [100, 105]
    assert (builder.count, builder.records.max_timestamp) == (2, NOW)


@given(
    st.lists(st.tuples(some_bytes, some_bytes | st.just(bytes(9_000)), timestamps, header_lists), max_size=12),
    st.integers(0, 12),
    st.sampled_from((0, 100, 8_185)),
)
def test_extend_gives_the_same_bytes_as_append(
    records: list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]], cut: int, before: int
) -> None:
    """The slow twin: `append`. `before`: number of records that come first, up to where offsets take another byte."""
    one_by_one, at_once = RecordBatchBuilder(base_offset=7), RecordBatchBuilder(base_offset=7)
    first = [(None, b"", NOW, ())] * before
    for key, value, timestamp, headers in [*first, *records]:
        one_by_one.append(key=key, value=value, timestamp=timestamp, headers=headers)
    for some in (first, records[:cut], records[cut:]):
        at_once.extend(some)
    assert at_once.count == one_by_one.count
    assert at_once.records.max_timestamp == one_by_one.records.max_timestamp
    if one_by_one.count:
        assert at_once.build() == one_by_one.build()


def test_an_empty_builder_and_a_batch_without_timestamp_type_are_rejected() -> None:
    with pytest.raises(InvalidRequest):
        RecordBatchBuilder().build()
    with pytest.raises(InvalidRequest):
        build_batch([])
    with pytest.raises(InvalidRequest):
        RecordBatchBuilder(timestamp_type=TimestampType.NO_TIMESTAMP_TYPE)


@given(record_lists())
def test_a_producer_never_underestimates_the_size_of_a_record(records: list[Record]) -> None:
    for record in records:
        size = len(build_batch([record])) - HEADER_BYTES
        assert size <= record_size(record.key, record.value, record.headers)


def test_sequences_wrap_behind_the_largest() -> None:
    batch = RecordBatch(with_fields(small_batch(), at=53, form=">i", value=2**31 - 2))
    assert (batch.base_sequence, batch.last_sequence) == (2**31 - 2, 0)
    batch = RecordBatch(with_fields(small_batch(), at=53, form=">i", value=2**31 - 3))
    assert batch.last_sequence == 2**31 - 1
    batch = RecordBatch(with_fields(small_batch(), at=53, form=">i", value=-1))
    assert (batch.base_sequence, batch.last_sequence) == (-1, -1)


# --- in place ----------------------------------------------------------------------------------------------------


def test_stamping_moves_the_batch_and_keeps_its_checksum() -> None:
    buffer = bytearray(small_batch(base_offset=0) * 2)
    position = len(buffer) // 2
    stamp(buffer, position, base_offset=1000, leader_epoch=9)
    first, second = iter_batches(buffer)
    assert (first.base_offset, first.partition_leader_epoch) == (0, 2)
    assert (second.base_offset, second.last_offset, second.partition_leader_epoch) == (1000, 1002, 9)
    second.ensure_valid()
    assert [record.offset for record in second.records()] == [1000, 1001, 1002]
    assert second.position == position
    assert bytes(second.buffer) == bytes(buffer[position:])


def test_the_producer_fields_of_a_batch_can_be_replaced() -> None:
    records = [Record(Offset(0), Millis(NOW), b"k", b"v" * 50)]
    first = build_batch(records, Codec.GZIP, producer_id=7, producer_epoch=1, base_sequence=40)
    again = bytearray(b"before" + first)
    set_producer(again, 6, producer_id=8, producer_epoch=2, base_sequence=0)
    assert bytes(again[6:]) == build_batch(records, Codec.GZIP, producer_id=8, producer_epoch=2, base_sequence=0)
    with pytest.raises(UnsupportedForMessageFormat):
        set_producer(
            bytearray(build_message_set(records, magic=1)), 0, producer_id=8, producer_epoch=2, base_sequence=0
        )


def test_log_append_time_replaces_every_timestamp() -> None:
    buffer = bytearray(small_batch(Codec.ZSTD))
    set_max_timestamp(buffer, TimestampType.LOG_APPEND_TIME, NOW + 99)
    batch = RecordBatch(buffer)
    batch.ensure_valid()
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW + 99)
    assert {record.timestamp for record in batch.records()} == {NOW + 99}
    assert batch.codec is Codec.ZSTD


def test_a_delete_horizon_replaces_the_base_timestamp() -> None:
    """The cleaner writes deltas relative to the horizon, so timestamps result from the same sum (KIP-534)."""
    attributes = with_fields(small_batch(), at=21, form=">h", value=0x40)
    batch = RecordBatch(with_fields(attributes, at=27, form=">q", value=NOW + 1000))
    batch.ensure_valid()
    assert batch.delete_horizon_ms == NOW + 1000
    assert [record.timestamp for record in batch.records()] == [NOW + 1000, NOW + 1005, NOW + 995]


# --- walking a buffer --------------------------------------------------------------------------------------------


def test_the_walk_reads_every_header_and_stops_before_a_partial_tail() -> None:
    batches = [small_batch(codec, base_offset=10 * index) for index, codec in enumerate(Codec)]
    whole = b"".join(batches)
    for cut in (0, 1, 11, 12, 16, 17, 60, 61, len(batches[0]) - 1):
        headers = list(walk_headers(whole + batches[0][:cut]))
        assert [header.base_offset for header in headers] == [0, 10, 20, 30, 40]
        assert [header.size for header in headers] == [len(batch) for batch in batches]
        assert headers[-1].end == len(whole)
    assert next(walk_headers(whole, len(batches[0]))).position == len(batches[0])
    assert list(walk_headers(b"")) == []


def test_a_batch_truncated_at_any_byte_is_never_accepted() -> None:
    data = small_batch()
    for length in range(len(data)):
        assert list(iter_batches(data[:length])) == []
        with pytest.raises(CorruptRecord):
            RecordBatch(data[:length])
        if length:
            with pytest.raises(CorruptRecord, match="truncated"):
                list(iter_batches(data[:length], partial_tail="raise"))


@pytest.mark.parametrize("tail", [bytes(12), bytes(17), bytes(500)], ids=["12", "17", "500"])
def test_zeros_after_the_last_batch_are_corrupt(tail: bytes) -> None:
    """A preallocated file ends in zeros: no further bytes could complete a batch from them."""
    data = small_batch()
    walk = walk_headers(data + tail)
    assert next(walk).size == len(data)
    with pytest.raises(CorruptRecord, match="length of 0"):
        next(walk)


@pytest.mark.parametrize("cut", [0, 100], ids=["whole", "cut short"])
def test_impossible_lengths_and_magics_are_rejected_even_in_a_tail(cut: int) -> None:
    data = small_batch() + bytes(cut)
    for at, form, value, error in [
        (8, ">i", -1, CorruptRecord),
        (8, ">i", 13, CorruptRecord),
        (8, ">i", 48, CorruptRecord),
        (16, ">b", 3, CorruptRecord),
        (16, ">b", -1, CorruptRecord),
    ]:
        changed = bytearray(data)
        struct.pack_into(form, changed, at, value)
        if cut:
            del changed[-cut - 1 :]
        with pytest.raises(error):
            list(iter_batches(changed))


def test_functions_for_v2_reject_older_messages_and_change_nothing() -> None:
    """Stamped as a batch, a message would get its leader epoch in place of its checksum."""
    message = build_message_set([Record(Offset(0), Millis(NOW), b"k", b"v")], 1)
    for read in (RecordBatch, lambda data: RecordBatch(data, header=read_header(data))):
        with pytest.raises(UnsupportedForMessageFormat):
            read(message)
    buffer = bytearray(message)
    with pytest.raises(UnsupportedForMessageFormat):
        stamp(buffer, 0, base_offset=5, leader_epoch=1)
    assert buffer == message


# --- damage ------------------------------------------------------------------------------------------------------


def _outcome(data: bytes) -> str:
    """Return how a reader that verifies everything treats these bytes, which were one valid batch."""
    try:
        batches = list(iter_batches(data))
    except CorruptRecord:
        return "refused by the walk"
    if not batches:
        return "partial"
    try:
        batches[0].ensure_valid()
    except (CorruptRecord, UnsupportedCompressionType):
        return "refused by the check"
    return "believed"


@pytest.mark.parametrize("codec", Codec)
def test_every_flipped_bit_is_detected_where_the_format_allows(codec: Codec) -> None:
    """The checksum covers everything from the attributes on. Before it, a wrong length or magic is detected by itself.
    Base offset and leader epoch are not covered, so that stamping needs no new checksum: a log detects wrong ones by
    the neighbouring batches (offsets must increase, epochs must not decrease), a single batch cannot. Only a negative
    offset is detected."""
    data = small_batch(codec)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 0x80 >> bit % 8
        field, outcome = bit // 8, _outcome(bytes(flipped))
        if field < 8:
            assert outcome == ("believed" if bit else "refused by the check"), bit
        elif field < 12:
            assert outcome in ("partial", "refused by the walk", "refused by the check"), bit
        elif field < 16:
            assert outcome == "believed", bit
        elif field == 16:  # an unknown magic, or v0, whose CRC-32 does not match the bytes
            assert outcome in ("refused by the walk", "refused by the check"), bit
        else:
            assert outcome == "refused by the check", bit


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [(57, ">i", 4), (57, ">i", -1), (23, ">i", -1), (23, ">i", 1), (57, ">i", 0)],
    ids=["more records than offsets", "negative count", "negative delta", "fewer offsets", "bytes, but no records"],
)
def test_impossible_counts_are_rejected_under_a_correct_checksum(at: int, form: str, value: int) -> None:
    with pytest.raises(CorruptRecord, match="faulty"):
        RecordBatch(with_fields(small_batch(), at=at, form=form, value=value)).ensure_valid()


def test_an_unknown_codec_is_named() -> None:
    batch = RecordBatch(with_fields(small_batch(), at=21, form=">h", value=6))
    for call in (batch.ensure_valid, batch.records):
        with pytest.raises(UnsupportedCompressionType, match="codec 6"):
            call()


def test_an_empty_batch_that_compaction_left_is_valid() -> None:
    data = with_fields(small_batch()[:HEADER_BYTES], at=57, form=">i", value=0)
    batch = RecordBatch(with_fields(data, at=8, form=">i", value=HEADER_BYTES - 12))
    batch.ensure_valid()
    assert (batch.base_offset, batch.last_offset, list(batch.records())) == (5, 7, [])


def _payloads() -> Iterator[tuple[str, bytes, int]]:
    yield "length beyond the end", b"\x20\x00\x00\x00\x01\x01\x00", 1
    yield "negative length", b"\x01\x00\x00\x00\x01\x01\x00", 1
    yield "key beyond the record", b"\x0c\x00\x00\x00\x40\x01\x00", 1
    yield "negative key length", b"\x0c\x00\x00\x00\x03\x01\x00", 1
    yield "negative header count", b"\x0c\x00\x00\x00\x01\x01\x01", 1
    yield "more headers than bytes", b"\x0c\x00\x00\x00\x01\x01\x40", 1
    yield "header with a null key", b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1
    yield "byte behind the fields", b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1
    yield "record behind the last", b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 1
    yield "record missing", b"\x0c\x00\x00\x00\x01\x01\x00", 2
    yield "endless varint", b"\x80" * 20, 1
    yield "timestamp beyond 64 bits", b"\x1e\x00" + b"\xfe" + b"\xff" * 8 + b"\x01\x00\x01\x01\x00", 1


@pytest.mark.parametrize(("payload", "count"), [case[1:] for case in _payloads()], ids=[c[0] for c in _payloads()])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_invalid_records_are_corrupt(payload: bytes, count: int, codec: Codec) -> None:
    from tidelog.records.v2.compression import compress

    records = compress(codec, payload)
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(records), 0, 2, 0, codec, count - 1, NOW, NOW, -1, -1, -1, count)
    batch = RecordBatch(with_fields(header + records, at=57, form=">i", value=count))
    batch.ensure_valid()
    with pytest.raises(CorruptRecord):
        list(batch.records())


@given(st.binary(max_size=120), st.integers(-2, 5), st.sampled_from(Codec))
def test_any_payload_gives_records_or_the_documented_error(payload: bytes, count: int, codec: Codec) -> None:
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(payload), 0, 2, 0, codec, 9, NOW, NOW, -1, -1, -1, count)
    batch = RecordBatch(header + payload)
    try:
        for record in batch.records(max_bytes=10_000):
            assert isinstance(record, Record)
    except (CorruptRecord, RecordTooLarge):
        pass


@given(st.binary(max_size=200))
def test_any_bytes_give_headers_or_the_documented_error(data: bytes) -> None:
    try:
        for header in walk_headers(data):
            assert isinstance(header, BatchHeader)
    except CorruptRecord:
        pass


def test_records_beyond_the_callers_limit_are_rejected() -> None:
    data = build_batch([Record(Offset(0), Millis(0), None, bytes(100_000))], Codec.GZIP)
    assert len(data) < 1000
    with pytest.raises(RecordTooLarge, match="50000"):
        RecordBatch(data).records(max_bytes=50_000)


# --- what a producer may send ------------------------------------------------------------------------------------


def test_a_producers_batch_passes() -> None:
    ensure_producible(RecordBatch(small_batch(base_offset=0)))
    ensure_producible(RecordBatch(build_batch([Record(Offset(0), Millis(-1), None, None)], Codec.LZ4)))


def test_a_sequence_without_a_producer_id_is_ignored() -> None:
    """aiokafka sends 0 there when it is not idempotent; Kafka ignores it."""
    ensure_producible(RecordBatch(build_batch([Record(Offset(0), Millis(0), None, None)], base_sequence=0)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (small_batch(base_offset=1), "base offset is 1"),
        (with_fields(small_batch(base_offset=0), at=57, form=">i", value=2), "2 records"),
        (with_fields(small_batch(base_offset=0), at=21, form=">h", value=0x40), "delete horizon"),
        (with_fields(small_batch(base_offset=0), at=51, form=">h", value=-1), "epoch -1"),
        (with_fields(small_batch(base_offset=0), at=53, form=">i", value=-1), "sequence -1"),
        (build_batch([Record(Offset(0), Millis(0), None, None)], is_transactional=True), "no producer id"),
        (with_fields(small_batch(base_offset=0), at=21, form=">h", value=0x08), "log append time"),
        (control_batch(EndTxnMarker(committed=True, coordinator_epoch=0), timestamp=0, producer_id=1), "control batch"),
    ],
)
def test_batches_that_only_brokers_may_write_are_rejected(data: bytes, reason: str) -> None:
    batch = RecordBatch(data)
    batch.ensure_valid()
    with pytest.raises(TidelogError, match=reason):
        ensure_producible(batch)
