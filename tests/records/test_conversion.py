"""Conversion between the formats for readers, and that its result says what was left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import RecordTooLarge, UnsupportedCompressionType, UnsupportedForMessageFormat
from tidelog.records import (
    AppendRules,
    Dropped,
    EndTxnMarker,
    LegacyRecordBatch,
    Record,
    RecordBatch,
    build_batch,
    build_message_set,
    control_batch,
    convert,
    down_convert,
    empty_batch,
    iter_batches,
    iter_records,
)
from tidelog.types import Codec, Millis, Offset, TimestampType

NOW = 1_700_000_000_000
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
STAMPED = TimestampType.LOG_APPEND_TIME

each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())


def record(offset: int, key: bytes | None = b"k", value: bytes | None = b"v", timestamp: int = NOW) -> Record:
    return Record(Offset(offset), Millis(timestamp), key, value)


RECORDS = [record(100, b"a", b"1"), record(101, None, None, NOW + 7), record(105, b"", b"3", -1)]


def build(records: list[Record], magic: int, codec: Codec = Codec.NONE) -> bytes:
    return build_batch(records, codec) if magic == 2 else build_message_set(records, magic, codec)


def checked(data: bytes) -> list[RecordBatch]:
    batches = list(iter_batches(data, partial_tail="raise"))
    for batch in batches:
        batch.ensure_valid()
    return batches


@each_codec
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("target", [0, 1, 2])
def test_offsets_keys_and_values_stay_whatever_the_formats(codec: Codec, magic: int, target: int) -> None:
    data = build(RECORDS, magic, codec)
    converted = convert(data, target)
    for batch in checked(converted.records):
        assert (batch.magic, batch.codec) == (target, codec)
    keep_times = magic > 0 and target > 0
    assert list(iter_records(converted.records)) == [
        r if keep_times else r._replace(timestamp=Millis(-1)) for r in RECORDS
    ]
    if magic == target:
        assert converted.records == data
        assert (converted.record_count, bool(converted.dropped)) == (0, False)
    else:
        assert converted.record_count == 3
        assert converted.dropped == Dropped(timestamps=2 if magic > 0 and target == 0 else 0)


@each_codec
@pytest.mark.parametrize(("magic", "target"), [(1, 2), (2, 1)])
def test_log_append_time_stays_log_append_time(codec: Codec, magic: int, target: int) -> None:
    if magic == 2:
        data = build_batch(RECORDS, codec, timestamp_type=STAMPED, log_append_time=NOW + 99)
    else:
        data = build_message_set(RECORDS, 1, codec, timestamp_type=STAMPED, log_append_time=NOW + 99)
    converted = convert(data, target)
    for batch in checked(converted.records):
        assert batch.timestamp_type is STAMPED
        assert {r.timestamp for r in batch.records()} == {NOW + 99}
    for batch in checked(convert(data, 0).records):
        assert batch.timestamp_type is TimestampType.NO_TIMESTAMP_TYPE


def test_what_a_reader_of_v1_does_not_get_is_counted() -> None:
    """Kafka's down-conversion drops all this in silence."""
    with_headers = [RECORDS[0]._replace(headers=(("h", b"1"), ("h", None))), *RECORDS[1:]]
    batches = [
        build_batch(with_headers, leader_epoch=3, producer_id=7, producer_epoch=0, base_sequence=0),
        control_batch(
            EndTxnMarker(committed=True, coordinator_epoch=0),
            timestamp=NOW,
            base_offset=106,
            producer_id=7,
            producer_epoch=0,
        ),
        empty_batch(RecordBatch(build_batch([record(107)]))),
        build_batch([record(108)], delete_horizon_ms=NOW + 5),
    ]
    converted = down_convert(b"".join(batches), 1)
    assert [r.offset for r in iter_records(converted.records)] == [100, 101, 105, 108]
    expected = Dropped(headers=1, control_records=1, producers=1, leader_epochs=1, delete_horizons=1, empty_batches=1)
    assert converted.dropped == expected
    assert down_convert(b"".join(batches), 0).dropped == replace(expected, timestamps=3)
    assert converted.dropped
    assert expected + expected == Dropped(
        headers=2, control_records=2, producers=2, leader_epochs=2, delete_horizons=2, empty_batches=2
    )


def test_a_reader_of_v1_gets_v0_as_it_is() -> None:
    old, new = build(RECORDS, 0), build([record(200)], 2)
    converted = down_convert(old + new, 1)
    assert converted.records[: len(old)] == old
    assert [batch.magic for batch in checked(converted.records)] == [0, 0, 0, 1]
    assert [batch.magic for batch in checked(convert(old + new, 1).records)] == [1, 1, 1, 1]


def test_a_reader_that_begins_inside_an_uncompressed_batch_is_spared_what_is_before() -> None:
    """Each record becomes a message of its own, so what is before the offset asked for need not be sent; a wrapper is
    sent whole."""
    for codec, offsets in ((Codec.NONE, [101, 105]), (Codec.GZIP, [100, 101, 105])):
        converted = down_convert(build(RECORDS, 2, codec), 1, first_offset=101)
        assert [r.offset for r in iter_records(converted.records)] == offsets
    assert down_convert(build(RECORDS, 2), 1, first_offset=106).records == b""


def test_holes_that_compaction_left_stay_inside_a_wrapper() -> None:
    data = build_batch(RECORDS, Codec.LZ4, base_offset=90, last_offset=110)
    (batch,) = checked(down_convert(data, 1).records)
    assert isinstance(batch, LegacyRecordBatch)
    assert [message.offset for message in batch.inner_messages()[1]] == [0, 1, 5]
    assert (batch.base_offset, batch.last_offset) == (100, 105)


def test_zstd_is_not_converted_down() -> None:
    data = build_batch(RECORDS, Codec.ZSTD)
    for target in (0, 1):
        with pytest.raises(UnsupportedCompressionType, match="no codec zstd"):
            down_convert(data, target)
    assert down_convert(data, 2).records == data


def test_a_format_that_is_none_is_refused() -> None:
    with pytest.raises(UnsupportedForMessageFormat, match="no format v3"):
        convert(build(RECORDS, 1), 3)
    with pytest.raises(UnsupportedForMessageFormat, match="no format v3"):
        AppendRules(magic=3)


def test_a_batch_beyond_the_limit_is_refused() -> None:
    data = build([record(0, None, bytes(50_000))], 2, Codec.GZIP)
    with pytest.raises(RecordTooLarge):
        down_convert(data, 1, max_bytes=10_000)


some_fields = st.tuples(
    st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20), st.integers(-1, 2**50), st.integers(1, 50)
)


@given(st.lists(some_fields, min_size=1, max_size=6), st.integers(0, 2), st.integers(0, 2), st.sampled_from(CODECS))
def test_there_and_back_is_where_it_was(
    fields: list[tuple[bytes | None, bytes | None, int, int]], magic: int, through: int, codec: Codec
) -> None:
    records, offset = [], 7
    for key, value, timestamp, gap in fields:
        records.append(record(offset, key, value, timestamp if min(magic, through) else -1))
        offset += gap
    data = build(records, magic, codec)
    there = convert(data, through)
    back = convert(there.records, magic)
    assert list(iter_records(back.records)) == list(iter_records(there.records)) == records
    if magic < 2 and codec is Codec.NONE:
        assert back.records == data
