"""The words every room shares: typed integers, and the small values that cross between rooms.

Needs only the standard library; everything else may import it. Names are Kafka's and Raft's terms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Position of a record in a partition's log, 0 or larger. An end offset is one past the last record."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Number of a leadership, 0 or larger; `NO_LEADER_EPOCH` where there is none."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Version of a partition's state in the metadata, raised by every change of it (KIP-497)."""

NodeId = NewType("NodeId", int)
"""Number of a node, 0 or larger; `NO_NODE` where there is none."""

NodeEpoch = NewType("NodeEpoch", int)
"""Number of a node's registration: the metadata offset of its record (Kafka's broker epoch, KIP-500)."""

PartitionIndex = NewType("PartitionIndex", int)
"""Number of a partition within its topic, from 0."""

ProducerId = NewType("ProducerId", int)
"""Identity of an idempotent producer; `NO_PRODUCER_ID` for a plain one."""

Millis = NewType("Millis", int)
"""Milliseconds: of wall-clock time since 1970 where it is a timestamp, of a monotonic clock where it is a delay."""

TopicId = NewType("TopicId", UUID)
"""Identity of one life of a topic: a topic deleted and created again has another (KIP-516)."""

Incarnation = NewType("Incarnation", UUID)
"""Identity of one life of a node's process (KIP-631)."""

DirectoryId = NewType("DirectoryId", UUID)
"""Identity of one log directory, kept in its `meta.properties` (KIP-858 calls it the directory id)."""

NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_NODE: Final = NodeId(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = Millis(-1)

METADATA_TOPIC: Final = "__cluster_metadata"
"""The topic name of the metadata log's directory, as in KRaft."""


TOPIC_NAME_LENGTH_MAX: Final = 249
"""Kafka's: a directory name of at most 255 bytes with "-", an index, and a suffix."""
TOPIC_NAME_RULE: Final = f"use 1 to {TOPIC_NAME_LENGTH_MAX} of a-z A-Z 0-9 . _ - and not '.' or '..' alone"
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return len(name) <= TOPIC_NAME_LENGTH_MAX and _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


class Codec(IntEnum):
    """Compression of a batch: the value of its attribute bits 0-2 (KIP-98; zstd KIP-110)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who stamped a record: attribute bit 3 of its batch (KIP-32)."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Acks(IntEnum):
    """How many replicas must hold a record before its producer is answered (Kafka's `acks`)."""

    ALL = -1
    NONE = 0
    LEADER = 1


class Isolation(IntEnum):
    """What a reader may see (Kafka's `isolation.level`, KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Durability(Enum):
    """What an acknowledgement promises; fixed when the topic is created."""

    FSYNC = "fsync"
    """A replica counts a record as held only when it has been fsynced."""
    PAGE_CACHE = "page-cache"
    """A replica counts a record as held once the operating system has it: Kafka's default promise."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition, by the name of its topic."""

    topic: str
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """One partition, by the identity of its topic: what replicas speak of among themselves."""

    topic_id: TopicId
    partition: PartitionIndex

    def __hash__(self) -> int:  # as its default less three calls: maps by partition are asked for each batch
        return hash((self.topic_id.int, self.partition))

    def __str__(self) -> str:
        return f"{self.topic_id}-{self.partition}"


@dataclass(frozen=True, slots=True)
class EpochStart:
    """One entry of a leader epoch cache: the epoch, and the offset of its first record (KIP-101)."""

    epoch: LeaderEpoch
    start_offset: Offset


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch and where it ends: one past its last record (KIP-101, `OffsetsForLeaderEpoch`)."""

    epoch: LeaderEpoch
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one named listener of a node is reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node, and where the listener that was asked is reached; `leader_epoch` is -1 where no leadership is meant."""

    node_id: NodeId
    endpoint: Endpoint
    rack: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class RecordError:
    """One record that was refused, and why (KIP-467). `index` counts the records of the request's batch from 0."""

    index: int
    message: str
