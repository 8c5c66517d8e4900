"""What the controller is told and what it answers: events in, effects out, as values.

Requests carry a `request_id` that the driver gives them; its `Reply` comes once everything the answer rests on is
committed. `at` is monotonic time in milliseconds, stamped by the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from replication.controller.image import ClusterImage, PartitionState
from replication.controller.metadata import DirectoryState, MetadataRecord
from replication.raft.voters import ReplicaKey
from tidelog.errors import TidelogError
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
    TopicId,
)

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Activated:
    """This process leads the metadata quorum now.

    image: all of the log, committed or not, the record that opens the quorum epoch included.
    node_id, incarnation: of this very process. An older incarnation of the same node is certainly dead.
    """

    at: Millis
    image: ClusterImage
    node_id: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Resigned:
    """This process does not lead the quorum any more: the outcome of whatever still waits is unknown."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Every metadata record below `offset` is committed."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed. Comes several times within a session."""

    at: Millis


@dataclass(frozen=True, slots=True)
class NodeHeard:
    """A node's heartbeat reached this node, which is not the active controller: should it become it, it knows who was
    silent."""

    at: Millis
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class VotersReviewed:
    """Time to see whether the voter set should change. caught_up: replicas of the metadata log that hold all that is
    committed."""

    at: Millis
    caught_up: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class DamagedReplica:
    """A replica that has lost some of what it had reported as held: found by its recovery, or later.

    leader_epoch: the last one in which its process used it; what it said in that one may still be on its way."""

    key: PartitionKey
    reason: str
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class RegisterNode:
    """A node's process has started. intact: those of its directories that still have all that was written to them,
    synced or not."""

    request_id: int
    at: Millis
    cluster_id: str
    node_id: NodeId
    incarnation: Incarnation
    listeners: Mapping[str, Endpoint]
    rack: str
    boot_id: bytes
    directories: tuple[DirectoryState, ...]
    intact: frozenset[DirectoryId]
    metadata_offset: Offset
    damaged: tuple[DamagedReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A node is alive. `metadata_offset`: how far it has applied the log; `ready`: it may lead and join, as far as it
    knows; `want_drain`: it is being stopped; `damaged`: found since it registered; `offline_directories`: log
    directories that it named then and that have failed since."""

    request_id: int
    at: Millis
    node_id: NodeId
    node_epoch: NodeEpoch
    metadata_offset: Offset
    ready: bool
    want_drain: bool = False
    damaged: tuple[DamagedReplica, ...] = ()
    offline_directories: tuple[DirectoryId, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make a topic, or only say whether it could be made."""

    request_id: int
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Remove a topic by name, by id, or by both; None: whichever life of the name."""

    request_id: int
    name: str
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A replica, and which registration of it the leader means (KIP-903)."""

    node_id: NodeId
    node_epoch: NodeEpoch


@dataclass(frozen=True, slots=True)
class Proposal:
    """An in-sync set as the leader wants it, and the state that it rests on."""

    key: PartitionKey
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    new_isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """Proposals of one leader; each is judged by itself."""

    request_id: int
    node_id: NodeId
    node_epoch: NodeEpoch
    proposals: tuple[Proposal, ...]


class ElectionType(Enum):
    """Which leader an operator asks for."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Let the preferred replicas lead, or, `UNCLEAN`, let whoever has most lead where nobody may. keys: empty: every
    partition that wants it. validate_only: of an unclean election, say what it would do."""

    request_id: int
    election: ElectionType
    keys: tuple[PartitionKey, ...] = ()
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaEnd:
    """What a replica says that it has: the epoch of its last record (-1: none) and its log end, in which directory
    (None: it has no log). lost: which offsets below its end cannot be read, in words."""

    node_id: NodeId
    last_epoch: LeaderEpoch
    log_end: Offset
    directory_id: DirectoryId | None
    lost: str = ""


@dataclass(frozen=True, slots=True)
class LogEndsTold:
    """The answers to `AskLogEnds`: of whoever answered in time."""

    number: int
    ends: tuple[ReplicaEnd, ...]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas that a partition is to have, the preferred leader first; None: end the one that is under way."""

    key: PartitionKey
    replicas: tuple[NodeId, ...] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """Move replicas; each partition is judged by itself."""

    request_id: int
    reassignments: tuple[Reassignment, ...]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One setting of a topic: its new value; None: the default again."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Change some settings of a topic, or only say whether they could be."""

    request_id: int
    topic: str
    changes: tuple[ConfigChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Let a topic have `count` partitions in all, or only say whether it could."""

    request_id: int
    topic: str
    count: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Raise the feature level of the metadata, or only say whether it could be."""

    request_id: int
    level: int
    validate_only: bool = False


AdminEvent: TypeAlias = (
    CreateTopic | DeleteTopic | ElectLeaders | AlterReassignments | AlterConfigs | CreatePartitions | UpdateFeatures
)
"""What an operator or a client asks to be changed."""


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A node wants a block of producer ids to give away."""

    request_id: int
    node_id: NodeId
    node_epoch: NodeEpoch


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """A node that is gone for good is to vote no more. directory_id: by which directory; None: whichever does."""

    request_id: int
    node_id: NodeId
    directory_id: DirectoryId | None = None


Event: TypeAlias = (
    Activated
    | Resigned
    | Committed
    | Ticked
    | NodeHeard
    | VotersReviewed
    | RemoveVoter
    | RegisterNode
    | Heartbeat
    | AlterPartition
    | LogEndsTold
    | AdminEvent
    | AllocateProducerIds
)

# --- results ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registered:
    """The number of the registration."""

    node_epoch: NodeEpoch


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """`drained`: nothing is left that another could lead; the node is fenced and may stop."""

    fenced: bool
    drained: bool


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """The topic's id; None where it was only checked. warnings: settings that do not have the effect they name."""

    topic_id: TopicId | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The topic is gone."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """Of one proposal: the partition's state after it, or why it was refused."""

    key: PartitionKey
    outcome: PartitionState | TidelogError


@dataclass(frozen=True, slots=True)
class AlteredPartitions:
    """In the order of the proposals."""

    partitions: tuple[AlteredPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What came of one partition's part in a request: its state after it, or why it was refused. `loss`: what may be
    lost by it, empty where nothing is."""

    key: PartitionKey
    outcome: PartitionState | TidelogError
    loss: str = ""


@dataclass(frozen=True, slots=True)
class PartitionOutcomes:
    """In the order of the request; of an election of all partitions, those that wanted one."""

    partitions: tuple[PartitionOutcome, ...]


@dataclass(frozen=True, slots=True)
class TopicAltered:
    """The topic has its new settings, or partitions, in the image from this offset on. warnings: as in TopicCreated."""

    topic_id: TopicId
    offset: Offset
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FeaturesUpdated:
    """The level in force."""

    level: int


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The ids from `first` on, `count` of them, are the node's to give away."""

    first: ProducerId
    count: int


@dataclass(frozen=True, slots=True)
class VoterRemoved:
    """The voter is none any more."""


Result: TypeAlias = (
    Registered
    | HeartbeatAnswer
    | TopicCreated
    | TopicDeleted
    | AlteredPartitions
    | PartitionOutcomes
    | TopicAltered
    | FeaturesUpdated
    | VoterRemoved
    | ProducerIdBlock
)

# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Append these records to the metadata log as one batch, the first at `base_offset`."""

    base_offset: Offset
    records: tuple[MetadataRecord, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    request_id: int
    result: Result | TidelogError


@dataclass(frozen=True, slots=True)
class Report:
    """Something that an operator should read."""

    text: str


@dataclass(frozen=True, slots=True)
class AskLogEnds:
    """Ask these nodes how much of the partition they have; `LogEndsTold` with this number must follow, soon.
    commanded: an operator waits for it, and damaged logs may be read for some seconds."""

    number: int
    key: PartitionKey
    nodes: tuple[NodeId, ...]
    commanded: bool = False


@dataclass(frozen=True, slots=True)
class UncleanlyElected:
    """A replica leads that may lack committed records. An operator must read that, and it is counted."""

    key: PartitionKey
    leader: NodeId
    text: str


Effect: TypeAlias = Append | Reply | Report | AskLogEnds | UncleanlyElected
