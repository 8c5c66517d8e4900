"""Message sets v0 and v1: building, shallow and deep reading, stamping in place, and partial, corrupt or nested input.

Seed document: "Kafka的消息格式" (message-format-and-validation.txt); KIP-31, KIP-32.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.reference import iter_records
from tidelog.client.consumer_record import ConsumerRecord
from tidelog.errors import (
    CorruptRecord,
    InvalidRequest,
    InvalidTimestamp,
    OffsetsNotMonotonic,
    RecordTooLarge,
    TidelogError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from tidelog.records import LegacyRecordBatch, Record, build_batch, build_message_set, iter_batches
from tidelog.records.batches import batch_at
from tidelog.records.legacy.message_builder import MessageSetBuilder
from tidelog.records.legacy.message_set import set_message_timestamp, stamp_message
from tidelog.records.v2.compression import compress, decompress
from tidelog.types import (
    NO_LEADER_EPOCH,
    Codec,
    Millis,
    Offset,
    PartitionIndex,
    TimestampType,
    timestamp_or_none,
)

NOW = 1_700_000_000_000
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
COMPRESSED = CODECS[1:]

each_magic = pytest.mark.parametrize("magic", [0, 1], ids=["v0", "v1"])
each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
each_compressed = pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name.lower())


def record(offset: int, key: bytes | None, value: bytes | None, timestamp: int = NOW) -> Record:
    return Record(Offset(offset), Millis(timestamp), key, value)


def some_records(magic: int, base: int = 5) -> list[Record]:
    times = (NOW, NOW + 5, NOW - 5, -1) if magic else (-1,) * 4
    fields = ((b"k", b"value"), (None, None), (b"", b""), (b"tombstone", None))
    return [record(base + i, *field, timestamp=times[i]) for i, field in enumerate(fields)]


def raw_message(
    offset: int, magic: int, attributes: int, key: bytes | None, value: bytes | None, timestamp: int = NOW
) -> bytes:
    """Return an entry of a message set with any fields and a correct checksum."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic == 1 else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(magic: int, inner: bytes, offset: int, codec: Codec = Codec.GZIP) -> LegacyRecordBatch:
    """Return a valid wrapper around any bytes."""
    batch = batch_at(raw_message(offset, magic, codec, None, compress(codec, inner, magic=magic)))
    assert isinstance(batch, LegacyRecordBatch)
    batch.ensure_valid()
    return batch


# --- round trips -------------------------------------------------------------------------------------------------


@each_magic
@each_codec
def test_built_records_are_read_back(magic: int, codec: Codec) -> None:
    records = some_records(magic)
    data = build_message_set(records, magic, codec)
    batches = list(iter_batches(data, partial_tail="raise"))
    for batch in batches:
        batch.ensure_valid()
        assert batch.magic == magic
        assert batch.codec is codec
        assert not (batch.is_control or batch.is_transactional)
        assert batch.delete_horizon_ms is None
        assert (batch.partition_leader_epoch, batch.producer_id, batch.base_sequence) == (-1, -1, -1)
    assert list(iter_records(data)) == records
    assert len(batches) == (4 if codec is Codec.NONE else 1)


some_fields = st.tuples(
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=40),
    st.integers(-1, 2**62),
    st.integers(1, 1000),
)


@given(st.lists(some_fields, min_size=1, max_size=8), st.integers(0, 1), st.sampled_from(CODECS), st.integers(0, 2**40))
def test_any_records_read_back(
    fields: list[tuple[bytes | None, bytes | None, int, int]], magic: int, codec: Codec, offset: int
) -> None:
    records = []
    for key, value, timestamp, gap in fields:
        records.append(record(offset, key, value, timestamp if magic else -1))
        offset += gap
    data = build_message_set(records, magic, codec)
    for batch in iter_batches(data, partial_tail="raise"):
        batch.ensure_valid()
    assert list(iter_records(data)) == records
    first, *_ = iter_batches(data)
    assert first.base_offset == records[0].offset
    if codec is not Codec.NONE:
        assert (first.last_offset, first.count) == (records[-1].offset, len(records))
        assert first.last_offset_delta == records[-1].offset - records[0].offset
        assert first.max_timestamp == max(r.timestamp for r in records)


