"""Offsets of partitions: ListOffsets, OffsetForLeaderEpoch, GetReplicaLogInfo."""

from __future__ import annotations

from tidelog.errors import TidelogError
from tidelog.record_exchange import TopicReference
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, DirectoryId, EpochEnd, Isolation, LeaderEpoch, Millis, Offset
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class ListOffsetsPartition:
    """A question about one partition. timestamp_ms: the first offset at or after this time; -1 latest, -2 earliest, -3
    the largest timestamp."""

    topic_id: TopicReference
    partition: int
    current_leader_epoch: LeaderEpoch
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest:
    """isolation_level: defines "latest", the high watermark or the last stable offset."""

    isolation_level: Isolation
    partitions: tuple[ListOffsetsPartition, ...]


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """The offset of one partition for a timestamp, or one of its ends."""

    topic_id: TopicReference
    partition: int
    error: TidelogError | None = None
    offset: Offset = Offset(-1)
    """-1 if there is no record at or after the timestamp."""
    timestamp_ms: Millis = NO_TIMESTAMP
    """Timestamp of the record; -1 for earliest and latest."""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Leader epoch of the record, for latest that of the record before it; -1 if unknown."""


@dataclass(frozen=True, slots=True)
class ListOffsetsAnswer:
    """In the order of the request."""

    partitions: tuple[ListedOffset, ...]


@dataclass(frozen=True, slots=True)
class EpochQuestion:
    """A question about one partition. leader_epoch: its end is requested."""

    topic_id: TopicReference
    partition: int
    current_leader_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochRequest:
    """A reader detects by the answer that its position was truncated (KIP-320)."""

    partitions: tuple[EpochQuestion, ...]


@dataclass(frozen=True, slots=True)
class EpochAnswer:
    """end: the largest epoch not above the requested one, and its end offset; epoch -1 if there is none."""

    topic_id: TopicReference
    partition: int
    error: TidelogError | None = None
    end: EpochEnd | None = None


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochAnswer:
    """In the order of the request."""

    partitions: tuple[EpochAnswer, ...]


@dataclass(frozen=True, slots=True)
class ReplicaLogInfoRequest:
    """A request for the extent of a node's replica."""

    topic_id: bytes
    """The bytes of the id, as they were sent."""
    partition: int
    look_ms: int
    """How long the node may read a damaged log to find the lost offsets; then the report is less precise."""


@dataclass(frozen=True, slots=True)
class ReplicaLogInfo:
    """The extent of a node's replica, leader or not; queried before an unclean election (KIP-966)."""

    last_epoch: LeaderEpoch
    """Epoch of the last record; -1 for an empty log."""
    log_end_offset: Offset
    directory_id: DirectoryId | None = None
    """None if there is no log yet."""
    lost: str = ""
    """Describes the offsets of a damaged log that cannot be read; empty if there are none."""
