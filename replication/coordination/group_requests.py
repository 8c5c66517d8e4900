"""Requests to a group coordinator and their answers. Fields as in proto/tidelog/protocol/v1/groups.proto.

Source: KIP-848, and Kafka's ConsumerGroupHeartbeat, OffsetCommit, OffsetFetch, TxnOffsetCommit, ConsumerGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, Protocol
from uuid import UUID

from replication.coordination.group_records import TopicPartitions
from tidelog.cluster_descriptions import GroupListing
from tidelog.errors import TidelogError
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, NodeAddress, Offset, PartitionIndex, ProducerId, TopicId
from tidelog.values import dataclass

CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"
"""The types of groups, as they are shown."""


class CoordinatorType(IntEnum):
    """What a coordinator is for, by Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """Which nodes coordinate these keys?"""

    type: CoordinatorType
    keys: tuple[str, ...]
    """Group ids or transactional ids."""


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """The coordinator of a key."""

    key: str
    error: TidelogError | None = None
    node: NodeAddress | None = None
    """The leader of the partition of the key; its leader epoch is the coordinator epoch."""


@dataclass(frozen=True, slots=True)
class FindCoordinatorAnswer:
    """In the order of the request."""

    coordinators: tuple[FoundCoordinator, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat:
    """A member joins, reports its state, or leaves. None stands for "unchanged since the last request"."""

    group_id: str
    member_id: str
    member_epoch: int
    """The epoch in the last answer; 0 joins, -1 leaves, -2: a static member leaves for a while."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    """-1: unchanged."""
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    """Empty: none."""
    server_assignor: str | None = None
    topic_partitions: tuple[TopicPartitions, ...] | None = None


class VisibleTopics(Protocol):
    """The topics that a principal may describe. Equal views show the same topics."""

    def shows(self, topic: str, /) -> bool:
        """Whether the principal may describe the topic now."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EveryTopic:
    """The view of a principal that may describe all topics."""

    def shows(self, _topic: str, /) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, slots=True)
class MemberHeartbeat:
    """A heartbeat, with what the listener knows about the member."""

    request: ConsumerGroupHeartbeat
    client_id: str
    client_host: str
    view: VisibleTopics = EveryTopic()
    """Limits the topics that the member's pattern matches."""


@dataclass(frozen=True, slots=True)
class MemberNudged:
    """The assignment of a member with an open stream may have changed: decide as if it had sent a heartbeat without
    changes, but do not extend its session. Answered by None if there is nothing to tell it."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class NudgeMembers:
    """Effect: these members of a group should get a MemberNudged if they have a stream open."""

    group_id: str
    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatAnswer:
    """The state of the member after its heartbeat."""

    error: TidelogError | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: tuple[TopicPartitions, ...] | None = None
    """None: unchanged."""


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """An offset of one partition."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    """The next record to read."""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    topic_id: TopicId | None = None
    """The incarnation of the topic; None: the current one."""
    known_offset: Offset | None = None
    """The highest offset that a member had fetched or sent before; None: unknown. If a higher one is committed, later
    requests of the member have overtaken this one."""


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """Commit offsets of a group."""

    group_id: str
    member_id: str
    """Empty for a committer that is no member."""
    member_epoch: int
    instance_id: str | None
    partitions: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True)
class GenerationOffsetCommit(OffsetCommit):
    """The same in a version that has generations, but no epochs: members by KIP-848 may not use it, since it has no
    code for a stale epoch."""


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    """The outcome for one partition."""

    topic: str
    partition: PartitionIndex
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class CommittedPartitions:
    """The answer to a request that commits, deletes or adds something for each partition, in the order of the
    request."""

    partitions: tuple[CommittedPartition, ...]


@dataclass(frozen=True, slots=True)
class TxnOffsetCommit:
    """Commit offsets of a group in a transaction."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    transaction_version: int
    """2: the coordinator of the group adds its partition to the transaction."""
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    partitions: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True)
class NamedPartition:
    """A partition by topic name, in a request: the name and the index are not checked."""

    topic: str
    partition: PartitionIndex


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """Fetch committed offsets of a group."""

    group_id: str
    member_id: str
    member_epoch: int
    partitions: tuple[NamedPartition, ...] | None
    """None: all that have an offset."""
    require_stable: bool = False
    """Refuse an offset that an open transaction may change."""


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """The committed offset of one partition."""

    topic: str
    partition: PartitionIndex
    error: TidelogError | None = None
    offset: Offset = Offset(-1)
    """-1: none is committed."""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class OffsetFetchAnswer:
    """In the order of the request."""

    partitions: tuple[FetchedOffset, ...]


