"""What a leader stamps, rewrites and rejects. Seed documents: append-as-leader.txt (validateMessagesAndAssignOffsets
and what follows), message-format-and-validation.txt (KAFKA-1718, KIP-31, compacted topics), log-append-roll-flush.txt.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.reference import iter_records, set_max_timestamp
from tidelog.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    TidelogError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from tidelog.records import (
    HEADER_BYTES,
    AppendRules,
    EndTxnMarker,
    Header,
    LegacyRecordBatch,
    Record,
    RecordBatch,
    analyze,
    assign_offsets,
    build_batch,
    build_message_set,
    control_batch,
    crc32c,
    iter_batches,
)
from tidelog.records.assignment import Assigned, inspect
from tidelog.records.v2.compression import compress
from tidelog.records.v2.record import encode_record
from tidelog.types import Codec, Millis, Offset, TimestampType

NOW = 1_700_000_000_000
LOG_END = 1000
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
STAMPED = TimestampType.LOG_APPEND_TIME

each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
each_compressed = pytest.mark.parametrize("codec", CODECS[1:], ids=lambda codec: codec.name.lower())
each_magic = pytest.mark.parametrize("magic", [0, 1, 2])


def record(offset: int, key: bytes | None = b"k", value: bytes | None = b"v", timestamp: int = NOW) -> Record:
    return Record(Offset(offset), Millis(timestamp), key, value)


THREE = [record(0, b"a", b"1"), record(1, None, None, NOW + 7), record(2, b"", b"3", NOW - 7)]


def build(records: list[Record], magic: int, codec: Codec = Codec.NONE) -> bytes:
    return build_batch(records, codec) if magic == 2 else build_message_set(records, magic, codec)


def assign(data: bytes, by_broker: bool = False, now: int = NOW + 100, **rules: Any) -> Assigned:
    """Assign offsets in a read-only buffer, inspected before, and in a writable one. Checks that the results agree."""
    buffer = bytearray(data)
    facts = analyze(buffer)
    given_rules = AppendRules(**rules)
    assigned = []
    for given_buffer in (data, buffer):
        try:
            inspected = (
                inspect(data, facts, given_rules, now=now, by_broker=by_broker) if given_buffer is data else None
            )
            assigned.append(
                assign_offsets(
                    given_buffer,
                    facts,
                    given_rules,
                    first_offset=LOG_END,
                    leader_epoch=4,
                    now=now,
                    by_broker=by_broker,
                    inspected=inspected,
                )
            )
        except TidelogError:
            assert buffer == data, "a rejected request has changed nothing"
            if given_buffer is buffer:
                raise
    first, second = assigned
    assert first.records == second.records
    assert first[1:] == second[1:]
    assert first.headers == tuple(batch.header for batch in iter_batches(first.records))
    return second


def stored(assigned: Assigned) -> list[RecordBatch]:
    """Return the batches for the log; checks that they are valid, numbered from the log end on, and as the result
    describes them."""
    batches = list(iter_batches(assigned.records, partial_tail="raise"))
    for batch in batches:
        batch.ensure_valid()
    records = list(iter_records(assigned.records))
    assert [r.offset for r in records] == list(range(LOG_END, LOG_END + len(records)))
    assert (assigned.first_offset, assigned.last_offset) == (LOG_END, LOG_END + len(records) - 1)
    assert assigned.record_count == len(records)
    facts = analyze(assigned.records)
    assert (facts.valid_bytes, facts.last_offset) == (len(assigned.records), assigned.last_offset)
    assert facts.max_timestamp == assigned.max_timestamp
    return batches


def contents(records: Any) -> list[tuple[bytes | None, bytes | None, int]]:
    return [(r.key, r.value, r.timestamp) for r in records]


# --- in place ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
def test_a_v2_batch_is_stamped_and_not_one_payload_byte_changes(codec: Codec) -> None:
    data = build_batch(THREE, codec, producer_id=9, producer_epoch=1, base_sequence=5)
    assigned = assign(data)
    (batch,) = stored(assigned)
    assert (batch.partition_leader_epoch, batch.codec) == (4, codec)
    assert bytes(batch.buffer[17:]) == data[17:]
    assert (assigned.rewritten, assigned.converted) == (False, 0)
    assert (assigned.max_timestamp, assigned.log_append_time) == (NOW + 7, -1)


@each_codec
def test_log_append_time_is_stamped_in_place(codec: Codec) -> None:
    """append-as-leader.txt: with LOG_APPEND_TIME, logAppendTime is the broker's clock."""
    for magic in (1, 2):
        assigned = assign(build(THREE, magic, codec), magic=magic, timestamp_type=STAMPED)
        for batch in stored(assigned):
            assert batch.timestamp_type is STAMPED
            assert {r.timestamp for r in batch.records()} == {NOW + 100}
        assert (assigned.max_timestamp, assigned.log_append_time) == (NOW + 100, NOW + 100)
        assert not assigned.rewritten


