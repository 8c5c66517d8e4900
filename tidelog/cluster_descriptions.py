"""What nodes answer about the cluster, as clients return it: one type for both."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tidelog.errors import TidelogError
from tidelog.settings import SettingType
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    DirectoryId,
    Endpoint,
    Incarnation,
    LeaderEpoch,
    Millis,
    NodeEpoch,
    NodeId,
    Offset,
    ProducerId,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A registered node."""

    node_id: NodeId
    endpoint: Endpoint
    """On the listener that got the request."""
    rack: str
    node_epoch: NodeEpoch
    incarnation: Incarnation
    fenced: bool
    """It sends no heartbeats or is not caught up; it leads no partition."""
    draining: bool
    leaders: int
    """How many partitions it leads."""
    replicas: int
    cordoned: bool = False
    """It gets no new replicas, and keeps those that it has."""
    log_dirs: int = 0
    """How many of its log directories have not failed; 0: the answering node is of an older version."""
    cordoned_log_dirs: int = 0
    """How many of these get no new replicas. All: neither does the node."""

    @property
    def state(self) -> str:
        """As it is shown: `alive`, `draining` or `fenced`, and whether it or log directories of it are cordoned."""
        state = "fenced" if self.fenced else "draining" if self.draining else "alive"
        if self.cordoned:
            return f"{state}, cordoned"
        if self.cordoned_log_dirs:
            return f"{state}, {self.cordoned_log_dirs} of {self.log_dirs} log directories cordoned"
        return state

    @property
    def takes_replicas(self) -> bool:
        """Whether new replicas may be placed on it now."""
        is_closed = 0 < self.log_dirs == self.cordoned_log_dirs
        return not (self.fenced or self.draining or self.cordoned or is_closed)


@dataclass(frozen=True, slots=True)
class VoterDescription:
    """A voter of the metadata quorum: a node and its metadata log directory."""

    node_id: NodeId
    directory_id: DirectoryId


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as the answering node knows it."""

    cluster_id: str
    controller_id: NodeId
    """-1 if no active controller is known, or if none was heard for longer than an election takes
    (`controller_silence_ms`). All other fields are then equally old."""
    controller_epoch: int
    metadata_offset: int
    """How far the node has applied the metadata log."""
    nodes: tuple[NodeDescription, ...]
    voters: tuple[VoterDescription, ...]
    topics: int
    partitions: int
    leaderless_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int
    feature_level: int = 1
    controller_silence_ms: int = 0
    full_partitions: int = 0
    """Partitions whose leader rejects every write because its disk is full."""
    damaged_partitions: int = 0
    """Partitions with a replica that has lost records."""
    unanswered_nodes: tuple[NodeId, ...] = ()
    """Unfenced nodes that did not report the state of their disks; these may be full or damaged."""

    @property
    def trouble(self) -> str:
        """Why no change or election is possible now, and what to do; empty if there is an active controller."""
        if self.controller_id >= 0:
            return ""
        silence = self.controller_silence_ms // 1_000
        heard = f"no active controller has been heard for {silence} s" if silence else "no active controller is known"
        if not self.voters:
            return (
                f"{heard}: the node that answered belongs to no cluster yet; query another node, or see whether one of "
                "them is configured to form the cluster (cluster.bootstrap.enable or cluster.bootstrap.node.id)"
            )
        voters = ", ".join(str(voter.node_id) for voter in self.voters)
        return (
            f"{heard}: a majority of the voters (nodes {voters}) must run and reach each other; start the missing "
            "nodes. The rest of this report is as old as that"
        )


@dataclass(frozen=True, slots=True)
class KnownProducer:
    """A producer that a partition knows."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: Millis
    """Timestamp of its last record."""
    coordinator_epoch: int
    """Coordinator epoch of its last marker; -1 if there is none."""
    transaction_start: Offset
    """First offset of its open transaction; -1 if none is open."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in a listing."""

    group_id: str
    type: str
    """"consumer" or "classic"."""
    state: str
    """"Empty", "Assigning", "Reconciling", "Stable" or "Dead"; of a classic group also "PreparingRebalance" or
    "CompletingRebalance"."""
    members: int
    protocol_type: str = ""
    """What the group is for, as its members say: "consumer", "connect" or another name; empty if it has only ever had
    offsets."""


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """Result of a request for one partition."""

    partition: TopicPartition
    error: TidelogError | None = None
    """Why it was rejected."""
    leader: NodeId = NO_NODE
    """The leader afterwards, -1 if there is none."""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    loss: str = ""
    """Records that may be lost by it, as text; empty if none."""


@dataclass(frozen=True, slots=True)
class ReassignmentDescription:
    """A reassignment in progress: `adding` replicas catch up, then `removing` replicas are removed. Or a queued one."""

    partition: TopicPartition
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    queued: tuple[NodeId, ...] = ()
    """The replicas of a queued move, which the controller begins once few enough others are in progress."""

    @property
    def in_progress(self) -> bool:
        """False if it is only queued."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class PartitionExplanation:
    """What works for a partition, or `error`: there is no such partition."""

    partition: TopicPartition
    error: TidelogError | None = None
    readable: bool = False
    writable: bool = False
    """With acks=all."""
    causes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    """What resolves the problem."""


class ConfigResourceType(IntEnum):
    """What has settings, by Kafka's numbers."""

    TOPIC = 2
    NODE = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic by name, a node or a group by its id."""

    type: int
    """Of ConfigResourceType; others are refused one by one."""
    name: str
    """Empty for the nodes of the cluster together."""


class ConfigSource(IntEnum):
    """Where the value of a setting comes from, by Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_NODE = 2
    """Set for the node while it runs, and kept in the metadata."""
    NODE = 4
    """The configuration of the node; of a topic's setting: for topics without a value of their own."""
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value that a setting has, or would have without the values before it."""

    key: str
    """Where it is set: the topic's key, or the node's."""
    value: str | None
    """None: unset."""
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """A setting of a topic, a node or a group."""

    key: str
    values: tuple[ConfigValue, ...]
    """At least one; the first is in force."""
    type: SettingType = SettingType.STRING
    is_read_only: bool = False
    """Only a restart of the node changes it."""

    @property
    def value(self) -> str | None:
        """The value in force."""
        return self.values[0].value

    @property
    def source(self) -> ConfigSource:
        """Where that comes from."""
        return self.values[0].source


@dataclass(frozen=True, slots=True)
class ResourceConfigs:
    """Every setting of a topic, a node or a group by key, or why they are not shown."""

    error: TidelogError | None = None
    configs: tuple[ConfigInForce, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """The log of a replica."""

    partition: TopicPartition
    size: int
    """Bytes of its segments."""
    offset_lag: int
    """Records of it that are not known to be committed; of a copy, those that it lacks."""
    is_future: bool = False
    """True for a copy that is to take the place of the log in another directory of the node."""
    bytes_in_rate: int = 0
    """Bytes per second that producers wrote to it, over some minutes: 0 where it does not lead."""
    bytes_out_rate: int = 0
    """Bytes per second that consumers read from it, likewise."""


@dataclass(frozen=True, slots=True)
class ReplicaLogDir:
    """A log directory with logs in it."""

    path: str
    error: TidelogError | None
    """KafkaStorageError if it is offline; its logs and the bytes are then unknown."""
    logs: tuple[ReplicaLog, ...] = ()
    """By partition, without the metadata log."""
    total_bytes: int = -1
    """Of its file system; -1: unknown."""
    usable_bytes: int = -1
    directory_id: DirectoryId | None = None
    """None: the answering node is of an older version."""
    cordoned: bool = False
    """It gets no new replicas, and keeps those that it has."""
