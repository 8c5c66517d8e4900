"""Bytes of the records in `__consumer_offsets`.

Source: Kafka 4.1, CoordinatorRecordType and GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from typing import Final

from replication.coordination.formats.record_codec import RecordCodec, RecordFormat
from replication.coordination.group_records import GroupRecord, OffsetCommitValue
from tidelog.protocol.kafka.messages.consumer_group_current_member_assignment_key import (
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
)
from tidelog.protocol.kafka.messages.consumer_group_current_member_assignment_value import (
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
)
from tidelog.protocol.kafka.messages.consumer_group_member_metadata_key import CONSUMER_GROUP_MEMBER_METADATA_KEY
from tidelog.protocol.kafka.messages.consumer_group_member_metadata_value import CONSUMER_GROUP_MEMBER_METADATA_VALUE
from tidelog.protocol.kafka.messages.consumer_group_metadata_key import CONSUMER_GROUP_METADATA_KEY
from tidelog.protocol.kafka.messages.consumer_group_metadata_value import CONSUMER_GROUP_METADATA_VALUE
from tidelog.protocol.kafka.messages.consumer_group_partition_metadata_key import CONSUMER_GROUP_PARTITION_METADATA_KEY
from tidelog.protocol.kafka.messages.consumer_group_partition_metadata_value import (
    CONSUMER_GROUP_PARTITION_METADATA_VALUE,
)
from tidelog.protocol.kafka.messages.consumer_group_regular_expression_key import CONSUMER_GROUP_REGULAR_EXPRESSION_KEY
from tidelog.protocol.kafka.messages.consumer_group_regular_expression_value import (
    CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_member_key import (
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_member_value import (
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_metadata_key import (
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_metadata_value import (
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
)
from tidelog.protocol.kafka.messages.group_metadata_key import GROUP_METADATA_KEY
from tidelog.protocol.kafka.messages.group_metadata_value import GROUP_METADATA_VALUE
from tidelog.protocol.kafka.messages.offset_commit_key import OFFSET_COMMIT_KEY
from tidelog.protocol.kafka.messages.offset_commit_value import OFFSET_COMMIT_VALUE
from tidelog.types import NO_TIMESTAMP, OFFSETS_TOPIC

OTHER_TYPES: Final = {
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    17: "StreamsGroupMetadata",
    18: "StreamsGroupPartitionMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
"""Types of records of share groups (KIP-932) and Streams groups (KIP-1071)."""


def _offset_version(value: OffsetCommitValue) -> int:
    return 4 if value.expire_timestamp == NO_TIMESTAMP else 1  # only version 1 has the time of expiry


_CODEC: Final = RecordCodec(
    OFFSETS_TOPIC,
    [
        RecordFormat(OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE, written_version=_offset_version, former_type=0),
        RecordFormat(GROUP_METADATA_KEY, GROUP_METADATA_VALUE, written_version=lambda _: 3),
        RecordFormat(CONSUMER_GROUP_METADATA_KEY, CONSUMER_GROUP_METADATA_VALUE),
        RecordFormat(CONSUMER_GROUP_PARTITION_METADATA_KEY, CONSUMER_GROUP_PARTITION_METADATA_VALUE),
        RecordFormat(CONSUMER_GROUP_MEMBER_METADATA_KEY, CONSUMER_GROUP_MEMBER_METADATA_VALUE),
        RecordFormat(CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY, CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE),
        RecordFormat(CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY, CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE),
        RecordFormat(CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY, CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE),
        RecordFormat(CONSUMER_GROUP_REGULAR_EXPRESSION_KEY, CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE),
    ],
    OTHER_TYPES,
)


def decode_group(key: bytes | None, value: bytes | None) -> GroupRecord:
    """Return a record of `__consumer_offsets`. value: None deletes what the key stands for.

    Raises UnreadableCoordinatorRecord for malformed bytes and for types and versions that are not known.
    """
    return _CODEC.decode(key, value)


def encode_group(record: GroupRecord, version: int | None = None) -> tuple[bytes, bytes | None]:
    """Return key and value of a record. version: of the value; without it, the version that Kafka 4.1 writes.

    Raises InvalidRequest for a name of more than 32,767 bytes.
    """
    return _CODEC.encode(record, version)
