"""Keys and values of `__consumer_offsets`: the messages of Kafka's schemas of the group coordinator.

Source: Kafka 4.1 (KIP-496, KIP-848, KIP-1101).
"""

from __future__ import annotations

from typing import TypeAlias

from replication.coordination.coordinator_record import CoordinatorRecord
from tidelog.protocol.kafka.message_codec import NO_UUID
from tidelog.protocol.kafka.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from tidelog.protocol.kafka.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from tidelog.protocol.kafka.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from tidelog.protocol.kafka.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from tidelog.protocol.kafka.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from tidelog.protocol.kafka.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from tidelog.protocol.kafka.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from tidelog.protocol.kafka.messages.consumer_group_partition_metadata_value import (
    ConsumerGroupPartitionMetadataValue,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.protocol.kafka.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from tidelog.protocol.kafka.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tidelog.protocol.kafka.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.protocol.kafka.messages.group_metadata_key import GroupMetadataKey
from tidelog.protocol.kafka.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from tidelog.protocol.kafka.messages.offset_commit_key import OffsetCommitKey
from tidelog.protocol.kafka.messages.offset_commit_value import OffsetCommitValue
from tidelog.types import TopicPartitions

__all__ = [
    "NO_TOPIC_ID",
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
