"""Events, requests and effects of the controller (controller.py).

A request arrives in a `Submitted`, with the `request_id` that the driver gave it; its `Reply` follows once everything
the answer depends on is committed. `at` is monotonic time in milliseconds, stamped by the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import TypeAlias

from replication.common_events import ClockTicked, Report
from replication.controller.image import ClusterImage, PartitionState
from replication.controller.metadata_records import (
    DirectoryState,
    MetadataRecord,
    ScramCredentialRecord,
    ScramCredentialRemovalRecord,
)
from replication.controller.moved_replicas import MovedReplica
from replication.controller.node_state import NodeCause
from replication.controller.refusals import RefusedNode
from replication.controller.snapshot_events import TopicSnapshotChanged, TopicSnapshotRequest
from replication.raft.voters import ReplicaKey
from tidelog.errors import TidelogError
from tidelog.security.acls import AclBinding, AclFilter
from tidelog.types import (
    NO_LEADER_EPOCH,
    DirectoryId,
    Endpoint,
    Incarnation,
    LeaderEpoch,
    Millis,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionKey,
    ProducerId,
    QuotaEntity,
    TopicId,
)
from tidelog.values import dataclass

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Activated:
    """This process became the leader of the metadata quorum."""

    at: Millis
    image: ClusterImage
    """The image of the whole log, committed or not, including the record that opens the quorum epoch."""
    node_id: NodeId
    """The node and incarnation of this process. An older incarnation of the node has certainly ended."""
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Resigned:
    """This process no longer leads the quorum: the outcome of every waiting request is unknown."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Every metadata record below `offset` is committed."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """A heartbeat reached this node, which is not the active controller. If it becomes active, it knows which nodes
    were silent."""

    at: Millis
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class VotersReviewed:
    """Check whether the voter set should change. caught_up: replicas of the metadata log that have all committed
    records."""

    at: Millis
    caught_up: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class DamagedReplica:
    """A replica that lost records which it had reported as durable, found by recovery or later.

    leader_epoch: the last one in which its process used the log; reports from that epoch may still be in flight.
    """

    key: PartitionKey
    reason: str
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class RegisterNode:
    """A node's process has started. intact_directories: its directories that still contain everything written to them,
    synced or not."""

    cluster_id: str
    node_id: NodeId
    incarnation: Incarnation
    listeners: Mapping[str, Endpoint]
    rack: str
    boot_id: bytes
    directories: tuple[DirectoryState, ...]
    intact_directories: frozenset[DirectoryId]
    metadata_offset: Offset
    damaged: tuple[DamagedReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A node is alive."""

    node_id: NodeId
    node_epoch: NodeEpoch
    metadata_offset: Offset
    """The node has applied the metadata log up to here."""
    ready: bool
    """The node can lead partitions and join in-sync sets."""
    want_drain: bool = False
    """The node is being stopped."""
    damaged: tuple[DamagedReplica, ...] = ()
    """Replicas found damaged since the node registered."""
    offline_directories: tuple[DirectoryId, ...] = ()
    """Log directories of its registration that have failed since."""
    refused: tuple[RefusedNode, ...] = ()
    """Registrations of other nodes whose addresses refuse this node's connections."""
    is_notice: bool = False
    """For a voter that is not the active controller, as far as the node knows."""
    feature_level_max: int = 0
    """The highest feature level that the node knows; 0 if its version does not say."""
    moved: tuple[MovedReplica, ...] = ()
    """Replicas of this node that moved to another of its log directories than the metadata name."""


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The replicas of a partition, the preferred leader first."""

    replicas: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create a topic, or only validate the request."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    validate_only: bool = False
    assignments: tuple[ReplicaAssignment, ...] = ()
    """The replicas of each partition, by index; empty: the controller places them. With assignments, the two numbers
    are -1: a controller of an earlier version, which does not know this field, then refuses the request."""

    @property
    def partition_count(self) -> int:
        """The number of partitions, whichever field says it."""
        return len(self.assignments) or self.partitions

    @property
    def replica_count(self) -> int:
        """The replicas of each partition, whichever field says it."""
        return len(self.assignments[0].replicas) if self.assignments else self.replication_factor


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic by name, by id, or by both. topic_id: None for whichever id the name has now."""

    name: str
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A replica, and the registration of it that the leader knows (KIP-903)."""

    node_id: NodeId
    node_epoch: NodeEpoch


@dataclass(frozen=True, slots=True)
class Proposal:
    """An in-sync set that the leader proposes, and the epochs that the proposal is based on."""

    key: PartitionKey
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    new_isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """Proposals of one leader; each is judged on its own."""

    node_id: NodeId
    node_epoch: NodeEpoch
    partitions: tuple[Proposal, ...]


class ElectionType(Enum):
    """Kind of an election requested by an operator."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect the preferred leaders or, `UNCLEAN`, the replica with the most records in partitions that cannot have a
    leader otherwise."""

    type: ElectionType
    partitions: tuple[PartitionKey, ...] = ()
    """Empty for all partitions that need the election."""
    validate_only: bool = False
    """Only report the leaders and the losses of an unclean election."""


@dataclass(frozen=True, slots=True)
class ReplicaEnd:
    """What a replica reports about its log: epoch of the last record (-1: none), log end, directory (None: it has no
    log). lost: the offsets below its end that cannot be read, as text."""

    node_id: NodeId
    last_epoch: LeaderEpoch
    log_end: Offset
    directory_id: DirectoryId | None
    lost: str = ""


@dataclass(frozen=True, slots=True)
class LogEndsReported:
    """The answers to `QueryLogEnds` that arrived in time."""

    number: int
    ends: tuple[ReplicaEnd, ...]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The new replicas of a partition, the preferred leader first."""

    partition: PartitionKey
    replicas: tuple[NodeId, ...] = ()
    cancel: bool = False
    """End the reassignment in progress instead, and remove the queued one."""
    keeps_factor: bool = False
    """Refuse another number of replicas."""
    queued: bool = False
    """Begin it in a wave (move_queue.py)."""


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """Move replicas; each partition is judged on its own."""

    partitions: tuple[Reassignment, ...]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A new value of one setting of a topic or a group; None: reset it to the default."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Change some settings of a topic, or only validate the change."""

    name: str
    changes: tuple[ConfigChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Increase the number of a topic's partitions, or only validate that."""

    name: str
    count: int
    """The new number of partitions, if the controller places their replicas."""
    validate_only: bool = False
    assignments: tuple[ReplicaAssignment, ...] = ()
    """The replicas of each new partition; empty: the controller places them. With assignments, `count` is 0: a
    controller of an earlier version, which does not know this field, then refuses the request."""
    first: int = 0
    """With assignments: the index of the first new partition."""

    @property
    def total(self) -> int:
        """The new number of partitions, whichever field says it."""
        return self.first + len(self.assignments) if self.assignments else self.count


@dataclass(frozen=True, slots=True)
class AlterGroupConfigs:
    """Change the settings of a group, or only validate that. The group need not exist."""

    group_id: str
    changes: tuple[ConfigChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A new limit of one type of quota; None: remove it."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """Changes of the quotas of one entity."""

    entity: QuotaEntity
    changes: tuple[QuotaChange, ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """Change quotas in one atomic batch, or only validate that (KIP-546)."""

    entries: tuple[QuotaAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Raise the feature level of the metadata, or only validate that."""

    level: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """Add rules to the access control lists, or only validate them. Rules that exist already are accepted."""

    bindings: tuple[AclBinding, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Remove the rules that any of the filters selects, or only report them."""

    filters: tuple[AclFilter, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterScramCredentials:
    """Set and remove SCRAM credentials: all of them or, if one is refused, none (KIP-554)."""

    upsertions: tuple[ScramCredentialRecord, ...]
    deletions: tuple[ScramCredentialRemovalRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterCordon:
    """Cordon a node, so that it gets no new replicas, or end that (KIP-1066). directories: cordon only these log
    directories of it, and leave the node and the others as they are."""

    node_id: NodeId
    cordoned: bool
    directories: tuple[DirectoryId, ...] = ()


AdminRequest: TypeAlias = (
    CreateTopic
    | DeleteTopic
    | ElectLeaders
    | AlterReassignments
    | AlterConfigs
    | CreatePartitions
    | UpdateFeatures
    | CreateAcls
    | DeleteAcls
    | AlterScramCredentials
    | AlterClientQuotas
    | AlterGroupConfigs
    | AlterCordon
    | TopicSnapshotRequest
)
"""Changes requested by operators or clients."""


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A node requests a block of producer ids."""

    node_id: NodeId
    node_epoch: NodeEpoch


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """Remove a voter whose node is permanently gone. directory_id: its voting directory; None: whichever votes."""

    node_id: NodeId
    directory_id: DirectoryId | None = None


@dataclass(frozen=True, slots=True)
class UnregisterNode:
    """Remove the registration and the vote of a node that is permanently gone."""

    node_id: NodeId


Request: TypeAlias = (
    RegisterNode | Heartbeat | AlterPartition | AllocateProducerIds | RemoveVoter | UnregisterNode | AdminRequest
)
"""What nodes, operators and clients ask the controller for."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A request arrived at `at`."""

    request_id: int
    at: Millis
    request: Request


Event: TypeAlias = (
    Activated | Resigned | Committed | ClockTicked | HeartbeatReceived | VotersReviewed | LogEndsReported | Submitted
)

# --- results ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registered:
    """The node epoch of the registration."""

    node_epoch: NodeEpoch


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat."""

    fenced: bool
    drained: bool
    """The node leads nothing that another node could lead: it is fenced and may stop."""
    lease_ms: Millis = Millis(0)
    """The lease (sessions.lease_ms), added when the answer leaves the controller."""
    probe: tuple[NodeId, ...] = ()
    """Nodes that refuse the connections of another node: the receiver must probe their addresses."""


@dataclass(frozen=True, slots=True)
class ChangedTopic:
    """The topic is created, deleted or changed, or the reason why not."""

    name: str
    error: TidelogError | None = None
    topic_id: TopicId | None = None
    """None if its creation was only validated, and on errors."""
    metadata_offset: Offset = Offset(-1)
    """The change is in the image from here on."""
    warnings: tuple[str, ...] = ()
    """Settings that do not have the effect they name, and replicas on nodes that do not run."""


@dataclass(frozen=True, slots=True)
class AcceptedIsr:
    """The state of a partition after an accepted proposal."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The outcome of one proposal: the resulting state of the partition, or why it was rejected."""

    key: PartitionKey
    outcome: AcceptedIsr | TidelogError


@dataclass(frozen=True, slots=True)
class AlteredPartitions:
    """The outcomes, in the order of the proposals."""

    partitions: tuple[AlteredPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """The outcome for one partition of a request: its resulting state, or why the request was rejected. `loss`: records
    that may be lost by it, as text; empty if none."""

    key: PartitionKey
    outcome: PartitionState | TidelogError
    loss: str = ""


@dataclass(frozen=True, slots=True)
class PartitionOutcomes:
    """In the order of the request; for an election of all partitions, those that needed one."""

    partitions: tuple[PartitionOutcome, ...]


@dataclass(frozen=True, slots=True)
class ClientQuotasAltered:
    """The quotas are in the image from `metadata_offset` on."""

    metadata_offset: Offset


@dataclass(frozen=True, slots=True)
class GroupConfigsAltered:
    """The settings are in the image from `metadata_offset` on."""

    metadata_offset: Offset


@dataclass(frozen=True, slots=True)
class FeaturesUpdated:
    """The level in effect."""

    level: int


@dataclass(frozen=True, slots=True)
class AclsCreated:
    """created: the number of rules that did not exist before. The rules are in the image from `metadata_offset` on."""

    created: int
    metadata_offset: Offset


@dataclass(frozen=True, slots=True)
class AclsDeleted:
    """The removed rules, sorted. They are not in the image from `metadata_offset` on."""

    bindings: tuple[AclBinding, ...]
    metadata_offset: Offset


@dataclass(frozen=True, slots=True)
class ScramCredentialsAltered:
    """The credentials are in the image from `metadata_offset` on."""

    metadata_offset: Offset


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The node may allocate the `count` ids from `first_producer_id`."""

    first_producer_id: ProducerId
    count: int


@dataclass(frozen=True, slots=True)
class VoterRemoved:
    """The voter is removed."""


@dataclass(frozen=True, slots=True)
class NodeUnregistered:
    """The node is not in the image from `metadata_offset` on. removed_voter: it was a voter until then."""

    removed_voter: bool
    metadata_offset: Offset


@dataclass(frozen=True, slots=True)
class CordonAltered:
    """The image is as requested from `metadata_offset` on. changed: it was not before."""

    changed: bool
    metadata_offset: Offset


Result: TypeAlias = (
    Registered
    | HeartbeatAnswer
    | ChangedTopic
    | AlteredPartitions
    | PartitionOutcomes
    | ClientQuotasAltered
    | GroupConfigsAltered
    | FeaturesUpdated
    | VoterRemoved
    | NodeUnregistered
    | CordonAltered
    | TopicSnapshotChanged
    | ProducerIdBlock
    | AclsCreated
    | AclsDeleted
    | ScramCredentialsAltered
)

# --- effects ----------------------------------------------------------------------------------------------------


class ElectionCause(Enum):
    """Why a partition got a new leader; the value is a label of metrics."""

    PREFERRED = "preferred"
    """The preferred replica leads again."""
    REASSIGNED = "reassigned"
    """The leader is none of the new replicas."""
    DRAINED = "drained"
    """The leader's node is being stopped."""
    FAILED = "failed"
    """The leader's node, log directory or log failed."""
    RESIGNED = "resigned"
    """The leader left the in-sync set that it proposed."""
    RETURNED = "returned"
    """The partition had no leader, and a replica that may lead came back."""
    UNCLEAN = "unclean"
    """The leader may lack committed records."""


@dataclass(frozen=True, slots=True)
class Append:
    """Append these records to the metadata log as one batch, the first at `base_offset`."""

    base_offset: Offset
    records: tuple[MetadataRecord, ...]
    elected: tuple[ElectionCause, ...] = field(default=(), compare=False)
    """For each partition that gets a leader by the batch: why."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    request_id: int
    result: Result | TidelogError


@dataclass(frozen=True, slots=True)
class QueryLogEnds:
    """Query these nodes for their log ends of the partition. The driver must answer soon with `LogEndsReported` of this
    number. commanded: an operator waits, and reading damaged logs may take some seconds."""

    number: int
    key: PartitionKey
    nodes: tuple[NodeId, ...]
    commanded: bool = False


@dataclass(frozen=True, slots=True)
class UncleanlyElected:
    """A replica that may lack committed records leads. It is reported to operators and counted."""

    key: PartitionKey
    leader: NodeId
    text: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """A node is fenced because of a failure. It is reported to operators and counted by cause."""

    node_id: NodeId
    cause: NodeCause
    text: str


@dataclass(frozen=True, slots=True)
class ProbeNode:
    """Another node reports that this node's address refuses connections: find out whether it refuses this node's too.
    The outcome arrives with the heartbeats of this node."""

    node_id: NodeId


Effect: TypeAlias = Append | Reply | Report | QueryLogEnds | UncleanlyElected | Fenced | ProbeNode
