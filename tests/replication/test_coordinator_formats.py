"""Records of `__consumer_offsets` and `__transaction_state`: Kafka's bytes, read and written."""

from __future__ import annotations

from contextlib import suppress
from struct import pack
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replication.coordination.coordinator_record import CoordinatorRecord, RecordCodec
from replication.coordination.group_records import (
    GROUP_RECORDS,
    NO_TOPIC_ID,
    OTHER_TYPES,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupKey,
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from replication.coordination.partitioning import java_hash_code, partition_of
from replication.coordination.transaction_records import (
    TRANSACTION_RECORDS,
    TransactionLogKey,
    TransactionRecord,
)
from tests.conformance.kafka_directories import PARTITIONS, segments
from tests.replication.golden_records import (
    AT,
    AT_HEX,
    CLASSIC_GROUP,
    GOLDEN,
    OFFSET,
    OFFSET_KEY,
    TXN,
    UNKNOWN_EPOCH,
    P,
    pairs,
)
from tidelog.errors import InvalidRequest, UnreadableCoordinatorRecord
from tidelog.types import Millis, Offset

# --- the bytes of Kafka 4.1 -------------------------------------------------------------------------------------


def _decode(key: Any, key_bytes: bytes | None, value_bytes: bytes | None) -> CoordinatorRecord[Any, Any]:
    if isinstance(key, TransactionLogKey):
        return TRANSACTION_RECORDS.decode(key_bytes, value_bytes)
    return GROUP_RECORDS.decode(key_bytes, value_bytes)


def _encode(record: CoordinatorRecord[Any, Any], version: int | None = None) -> tuple[bytes, bytes | None]:
    if isinstance(record.key, TransactionLogKey):
        return TRANSACTION_RECORDS.encode(record, version)
    return GROUP_RECORDS.encode(record, version)


@pytest.mark.parametrize(
    ("key", "value", "version", "key_hex", "value_hex"),
    GOLDEN,
    ids=[f"{type(value).__name__}-{number}-v{version}" for number, (_, value, version, *_) in enumerate(GOLDEN)],
)
def test_each_version_has_kafkas_bytes(key: Any, value: Any, version: int, key_hex: str, value_hex: str) -> None:
    """Printed by the classes of Kafka 4.1 for the same values."""
    key_bytes, value_bytes = bytes.fromhex(key_hex), bytes.fromhex(value_hex)
    record = CoordinatorRecord(key, value)
    assert _encode(record, version) == (key_bytes, value_bytes)
    assert _decode(key, key_bytes, value_bytes) == record
    assert _decode(key, key_bytes, None) == CoordinatorRecord(key, None)
    assert _encode(CoordinatorRecord(key, None)) == (key_bytes, None)


def test_every_kind_of_key_has_a_golden_record() -> None:
    assert {type(key) for key, *_ in GOLDEN} == {*get_args(GroupKey), TransactionLogKey}


@pytest.mark.parametrize(
    ("key", "value", "version"),
    [
        (OFFSET_KEY, OFFSET, 4),
        (OFFSET_KEY, OFFSET.replace(topic_id=NO_TOPIC_ID), 4),
        (OFFSET_KEY, OFFSET.replace(expire_timestamp=AT), 1),
        (GroupMetadataKey("classic"), CLASSIC_GROUP, 3),
        (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(9), 0),
        (TransactionLogKey("tx"), TXN, 1),
        (TransactionLogKey("tx"), TXN.replace(client_transaction_version=2), 1),
    ],
    ids=str,
)
def test_without_a_version_values_are_written_as_kafka_4_1_does(key: Any, value: Any, version: int) -> None:
    _, value_bytes = _encode(CoordinatorRecord(key, value))
    assert value_bytes is not None
    assert value_bytes[:2] == pack(">h", version)


def test_a_key_of_the_first_type_is_a_committed_offset() -> None:
    """Kafka 0.8 wrote type 0; a value of version 0 has neither leader epoch nor time of expiry."""
    key, value = bytes.fromhex("000000016700066f726465727300000003"), bytes.fromhex(GOLDEN[0][4])
    assert GROUP_RECORDS.decode(key, value) == CoordinatorRecord(OFFSET_KEY, UNKNOWN_EPOCH)


def test_unknown_tagged_fields_are_passed_over() -> None:
    """KIP-915: a later broker may add tagged fields to a known version, and it may be downgraded."""
    value = bytes.fromhex("000000000009" + "02" + "0008000000000000000b" + "7f03ffffff")
    record = GROUP_RECORDS.decode(bytes.fromhex("0003000167"), value)
    assert record.value == ConsumerGroupMetadataValue(9, 11)


# --- what Kafka's brokers wrote ---------------------------------------------------------------------------------

INTERNAL = [
    (directory, partition)
    for directory, partition in PARTITIONS
    if partition.startswith(("__consumer_offsets", "__transaction_state"))
]


def test_the_folders_of_kafkas_brokers_have_both_topics() -> None:
    assert len(INTERNAL) == 6


@pytest.mark.parametrize(("directory", "partition"), INTERNAL)
def test_records_of_kafkas_brokers_are_read_and_written_unchanged(directory: str, partition: str) -> None:
    key_of_all: set[Any] = set()
    number, partitions = int(partition.rpartition("-")[2]), 2
    for segment in segments(directory, partition):
        for batch, said in segment.pairs():
            if batch.is_control:
                continue
            for record, as_said in zip(batch.records(), said["records"], strict=True):
                codec: RecordCodec[Any, Any] = GROUP_RECORDS if "offsets" in partition else TRANSACTION_RECORDS
                decoded = codec.decode(record.key, record.value)
                assert _encode(decoded) == (record.key, record.value)
                assert [part and part.hex() for part in _encode(decoded)] == as_said[3:5]
                key: Any = decoded.key
                assert partition_of(key.group if "offsets" in partition else key.transactional_id, partitions) == number
                key_of_all.add(decoded.key)
    assert key_of_all


def test_a_record_of_a_kafka_broker_has_its_fields() -> None:
    record = GROUP_RECORDS.decode(
        bytes.fromhex("00010007706c61696e2d31000a636f6465632d6e6f6e6500000000"),
        bytes.fromhex("0004000000000000001cffffffff0678656e6f6e000001a1fe194d9700"),
    )
    assert record == CoordinatorRecord(
        OffsetCommitKey("plain-1", "codec-none", P(0)),
        OffsetCommitValue(Offset(28), "xenon", Millis(0x1A1FE194D97)),
    )


# --- what cannot be read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "name"), OTHER_TYPES.items())
def test_records_of_share_and_streams_groups_are_refused_by_name(number: int, name: str) -> None:
    with pytest.raises(UnreadableCoordinatorRecord, match=rf"__consumer_offsets has type {number} \({name}\)"):
        GROUP_RECORDS.decode(pack(">h", number) + b"\x00\x01g", b"\x00\x00")


@pytest.mark.parametrize("number", [-1, 9, 24, 32_767])
def test_unknown_types_are_refused_by_number(number: int) -> None:
    with pytest.raises(UnreadableCoordinatorRecord, match=rf"__consumer_offsets has type {number}, and .* upgrade"):
        GROUP_RECORDS.decode(pack(">h", number) + b"\x00\x01g", b"\x00\x00")
    with pytest.raises(UnreadableCoordinatorRecord, match=rf"__transaction_state has type {number}, and .* upgrade"):
        TRANSACTION_RECORDS.decode(pack(">h", number) + b"\x00\x01g", b"\x00\x00")


@pytest.mark.parametrize(("key", "value", "version", "key_hex", "value_hex"), GOLDEN)
def test_unknown_versions_are_refused_by_number(
    key: Any, value: Any, version: int, key_hex: str, value_hex: str
) -> None:
    name = type(key).__name__.removesuffix("Key")
    for unknown in (-1, 5):
        changed = pack(">h", unknown) + bytes.fromhex(value_hex)[2:]
        with pytest.raises(UnreadableCoordinatorRecord, match=rf"type {name} has a value of version {unknown}"):
            _decode(key, bytes.fromhex(key_hex), changed)


@pytest.mark.parametrize(("key", "value", "version", "key_hex", "value_hex"), GOLDEN)
def test_bytes_that_end_early_or_late_are_refused(
    key: Any, value: Any, version: int, key_hex: str, value_hex: str
) -> None:
    key_bytes, value_bytes = bytes.fromhex(key_hex), bytes.fromhex(value_hex)
    for end in range(len(key_bytes)):
        with pytest.raises(UnreadableCoordinatorRecord):
            _decode(key, key_bytes[:end], None)
    for end in range(len(value_bytes)):
        with pytest.raises(UnreadableCoordinatorRecord):
            _decode(key, key_bytes, value_bytes[:end])
    with pytest.raises(UnreadableCoordinatorRecord, match="1 bytes follow the last field"):
        _decode(key, key_bytes, value_bytes + b"\x00")
    with pytest.raises(UnreadableCoordinatorRecord, match="1 bytes follow the last field"):
        _decode(key, key_bytes + b"\x00", None)


def test_a_record_without_a_key_is_refused() -> None:
    with pytest.raises(UnreadableCoordinatorRecord, match="__consumer_offsets has no key"):
        GROUP_RECORDS.decode(None, b"\x00\x00")


def test_an_unknown_state_of_a_transaction_is_refused() -> None:
    value = bytearray(bytes.fromhex(GOLDEN[-3][4]))
    value[16] = 8
    with pytest.raises(
        UnreadableCoordinatorRecord, match=r"TransactionLogValue in version 0: 8 is not a valid TransactionState"
    ):
        TRANSACTION_RECORDS.decode(bytes.fromhex("000000027478"), bytes(value))


def test_an_array_longer_than_the_data_is_refused_before_it_is_made() -> None:
    value = bytes.fromhex("00020008636f6e73756d657200000005ffffffff" + AT_HEX + "7fffffff")
    with pytest.raises(UnreadableCoordinatorRecord, match="an array of 2147483647 elements"):
        GROUP_RECORDS.decode(bytes.fromhex("00020007636c6173736963"), value)


@given(st.binary(max_size=40), st.one_of(st.none(), st.binary(max_size=80)))
def test_arbitrary_bytes_give_a_record_or_the_error(key: bytes, value: bytes | None) -> None:
    for decode in (GROUP_RECORDS.decode, TRANSACTION_RECORDS.decode):
        with suppress(UnreadableCoordinatorRecord):
            decode(key, value)


@given(
    st.sampled_from(GOLDEN),
    st.lists(st.tuples(st.integers(min_value=0, max_value=200), st.integers(0, 255)), min_size=1, max_size=4),
)
@example(GOLDEN[4], [(len(GOLDEN[4][4]) // 2 - 17, 0xFF)])
def test_damaged_values_give_a_record_or_the_error(golden: Any, changes: list[tuple[int, int]]) -> None:
    key, _, _, key_hex, value_hex = golden
    value = bytearray(bytes.fromhex(value_hex))
    for position, byte in changes:
        value[position % len(value)] = byte
    try:
        record = _decode(key, bytes.fromhex(key_hex), bytes(value))
    except UnreadableCoordinatorRecord:
        return
    assert _decode(key, *_encode(record)).key == record.key


# --- round trips ------------------------------------------------------------------------------------------------


@given(st.one_of([st.builds(CoordinatorRecord, key, st.one_of(st.none(), value)) for key, value in pairs]))
def test_records_come_back(record: GroupRecord | TransactionRecord) -> None:
    key, value = _encode(record)
    assert _decode(record.key, key, value) == record


def test_names_that_do_not_fit_are_rejected() -> None:
    """A group id is in a plain key, of at most 32,767 bytes; metadata is in a flexible value."""
    with pytest.raises(InvalidRequest, match="has 32768 bytes"):
        GROUP_RECORDS.encode(CoordinatorRecord(GroupMetadataKey("g" * 32_768), None))
    with pytest.raises(InvalidRequest, match="not valid Unicode"):
        GROUP_RECORDS.encode(CoordinatorRecord(GroupMetadataKey("\ud800"), None))
    long = OFFSET.replace(metadata="x" * 40_000)
    assert GROUP_RECORDS.decode(*GROUP_RECORDS.encode(CoordinatorRecord(OFFSET_KEY, long))).value == long


# --- partitions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("orders", -1_008_770_331), ("gruppe-ü😀", -1_282_760_755), ("polygenelubricants", -(2**31))],
)
def test_hash_codes_are_javas(text: str, code: int) -> None:
    assert java_hash_code(text) == code


@pytest.mark.parametrize(
    ("key", "partitions", "partition"),
    [("gruppe-ü😀", 50, 5), ("orders", 50, 31), ("orders", 1, 0), ("polygenelubricants", 50, 0)],
)
def test_partitions_are_kafkas(key: str, partitions: int, partition: int) -> None:
    """The smallest hash code has no absolute value, and counts as 0."""
    assert partition_of(key, partitions) == partition
