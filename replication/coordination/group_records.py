"""Keys and values of `__consumer_offsets`, which are the messages of Kafka's schemas of the group coordinator, and
their bytes.

Source: Kafka 4.1 (KIP-496, KIP-848, KIP-1101), CoordinatorRecordType and GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from replication.coordination.coordinator_record import CoordinatorRecord, RecordCodec, RecordFormat
from tidelog.protocol.kafka.message_codec import NO_UUID
from tidelog.protocol.kafka.messages.consumer_group_current_member_assignment_key import (
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
    ConsumerGroupCurrentMemberAssignmentKey,
)
from tidelog.protocol.kafka.messages.consumer_group_current_member_assignment_value import (
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from tidelog.protocol.kafka.messages.consumer_group_member_metadata_key import (
    CONSUMER_GROUP_MEMBER_METADATA_KEY,
    ConsumerGroupMemberMetadataKey,
)
from tidelog.protocol.kafka.messages.consumer_group_member_metadata_value import (
    CONSUMER_GROUP_MEMBER_METADATA_VALUE,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from tidelog.protocol.kafka.messages.consumer_group_metadata_key import (
    CONSUMER_GROUP_METADATA_KEY,
    ConsumerGroupMetadataKey,
)
from tidelog.protocol.kafka.messages.consumer_group_metadata_value import (
    CONSUMER_GROUP_METADATA_VALUE,
    ConsumerGroupMetadataValue,
)
from tidelog.protocol.kafka.messages.consumer_group_partition_metadata_key import (
    CONSUMER_GROUP_PARTITION_METADATA_KEY,
    ConsumerGroupPartitionMetadataKey,
)
from tidelog.protocol.kafka.messages.consumer_group_partition_metadata_value import (
    CONSUMER_GROUP_PARTITION_METADATA_VALUE,
    ConsumerGroupPartitionMetadataValue,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.protocol.kafka.messages.consumer_group_regular_expression_key import (
    CONSUMER_GROUP_REGULAR_EXPRESSION_KEY,
    ConsumerGroupRegularExpressionKey,
)
from tidelog.protocol.kafka.messages.consumer_group_regular_expression_value import (
    CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
    ConsumerGroupRegularExpressionValue,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_member_key import (
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
    ConsumerGroupTargetAssignmentMemberKey,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_member_value import (
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ConsumerGroupTargetAssignmentMemberValue,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_metadata_key import (
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_metadata_value import (
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.protocol.kafka.messages.group_metadata_key import GROUP_METADATA_KEY, GroupMetadataKey
from tidelog.protocol.kafka.messages.group_metadata_value import (
    GROUP_METADATA_VALUE,
    GroupMetadataValue,
    MemberMetadata,
)
from tidelog.protocol.kafka.messages.offset_commit_key import OFFSET_COMMIT_KEY, OffsetCommitKey
from tidelog.protocol.kafka.messages.offset_commit_value import OFFSET_COMMIT_VALUE, OffsetCommitValue
from tidelog.types import NO_TIMESTAMP, OFFSETS_TOPIC, TopicPartitions

__all__ = [
    "GROUP_RECORDS",
    "NO_TOPIC_ID",
    "OTHER_TYPES",
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupKey",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "GroupRecord",
    "GroupValue",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "PartitionMetadata",
    "TopicMetadata",
    "TopicPartitions",
]

NO_TOPIC_ID = NO_UUID
"""The topic id of an offset that was committed by name only."""

GroupKey: TypeAlias = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
GroupValue: TypeAlias = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)
GroupRecord: TypeAlias = CoordinatorRecord[GroupKey, GroupValue]

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


GROUP_RECORDS: Final[RecordCodec[GroupKey, GroupValue]] = RecordCodec(
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
"""The bytes of these records."""