@dataclass(frozen=True, slots=True)
class FetchOffsetsOfGroups:
    """Fetch committed offsets of several groups. Source: Kafka's OffsetFetch from version 8 on."""

    groups: tuple[OffsetFetch, ...]


@dataclass(frozen=True, slots=True)
class OffsetsOfGroup:
    """The committed offsets of a group, or why there are none."""

    group_id: str
    error: TidelogError | None = None
    partitions: tuple[FetchedOffset, ...] = ()
    """In the order of the request."""


@dataclass(frozen=True, slots=True)
class FetchOffsetsOfGroupsAnswer:
    """In the order of the request."""

    groups: tuple[OffsetsOfGroup, ...]


@dataclass(frozen=True, slots=True)
class OffsetDelete:
    """Delete committed offsets. Refused for topics that members subscribe to."""

    group_id: str
    partitions: tuple[NamedPartition, ...]


@dataclass(frozen=True, slots=True)
class ListGroups:
    """List the groups of this coordinator."""

    states: tuple[str, ...] = ()
    """Only groups in these states; empty for all."""
    types: tuple[str, ...] = ()
    """Only groups of these types; empty for all."""


@dataclass(frozen=True, slots=True)
class ListedCoordinator:
    """A coordinator of the node that answers a listing."""

    partition: PartitionIndex
    """Its partition of the internal topic."""
    error: TidelogError | None = None
    """Why its groups or transactional ids are missing from the answer; None if they are listed."""


@dataclass(frozen=True, slots=True)
class ListGroupsAnswer:
    """The groups, by group id."""

    groups: tuple[GroupListing, ...]
    coordinators: tuple[ListedCoordinator, ...] = ()
    """The coordinators that the answer of a node covers; empty in the answer of one coordinator."""
    partition_count: int = 0
    """Number of partitions of the internal topic according to the node; 0 if the topic does not exist, and in the
    answer of one coordinator."""


@dataclass(frozen=True, slots=True)
class DescribeGroups:
    """The groups to describe, all of this coordinator."""

    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    member_epoch: int
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: tuple[TopicPartitions, ...]
    """Its current assignment, without partitions that it has been asked to give up."""
    target: tuple[TopicPartitions, ...]
    """Its target assignment."""
    is_classic: bool = False
    """It is a member of the classic protocol."""


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """The state of a group."""

    group_id: str
    error: TidelogError | None = None
    type: str = ""
    state: str = ""
    group_epoch: int = 0
    """Raised by each change of members, subscriptions or topics."""
    assignment_epoch: int = 0
    """The group epoch of the target assignment."""
    assignor: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeGroupsAnswer:
    """In the order of the request."""

    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroups:
    """The consumer groups (KIP-848) to describe, with the names of topics. Source: Kafka's ConsumerGroupDescribe."""

    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribeConsumerGroupsAnswer:
    """In the order of the request. A classic group is answered with GroupIdNotFound."""

    groups: tuple[DescribedGroup, ...]
    topic_names: Mapping[UUID, str]
    """Those of the topics that members have; one that was deleted since is not in it."""


@dataclass(frozen=True, slots=True)
class DeleteGroups:
    """Delete empty groups with their offsets."""

    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    """The outcome for one group."""

    group_id: str
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class DeleteGroupsAnswer:
    """In the order of the request."""

    groups: tuple[DeletedGroup, ...]
