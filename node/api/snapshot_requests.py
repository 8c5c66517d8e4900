"""Snapshots of topics: the requests of operators, and those between the nodes that take one."""

from __future__ import annotations

from node.api.marker_requests import PartitionId
from tidelog.errors import TidelogError
from tidelog.record_exchange import TopicReference
from tidelog.topic_snapshots import SnapshotPartition, TopicSnapshot
from tidelog.types import Offset
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class CreateTopicSnapshotRequest:
    """Take a snapshot of these topics."""

    name: str
    topics: tuple[str, ...]
    keep_ms: int
    """It expires so many milliseconds from now."""


@dataclass(frozen=True, slots=True)
class CreateTopicSnapshotAnswer:
    """The snapshot; it is in the image from `metadata_offset` on."""

    snapshot: TopicSnapshot
    metadata_offset: Offset


@dataclass(frozen=True, slots=True)
class DescribeTopicSnapshotsRequest:
    """names: none for all."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribeTopicSnapshotsAnswer:
    """By name."""

    snapshots: tuple[TopicSnapshot, ...]


@dataclass(frozen=True, slots=True)
class LookAtEndsRequest:
    """The ends of partitions with a replica on the node."""

    partitions: tuple[PartitionId, ...]
    metadata_offset: Offset
    """The node answers after it has applied the metadata up to here."""


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """The answer about one partition."""

    topic_id: TopicReference
    partition: int
    error: TidelogError | None = None
    start_offset: Offset = Offset(-1)
    """The log start of this replica."""
    leads: bool = False
    end: SnapshotPartition | None = None
    """The log end when the request arrived, which is committed by now; None unless this node leads the partition."""


@dataclass(frozen=True, slots=True)
class LookAtEndsAnswer:
    """In the order of the request."""

    partitions: tuple[PartitionEnd, ...]
