"""Keys and values of `__consumer_offsets`, named and ordered as in Kafka's schemas.

Source: Kafka 4.1, OffsetCommitKey to ConsumerGroupRegularExpressionValue (KIP-496, KIP-848, KIP-1101).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from replication.coordination.coordinator_record import CoordinatorRecord
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, LeaderEpoch, Millis, Offset, PartitionIndex

NO_TOPIC_ID = UUID(int=0)
"""The topic id of an offset that was committed by name only."""


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """A partition of which a group commits offsets."""

    group: str
    topic: str
    partition: PartitionIndex


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """A committed offset. leader_epoch: of the record before it, -1 unknown. commit_timestamp: wall time in ms.
    expire_timestamp: when a commit of an early version expires, -1 by the settings."""

    offset: Offset
    metadata: str
    commit_timestamp: Millis
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    expire_timestamp: Millis = NO_TIMESTAMP
    topic_id: UUID = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """A group of the classic protocol."""

    group: str


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member of a classic group. Timeouts in ms; subscription and assignment are bytes of the clients' protocol."""

    member_id: str
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """A classic group with its members. current_state_timestamp: wall time in ms, -1 unknown."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[MemberMetadata, ...]
    current_state_timestamp: Millis = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey:
    """A group of the consumer protocol (KIP-848)."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataValue:
    """The group epoch. metadata_hash: of the subscribed topics when the epoch began, 0 unknown (KIP-1101)."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataKey:
    """The subscribed topics of a group, as Kafka before 4.1 recorded them."""

    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionRacks:
    """The racks of the replicas of a partition."""

    partition: PartitionIndex
    racks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribedTopic:
    """A topic as a group last saw it."""

    topic_id: UUID
    topic_name: str
    num_partitions: int
    partition_metadata: tuple[PartitionRacks, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataValue:
    """The topics as the group last saw them."""

    topics: tuple[SubscribedTopic, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey:
    """A member of a consumer group."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """An assignment protocol that a member of the classic protocol supports, with its subscription."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """What a member of the classic protocol told a consumer group."""

    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataValue:
    """What a member last told of itself. classic_member_metadata: None for members of the consumer protocol."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    """The target assignment of a group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch that the target assignment is for."""

    assignment_epoch: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberKey:
    """A member in the target assignment."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Some partitions of a topic."""

    topic_id: UUID
    partitions: tuple[PartitionIndex, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberValue:
    """The partitions that a member is to have."""

    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    """A member's progress towards the target assignment."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    """What a member has. state: 0 stable, 1 unrevoked partitions, 2 unreleased partitions, 127 unknown (KIP-848)."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TopicPartitions, ...]
    partitions_pending_revocation: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionKey:
    """A pattern that members of a group subscribe to."""

    group_id: str
    regular_expression: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionValue:
    """The topics that match a pattern. version: the metadata offset of the evaluation. timestamp: wall time in ms."""

    topics: tuple[str, ...]
    version: int
    timestamp: Millis


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