def test_shallow_iteration_yields_outer_messages_and_deep_iteration_yields_records() -> None:
    """message-format-and-validation.txt, internalIterator(isShallow): a plain message is one record in both; a wrapper
    is one message in the first and its content in the second."""
    plain = build_message_set([record(0, b"a", b"1")], 1)
    wrapped = build_message_set([record(1, b"b", b"2"), record(2, b"c", b"3")], 1, Codec.GZIP)
    data = plain + wrapped
    first, second = iter_batches(data)
    assert isinstance(first, LegacyRecordBatch)
    assert isinstance(second, LegacyRecordBatch)
    assert (first.is_wrapper, first.key, first.value) == (False, b"a", b"1")
    assert second.is_wrapper
    assert second.key is None
    assert second.value is not None
    assert decompress(Codec.GZIP, second.value) != b""
    assert repr(second) == f"LegacyRecordBatch(v1 wrapper, last offset 2, {second.size} bytes)"
    assert [(r.offset, r.key, r.value) for r in iter_records(data)] == [
        (0, b"a", b"1"),
        (1, b"b", b"2"),
        (2, b"c", b"3"),
    ]


@each_compressed
def test_a_wrapper_has_the_offset_of_its_last_message(codec: Codec) -> None:
    """message-format-and-validation.txt: so a fetch finds the first wrapper whose offset is not below the requested
    one."""
    for magic in (0, 1):
        (batch,) = iter_batches(build_message_set(some_records(magic, base=100), magic, codec))
        assert (batch.header.base_offset, batch.last_offset) == (103, 103)
        assert batch.base_offset == 100


def test_inner_offsets_are_absolute_in_v0_and_relative_in_v1() -> None:
    """KIP-31."""
    for magic, stored in ((0, [100, 101, 102, 103]), (1, [0, 1, 2, 3])):
        (batch,) = iter_batches(build_message_set(some_records(magic, base=100), magic, Codec.GZIP))
        assert isinstance(batch, LegacyRecordBatch)
        _, found = batch.inner_messages()
        assert [message.offset for message in found] == stored
        assert [r.offset for r in batch.records()] == [100, 101, 102, 103]


def test_relative_offsets_with_gaps_are_based_on_the_last() -> None:
    """A cleaner may remove any message from a wrapper, also the first: only the last one's offset is certain."""
    inner = b"".join(raw_message(offset, 1, 0, None, b"") for offset in (3, 4, 9))
    batch = wrapper(1, inner, offset=1009)
    assert [r.offset for r in batch.records()] == [1003, 1004, 1009]
    assert (batch.base_offset, batch.count) == (1003, 3)


def test_a_v1_wrapper_at_offset_0_leaves_inner_offsets_as_they_are() -> None:
    """The offset in a producer's request: old librdkafka, kafka-python and aiokafka all write 0."""
    inner = b"".join(raw_message(offset, 1, 0, None, b"") for offset in (0, 1, 2))
    assert [r.offset for r in wrapper(1, inner, offset=0).records()] == [0, 1, 2]


def test_log_append_time_of_a_wrapper_is_that_of_every_message() -> None:
    """KIP-32."""
    records = some_records(1)
    data = bytearray(build_message_set(records, 1, Codec.LZ4))
    set_message_timestamp(data, 0, TimestampType.LOG_APPEND_TIME, NOW + 99)
    (batch,) = iter_batches(data)
    batch.ensure_valid()
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW + 99)
    assert {r.timestamp for r in batch.records()} == {NOW + 99}
    assert [(r.key, r.value) for r in batch.records()] == [(r.key, r.value) for r in records]


def test_v0_has_no_timestamps() -> None:
    data = build_message_set([record(0, b"k", b"v", timestamp=NOW)], 0)
    (batch,) = iter_batches(data)
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.NO_TIMESTAMP_TYPE, -1)
    assert [r.timestamp for r in batch.records()] == [-1]


def test_one_buffer_may_contain_all_formats() -> None:
    data = b"".join(
        [
            build_message_set(some_records(0, base=0), 0),
            build_message_set(some_records(0, base=4), 0, Codec.LZ4),
            build_message_set(some_records(1, base=8), 1, Codec.SNAPPY),
            build_batch(some_records(1, base=12), Codec.ZSTD),
            build_message_set(some_records(1, base=16), 1),
        ]
    )
    batches = list(iter_batches(data, partial_tail="raise"))
    assert [batch.magic for batch in batches] == [0, 0, 0, 0, 0, 1, 2, 1, 1, 1, 1]
    assert [r.offset for r in iter_records(data)] == list(range(20))
    assert batches[-1].header.end == len(data)
    assert [batch.position for batch in iter_batches(data, position=batches[5].position)] == [
        batch.position for batch in batches[5:]
    ]


