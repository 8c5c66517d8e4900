"""Requests of operators, and of clients that manage topics. A node forwards the changes to the active controller."""

from __future__ import annotations

from dataclasses import dataclass

from replication.controller.events import (
    ElectionType,
)
from tidelog.errors import TidelogError
from tidelog.security.acls import AclBinding, AclFilter, AclOperation, ResourceType
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    DirectoryId,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    PartitionKey,
    QuotaEntity,
    QuotaValue,
    ScramMechanism,
    TopicId,
)


@dataclass(frozen=True, slots=True)
class TopicPartitionId:
    """A partition by topic name. topic_id: the incarnation of the topic; None: the current one."""

    topic: str
    topic_id: TopicId | None
    partition: PartitionIndex


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
    """A log directory. offline, refusal: why it is offline, and why it rejects appends for lack of space; empty: not.
    reserve_bytes: the part of `usable_bytes`, the free space at the last check, that appends must leave free."""

    directory_id: DirectoryId
    path: str
    offline: str
    usable_bytes: int
    reserve_bytes: int
    refusal: str
    damaged: tuple[DamagedLog, ...]


@dataclass(frozen=True, slots=True)
class DescribeLogDirsAnswer:
    """In the order of the configuration: the first one contains the metadata log."""

    log_dirs: tuple[LogDirState, ...]


@dataclass(frozen=True, slots=True)
class ExplainPartitionsRequest:
    """partitions: empty: every partition with a problem."""

    partitions: tuple[TopicPartitionId, ...]


@dataclass(frozen=True, slots=True)
class ExplainedPartition:
    """Why a partition cannot be read or written (`acks=all`), or `error`: there is no such partition."""

    partition: TopicPartitionId
    error: TidelogError | None = None
    readable: bool = False
    writable: bool = False
    causes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainPartitionsAnswer:
    """In the order of the request."""

    partitions: tuple[ExplainedPartition, ...]


@dataclass(frozen=True, slots=True)
class ExplainRestartRequest:
    """What would stop working while this node is stopped."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class ExplainRestartAnswer:
    """safe: everything stays readable and writable meanwhile. reasons: why not."""

    safe: bool
    reasons: tuple[str, ...]


# --- partitions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest:
    """partitions: empty: every partition that needs the election. validate_only: report what an unclean election would
    do."""

    type: ElectionType
    partitions: tuple[TopicPartitionId, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """The new replicas of a partition, the preferred leader first. cancel: end the reassignment in progress instead."""

    partition: TopicPartitionId
    replicas: tuple[NodeId, ...]
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class AlterReassignmentsRequest:
    """Move replicas; each partition is judged on its own."""

    partitions: tuple[PartitionReassignment, ...]


@dataclass(frozen=True, slots=True)
class ChangedPartition:
    """The leader of a partition after a change, or why it was rejected. loss: records that may be lost by it, as text;
    empty: none. partition: the controller answers without the name of the topic."""

    partition: TopicPartitionId
    error: TidelogError | None = None
    leader: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    loss: str = ""


@dataclass(frozen=True, slots=True)
class ChangedPartitions:
    """In the order of the request; for an election of all partitions, those that needed one."""

    partitions: tuple[ChangedPartition, ...]


@dataclass(frozen=True, slots=True)
class ListReassignmentsRequest:
    """The reassignments in progress."""


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """adding, removing: the replicas that the reassignment adds, and removes once the added ones are in sync."""

    partition: TopicPartitionId
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class ListReassignmentsAnswer:
    """Every partition under reassignment."""

    partitions: tuple[OngoingReassignment, ...]


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
class ClientQuota:
    """All quotas of an entity."""

    entity: QuotaEntity
    values: tuple[QuotaValue, ...]


@dataclass(frozen=True, slots=True)
class DescribeClientQuotasAnswer:
    """In the order of the entities' names."""

    entries: tuple[ClientQuota, ...]


# --- the requests -----------------------------------------------------------------------------------------------------
