"""Requests of operators, and of clients that manage topics. A node forwards the changes to the active controller."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from replication.controller.events import (
    AlterConfigs,
    AlterScramCredentials,
    ChangedTopic,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectionType,
    QuotaAlteration,
)
from tidelog.cluster_descriptions import PartitionExplanation, PartitionResult, ReassignmentDescription, ReplicaLogDir
from tidelog.errors import TidelogError
from tidelog.security.acls import AclBinding, AclFilter, AclOperation, ResourceType
from tidelog.types import (
    DirectoryId,
    Endpoint,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionKey,
    QuotaEntity,
    QuotaValue,
    ScramMechanism,
    TopicId,
    TopicPartition,
)
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class TopicPartitionId(TopicPartition):
    """A partition by topic name. topic_id: the incarnation of the topic; None: the current one. It does not count for
    equality: a partition that came with it is found among those without."""

    topic_id: TopicId | None = None


# --- state of the cluster ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeClusterRequest:
    """The state of the cluster."""


@dataclass(frozen=True, slots=True)
class DescribeLogDirsRequest:
    """The log directories of the node that receives the request."""


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """A log that has lost records: offsets, file, byte and reason as text."""

    key: PartitionKey
    lost: str


@dataclass(frozen=True, slots=True)
class LogDirState:
    """A log directory."""

    directory_id: DirectoryId
    path: str
    offline: str
    """Why it is offline; empty if it is not."""
    usable_bytes: int
    reserve_bytes: int
    """The part of `usable_bytes`, the free space at the last check, that appends must leave free."""
    refusal: str
    """Why it rejects appends for lack of space; empty if it does not."""
    damaged: tuple[DamagedLog, ...]


@dataclass(frozen=True, slots=True)
class DescribeLogDirsAnswer:
    """In the order of the configuration: the first one contains the metadata log."""

    log_dirs: tuple[LogDirState, ...]


@dataclass(frozen=True, slots=True)
class LogDirMove:
    """A replica of the node that receives the request moves to another of its log directories."""

    partition: TopicPartitionId
    path: str
    """As its configuration names the directory. The present one cancels a move."""


@dataclass(frozen=True, slots=True)
class AlterReplicaLogDirsRequest:
    """Move replicas between log directories (KIP-113)."""

    moves: tuple[LogDirMove, ...]


@dataclass(frozen=True, slots=True)
class DescribeReplicaLogsRequest:
    """The logs of the node that receives the request, by log directory."""

    partitions: frozenset[TopicPartition] | None
    """Those to describe; None: all."""


@dataclass(frozen=True, slots=True)
class DescribeReplicaLogsAnswer:
    """In the order of the configuration."""

    log_dirs: tuple[ReplicaLogDir, ...]


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    """The replicas of the metadata log."""

    is_forwarded: bool = False
    """Another node asks the leader: a node that does not lead answers with an error."""


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A replica of the metadata log, as the leader knows it. Times are of the leader's clock; -1: unknown."""

    node_id: NodeId
    directory_id: DirectoryId
    log_end_offset: Offset
    """Records below it are on its disk; -1: unknown."""
    last_fetch_ms: Millis
    """-1 also for the leader."""
    last_caught_up_ms: Millis
    """Its last fetch, if it then had every committed record."""
    listeners: Mapping[str, Endpoint]
    """The addresses of a voter."""


@dataclass(frozen=True, slots=True)
class DescribeQuorumAnswer:
    """By node."""

    leader_id: NodeId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class ExplainPartitionsRequest:
    """partitions: empty: every partition with a problem."""

    partitions: tuple[TopicPartitionId, ...]


@dataclass(frozen=True, slots=True)
class ExplainPartitionsAnswer:
    """In the order of the request."""

    partitions: tuple[PartitionExplanation, ...]


