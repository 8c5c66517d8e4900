"""What ends offsets and groups: deletion by request, expiry, and the deletion of topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    NO_TOPIC_ID,
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from replication.coordination.group_requests import DeletedGroup, DeleteGroups, DeleteGroupsAnswer
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.groups_state import GroupsState
from replication.coordination.groups.heartbeat_checks import check_group_id
from replication.coordination.groups.membership import group_tombstones
from replication.coordination.machine import Decision
from tidelog.errors import GroupIdNotFound, NonEmptyGroup, TidelogError
from tidelog.types import NO_TIMESTAMP, Millis, PartitionIndex

RECORDS_PER_BATCH: Final = 1_000
"""Tombstones in one decision, so that a batch stays far below `max.message.bytes`."""
_OFFSETS_PER_STEP: Final = 500
"""Groups and offsets that one step of a search looks at: some milliseconds."""
_MS_PER_MINUTE: Final = 60_000


def delete_groups(state: GroupsState, request: DeleteGroups) -> Decision[DeleteGroupsAnswer]:
    """Delete groups without members. A group with many offsets makes a large batch: pass few groups at a time."""
    outcomes: list[DeletedGroup] = []
    records: list[GroupRecord] = []
    deleted: set[str] = set()
    for group_id in request.group_ids:
        error = _deletion_error(state, group_id)
        outcomes.append(DeletedGroup(group_id, error))
        if error is None and group_id not in deleted:
            deleted.add(group_id)
            records += _offset_tombstones(state, group_id)
            records += _metadata_tombstones(state, group_id)
    return Decision(DeleteGroupsAnswer(tuple(outcomes)), tuple(records))


def _deletion_error(state: GroupsState, group_id: str) -> TidelogError | None:
    try:
        check_group_id(group_id)
    except TidelogError as error:
        return error
    if not state.exists(group_id):
        return GroupIdNotFound(f"there is no group {group_id!r}")
    members = _members(state, group_id)
    if members:
        return NonEmptyGroup(f"group {group_id!r} has {members} members: stop them first")
    return None


def _members(state: GroupsState, group_id: str) -> int:
    group, classic = state.consumer.get(group_id), state.classic.get(group_id)
    return (0 if group is None else len(group.members)) + (0 if classic is None else len(classic.value.members))


def _offset_tombstones(state: GroupsState, group_id: str) -> list[GroupRecord]:
    keys = {
        OffsetCommitKey(group_id, topic, PartitionIndex(partition)): None
        for topic, partition in sorted(state.offsets.of_group(group_id))
    }
    keys.update(dict.fromkeys(state.offsets.pending_of_group(group_id)))
    return [CoordinatorRecord(key, None) for key in keys]


def _metadata_tombstones(state: GroupsState, group_id: str) -> list[GroupRecord]:
    records: list[GroupRecord] = []
    if group_id in state.classic:
        records.append(CoordinatorRecord(GroupMetadataKey(group_id), None))
    group = state.consumer.get(group_id)
    if group is not None:
        records += group_tombstones(group)
    return records


# --- deleted topics -------------------------------------------------------------------------------------------------


def forget_topics(state: GroupsState, deleted: Iterable[tuple[str, UUID]]) -> list[Decision[None]]:
    """Delete the offsets of topics that were deleted, by name and id; also pending ones."""
    records: list[GroupRecord] = []
    for name, topic_id in deleted:
        keys: dict[OffsetCommitKey, None] = {}
        for group_id in state.offsets.groups_with(name):
            for (topic, partition), value in state.offsets.of_group(group_id).items():
                if topic == name and value.topic_id in (topic_id, NO_TOPIC_ID):
                    keys[OffsetCommitKey(group_id, topic, PartitionIndex(partition))] = None
        keys.update(dict.fromkeys(state.offsets.pending_with(name)))
        records += [CoordinatorRecord(key, None) for key in keys]
    return in_batches(records)


def vanished_topics(state: GroupsState) -> list[tuple[str, UUID]]:
    """The topics with offsets that do not exist in the image. To be asked once a coordinator has loaded its log: the
    image has every topic for which the coordinator before it accepted a commit, since that one had an older image.
    Offsets without topic id are not considered: they may come from another cluster."""
    vanished: dict[tuple[str, UUID], None] = {}
    for name in sorted(state.offsets.topics):
        current = state.catalog.ids.get(name)
        for group_id in state.offsets.groups_with(name):
            for (topic, _), value in state.offsets.of_group(group_id).items():
                if topic == name and value.topic_id not in (current, NO_TOPIC_ID):
                    vanished[name, value.topic_id] = None
    return list(vanished)


def in_batches(records: list[GroupRecord]) -> list[Decision[None]]:
    """A decision for each batch."""
    return [
        Decision(None, tuple(records[start : start + RECORDS_PER_BATCH]))
        for start in range(0, len(records), RECORDS_PER_BATCH)
    ]


# --- expiry ---------------------------------------------------------------------------------------------------------


class OffsetExpiry:
    """A search for expired offsets, in steps that do not block other work for long.

    An offset expires once it is older than `offsets.retention.minutes` and its topic has no subscription; the age
    counts from the commit or, if that is later and known, from the time at which the group lost its last member. A
    group without members is deleted with its last offset. An offset that an open transaction may change never expires.
    """

    def __init__(self, state: GroupsState, config: GroupConfig) -> None:
        self._state = state
        self._retention_ms = config.offsets_retention_minutes * _MS_PER_MINUTE
        self._left: Iterator[str] | None = None

    def step(self, wall_ms: Millis) -> tuple[list[Decision[None]], bool]:
        """Look at some groups. Returns the decisions, and whether the search has ended."""
        if self._left is None:
            self._left = iter(self._state.group_ids())
        decisions: list[Decision[None]] = []
        looked_at = 0
        for group_id in self._left:
            decisions += self._expire(group_id, wall_ms)
            looked_at += 1 + len(self._state.offsets.of_group(group_id))
            if looked_at >= _OFFSETS_PER_STEP:
                return decisions, False
        self._left = None
        return decisions, True

    def _expire(self, group_id: str, wall_ms: Millis) -> list[Decision[None]]:
        state = self._state
        if not state.exists(group_id):
            return []
        group, classic = state.consumer.get(group_id), state.classic.get(group_id)
        offsets = state.offsets.of_group(group_id)
        since = NO_TIMESTAMP
        if classic is not None:
            if classic.value.members:
                return []  # only the members know what they subscribe to
            since = classic.value.current_state_timestamp
        if group is not None and group.empty_since is not None:
            since = max(since, group.empty_since)
        subscribed = {} if group is None else group.topics
        keys = [
            OffsetCommitKey(group_id, topic, PartitionIndex(partition))
            for (topic, partition), value in offsets.items()
            if topic not in subscribed and self._is_expired(value, since, wall_ms)
        ]
        expired = [key for key in keys if not state.offsets.is_pending(key)]
        ends = (
            len(expired) == len(offsets)
            and not state.offsets.has_pending(group_id)
            and not _members(state, group_id)
            and (since == NO_TIMESTAMP or since + self._retention_ms <= wall_ms)
        )
        decisions = in_batches([CoordinatorRecord(key, None) for key in expired])
        if ends and (metadata := _metadata_tombstones(state, group_id)):
            decisions.append(Decision(None, tuple(metadata)))
        return decisions

    def _is_expired(self, value: OffsetCommitValue, since: Millis, wall_ms: Millis) -> bool:
        if value.expire_timestamp != NO_TIMESTAMP:
            return wall_ms >= max(value.expire_timestamp, since)
        return wall_ms >= max(value.commit_timestamp, since) + self._retention_ms