# --- the builder -------------------------------------------------------------------------------------------------


@each_codec
def test_a_builder_continues_after_build_and_drops_rejected_records(codec: Codec) -> None:
    builder = MessageSetBuilder(1, codec, base_offset=100)
    builder.append(key=None, value=b"a", timestamp=NOW)
    first = builder.build()
    for refused, error in [
        ({"timestamp": -2}, InvalidTimestamp),
        ({"timestamp": NOW, "offset": 100}, OffsetsNotMonotonic),
        ({"timestamp": NOW, "headers": [("h", b"")]}, UnsupportedForMessageFormat),
    ]:
        with pytest.raises(error):
            builder.append(key=None, value=b"x", **refused)  # type: ignore[arg-type]
    assert builder.build() == first
    builder.append(key=b"k", value=b"b", timestamp=NOW - 1, offset=105)
    data = builder.build()
    assert [r.offset for r in iter_records(data)] == [100, 105]
    assert builder.count == 2
    assert max(batch.max_timestamp for batch in iter_batches(builder.build())) == NOW


def test_invalid_arguments_of_a_message_set_are_rejected() -> None:
    calls: list[tuple[Callable[[], object], type[TidelogError]]] = [
        (lambda: MessageSetBuilder(2), UnsupportedForMessageFormat),
        (lambda: MessageSetBuilder(1, Codec.ZSTD), UnsupportedCompressionType),
        (lambda: MessageSetBuilder(1, timestamp_type=TimestampType.NO_TIMESTAMP_TYPE), InvalidRequest),
        (lambda: MessageSetBuilder(1, timestamp_type=TimestampType.LOG_APPEND_TIME), InvalidRequest),
        (lambda: MessageSetBuilder(1, log_append_time=NOW), InvalidRequest),
        (lambda: MessageSetBuilder(0).build(), InvalidRequest),
    ]
    for call, error in calls:
        with pytest.raises(error):
            call()


# --- in place ----------------------------------------------------------------------------------------------------


@each_magic
@each_codec
def test_an_offset_is_stamped_without_a_new_checksum(magic: int, codec: Codec) -> None:
    """message-format-and-validation.txt: the CRC does not cover offset and size, because brokers rewrite them."""
    buffer = bytearray(build_message_set([record(0, b"k", b"v")], magic, codec) * 2)
    position = len(buffer) // 2
    stamp_message(buffer, position, offset=1000)
    first, second = iter_batches(buffer)
    second.ensure_valid()
    assert (first.last_offset, second.last_offset) == (0, 1000)
    if codec is Codec.NONE or magic == 1:
        assert [r.offset for r in second.records()] == [1000]


def test_a_timestamp_is_stamped_with_a_new_checksum_only_where_it_changes() -> None:
    data = build_message_set([record(0, b"k", b"v")], 1)
    buffer = bytearray(data)
    set_message_timestamp(buffer, 0, TimestampType.CREATE_TIME, NOW)
    assert buffer == data
    set_message_timestamp(buffer, 0, TimestampType.LOG_APPEND_TIME, NOW)
    batch = batch_at(buffer)
    batch.ensure_valid()
    assert batch.crc != batch_at(data).crc
    set_message_timestamp(memoryview(buffer), 0, TimestampType.CREATE_TIME, NOW)
    assert buffer == data


def test_stamps_of_the_wrong_format_are_rejected_and_change_nothing() -> None:
    old, new = bytearray(build_message_set(some_records(0), 0)), bytearray(build_batch(some_records(1)))
    before = bytes(old), bytes(new)
    calls: list[Callable[[], object]] = [
        lambda: stamp_message(new, 0, offset=1),
        lambda: set_message_timestamp(new, 0, TimestampType.CREATE_TIME, 1),
        lambda: set_message_timestamp(old, 0, TimestampType.CREATE_TIME, 1),
    ]
    for call in calls:
        with pytest.raises(UnsupportedForMessageFormat):
            call()
    with pytest.raises(InvalidTimestamp):
        set_message_timestamp(bytearray(build_message_set(some_records(1), 1)), 0, TimestampType.NO_TIMESTAMP_TYPE, -1)
    assert (bytes(old), bytes(new)) == before


# --- partial, or corrupt -----------------------------------------------------------------------------------------


