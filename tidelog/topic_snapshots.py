"""Snapshots of topics: a frozen, consistent end of several topics, which readers can read again and again.

Not here: how the ends are taken (node/requests/topic_snapshot_handlers.py), what is kept for them
(replication/controller/pinned_topics.py). A snapshot of the metadata of a cluster is something else
(tidelog/cli/snapshot_commands.py).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.errors import Retry, TidelogError
from tidelog.types import LeaderEpoch, Millis, Offset, PartitionIndex, ProducerId, TopicId
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class LeftOutProducer:
    """A producer whose transaction was open in a partition when the end was taken. None of its transactional records
    from `first_offset` on is in the snapshot."""

    producer_id: ProducerId
    first_offset: Offset


@dataclass(frozen=True, slots=True)
class SnapshotPartition:
    """A partition in a snapshot: its offsets from `start_offset` up to, and without, `end_offset`."""

    partition: PartitionIndex
    start_offset: Offset
    """The log start when the snapshot was taken."""
    end_offset: Offset
    end_epoch: LeaderEpoch
    """The leader epoch of the last record below the end; -1 if there is none. A log without it was truncated."""
    leader_epoch: LeaderEpoch
    """The leader epoch in which the end was stated."""
    left_out: tuple[LeftOutProducer, ...] = ()
    """By producer id."""


@dataclass(frozen=True, slots=True)
class SnapshotTopic:
    """A topic in a snapshot, with the partitions that it had, by index."""

    topic_id: TopicId
    name: str
    partitions: tuple[SnapshotPartition, ...]


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A snapshot of topics."""

    name: str
    snapshot_id: UUID
    """Another snapshot of the same name has another one."""
    taken_from_ms: Millis
    """Milliseconds since 1970, as `taken_until_ms`: every end was taken between these two times."""
    taken_until_ms: Millis
    expires_ms: Millis
    """The controller removes it then."""
    topics: tuple[SnapshotTopic, ...]
    """By name."""


class TopicSnapshotInterrupted(TidelogError, code=1090, status="ABORTED", retry=Retry.LATER, written=False):
    """A leader or a transaction coordinator changed while the ends of a topic snapshot were taken, or did not answer:
    nothing was recorded."""
