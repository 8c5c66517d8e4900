"""Requests about topic snapshots to the controller, and their answer."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from tidelog.topic_snapshots import TopicSnapshot
from tidelog.types import LeaderEpoch, Millis, Offset
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class RecordTopicSnapshot:
    """Record a snapshot that a node has taken."""

    snapshot: TopicSnapshot
    coordinator_epochs: tuple[LeaderEpoch, ...]
    """The leader epochs of the partitions of `__transaction_state`, in which commits were held."""


@dataclass(frozen=True, slots=True)
class ExtendTopicSnapshot:
    """Let a snapshot expire at another time. snapshot_id: only this one; None: whichever has the name."""

    name: str
    expires_ms: Millis
    """Since 1970."""
    snapshot_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicSnapshot:
    """Remove a snapshot. snapshot_id: only this one; None: whichever has the name."""

    name: str
    snapshot_id: UUID | None = None


TopicSnapshotRequest: TypeAlias = RecordTopicSnapshot | ExtendTopicSnapshot | DeleteTopicSnapshot


@dataclass(frozen=True, slots=True)
class TopicSnapshotChanged:
    """The image is as requested from `metadata_offset` on."""

    metadata_offset: Offset