@pytest.mark.parametrize("magic", [0, 1])
def test_bare_messages_are_stamped_one_by_one(magic: int) -> None:
    """log-append-roll-flush.txt: assignOffsets counts every message."""
    data = build(THREE, magic)
    assigned = assign(data, magic=magic)
    batches = stored(assigned)
    assert [batch.last_offset for batch in batches] == [1000, 1001, 1002]
    assert contents(iter_records(assigned.records)) == contents(iter_records(data))
    assert not assigned.rewritten


@each_compressed
def test_a_v1_wrapper_that_counts_from_0_is_stamped_and_not_recompressed(codec: Codec) -> None:
    """message-format-and-validation.txt, KIP-31: only the wrapper's offset is set, to that of its last message."""
    data = build(THREE, 1, codec)
    assigned = assign(data, magic=1)
    (batch,) = stored(assigned)
    assert batch.last_offset == 1002
    assert bytes(batch.buffer[8:]) == data[8:]
    assert not assigned.rewritten


@each_compressed
def test_a_v1_wrapper_gets_the_largest_timestamp_inside_it(codec: Codec) -> None:
    """kafka-python and aiokafka send 0 there."""
    inner = b"".join(build([r], 1) for r in THREE)
    value = compress(codec, _numbered_from_0(inner), magic=1)
    body = struct.pack(">bbqii", 1, codec, 0, -1, len(value)) + value
    (batch,) = stored(assign(struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body, magic=1))
    assert batch.max_timestamp == NOW + 7


def _numbered_from_0(messages: bytes) -> bytes:
    data = bytearray(messages)
    for index, batch in enumerate(iter_batches(messages)):
        struct.pack_into(">q", data, batch.position, index)
    return bytes(data)


def test_a_wrong_largest_timestamp_of_a_v2_batch_is_corrected() -> None:
    """Time index and retention use it. Kafka's leader corrects it too."""
    data = bytearray(build_batch(THREE))
    set_max_timestamp(data, TimestampType.CREATE_TIME, 2**60)
    (batch,) = stored(assign(bytes(data)))
    assert batch.max_timestamp == NOW + 7


# --- rebuilt -----------------------------------------------------------------------------------------------------


@each_compressed
def test_a_v1_wrapper_with_other_offsets_is_rebuilt(codec: Codec) -> None:
    """message-format-and-validation.txt, KIP-31: the relative offsets are verified. Old clients write wrong ones."""
    data = build_message_set([r._replace(offset=Offset(r.offset * 3)) for r in THREE], 1, codec)
    assigned = assign(data, magic=1)
    (batch,) = stored(assigned)
    assert isinstance(batch, LegacyRecordBatch)
    assert [message.offset for message in batch.inner_messages()[1]] == [0, 1, 2]
    assert contents(batch.records()) == contents(THREE)
    assert assigned.rewritten


