"""What ends offsets and groups: deletion by request, expiry, and the deletion of topics."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final

from replication.coordination.coordinator_machine import Decision
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    NO_TOPIC_ID,
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from replication.coordination.group_requests import DeletedGroup, DeleteGroups, DeleteGroupsAnswer
from replication.coordination.groups.classic_states import ClassicState
from replication.coordination.groups.classic_subscriptions import subscribed_topics
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.groups_state import GroupsState, group_not_found
from replication.coordination.groups.membership import group_tombstones
from tidelog.errors import NonEmptyGroup, TidelogError
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
    if not state.exists(group_id):
        return group_not_found(group_id)
    members = _members(state, group_id)
    if members:
        return NonEmptyGroup(f"group {group_id!r} has {members} members: stop them first")
    return None


def _members(state: GroupsState, group_id: str) -> int:
    group, classic = state.consumer.get(group_id), state.classic.get(group_id)
    return (0 if group is None else len(group.members)) + (0 if classic is None else len(classic.members))


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


class DeletedTopics:
    """Deletes the offsets of topics that were deleted, also those of open transactions, some groups at a time.

    An offset is of a deleted topic if the topic that bears its name now has another id, or does not exist: the image
    has every topic for which this coordinator, or one before it, has accepted a commit. Offsets without topic id may
    come from another cluster: they are deleted if this coordinator has seen how their topic was deleted.
    """

    def __init__(self, state: GroupsState) -> None:
        self._state = state
        self._groups: dict[str, None] = {}
        """Groups to look at."""
        self._names: set[str] = set()
        """Topics that were deleted since there was none."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def note(self, names: Iterable[str]) -> None:
        """These topics were deleted."""
        deleted, offsets = set(names), self._state.offsets
        for name in sorted(deleted):
            self._groups.update(dict.fromkeys(offsets.groups_with(name)))
        if deleted:
            self._groups.update((key.group, None) for key in offsets.pending_with(deleted))
            self._names |= deleted

    def note_all(self) -> None:
        """A coordinator has loaded its log."""
        self._groups.update(dict.fromkeys(self._state.offsets.groups()))

    def step(self) -> list[Decision[None]]:
        """Look at some groups."""
        records: list[GroupRecord] = []
        looked_at = 0
        while self._groups and looked_at < _OFFSETS_PER_STEP and len(records) < RECORDS_PER_BATCH:
            group_id = next(iter(self._groups))
            looked_at += 1 + len(self._state.offsets.of_group(group_id))
            found = self._deleted_of(group_id)
            records += found[:RECORDS_PER_BATCH]
            if len(found) <= RECORDS_PER_BATCH:
                del self._groups[group_id]  # else the rest is found once these are gone
        if not self._groups:
            self._names.clear()
        return in_batches(records)

    def _deleted_of(self, group_id: str) -> list[GroupRecord]:
        offsets = self._state.offsets
        keys = {
            OffsetCommitKey(group_id, topic, PartitionIndex(partition)): None
            for (topic, partition), value in offsets.of_group(group_id).items()
            if self._is_of_deleted(topic, value)
        }
        keys.update(dict.fromkeys(offsets.pending_of_group(group_id)))
        return [
            CoordinatorRecord(key, None)
            for key in keys
            if all(self._is_of_deleted(key.topic, value) for value in offsets.pending_values(key))
        ]

    def _is_of_deleted(self, topic: str, value: OffsetCommitValue) -> bool:
        if value.topic_id == NO_TOPIC_ID:
            return topic in self._names
        return value.topic_id != self._state.catalog.ids.get(topic)


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

    def step(self, wall_ms: Millis, passed_over: Container[str]) -> tuple[list[Decision[None]], bool]:
        """Look at some groups, but not at those that are passed over. Returns the decisions, and whether the search has
        ended."""
        if self._left is None:
            self._left = iter(self._state.group_ids())
        decisions: list[Decision[None]] = []
        looked_at = 0
        for group_id in self._left:
            if group_id in passed_over:
                continue
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
        subscribed: Container[str] = () if group is None else group.topics
        if classic is not None and (classic.members or classic.invited):
            topics = subscribed_topics(classic) if classic.state is ClassicState.STABLE else None
            if topics is None:
                return []  # only the members know what they subscribe to
            subscribed = topics
        elif classic is not None:
            since = classic.recorded_at
        if group is not None and group.empty_since is not None:
            since = max(since, group.empty_since)
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