@each_magic
@each_codec
def test_a_message_truncated_at_any_byte_is_partial_and_never_accepted(magic: int, codec: Codec) -> None:
    """message-format-and-validation.txt, makeNextOuter: fewer than 12 bytes, or fewer than the size field, end the
    iteration."""
    whole = build_message_set(some_records(magic), magic)
    data = build_message_set(some_records(magic, base=9), magic, codec)
    size = next(iter_batches(data)).size
    for length in range(size):
        partial = whole + data[:length]
        assert [r.offset for r in iter_records(partial)] == [5, 6, 7, 8]
        if length:
            with pytest.raises(CorruptRecord, match="truncated"):
                list(iter_batches(partial, partial_tail="raise"))


@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
@pytest.mark.parametrize("missing", [0, 5])
def test_a_size_below_the_minimum_is_corrupt_even_in_a_partial_message(size: int, missing: int) -> None:
    """message-format-and-validation.txt, makeNextOuter: the size is checked before the bytes that are present."""
    data = bytearray(build_message_set([record(0, None, None)], 0))
    struct.pack_into(">i", data, 8, size)
    with pytest.raises(CorruptRecord, match="less than the minimum of any format"):
        list(iter_batches(data[: len(data) - missing]))


def test_a_v1_message_has_room_for_its_timestamp() -> None:
    data = bytearray(build_message_set([record(0, None, None)], 1))
    struct.pack_into(">i", data, 8, 21)
    with pytest.raises(CorruptRecord, match="less than the minimum of format v1"):
        list(iter_batches(data))


def test_a_truncated_last_inner_message_is_ignored_or_reported_on_request() -> None:
    """message-format-and-validation.txt, deepIterator: EOFException ends the iteration (allDone)."""
    inner = raw_message(0, 0, 0, b"a", b"1") + raw_message(1, 0, 0, b"b", b"2")
    for missing in range(1, 28):
        batch = wrapper(0, inner[:-missing], offset=1)
        assert [r.key for r in batch.records()] == [b"a"]
        with pytest.raises(CorruptRecord, match="truncated"):
            batch.inner_messages(tail="raise")
    assert len(wrapper(0, inner, offset=1).inner_messages(tail="raise")[1]) == 2


def test_an_inner_size_below_the_minimum_is_corrupt() -> None:
    """message-format-and-validation.txt, deepIterator: InvalidMessageException for a corrupt size."""
    with pytest.raises(CorruptRecord, match="has size 13"):
        list(wrapper(0, struct.pack(">qi", 0, 13) + bytes(13), offset=0).records())


