"""Types shared by all packages: typed integers and small value classes.

This module imports only the standard library. Names follow Kafka and Raft.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, NewType, Protocol, TypeAlias, TypeVar, overload
from uuid import UUID

T = TypeVar("T")
V = TypeVar("V")

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that are read or sent without a copy."""

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

Offset = NewType("Offset", int)
"""Position of a record in a partition's log, 0 or larger. An end offset is one past the last record."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Number of a leadership, 0 or larger; `NO_LEADER_EPOCH` if there is none."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Version of a partition's state in the metadata, incremented by every change (KIP-497)."""

NodeId = NewType("NodeId", int)
"""Number of a node, 0 or larger; `NO_NODE` if there is none."""

NodeEpoch = NewType("NodeEpoch", int)
"""Number of a node's registration: the metadata offset of its record (Kafka's broker epoch, KIP-500)."""

PartitionIndex = NewType("PartitionIndex", int)
"""Number of a partition within its topic, starting at 0."""

ProducerId = NewType("ProducerId", int)
"""Identity of an idempotent producer; `NO_PRODUCER_ID` for a producer without idempotence."""

Millis = NewType("Millis", int)
"""Milliseconds: wall-clock time since 1970 for a timestamp, monotonic time for a delay."""

TopicId = NewType("TopicId", UUID)
"""Identity of one incarnation of a topic: a topic that is deleted and created again gets a new id (KIP-516)."""

Incarnation = NewType("Incarnation", UUID)
"""Identity of one incarnation of a node: one run of its process (KIP-631)."""

DirectoryId = NewType("DirectoryId", UUID)
"""Identity of one log directory, stored in its `meta.properties` (KIP-858)."""

NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_NODE: Final = NodeId(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = Millis(-1)
"""What the log has for a record without a timestamp: each one of format v0, and those that are written so."""

JOIN_EPOCH: Final = 0
"""Member epoch of a member of a group that joins."""
LEAVE_EPOCH: Final = -1
"""Member epoch of a member that leaves."""
LEAVE_STATIC_EPOCH: Final = -2
"""Member epoch of a static member that leaves and will come back: its partitions are kept for it."""
NO_MEMBER_EPOCH: Final = -1
"""Member epoch of a committer that is no member."""

LATEST: Final = Offset(-1)
"""In place of a timestamp or an offset: the end of the log that the reader sees (Kafka's ListOffsetsRequest)."""

EARLIEST: Final = Offset(-2)
"""The start of the log."""

HIGH_WATERMARK: Final = Offset(-1)
"""In place of the offset below which records are deleted: the high watermark (Kafka's DeleteRecordsRequest)."""

MAX_TIMESTAMP: Final = Offset(-3)
"""The first record with the largest timestamp (KIP-734)."""

EARLIEST_LOCAL: Final = Offset(-4)
"""The start of what the leader has on its disk (KIP-405)."""

LATEST_TIERED: Final = Offset(-5)
"""The last offset in the remote tier (KIP-1005)."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""Topic name of the metadata log, as in KRaft."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Kafka's name of the topic in which the coordinators of groups keep members and committed offsets."""

TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""Kafka's name of the topic in which the coordinators of transactions keep their state."""

REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
"""Kafka's name of the topic in which the coordinators of remote segments keep their states (KIP-405)."""

INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, REMOTE_LOG_METADATA_TOPIC))
"""Topics that the cluster creates by itself on first use, and that only coordinators write to."""


TOPIC_NAME_LENGTH_MAX: Final = 249
"""Kafka's limit: with "-", a partition index and a suffix, a directory name stays within 255 bytes."""
TOPIC_NAME_RULE: Final = f"use 1 to {TOPIC_NAME_LENGTH_MAX} of a-z A-Z 0-9 . _ - and not '.' or '..' alone"
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def is_topic_name(name: str) -> bool:
    """Return True if `name` is a valid topic name."""
    return len(name) <= TOPIC_NAME_LENGTH_MAX and _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


class WallClock(Protocol):
    """Wall-clock time for timestamps and ages of files."""

    def wall_ms(self) -> Millis:
        """Milliseconds since 1970 (UTC). May jump, also backwards; do not measure delays with it."""
        ...


class Codec(IntEnum):
    """Compression codec of a batch: bits 0-2 of its attributes (KIP-98; zstd KIP-110)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class ScramMechanism(IntEnum):
    """A SCRAM mechanism, numbered as in KIP-554."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name in SASL: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")


class TokenMechanism(Enum):
    """A SASL mechanism whose credential is a token that an identity provider has signed."""

    OAUTHBEARER = "OAUTHBEARER"

    @property
    def mechanism_name(self) -> str:
        """The name in SASL."""
        return self.value


