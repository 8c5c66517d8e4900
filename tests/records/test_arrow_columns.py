"""Batches to Arrow columns and back, for readers of committed records in a range, with both implementations."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tidelog.errors import CorruptRecord, InvalidRecord, InvalidTimestamp
from tidelog.records import (
    EndTxnMarker,
    Record,
    RecordBatch,
    RecordBatchBuilder,
    arrow_columns,
    build_batch,
    build_message_set,
    control_batch,
)
from tidelog.records.arrow_columns import ColumnDecoder, TableBuilder, encode_columns
from tidelog.records.v2 import columns, records_buffer
from tidelog.types import Codec, Millis, Offset, TimestampType

pa = pytest.importorskip("pyarrow")
NOW = 1_700_000_000_000


@pytest.fixture(params=["pure Python", "compiled"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Each test runs with both implementations."""
    name = request.param
    if name == "compiled":
        reader: ModuleType = pytest.importorskip("tidelog.records.v2._columns")
        writer = pytest.importorskip("tidelog.records.v2._writer")
    else:
        reader, writer = columns, records_buffer
    monkeypatch.setattr(arrow_columns, "ColumnsBuffer", reader.ColumnsBuffer)
    monkeypatch.setattr("tidelog.records.v2.builder.RecordsBuffer", writer.RecordsBuffer)
    return reader


def records(first: int, count: int, **fields: Any) -> list[Record]:
    return [
        Record(Offset(offset), Millis(NOW + offset), b"k%d" % offset, b"v%d" % offset)._replace(**fields)
        for offset in range(first, first + count)
    ]


def offsets_of(decoder: ColumnDecoder) -> list[int]:
    found: list[int] = decoder.take()["offset"].to_pylist()
    return found


def test_each_row_of_a_table_has_the_topic_and_partition_of_its_batch() -> None:
    """A column of one value is a slice of the one before: more rows, fewer, another value, several, and none."""
    table = TableBuilder(("topic", "partition", "offset"))
    for runs in (
        [("a", 0, 3)],
        [("a", 0, 5)],
        [("a", 0, 2)],
        [("b", 0, 2)],
        [("b", 1, 1), ("a", 1, 2), ("a", 2, 4)],
        [],
        [("a", 2, 9)],
    ):
        for topic, partition, count in runs:
            table.add(topic, partition, RecordBatch(build_batch(records(7, count))))
        found = table.take()
        found.validate(full=True)
        assert list(zip(*found.to_pydict().values(), strict=True)) == [
            (topic, partition, 7 + index) for topic, partition, count in runs for index in range(count)
        ]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_column_of_every_batch(codec: Codec) -> None:
    first = [*records(5, 3, headers=(("h", b"1"), ("ä", None))), Record(Offset(8), Millis(-1), None, None)]
    stamped = build_batch(
        records(9, 2, value=b""), codec, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=NOW + 99
    )
    decoder = ColumnDecoder()
    decoder.add(build_batch(first, codec) + stamped + stamped[:50])
    assert decoder.rows == 6
    found = decoder.take()
    assert {name: array.type for name, array in found.items()} == {n: columns.arrow_type(n) for n in columns.NAMES}
    assert found["offset"].to_pylist() == [5, 6, 7, 8, 9, 10]
    assert found["key"].to_pylist() == [b"k5", b"k6", b"k7", None, b"k9", b"k10"]
    assert found["value"].to_pylist() == [b"v5", b"v6", b"v7", None, b"", b""]
    assert found["timestamp"].cast("int64").to_pylist() == [NOW + 5, NOW + 6, NOW + 7, -1, NOW + 99, NOW + 99]
    assert found["timestampType"].to_pylist() == [0, 0, 0, 0, 1, 1]
    headers = [{"key": "h", "value": b"1"}, {"key": "ä", "value": None}]
    assert found["headers"].to_pylist() == [headers, headers, headers, None, None, None]
    assert decoder.rows == decoder.size == len(decoder.take()["offset"]) == 0


def test_only_wanted_columns_within_the_range() -> None:
    decoder = ColumnDecoder(("value", "offset"))
    decoder.start, decoder.end = 3, 7
    decoder.add(build_batch(records(0, 2)) + build_batch(records(2, 3)) + build_batch(records(5, 4)))
    found = decoder.take()
    assert list(found) == ["value", "offset"]
    assert found["value"].to_pylist() == [b"v3", b"v4", b"v5", b"v6"]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_old_formats_become_rows_too(magic: int, codec: Codec) -> None:
    decoder = ColumnDecoder()
    decoder.start = 1
    decoder.add(build_message_set(records(0, 3, value=None), magic, codec) + build_batch(records(3, 1)))
    found = decoder.take()
    assert found["offset"].to_pylist() == [1, 2, 3]
    assert found["key"].to_pylist() == [b"k1", b"k2", b"k3"]
    assert found["value"].to_pylist() == [None, None, b"v3"]
    assert found["headers"].to_pylist() == [None, None, None]
    assert found["timestampType"].to_pylist() == [[-1, 0][magic]] * 2 + [0]


def test_control_records_are_no_rows() -> None:
    marker = control_batch(
        EndTxnMarker(committed=True, coordinator_epoch=0),
        base_offset=2,
        timestamp=NOW,
        producer_id=1,
        producer_epoch=0,
    )
    decoder = ColumnDecoder()
    decoder.add(build_batch(records(0, 2)) + marker + build_batch(records(3, 1)))
    assert offsets_of(decoder) == [0, 1, 3]


def test_a_corrupt_batch_raises_and_earlier_batches_stay_collected() -> None:
    decoder = ColumnDecoder()
    damaged = bytearray(build_batch(records(3, 2)))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecord, match="checksum"):
        decoder.add(build_batch(records(0, 3)) + damaged)
    assert offsets_of(decoder) == [0, 1, 2]


