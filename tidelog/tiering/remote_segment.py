"""A closed segment of a partition that was copied, or is being copied, to an object store.

Not here: its object (segment_object.py), who may copy or delete it (replication/coordination/tiering/).
Source: KIP-405.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NewType
from uuid import UUID

from tidelog.types import EpochStart, LeaderEpoch, Millis, NodeId, Offset, PartitionIndex, TopicId
from tidelog.values import dataclass

RemoteSegmentId = NewType("RemoteSegmentId", UUID)
"""Identity of one copy of a segment: each attempt to copy it has its own, and so its own object."""


class RemoteSegmentState(IntEnum):
    """Kafka's states of a remote segment, with its numbers (KIP-405)."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class SectionKind(IntEnum):
    """What a part of a segment's object contains."""

    LOG = 0
    """The record batches, as in the segment's file."""
    OFFSET_INDEX = 1
    TIME_INDEX = 2
    PRODUCER_SNAPSHOT = 3
    """The state of producers at the segment's end."""
    TRANSACTION_INDEX = 4
    LEADER_EPOCHS = 5
    """The leader epochs of the partition from its start up to the segment's end."""
    LOG_CHECKSUMS = 6
    """CRC-32C of each MiB of LOG: a reader that needs a range verifies it without the rest."""


@dataclass(frozen=True, slots=True)
class ObjectSection:
    """A part of a segment's object."""

    kind: SectionKind
    start: int
    """Byte of the object at which it begins."""
    size: int
    """Bytes."""
    crc: int
    """CRC-32C of the bytes."""


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """One copy of a segment, with its state."""

    segment_id: RemoteSegmentId
    topic_id: TopicId
    partition: PartitionIndex
    start_offset: Offset
    """The base offset of the segment."""
    end_offset: Offset
    """One past its last record."""
    leader_epochs: tuple[EpochStart, ...]
    """The epochs of its records: the first begins at `start_offset`, or where the log of the leader that copied it
    began."""
    max_timestamp: Millis
    """The largest timestamp of a record; -1 if none has one."""
    log_size: int
    """Bytes of the record batches."""
    copied_in: LeaderEpoch
    """The leader epoch of the leader that copies it."""
    node_id: NodeId
    """The node that made the last change of the state."""
    changed_ms: Millis
    """When it did, by its wall clock."""
    state: RemoteSegmentState
    sections: tuple[ObjectSection, ...] = ()
    """The parts of its object, in their order there; empty until the copy has finished."""


@dataclass(frozen=True, slots=True)
class LostRemoteSegment:
    """A segment whose records an unclean election has lost, and which the leader keeps for a while."""

    segment: RemoteSegment
    since_ms: Millis
    """Since when the leader keeps it, by its wall clock."""
    deleted_at_ms: Millis
    """When it will be deleted: when the leader has kept it for `remote.log.unreferenced.retention.ms`, or before, when
    `retention.ms` of the topic has passed; INT64_MAX: not in any foreseeable time."""


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far the copies of a partition are behind."""

    waiting_segments: int
    """Closed segments that may be copied."""
    waiting_bytes: int
    """Of their record batches."""
    failure: str
    """Why the last attempt to copy or delete failed: name and message of the error; empty: it did not."""
    failing_since_ms: Millis
    """When the first one failed of those since the last success, by the leader's wall clock; -1 without a failure."""
