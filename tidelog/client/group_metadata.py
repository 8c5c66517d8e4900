"""The values of consumer groups that users see: members as committers, and committed offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Offset

NO_MEMBER_EPOCH: Final = -1
"""Member epoch of a committer that is no member."""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who commits offsets: for `OffsetCommit`, and for the offsets of a transaction (KIP-447). member_id: empty for a
    committer that is no member."""

    group_id: str
    member_id: str = ""
    member_epoch: int = NO_MEMBER_EPOCH
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset. offset: the next record to read. leader_epoch: of the record before it, NO_LEADER_EPOCH if
    unknown; with it the log is checked for truncation when reading continues (KIP-320). metadata: text of the
    committer."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
