"""DeleteRecords: the deletion of the first records of partitions (KIP-107)."""

from __future__ import annotations

from tidelog.errors import TidelogError
from tidelog.record_exchange import TopicReference
from tidelog.types import Offset
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class PartitionDeletion:
    """A deletion in one partition."""

    topic_id: TopicReference
    partition: int
    offset: Offset
    """The records below it are deleted; HIGH_WATERMARK: all that are committed."""


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequest:
    """Deletions in partitions that the node leads."""

    partitions: tuple[PartitionDeletion, ...]
    max_wait_ms: int
    """How long the node may wait for the other replicas."""


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The outcome in one partition."""

    topic_id: TopicReference
    partition: int
    error: TidelogError | None = None
    """RequestTimedOut: the leader has deleted the records, but not every other replica."""
    low_watermark: Offset = Offset(-1)
    """The lowest log start offset of the replicas; -1 if it is unknown."""


@dataclass(frozen=True, slots=True)
class DeleteRecordsAnswer:
    """In the order of the request."""

    partitions: tuple[DeletedRecords, ...]