@each_magic
@each_compressed
def test_nested_wrappers_are_rejected(magic: int, codec: Codec) -> None:
    """message-format-and-validation.txt: recursive in theory, at most one message set in practice."""
    inner = build_message_set(some_records(magic, base=0), magic, codec)
    with pytest.raises(CorruptRecord, match="compressed itself"):
        list(wrapper(magic, inner, offset=3).records())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (raw_message(0, 1, Codec.GZIP, None, None), "without a value"),
        (raw_message(0, 1, 5, None, b""), "codec 5"),
        (raw_message(0, 1, Codec.ZSTD, None, b""), "no codec zstd"),
        (raw_message(0, 0, Codec.ZSTD, None, b""), "no codec zstd"),
        (raw_message(-1, 1, 0, None, b""), "offsets from -1 on"),
        (raw_message(2**63 - 1, 1, 0, None, b""), "outside of 0 to"),
    ],
)
def test_invalid_outer_messages_are_rejected_under_a_correct_checksum(data: bytes, reason: str) -> None:
    with pytest.raises(TidelogError, match=reason):
        batch_at(data).ensure_valid()


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (b"", "without messages"),
        (raw_message(0, 2, 0, None, b"")[:-4] + bytes(200), "magic 2"),
        (raw_message(0, 0, 0, None, b"")[:8] + struct.pack(">i", 14) + bytes(4) + b"\x01" + bytes(9), "magic 1"),
        (raw_message(5, 1, 0, None, b""), "larger offset 5"),
    ],
)
def test_invalid_message_sets_are_corrupt(inner: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        list(wrapper(1, inner, offset=4).records())


@each_magic
@pytest.mark.parametrize("where", ["outer", "inner"])
@pytest.mark.parametrize(
    ("key_length", "value_length"), [(-2, 0), (2**31 - 1, 0), (0, -2), (0, 2**31 - 1), (0, 1), (1, -1), (5, -1)]
)
def test_fields_that_do_not_fill_their_message_are_corrupt(
    magic: int, where: str, key_length: int, value_length: int
) -> None:
    body = struct.pack(">bb", magic, 0) + bytes(8 * magic)
    body += struct.pack(">i", key_length) + struct.pack(">i", value_length)
    data = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    with pytest.raises(CorruptRecord, match="claims"):
        list((batch_at(data) if where == "outer" else wrapper(magic, data, offset=0)).records())
    if where == "outer":
        with pytest.raises(CorruptRecord, match="claims"):
            batch_at(data).ensure_valid()


def _outcome(data: bytes) -> str:
    """Return how a reader that verifies everything treats these bytes: one valid message with a flipped bit."""
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
    return "accepted"


@each_magic
@each_codec
def test_every_flipped_bit_is_detected_where_the_format_allows(magic: int, codec: Codec) -> None:
    """The checksum covers everything from the magic on, and is itself compared. The offset is not covered, since
    brokers rewrite it; only a negative one is detected. The size is not covered either: a wrong one moves the end of
    the bytes under the checksum, or makes the bytes after it invalid."""
    data = build_message_set([record(6, b"key", b"value")], magic, codec)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 0x80 >> bit % 8
        field, outcome = bit // 8, _outcome(bytes(flipped))
        if field < 8:
            assert outcome == ("accepted" if bit else "refused by the check"), bit
        elif field < 12 or field == 16:
            assert outcome in ("partial", "refused by the walk", "refused by the check"), bit
        else:
            assert outcome == "refused by the check", bit


@given(st.binary(max_size=150), st.integers(0, 1), st.sampled_from(COMPRESSED), st.integers(0, 5))
def test_any_message_set_inside_a_wrapper_gives_records_or_the_documented_error(
    inner: bytes, magic: int, codec: Codec, offset: int
) -> None:
    batch = wrapper(magic, inner, offset, codec)
    try:
        assert all(isinstance(found, Record) for found in batch.records(max_bytes=10_000))
    except CorruptRecord:
        return
    assert batch.count == len(list(batch.records()))


@given(st.binary(max_size=100), st.integers(0, 1), st.sampled_from(COMPRESSED))
def test_any_compressed_value_gives_records_or_the_documented_errors(value: bytes, magic: int, codec: Codec) -> None:
    batch = batch_at(raw_message(0, magic, codec, None, value))
    batch.ensure_valid()
    with suppress(CorruptRecord, RecordTooLarge):
        assert all(isinstance(found, Record) for found in batch.records(max_bytes=10_000))


@given(st.lists(st.integers(0, 2**16), min_size=1, max_size=4), st.integers(0, 255), st.integers(0, 1))
def test_a_corrupt_set_gives_batches_or_the_documented_errors(positions: list[int], byte: int, magic: int) -> None:
    data = bytearray(build_message_set(some_records(magic), magic) + build_message_set(some_records(1), 1, Codec.GZIP))
    for position in positions:
        data[position % len(data)] = byte
    with suppress(CorruptRecord, RecordTooLarge, UnsupportedCompressionType):
        for batch in iter_batches(data):
            list(batch.records(max_bytes=10_000))


@each_compressed
def test_records_beyond_the_callers_limit_are_rejected(codec: Codec) -> None:
    data = build_message_set([record(0, None, bytes(100_000))], 1, codec)
    (batch,) = iter_batches(data)
    with pytest.raises(RecordTooLarge, match="50000"):
        batch.records(max_bytes=50_000)
    assert len(list(batch.records(max_bytes=200_000))) == 1


@each_magic
@each_codec
def test_messages_are_located_from_an_offset_on(magic: int, codec: Codec) -> None:
    wanted = some_records(magic)
    data = build_message_set(wanted, magic, codec)
    of_magic = TimestampType.NO_TIMESTAMP_TYPE if magic == 0 else TimestampType.CREATE_TIME
    found = [
        located
        for batch in iter_batches(data)
        for located in batch.located_records(ConsumerRecord, "orders", 2, wanted[1].offset, NO_LEADER_EPOCH)
    ]
    assert found == [
        ConsumerRecord("orders", PartitionIndex(2), each.offset, timestamp_or_none(each.timestamp), *each[2:], of_magic)
        for each in wanted[1:]
    ]
    assert magic > 0 or {each.timestamp for each in found} == {None}