@dataclass(frozen=True, slots=True)
class ExplainRestartRequest:
    """What would stop working while this node is stopped."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class ExplainRestartAnswer:
    """Whether a node may be stopped for a while."""

    safe: bool
    """All partitions stay readable and writable while the node is stopped."""
    reasons: tuple[str, ...]
    """Why it is not safe."""


# --- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """Each topic is created, or validated, on its own."""

    topics: tuple[CreateTopic, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopicsRequest:
    """Each topic is deleted on its own."""

    topics: tuple[DeleteTopic, ...]


@dataclass(frozen=True, slots=True)
class CreatePartitionsRequest:
    """Each topic gets its partitions on its own."""

    topics: tuple[CreatePartitions, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigsRequest:
    """Each topic gets its settings on its own."""

    topics: tuple[AlterConfigs, ...]


@dataclass(frozen=True, slots=True)
class ChangedTopics:
    """In the order of the request."""

    topics: tuple[ChangedTopic, ...]


# --- partitions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest:
    """Elect the leaders of partitions."""

    type: ElectionType
    partitions: tuple[TopicPartitionId, ...]
    """Empty for all partitions that need the election."""
    validate_only: bool = False
    """Only report the leaders and the losses of an unclean election."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """The new replicas of a partition, the preferred leader first. cancel: end the reassignment in progress instead,
    and remove the queued one."""

    partition: TopicPartitionId
    replicas: tuple[NodeId, ...]
    cancel: bool = False
    replacements: tuple[NodeId, ...] = ()
    """Instead of `replicas`: as many new replicas as there are now (KIP-860). A controller of an earlier version, which
    does not know this field, refuses the request for its lack of replicas."""
    queued: bool = False
    """Let the controller begin it when few enough others are in progress."""


@dataclass(frozen=True, slots=True)
class AlterReassignmentsRequest:
    """Move replicas; each partition is judged on its own."""

    partitions: tuple[PartitionReassignment, ...]


@dataclass(frozen=True, slots=True)
class ChangedPartitions:
    """In the order of the request; for an election of all partitions, those that needed one. The controller answers
    without the names of topics."""

    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class ListReassignmentsRequest:
    """The reassignments in progress."""


@dataclass(frozen=True, slots=True)
class ListReassignmentsAnswer:
    """Every partition under reassignment."""

    partitions: tuple[ReassignmentDescription, ...]


# --- users ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeScramCredentialsRequest:
    """users: empty: all."""

    users: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """What is shown of a credential."""

    name: str
    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class DescribeScramCredentialsAnswer:
    """Sorted by user."""

    credentials: tuple[ScramCredentialInfo, ...]


@dataclass(frozen=True, slots=True)
class AlterUsersOneByOne:
    """As Kafka changes credentials: of each user all or nothing, whatever becomes of the others."""

    users: tuple[AlterScramCredentials, ...]


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """error: why it was not changed."""

    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class ChangedParts:
    """In the order of the request."""

    parts: tuple[ChangedPart, ...]


# --- features ---------------------------------------------------------------------------------------------------------


class FeatureUpdateType(IntEnum):
    """What an update of a feature may do, by Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A feature of Kafka gets this level."""

    name: str
    level: int
    type: int = FeatureUpdateType.UPGRADE
    """Of FeatureUpdateType; others are refused."""


@dataclass(frozen=True, slots=True)
class UpdateNamedFeatures:
    """Make all of these updates, or none; or only validate that. The answer is FeaturesUpdated."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


# --- access control lists ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeAclsRequest:
    """The rules that the filter selects."""

    filter: AclFilter


@dataclass(frozen=True, slots=True)
class DescribeAclsAnswer:
    """Sorted."""

    bindings: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class AclQuestion:
    """Which rule decides, by the image and the settings of the node that receives the request."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str


# --- quotas -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasRequest:
    """Entities with this user and this client id; empty: the default; None: all."""

    user: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True)
class AlterQuotasOneByOne:
    """As Kafka changes quotas: those of each entity, whatever becomes of the others. Or only validate that."""

    entries: tuple[QuotaAlteration, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """All quotas of an entity."""

    entity: QuotaEntity
    values: tuple[QuotaValue, ...]


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasAnswer:
    """In the order of the entities' names."""

    entries: tuple[ClientQuota, ...]


# --- the requests -----------------------------------------------------------------------------------------------------