@each_compressed
def test_a_v0_wrapper_is_always_rebuilt(codec: Codec) -> None:
    """message-format-and-validation.txt, before KIP-31: every inner message gets its absolute offset."""
    assigned = assign(build(THREE, 0, codec), magic=0)
    (batch,) = stored(assigned)
    assert isinstance(batch, LegacyRecordBatch)
    assert [message.offset for message in batch.inner_messages()[1]] == [1000, 1001, 1002]
    assert (batch.last_offset, batch.codec, assigned.rewritten) == (1002, codec, True)


@pytest.mark.parametrize("magic", [0, 1])
def test_several_wrappers_become_one_in_the_codec_of_the_last(magic: int) -> None:
    """message-format-and-validation.txt, KAFKA-1718: the broker joins them."""
    data = (
        build(THREE, magic, Codec.GZIP) + build(THREE[:1], magic) + build(THREE, magic, Codec.LZ4) + build(THREE, magic)
    )
    assigned = assign(data, magic=magic)
    (batch,) = stored(assigned)
    assert (batch.codec, batch.count, batch.last_offset) == (Codec.LZ4, 10, 1009)
    assert contents(batch.records()) == contents(iter_records(data))
    assert assigned.rewritten


def test_messages_that_exceed_the_limit_together_are_rejected() -> None:
    """message-format-and-validation.txt, KAFKA-1718: each message was small enough, the joined one is not; the size is
    validated twice."""
    wrappers = [build([record(0, None, bytes([i]) * 40)], 1, Codec.SNAPPY) for i in range(20)]
    data = b"".join(wrappers)
    limit = max(map(len, wrappers))
    assert analyze(data, batch_bytes_max=limit).batch_count == 20
    with pytest.raises(RecordTooLarge, match=r"format v1, codec snappy.*max.message.bytes"):
        assign(data, magic=1, batch_bytes_max=limit)
    assert len(stored(assign(data, magic=1, batch_bytes_max=10_000))) == 1


@each_codec
@each_magic
@pytest.mark.parametrize("sent_codec", CODECS)
def test_the_topics_codec_replaces_the_producers(codec: Codec, magic: int, sent_codec: Codec) -> None:
    """message-format-and-validation.txt: compression.type, or with "producer" that of the request."""
    data = build(THREE, magic, sent_codec)
    assigned = assign(data, magic=magic, codec=codec)
    for batch in stored(assigned):
        assert batch.codec is codec
    assert contents(iter_records(assigned.records)) == contents(iter_records(data))
    assert assigned.rewritten == (codec is not sent_codec or (magic == 0 and codec is not Codec.NONE))


def test_a_recompressed_batch_changes_only_its_codec() -> None:
    data = build_batch(
        [r._replace(headers=(("h", b"1"),)) for r in THREE],
        producer_id=9,
        producer_epoch=1,
        base_sequence=5,
        is_transactional=True,
    )
    (batch,) = stored(assign(data, codec=Codec.ZSTD, level=7))
    sent = RecordBatch(data)
    assert batch.header[7:] == sent.header[7:]
    assert batch.is_transactional
    assert [r._replace(offset=Offset(r.offset - LOG_END)) for r in batch.records()] == list(sent.records())


@each_magic
@pytest.mark.parametrize("target", [0, 1, 2])
@each_codec
def test_any_format_is_converted_to_the_topics(magic: int, target: int, codec: Codec) -> None:
    data = build(THREE, magic, codec)
    assigned = assign(data, magic=target)
    batches = stored(assigned)
    assert {batch.magic for batch in batches} == {target}
    assert {batch.codec for batch in batches} == {codec}
    keep_times = magic > 0 and target > 0
    expected = [(r.key, r.value, r.timestamp if keep_times else -1) for r in THREE]
    assert contents(iter_records(assigned.records)) == expected
    assert assigned.converted == (3 if magic != target else 0)
    if target == 2:
        assert len(batches) == 1
        assert batches[0].partition_leader_epoch == 4


@pytest.mark.parametrize("target", [1, 2])
@each_codec
def test_log_append_time_survives_conversion(target: int, codec: Codec) -> None:
    for magic in (0, 1, 2):
        assigned = assign(build(THREE, magic, codec), magic=target, timestamp_type=STAMPED)
        for batch in stored(assigned):
            assert batch.timestamp_type is STAMPED
            assert {r.timestamp for r in batch.records()} == {NOW + 100}


