"""Where the committed offsets of a group would be set: computed first, for a person to look at, and then set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tidelog.client.admin import Admin
from tidelog.client.group_metadata import CommittedOffset
from tidelog.errors import GroupIdNotFound, InvalidRequest, TidelogError
from tidelog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ResetGoal:
    """Where to set the offsets: one of the fields is set."""

    earliest: bool = False
    latest: bool = False
    time: datetime | None = None
    """The first record at or after it."""
    offset: int | None = None
    shift: int | None = None
    """By this number of records; negative: back."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The committed offset of one partition before and after the change."""

    partition: TopicPartition
    before: int | None
    """None if no offset is committed."""
    after: int


async def members_of(admin: Admin, group: str) -> int | None:
    """The number of members; None for a group that does not exist: its offsets create it."""
    found = (await admin.describe_groups([group]))[group]
    if isinstance(found, GroupIdNotFound):
        return None
    if isinstance(found, TidelogError):
        raise found
    return len(found.members)


async def plan_reset(
    admin: Admin,
    keys: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset | None],
    goal: ResetGoal,
) -> list[OffsetChange]:
    """The new offset of each partition, within its log. Raises InvalidRequest if a shift has nothing to shift."""
    before = {key: None if (found := committed.get(key)) is None else int(found.offset) for key in keys}
    targets: Mapping[TopicPartition, int]
    if goal.earliest or goal.latest or goal.time is not None:
        end: Literal["earliest", "latest"] = "earliest" if goal.earliest else "latest"
        targets = await admin.list_offsets(keys, end if goal.time is None else goal.time)
    elif goal.offset is not None:
        targets = dict.fromkeys(keys, goal.offset)
    else:
        missing = [str(key) for key in keys if before[key] is None]
        if missing:
            raise InvalidRequest(
                f"a shift needs committed offsets, and {', '.join(missing)} has none: set it to an offset instead"
            )
        targets = {key: (before[key] or 0) + (goal.shift or 0) for key in keys}
    starts = await admin.list_offsets(keys, "earliest")
    ends = await admin.list_offsets(keys, "latest")
    return [OffsetChange(key, before[key], min(max(targets[key], starts[key]), ends[key])) for key in keys]
