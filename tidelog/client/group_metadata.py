"""The values of consumer groups that users see: members as committers, and committed offsets."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.types import NO_LEADER_EPOCH, NO_MEMBER_EPOCH, LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The identity of a committer of offsets, by itself or in a transaction (KIP-447)."""

    group_id: str
    member_id: str = ""
    """Empty for a committer that is no member."""
    member_epoch: int = NO_MEMBER_EPOCH
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset."""

    offset: Offset
    """The offset of the next record to read."""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Leader epoch of the record before it, if known. It shows whether the log was truncated when reading continues
    (KIP-320)."""
    metadata: str = ""
    """A text that the committer has chosen."""
