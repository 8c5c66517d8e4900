"""The records of the metadata log as values: the only truth about the cluster.

They mirror `proto/tidelog/protocol/v1/metadata_records.proto`, where every field is explained;
`node/metadata/metadata_codec.py` turns them into bytes and back. A batch of them is one atomic change. Mappings inside
are never changed after they are built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from replication.raft.voters import Voter
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
    TopicId,
)

NO_REGISTRATION: Final = NodeEpoch(-1)
"""The number that a log directory carries before its first registration."""

UNKNOWN_DIRECTORY: Final = DirectoryId(UUID(int=0))
"""A replica's log directory is not decided yet (KIP-858: UNASSIGNED)."""

LOST_DIRECTORY: Final = DirectoryId(UUID(int=1))
"""What a replica held is gone, damaged or an older copy: it never leads by what it has (KIP-858: LOST)."""


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """A log directory and the number of the last registration that was fsynced in it."""

    directory_id: DirectoryId
    last_registration: NodeEpoch


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """First record of the log; once more where the feature level is raised."""

    cluster_id: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class VotersRecord:
    """The voter set, whole."""

    voters: tuple[Voter, ...]


@dataclass(frozen=True, slots=True)
class NodeStateSnapshot:
    """What a snapshot says of a node beside its registration."""

    node_epoch: NodeEpoch
    fenced: bool
    draining: bool
    former_directories: tuple[DirectoryState, ...]
    offline_directories: tuple[DirectoryState, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRegistrationRecord:
    """A node started; it begins fenced. The record's offset is the node epoch, unless it is one of a snapshot, which
    says so itself."""

    node_id: NodeId
    incarnation: Incarnation
    listeners: Mapping[str, Endpoint]
    rack: str
    boot_id: bytes
    directories: tuple[DirectoryState, ...]
    state: NodeStateSnapshot | None = None


@dataclass(frozen=True, slots=True)
class NodeChangeRecord:
    """What changes while a node is registered; None: unchanged. offline_directories: those that have failed since."""

    node_id: NodeId
    node_epoch: NodeEpoch
    fenced: bool | None = None
    draining: bool | None = None
    offline_directories: tuple[DirectoryId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic; its partitions follow in the same batch."""

    name: str
    topic_id: TopicId
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicConfigsRecord:
    """All settings of a topic, in place of those it had."""

    topic_id: TopicId
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicRemovalRecord:
    """The topic and all its partitions are gone."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition as a whole, at its creation.

    `replicas` begins with the preferred leader; `directories` names the log directory of each replica, in the same
    order. `adding`, `removing`: those of the replicas that come and go in a reassignment under way.
    """

    topic_id: TopicId
    partition: PartitionIndex
    replicas: tuple[NodeId, ...]
    directories: tuple[DirectoryId, ...]
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    last_known_elr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()

    @property
    def key(self) -> PartitionKey:
        """Which partition."""
        return PartitionKey(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """What changed in a partition; None: unchanged.

    Each such record raises the partition epoch by one; where `leader` is given, even as the same node or as none, it
    raises the leader epoch by one too.
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

    @property
    def key(self) -> PartitionKey:
        """Which partition."""
        return PartitionKey(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """A block of producer ids was given to a node: every id below `next_producer_id` is taken (KIP-730)."""

    node_id: NodeId
    node_epoch: NodeEpoch
    next_producer_id: ProducerId


MetadataRecord: TypeAlias = (
    ClusterRecord
    | VotersRecord
    | NodeRegistrationRecord
    | NodeChangeRecord
    | TopicRecord
    | TopicConfigsRecord
    | TopicRemovalRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ProducerIdsRecord
)

LocatedRecord: TypeAlias = tuple[Offset, MetadataRecord]
"""A metadata record and where it lies in the log."""