def test_a_v0_topic_has_no_log_append_time() -> None:
    assigned = assign(build(THREE, 1), magic=0, timestamp_type=STAMPED)
    assert {r.timestamp for r in iter_records(assigned.records)} == {-1}
    assert assigned.max_timestamp == -1


def test_a_partial_tail_is_dropped() -> None:
    """append-as-leader.txt, trimInvalidBytes."""
    for magic in (0, 1, 2):
        whole = build(THREE, magic)
        assigned = assign(whole + whole[: len(whole) // 3 - 1], magic=magic)
        assert len(assigned.records) == len(whole)


# --- control -----------------------------------------------------------------------------------------------------


def test_a_coordinators_marker_is_stamped_and_not_compressed() -> None:
    marker = control_batch(
        EndTxnMarker(committed=True, coordinator_epoch=1), timestamp=NOW, producer_id=9, producer_epoch=1
    )
    (batch,) = stored_marker(assign(marker, by_broker=True, codec=Codec.GZIP))
    assert bytes(batch.buffer[17:]) == marker[17:]
    with pytest.raises(InvalidRecord, match="control batch"):
        assign(marker)
    with pytest.raises(UnsupportedForMessageFormat, match="control batch"):
        assign(marker, by_broker=True, magic=1)


def stored_marker(assigned: Assigned) -> list[RecordBatch]:
    assert not assigned.rewritten
    batches = stored(assigned)
    assert all(batch.codec is Codec.NONE for batch in batches)
    return batches


# --- rejected -----------------------------------------------------------------------------------------------------


def test_two_v2_batches_are_rejected() -> None:
    with pytest.raises(InvalidRecord, match="2 batches of format v2"):
        assign(build(THREE, 2) * 2)


def test_mixed_formats_are_rejected() -> None:
    for first, second in ((0, 1), (1, 0), (1, 2), (2, 0)):
        with pytest.raises(InvalidRecord, match="mix message formats"):
            assign(build(THREE, first) + build(THREE, second))


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize(
    ("headers", "sent", "reason"),
    [
        ((), {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}, "idempotent"),
        ((), {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}, "transactional"),
        ((("h", None),), {}, "1 of its records have headers"),
    ],
)
def test_nothing_but_timestamps_is_dropped_for_an_older_topic(
    target: int, headers: tuple[Header, ...], sent: dict[str, Any], reason: str
) -> None:
    records = [*THREE[:2], THREE[2]._replace(headers=headers)]
    with pytest.raises(UnsupportedForMessageFormat, match=reason):
        assign(build_batch(records, **sent), magic=target)


def test_zstd_is_rejected_below_v2() -> None:
    with pytest.raises(UnsupportedCompressionType, match="no codec zstd"):
        assign(build_batch(THREE, Codec.ZSTD), magic=1)
    assert stored(assign(build_batch(THREE, Codec.ZSTD), magic=1, codec=Codec.GZIP))[0].codec is Codec.GZIP
    assert stored(assign(build(THREE, 1, Codec.GZIP), codec=Codec.ZSTD))[0].codec is Codec.ZSTD


@each_codec
@each_magic
def test_a_compacted_topic_lists_the_records_without_a_key(codec: Codec, magic: int) -> None:
    """message-format-and-validation.txt: InvalidMessageException, which only the deep iteration detects."""
    with pytest.raises(InvalidRecord, match="1 of 3 records were rejected") as caught:
        assign(build(THREE, magic, codec), magic=magic, key_required=True)
    assert [(error.index, "no key" in error.message) for error in caught.value.record_errors] == [(1, True)]


def test_records_are_counted_over_all_messages_of_a_request() -> None:
    data = build(THREE, 1, Codec.GZIP) + build(THREE, 1) + build(THREE, 1, Codec.GZIP)
    with pytest.raises(InvalidRecord, match="3 of 9") as caught:
        assign(data, magic=1, key_required=True)
    assert [error.index for error in caught.value.record_errors] == [1, 4, 7]


@each_codec
def test_timestamps_out_of_range_are_listed(codec: Codec) -> None:
    for magic in (1, 2):
        data = build(THREE, magic, codec)
        assert stored(assign(data, magic=magic, timestamp_before_max_ms=107, timestamp_after_max_ms=0))
        with pytest.raises(InvalidTimestamp, match="out of range: milliseconds since 1970 from ") as caught:
            assign(data, magic=magic, timestamp_before_max_ms=106)
        assert [error.index for error in caught.value.record_errors] == [2]
        with pytest.raises(InvalidTimestamp) as caught:
            assign(data, magic=magic, timestamp_after_max_ms=-100)
        assert [error.index for error in caught.value.record_errors] == [1]
        assert stored(assign(data, magic=magic, timestamp_type=STAMPED, timestamp_before_max_ms=0))


@each_codec
def test_a_timestamp_before_1970_is_rejected_unless_it_is_none(codec: Codec) -> None:
    for magic in (1, 2):
        data = build([record(0, timestamp=NOW), record(1, timestamp=-1), record(2, timestamp=7)], magic)
        wrong = data.replace(struct.pack(">q", 7), struct.pack(">q", -7)) if magic == 1 else _moved_to_1969(data)
        wrong = _with_right_checksums(wrong, magic)
        rule_sets: list[dict[str, Any]] = [{}, {"timestamp_type": STAMPED}, {"codec": codec}, {"magic": 3 - magic}]
        for rules in rule_sets:
            with pytest.raises(InvalidTimestamp, match="out of range") as caught:
                assign(wrong, **{"magic": magic, **rules})
            assert [error.index for error in caught.value.record_errors] == [2]


@pytest.mark.parametrize("rules", [{}, {"timestamp_type": STAMPED}, {"timestamp_after_max_ms": 2**63 - 1 - NOW}])
def test_the_largest_number_is_rejected_because_it_could_not_be_written_again(rules: dict[str, Any]) -> None:
    for time, is_taken in ((2**63 - 2, True), (2**63 - 1, False)):
        data = build([record(0, timestamp=7)], 1)
        data = _with_right_checksums(data.replace(struct.pack(">q", 7), struct.pack(">q", time)), 1)
        if is_taken:
            assert stored(assign(data, magic=1, **rules))
        else:
            with pytest.raises(InvalidTimestamp, match="out of range"):
                assign(data, magic=1, **rules)


def _moved_to_1969(batch: bytes) -> bytes:
    """The same three records, the last one 7 ms before 1970."""
    payload = b"".join(encode_record(i, t - NOW, b"k", b"v") for i, t in enumerate((NOW, -1, -7)))
    return struct.pack(">qi", 0, 49 + len(payload)) + batch[12:HEADER_BYTES] + payload


def _with_right_checksums(data: bytes, magic: int) -> bytes:
    changed = bytearray(data)
    for batch in iter_batches(data):
        crc = batch.computed_crc()
        struct.pack_into(">I", changed, batch.position + (17 if magic == 2 else 12), crc)
    return bytes(changed)


def test_a_producer_must_not_claim_log_append_time() -> None:
    for data in (
        build_batch(THREE, timestamp_type=STAMPED),
        build_message_set(THREE, 1, timestamp_type=STAMPED, log_append_time=NOW),
        build_message_set(THREE, 1, Codec.GZIP, timestamp_type=STAMPED, log_append_time=NOW),
    ):
        with pytest.raises(InvalidTimestamp, match="only a broker"):
            assign(data, magic=1)


def test_v2_offsets_that_do_not_count_from_0_are_rejected_record_by_record() -> None:
    """Kafka accepts them in an uncompressed batch, and readers then see offsets that no leader assigned."""
    payload = b"".join(encode_record(delta, 0, b"k", None) for delta in (0, 2, 1))
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(payload), 0, 2, 0, 0, 2, NOW, NOW, -1, -1, -1, 3)
    data = bytearray(header + payload)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    with pytest.raises(InvalidRecord, match="does not follow") as caught:
        assign(bytes(data))
    assert [error.index for error in caught.value.record_errors] == [1, 2]


def test_a_batch_with_invalid_records_is_corrupt() -> None:
    for codec in Codec:
        payload = compress(codec, b"\x0c\x00\x00\x00\x01\x01\x00")
        header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(payload), 0, 2, 0, codec, 1, NOW, NOW, -1, -1, -1, 2)
        data = bytearray(header + payload)
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
        with pytest.raises(CorruptRecord):
            assign(bytes(data))


