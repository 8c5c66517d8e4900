"""The records of the metadata log, which define the state of the cluster.

Each class has the name and the fields of a message in `proto/tidelog/protocol/v1/metadata_records.proto`, which
explains every field. node/metadata/metadata_codec.py derives the encoding from the fields and their types: a new field
needs a line here and a line in the schema. A batch of records is one atomic change. Mappings are never modified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, TypeAlias
from uuid import UUID

from replication.raft.voters import Voter
from tidelog.security.acls import AclBinding
from tidelog.topic_snapshots import TopicSnapshot
from tidelog.types import (
    DirectoryId,
    Endpoint,
    Incarnation,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    PartitionKey,
    ProducerId,
    QuotaEntity,
    QuotaValue,
    ScramMechanism,
    TopicId,
)
from tidelog.values import dataclass

NO_REGISTRATION: Final = NodeEpoch(-1)
"""The number in a log directory before its first registration."""

UNKNOWN_DIRECTORY: Final = DirectoryId(UUID(int=0))
"""The log directory of a replica is not assigned yet (KIP-858: UNASSIGNED)."""

LOST_DIRECTORY: Final = DirectoryId(UUID(int=1))
"""The log of a replica is missing, damaged or an older copy: the replica must not lead by its log (KIP-858: LOST)."""


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """A log directory and the number of the last registration that was fsynced in it."""

    directory_id: DirectoryId
    last_registration: NodeEpoch


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The first record of the log; written again when the feature level is raised."""

    cluster_id: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class VotersRecord:
    """The whole voter set."""

    voters: tuple[Voter, ...]


@dataclass(frozen=True, slots=True)
class NodeStateSnapshot:
    """The state of a node in a snapshot, in addition to its registration."""

    node_epoch: NodeEpoch
    fenced: bool
    draining: bool
    former_directories: tuple[DirectoryState, ...]
    offline_directories: tuple[DirectoryState, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRegistrationRecord:
    """A node has started; it is fenced at first. The offset of the record is the node epoch; in a snapshot, `state` has
    the node epoch."""

    node_id: NodeId
    incarnation: Incarnation
    listeners: Mapping[str, Endpoint]
    rack: str
    boot_id: bytes
    directories: tuple[DirectoryState, ...]
    state: NodeStateSnapshot | None = None


@dataclass(frozen=True, slots=True)
class NodeChangeRecord:
    """A change of a registered node; None: unchanged. offline_directories: those that have failed since."""

    node_id: NodeId
    node_epoch: NodeEpoch
    fenced: bool | None = None
    draining: bool | None = None
    offline_directories: tuple[DirectoryId, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRemovalRecord:
    """The registration of a node is removed: the node is gone for good, and no replica or vote is on it."""

    node_id: NodeId
    node_epoch: NodeEpoch


@dataclass(frozen=True, slots=True)
class NodeCordonRecord:
    """The node, or some of its log directories, get no new replicas from now on, or may get some again. It replaces the
    previous record, and holds for all registrations of the node."""

    node_id: NodeId
    cordoned: bool
    directories: tuple[DirectoryId, ...] = ()
    """The cordoned log directories, sorted."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic; its partitions follow in the same batch."""

    name: str
    topic_id: TopicId
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicConfigsRecord:
    """All settings of a topic; they replace the previous ones."""

    topic_id: TopicId
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicRemovalRecord:
    """A topic is deleted with all its partitions."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A new partition."""

    topic_id: TopicId
    partition: PartitionIndex
    replicas: tuple[NodeId, ...]
    """The preferred leader first."""
    directories: tuple[DirectoryId, ...]
    """The log directory of each replica, in the order of `replicas`."""
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    """Eligible leader replicas (KIP-966): not in sync, but with every committed record."""
    last_known_elr: tuple[NodeId, ...]
    """The last leader, while isr and elr are empty."""
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    adding: tuple[NodeId, ...] = ()
    """The replicas that a reassignment adds and removes."""
    removing: tuple[NodeId, ...] = ()
    queued: tuple[NodeId, ...] = ()
    """The replicas that a queued move gives the partition; empty: none is queued."""

    @property
    def key(self) -> PartitionKey:
        """The identity of the partition."""
        return PartitionKey(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """A change of a partition; None: unchanged.

    Each record raises the partition epoch by one. Where `leader` is given, it also raises the leader epoch by one, even
    if the leader is the same node or none.
    """

    topic_id: TopicId
    partition: PartitionIndex
    leader: NodeId | None = None
    isr: tuple[NodeId, ...] | None = None
    elr: tuple[NodeId, ...] | None = None
    last_known_elr: tuple[NodeId, ...] | None = None
    replicas: tuple[NodeId, ...] | None = None
    directories: tuple[DirectoryId, ...] | None = None
    adding: tuple[NodeId, ...] | None = None
    removing: tuple[NodeId, ...] | None = None
    queued: tuple[NodeId, ...] | None = None

    @property
    def key(self) -> PartitionKey:
        """The identity of the partition."""
        return PartitionKey(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """A block of producer ids is allocated to a node: every id below `next_producer_id` is in use (KIP-730)."""

    node_id: NodeId
    node_epoch: NodeEpoch
    next_producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    """A rule of the access control lists exists from now on."""

    binding: AclBinding


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    """A rule is removed."""

    binding: AclBinding


@dataclass(frozen=True, slots=True)
class ScramCredentialRecord:
    """The SCRAM credential of a user is set (KIP-554). Nothing of it but the number of iterations is ever shown."""

    name: str
    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramCredentialRemovalRecord:
    """The SCRAM credential of a user is removed."""

    name: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class SaslSecretRecord:
    """Random bytes, written with the first credential: users that do not exist have salts that are computed from it."""

    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """All quotas of an entity; they replace the previous ones. No values: it has no quota any more (KIP-546)."""

    entity: QuotaEntity
    values: tuple[QuotaValue, ...]


@dataclass(frozen=True, slots=True)
class GroupConfigsRecord:
    """All settings of a group; they replace the previous ones. None: it has no settings of its own any more."""

    group_id: str
    configs: Mapping[str, str]


class TopicSnapshotRecord(TopicSnapshot):
    """A snapshot of topics; it replaces the previous record of the same name."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TopicSnapshotRemovalRecord:
    """The snapshot was deleted, or has expired."""

    name: str


MetadataRecord: TypeAlias = (
    ClusterRecord
    | VotersRecord
    | NodeRegistrationRecord
    | NodeChangeRecord
    | NodeRemovalRecord
    | NodeCordonRecord
    | TopicRecord
    | TopicConfigsRecord
    | TopicRemovalRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ProducerIdsRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | ScramCredentialRecord
    | ScramCredentialRemovalRecord
    | SaslSecretRecord
    | ClientQuotaRecord
    | GroupConfigsRecord
    | TopicSnapshotRecord
    | TopicSnapshotRemovalRecord
)

LocatedRecord: TypeAlias = tuple[Offset, MetadataRecord]
"""A metadata record and its offset."""
