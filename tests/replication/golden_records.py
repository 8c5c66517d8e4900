"""Records of the coordinators' topics with their bytes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from replication.coordination.group_records import (
    NO_TOPIC_ID,
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
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionMetadata,
    TopicMetadata,
    TopicPartitions,
)
from replication.coordination.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
    TransactionTopicPartitions,
)
from tidelog.types import LeaderEpoch, Millis, Offset, PartitionIndex, ProducerId

P = PartitionIndex
ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
ID_HEX = ID.hex
AT = Millis(1_700_000_000_000)
AT_HEX = "0000018bcfe56800"
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