def test_a_truncated_inner_message_is_rejected_although_readers_ignore_it() -> None:
    """A message that readers ignore would be lost when the set is rewritten."""
    inner = build(THREE, 1)[:-1]
    value = compress(Codec.GZIP, inner)
    body = struct.pack(">bbqii", 1, Codec.GZIP, NOW, -1, len(value)) + value
    with pytest.raises(CorruptRecord, match="truncated"):
        assign(struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body, magic=1)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_beyond_the_memory_limit_are_rejected(magic: int) -> None:
    data = build([record(0, None, bytes(60_000))], magic, Codec.GZIP)
    assert stored(assign(data, magic=magic, decompressed_bytes_max=61_000))
    with pytest.raises(RecordTooLarge):
        assign(data, magic=magic, decompressed_bytes_max=59_000)
    if magic < 2:
        with pytest.raises(RecordTooLarge):
            assign(data * 2, magic=magic, decompressed_bytes_max=61_000)


# --- random -------------------------------------------------------------------------------------------------------

some_fields = st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20), st.integers(-1, 2**50))


@given(
    st.lists(some_fields, min_size=1, max_size=6),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from(CODECS),
    st.sampled_from([None, *CODECS]),
    st.booleans(),
)
def test_any_records_are_stored_in_order_with_offsets_without_a_hole(
    fields: list[tuple[bytes | None, bytes | None, int]],
    magic: int,
    target: int,
    sent_codec: Codec,
    codec: Codec | None,
    stamped: bool,
) -> None:
    data = build([record(index, *field) for index, field in enumerate(fields)], magic, sent_codec)
    assigned = assign(data, magic=target, codec=codec, timestamp_type=STAMPED if stamped else TimestampType.CREATE_TIME)
    for batch in stored(assigned):
        assert batch.magic == target
        assert batch.codec is (sent_codec if codec is None else codec)
    assert [(r.key, r.value) for r in iter_records(assigned.records)] == [field[:2] for field in fields]
    if target > 0:
        times = [NOW + 100] * len(fields) if stamped else [t if magic else -1 for *_, t in fields]
        assert [r.timestamp for r in iter_records(assigned.records)] == times


