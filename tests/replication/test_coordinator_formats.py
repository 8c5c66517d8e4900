"""Records of `__consumer_offsets` and `__transaction_state`: Kafka's bytes, read and written."""

from __future__ import annotations

from contextlib import suppress
from struct import pack
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replication.coordination.coordinator_record import CoordinatorRecord, RecordCodec
from replication.coordination.group_records import (
    GROUP_RECORDS,
    NO_TOPIC_ID,
    OTHER_TYPES,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionMetadata,
    TopicMetadata,
    TopicPartitions,
)
from replication.coordination.partitioning import java_hash_code, partition_of
from replication.coordination.transaction_records import (
    TRANSACTION_RECORDS,
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
    TransactionState,
    TransactionTopicPartitions,
)
from tests.conformance.kafka_directories import PARTITIONS, segments
from tidelog.errors import InvalidRequest, UnreadableCoordinatorRecord
from tidelog.types import LeaderEpoch, Millis, Offset, PartitionIndex, ProducerId

P = PartitionIndex
ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
ID_HEX = ID.hex
AT = Millis(1_700_000_000_000)
AT_HEX = "0000018bcfe56800"

# --- the bytes of Kafka 4.1 -------------------------------------------------------------------------------------

OFFSET_KEY = OffsetCommitKey("g", "orders", P(3))
OFFSET = OffsetCommitValue(Offset(42), "märk", AT, LeaderEpoch(7), topic_id=ID)
UNKNOWN_EPOCH = OffsetCommitValue(Offset(42), "märk", AT)
CLASSIC_MEMBER = MemberMetadata("m-1", "c", "/127.0.0.1", 45_000, b"\x01\x02", b"", "i-1", 300_000)
CLASSIC_GROUP = GroupMetadataValue("consumer", 5, "range", "m-1", (CLASSIC_MEMBER,), AT)
MEMBER = ConsumerGroupMemberMetadataValue("i", None, "c", "/::1", ("orders",), None, 45_000, "uniform")
TXN = TransactionLogValue(
    ProducerId(1000),
    3,
    60_000,
    TransactionState.ONGOING,
    (TransactionTopicPartitions("orders", (P(0), P(2))),),
    Millis(AT + 5),
    AT,
)


def _classic(**changes: Any) -> GroupMetadataValue:
    member = {name: changes.pop(name) for name in ("rebalance_timeout", "group_instance_id") if name in changes}
    return CLASSIC_GROUP.replace(members=(CLASSIC_MEMBER.replace(**member),), **changes)