def test_header_keys_that_are_not_utf8_get_replacement_characters() -> None:
    decoder = ColumnDecoder(("headers",))
    decoder.add(build_batch(records(0, 1, headers=(("a\udcff\udcfeé", b""),))))
    assert decoder.take()["headers"].to_pylist() == [[{"key": "a\ufffd\ufffdé", "value": b""}]]


def test_columns_become_the_batch_that_their_records_become() -> None:
    keys, values = [b"k", None, b"", b"k" * 300], [None, b"v", b"w" * 9000, b""]
    times = [NOW, None, NOW - 5, -1]
    expected = RecordBatchBuilder()
    expected.extend([(k, v, -1 if t is None else t, ()) for k, v, t in zip(keys, values, times, strict=True)])
    for key, value, timestamp in (
        (pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(times, pa.int64())),
        (pa.array(keys, pa.large_binary()), pa.array(values, pa.string()), pa.array(times, pa.timestamp("ms", "UTC"))),
        (
            pa.array([b"x", *keys, b"y"], pa.binary())[1:5],
            pa.chunked_array([pa.array(values[:1], pa.binary()), pa.array(values[1:], pa.binary())]),
            pa.array([7, *times], pa.timestamp("ms"))[1:].cast(pa.timestamp("us")),
        ),
    ):
        builder = RecordBatchBuilder()
        encode_columns(builder, key=key, value=value, timestamp=timestamp)
        assert builder.build() == expected.build()


def test_columns_with_headers_come_back() -> None:
    decoder = ColumnDecoder()
    decoder.add(build_batch(records(0, 3, headers=(("h", None),)) + records(3, 1)))
    found = decoder.take()
    builder = RecordBatchBuilder(Codec.LZ4)
    wanted = {name: found[name] for name in ("key", "value", "timestamp", "headers")}
    encode_columns(builder, **wanted)
    again = list(RecordBatch(builder.build()).records())
    assert again == records(0, 3, headers=(("h", None),)) + records(3, 1)
    empty = RecordBatchBuilder()
    encode_columns(empty, timestamp=pa.array([NOW, NOW]))
    assert [record[2:] for record in RecordBatch(empty.build()).records()] == [(None, None, ())] * 2


@pytest.mark.parametrize("implementation", ["compiled"], indirect=True)
@pytest.mark.usefixtures("implementation")
def test_memory_of_values_is_filled_again_only_when_no_column_has_it() -> None:
    """Fresh memory costs a page fault for each 4 KiB, which is as much as the copy of the values. Pure Python leaves
    its memory to pyarrow."""
    decoder = ColumnDecoder(("value",))

    def decoded(letter: bytes) -> Any:
        decoder.add(build_batch([Record(Offset(0), Millis(NOW), None, letter * (3 << 20))]))
        return decoder.take()["value"]

    first, second = decoded(b"a"), decoded(b"b")
    of_first = first.buffers()[2].address
    part = first.slice(0, 1)
    del first
    third = decoded(b"c")
    assert part.to_pylist() == [b"a" * (3 << 20)]
    assert third.to_pylist() == [b"c" * (3 << 20)]
    assert third.buffers()[2].address != of_first  # a slice still has it
    del part
    others = [bytearray(size << 20) for size in (3, 4)]  # malloc would use it for these if it were free
    fourth = decoded(b"d")
    assert all(not any(other[:: 1 << 12]) for other in others)
    assert fourth.buffers()[2].address == of_first
    assert fourth.to_pylist() == [b"d" * (3 << 20)]
    assert second.to_pylist() == [b"b" * (3 << 20)]


def test_invalid_columns_are_rejected() -> None:
    times = pa.array([NOW])
    for error, wrong in (
        (InvalidRecord, {"timestamp": times, "key": pa.array([1])}),
        (InvalidRecord, {"timestamp": times, "key": pa.array([b"a", b"b"])}),
        (InvalidRecord, {"timestamp": times, "headers": pa.array([], columns.arrow_type("headers"))}),
        (InvalidRecord, {"timestamp": times, "headers": pa.array([[None]], columns.arrow_type("headers"))}),
        (InvalidTimestamp, {"timestamp": pa.array(["now"])}),
        (InvalidTimestamp, {"timestamp": pa.array([-2])}),
        (InvalidTimestamp, {"timestamp": pa.array([2**63], pa.uint64())}),
    ):
        builder = RecordBatchBuilder()
        with pytest.raises(error):
            encode_columns(builder, **wrong)
        assert builder.count == 0


def test_a_corrupt_array_is_rejected_before_its_bytes_are_read() -> None:
    """pyarrow rejects most of these arrays, but not all: it checks only the first and the last end."""
    buffer = pytest.importorskip("tidelog.records.v2._writer").RecordsBuffer()
    times = struct.pack("=2q", NOW, NOW)
    for ends, row in (((0, 100, 3), 0), ((5, 2, 3), 0), ((-1, 1, 3), 0), ((0, 2, 1), 1), ((0, 2), 2), ((), 0)):
        with pytest.raises(CorruptRecord, match=f"row {row} of the column value"):
            buffer.extend_columns(2, None, (None, struct.pack(f"={len(ends)}i", *ends), b"abc", 0), times, 0)
    for bits, first, given in ((b"", 0, times), (None, -1, times), (b"\xff", 7, times), (None, 0, times[:-1])):
        with pytest.raises(CorruptRecord):
            buffer.extend_columns(2, (bits, struct.pack("=3i", 0, 1, 2), b"abc", first), None, given, 0)