@given(st.data(), st.integers(0, 2), st.integers(0, 2), st.sampled_from(CODECS))
def test_any_corrupt_request_is_rejected_with_a_documented_error(
    draw: st.DataObject, magic: int, target: int, codec: Codec
) -> None:
    """Corrupt content under a matching checksum: a faulty producer."""
    data = bytearray(build(THREE, magic, codec))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(12, len(data) - 1))] = draw.draw(st.integers(0, 255))
    if magic == 2:
        data[16] = 2
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    else:
        for batch in iter_batches(build(THREE, magic, codec)):
            data[batch.position + 16] = magic
            data[batch.position + 8 : batch.position + 12] = struct.pack(">i", batch.size - 12)
            crc = zlib.crc32(data[batch.position + 16 : batch.position + batch.size])
            struct.pack_into(">I", data, batch.position + 12, crc)
    try:
        assigned = assign(bytes(data), magic=target, decompressed_bytes_max=10_000)
    except (
        CorruptRecord,
        InvalidRecord,
        InvalidTimestamp,
        RecordTooLarge,
        UnsupportedCompressionType,
        UnsupportedForMessageFormat,
    ):
        return
    for batch in iter_batches(assigned.records, partial_tail="raise"):
        batch.ensure_valid()
        list(batch.records())