GOLDEN: list[tuple[Any, Any, int, str, str]] = [
    # key, value, version, and what Kafka's classes write for them
    (OFFSET_KEY, UNKNOWN_EPOCH, 0, "000100016700066f726465727300000003", f"0000000000000000002a00056dc3a4726b{AT_HEX}"),
    (
        OFFSET_KEY,
        UNKNOWN_EPOCH.replace(expire_timestamp=Millis(AT + 99_000)),
        1,
        "000100016700066f726465727300000003",
        f"0001000000000000002a00056dc3a4726b{AT_HEX}0000018bcfe6eab8",
    ),
    (OFFSET_KEY, UNKNOWN_EPOCH, 2, "000100016700066f726465727300000003", f"0002000000000000002a00056dc3a4726b{AT_HEX}"),
    (
        OFFSET_KEY,
        OFFSET.replace(topic_id=NO_TOPIC_ID),
        3,
        "000100016700066f726465727300000003",
        f"0003000000000000002a0000000700056dc3a4726b{AT_HEX}",
    ),
    (
        OFFSET_KEY,
        OFFSET,
        4,
        "000100016700066f726465727300000003",
        f"0004000000000000002a00000007066dc3a4726b{AT_HEX}010010{ID_HEX}",
    ),
    (
        OFFSET_KEY,
        OffsetCommitValue(Offset(42), "", AT),
        4,
        "000100016700066f726465727300000003",
        f"0004000000000000002affffffff01{AT_HEX}00",
    ),
    (
        GroupMetadataKey("classic"),
        _classic(current_state_timestamp=Millis(-1), rebalance_timeout=-1, group_instance_id=None),
        0,
        "00020007636c6173736963",
        (
            "00000008636f6e73756d657200000005000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e31"
            "0000afc800000002010200000000"
        ),
    ),
    (
        GroupMetadataKey("classic"),
        _classic(current_state_timestamp=Millis(-1), group_instance_id=None),
        1,
        "00020007636c6173736963",
        (
            "00010008636f6e73756d657200000005000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e31"
            "000493e00000afc800000002010200000000"
        ),
    ),
    (
        GroupMetadataKey("classic"),
        _classic(group_instance_id=None),
        2,
        "00020007636c6173736963",
        (
            f"00020008636f6e73756d657200000005000572616e676500036d2d31{AT_HEX}0000000100036d2d31000163000a2f3132372e302e302e31"
            "000493e00000afc800000002010200000000"
        ),
    ),
    (
        GroupMetadataKey("classic"),
        CLASSIC_GROUP,
        3,
        "00020007636c6173736963",
        (
            f"00030008636f6e73756d657200000005000572616e676500036d2d31{AT_HEX}0000000100036d2d310003692d31000163000a"
            "2f3132372e302e302e31000493e00000afc800000002010200000000"
        ),
    ),
    (
        GroupMetadataKey("classic"),
        CLASSIC_GROUP,
        4,
        "00020007636c6173736963",
        (
            f"000409636f6e73756d6572000000050672616e6765046d2d31{AT_HEX}02046d2d3104692d3102630b2f3132372e302e302e31"
            "000493e00000afc8030102010000"
        ),
    ),
    (
        ConsumerGroupMetadataKey("g"),
        ConsumerGroupMetadataValue(9, -5),
        0,
        "0003000167",
        "000000000009010008fffffffffffffffb",
    ),
    (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(9), 0, "0003000167", "00000000000900"),
    (
        ConsumerGroupPartitionMetadataKey("g"),
        ConsumerGroupPartitionMetadataValue(
            (TopicMetadata(ID, "orders", 2, (PartitionMetadata(P(1), ("a", "b")),)),),
        ),
        0,
        "0004000167",
        f"000002{ID_HEX}076f72646572730000000202000000010302610262000000",
    ),
    (
        ConsumerGroupMemberMetadataKey("g", "m"),
        MEMBER,
        0,
        "000500016700016d",
        "00000269000263052f3a3a3102076f7264657273000000afc808756e69666f726d00",
    ),
    (
        ConsumerGroupMemberMetadataKey("g", "m"),
        MEMBER.replace(classic_member_metadata=ClassicMemberMetadata(10_000, (ClassicProtocol("range", b"\t"),))),
        0,
        "000500016700016d",
        "00000269000263052f3a3a3102076f7264657273000000afc808756e69666f726d0100100100002710020672616e676502090000",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey("g"),
        ConsumerGroupTargetAssignmentMetadataValue(8),
        0,
        "0006000167",
        "00000000000800",
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        ConsumerGroupTargetAssignmentMemberValue((TopicPartitions(ID, (P(0), P(2))),)),
        0,
        "000700016700016d",
        f"000002{ID_HEX}0300000000000000020000",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            8, 7, 1, (TopicPartitions(ID, (P(0),)),), (TopicPartitions(ID, (P(2),)),)
        ),
        0,
        "000800016700016d",
        f"000000000008000000070102{ID_HEX}02000000000002{ID_HEX}02000000020000",
    ),
    (
        ConsumerGroupRegularExpressionKey("g", "ord.*"),
        ConsumerGroupRegularExpressionValue(("orders",), 77, AT),
        0,
        "001000016700056f72642e2a",
        f"000002076f7264657273000000000000004d{AT_HEX}00",
    ),
    (
        TransactionLogKey("tx"),
        TXN,
        0,
        "000000027478",
        f"000000000000000003e800030000ea60010000000100066f72646572730000000200000000000000020000018bcfe56805{AT_HEX}",
    ),
    (
        TransactionLogKey("tx"),
        TXN,
        1,
        "000000027478",
        f"000100000000000003e800030000ea600102076f7264657273030000000000000002000000018bcfe56805{AT_HEX}00",
    ),
    (
        TransactionLogKey("tx"),
        TransactionLogValue(
            ProducerId(1000),
            32_766,
            60_000,
            TransactionState.EMPTY,
            None,
            Millis(AT + 5),
            Millis(-1),
            previous_producer_id=ProducerId(999),
            next_producer_id=ProducerId(1001),
            client_transaction_version=2,
            next_producer_epoch=0,
        ),
        1,
        "000000027478",
        (
            "000100000000000003e87ffe0000ea6000000000018bcfe56805ffffffffffffffff04000800000000000003e7010800000000000003e9"
            "0202000203020000"
        ),
    ),
]


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

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
nullable = st.one_of(st.none(), texts)
ids = st.uuids()
int8s = st.integers(-(2**7), 2**7 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def tuples_of(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(elements, max_size=3).map(tuple)


assigned = tuples_of(st.builds(TopicPartitions, ids, tuples_of(int32s)))
classic_members = st.builds(
    MemberMetadata, texts, texts, texts, int32s, st.binary(max_size=9), st.binary(max_size=9), nullable, int32s
)
pairs: list[tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = [
    (
        st.builds(OffsetCommitKey, texts, texts, int32s),
        st.builds(OffsetCommitValue, int64s, texts, int64s, int32s, st.just(-1), ids),
    ),
    (
        st.builds(GroupMetadataKey, texts),
        st.builds(GroupMetadataValue, texts, int32s, nullable, nullable, tuples_of(classic_members), int64s),
    ),
    (st.builds(ConsumerGroupMetadataKey, texts), st.builds(ConsumerGroupMetadataValue, int32s, int64s)),
    (
        st.builds(ConsumerGroupPartitionMetadataKey, texts),
        st.builds(
            ConsumerGroupPartitionMetadataValue,
            tuples_of(
                st.builds(
                    TopicMetadata, ids, texts, int32s, tuples_of(st.builds(PartitionMetadata, int32s, tuples_of(texts)))
                )
            ),
        ),
    ),
    (
        st.builds(ConsumerGroupMemberMetadataKey, texts, texts),
        st.builds(
            ConsumerGroupMemberMetadataValue,
            *(nullable, nullable, texts, texts, tuples_of(texts), nullable, int32s, nullable),
            st.one_of(
                st.none(),
                st.builds(
                    ClassicMemberMetadata, int32s, tuples_of(st.builds(ClassicProtocol, texts, st.binary(max_size=200)))
                ),
            ),
        ),
    ),
    (
        st.builds(ConsumerGroupTargetAssignmentMetadataKey, texts),
        st.builds(ConsumerGroupTargetAssignmentMetadataValue, int32s),
    ),
    (
        st.builds(ConsumerGroupTargetAssignmentMemberKey, texts, texts),
        st.builds(ConsumerGroupTargetAssignmentMemberValue, assigned),
    ),
    (
        st.builds(ConsumerGroupCurrentMemberAssignmentKey, texts, texts),
        st.builds(ConsumerGroupCurrentMemberAssignmentValue, int32s, int32s, int8s, assigned, assigned),
    ),
    (
        st.builds(ConsumerGroupRegularExpressionKey, texts, texts),
        st.builds(ConsumerGroupRegularExpressionValue, tuples_of(texts), int64s, int64s),
    ),
    (
        st.builds(TransactionLogKey, texts),
        st.builds(
            TransactionLogValue,
            *(int64s, int16s, int32s, st.sampled_from(TransactionState)),
            st.one_of(st.none(), tuples_of(st.builds(TransactionTopicPartitions, texts, tuples_of(int32s)))),
            *(int64s, int64s, int64s, int64s, int16s, int16s),
        ),
    ),
]
"""The keys and values of each type."""


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