class PasswordMechanism(Enum):
    """A SASL mechanism that sends the password itself."""

    PLAIN = "PLAIN"

    @property
    def mechanism_name(self) -> str:
        """The name in SASL."""
        return self.value


SaslMechanism: TypeAlias = ScramMechanism | TokenMechanism | PasswordMechanism


def timestamp_or_none(timestamp: Millis) -> Millis | None:
    """Return a record's timestamp as clients see it: None if it has none."""
    return None if timestamp == NO_TIMESTAMP else timestamp


class TimestampType(IntEnum):
    """Source of a record's timestamp: bit 3 of the attributes of its batch (KIP-32)."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Acks(IntEnum):
    """Replicas that must have a record before the producer gets an acknowledgement (Kafka's `acks`)."""

    ALL = -1
    NONE = 0
    LEADER = 1


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Some partitions of a topic, by its id."""

    topic_id: UUID
    partitions: tuple[PartitionIndex, ...]


class TransactionState(IntEnum):
    """The state of a transactional id, by Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class Isolation(IntEnum):
    """Records that a reader may see (Kafka's `isolation.level`, KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Durability(Enum):
    """What an acknowledgement guarantees; fixed when the topic is created."""

    FSYNC = "fsync"
    """A replica reports a record as durable after fsync."""
    PAGE_CACHE = "page-cache"
    """A replica reports a record as durable once the operating system has it: Kafka's default."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition, identified by topic name. It is equal to its (topic, index) pair: each finds the other in sets and
    dicts."""

    topic: str
    partition: PartitionIndex

    if TYPE_CHECKING:  # a program names partitions by plain numbers, as in pairs

        def __init__(self, topic: str, partition: int) -> None: ...

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TopicPartition):
            return self.partition == other.partition and self.topic == other.topic
        return (self.topic, self.partition) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))  # that of the pair

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ByPartition(dict[TopicPartition, V]):
    """Results by partition. They can be asked with a TopicPartition or with its pair: `results["orders", 0]`."""

    if TYPE_CHECKING:  # at run time both find each other in any dict

        def __getitem__(self, key: TopicPartition | tuple[str, int], /) -> V: ...
        @overload
        def get(self, key: TopicPartition | tuple[str, int], default: None = None, /) -> V | None: ...
        @overload
        def get(self, key: TopicPartition | tuple[str, int], default: V, /) -> V: ...
        @overload
        def get(self, key: TopicPartition | tuple[str, int], default: T, /) -> V | T: ...
        def get(self, key: Any, default: Any = None, /) -> Any: ...


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """A partition, identified by topic id; used between replicas."""

    topic_id: TopicId
    partition: PartitionIndex

    def __hash__(self) -> int:  # three calls fewer than the generated one: these keys are looked up for each batch
        return hash((self.topic_id.int, self.partition))

    def __str__(self) -> str:
        return f"{self.topic_id}-{self.partition}"


@dataclass(frozen=True, slots=True)
class EpochStart:
    """Entry of a leader epoch cache: the epoch and the offset of its first record (KIP-101)."""

    epoch: LeaderEpoch
    start_offset: Offset


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch and its end offset: one past its last record (KIP-101, `OffsetsForLeaderEpoch`)."""

    epoch: LeaderEpoch
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a named listener of a node."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node and the address of the listener that was queried; `leader_epoch` is -1 if no leadership is meant."""

    node_id: NodeId
    endpoint: Endpoint
    rack: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """What the leader states about an acknowledged batch of format v2."""

    topic_id: TopicId
    last_offset: Offset
    checksum: int
    """CRC-32C of the batch as stored."""
    replicas: tuple[NodeId, ...]
    """In-sync replicas that had the batch, according to the leader, by node id."""
    durable_replicas: tuple[NodeId, ...]
    """Those of them that had reported it as durable, as `durability` defines it."""
    durability: Durability


@dataclass(frozen=True, slots=True)
class RecordError:
    """A rejected record and the reason (KIP-467). `index` is its position in the batch of the request, from 0."""

    index: int
    message: str


class QuotaType(Enum):
    """What a client quota limits, by Kafka's name (KIP-13, KIP-124, KIP-599)."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    """Bytes of produce requests per second."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    """Bytes of fetch answers per second."""
    REQUEST_PERCENTAGE = "request_percentage"
    """Time of a node's event loop, in percent."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions created and deleted per second."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The clients that a quota is for (KIP-546). None: not restricted by it. Empty: the default, for all that have no
    quota by their own name. At least one of the two is given."""

    user: str | None
    client_id: str | None

    def __str__(self) -> str:
        parts = (("user", self.user), ("client id", self.client_id))
        return ", ".join(f"{what} {name!r}" if name else f"default {what}" for what, name in parts if name is not None)


@dataclass(frozen=True, slots=True)
class QuotaValue:
    """The limit of one type of quota. key: the name of a QuotaType."""

    key: str
    value: float
