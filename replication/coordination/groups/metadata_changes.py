"""What a new image of the cluster changes for groups: topics, partitions, racks, and the topics that patterns match."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from replication.coordination.coordinator_machine import Decision
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionValue,
    GroupRecord,
)
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.groups_state import GroupsState
from replication.coordination.groups.membership import epoch_record, pattern_record
from replication.coordination.groups.topic_patterns import TopicPatterns
from tidelog.errors import InvalidRegularExpression
from tidelog.types import Millis

_GROUPS_PER_STEP: Final = 200
_MATCHES_PER_STEP: Final = 20_000
"""Names that are compared with patterns: some milliseconds."""


class MetadataChanges:
    """Gives groups a new epoch where the topics that they subscribe to have changed (KIP-1101), some groups at a
    time."""

    def __init__(self, state: GroupsState, patterns: TopicPatterns) -> None:
        self._state = state
        self._patterns = patterns
        self._groups: dict[str, None] = {}
        """Groups to compare with the newest image."""
        self._names: set[str] = set()
        """Topics that were created since there was none: they may be new to a pattern."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def note_all(self) -> None:
        """A coordinator has loaded its log: every group may be concerned."""
        self._groups.update(dict.fromkeys(sorted(self._state.consumer)))
        self._names.update(self._state.catalog.ids)

    def note(self, changed: Iterable[str], added: frozenset[str]) -> None:
        """changed: topic names that were created, deleted, or have another state. added: the names among them that did
        not exist before."""
        ids: dict[str, None] = {}
        for name in changed:
            ids.update(self._state.index.get(name, {}))
        if added:
            ids.update((group_id, None) for group_id, group in self._state.consumer.items() if group.patterns)
            self._names |= added
        self._groups.update(dict.fromkeys(sorted(ids)))

    def step(self, wall_ms: Millis) -> list[Decision[None]]:
        """Compare some groups with the newest image."""
        decisions: list[Decision[None]] = []
        cost = 0.0
        while self._groups and cost < 1:
            group_id = next(iter(self._groups))
            del self._groups[group_id]
            group = self._state.consumer.get(group_id)
            if group is not None:
                cost += 1 / _GROUPS_PER_STEP + len(group.patterns) * len(self._names) / _MATCHES_PER_STEP
                decision = self._refreshed(group, wall_ms)
                if decision is not None:
                    decisions.append(decision)
        if not self._groups:
            self._names.clear()
        return decisions

    def _refreshed(self, group: ConsumerGroup, wall_ms: Millis) -> Decision[None] | None:
        if not group.members:
            return None
        records: list[GroupRecord] = []
        topics = dict(group.topics)
        for pattern in sorted(group.patterns):
            resolved = self._resolved_again(pattern, group.patterns[pattern], wall_ms)
            if resolved is None:
                continue
            records.append(pattern_record(group.group_id, pattern, resolved))
            for name in group.patterns[pattern].topics:
                topics[name] -= 1
            for name in resolved.topics:
                topics[name] = topics.get(name, 0) + 1
        found = self._state.catalog.hash_of(name for name, count in topics.items() if count)
        if found != group.metadata_hash:
            records.append(epoch_record(group.group_id, group.epoch + 1, found))
            if group.has_old_metadata:
                records.append(CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group.group_id), None))
        return Decision(None, tuple(records)) if records else None

    def _resolved_again(
        self, pattern: str, known: ConsumerGroupRegularExpressionValue, wall_ms: Millis
    ) -> ConsumerGroupRegularExpressionValue | None:
        """The topics that a pattern matches now; None if these are the same."""
        ids = self._state.catalog.ids
        try:
            matching = self._patterns.matching(pattern, self._names)
        except InvalidRegularExpression:  # accepted by another version: keep the topics that it has found
            matching = set()
        topics = tuple(sorted(name for name in {*known.topics, *matching} if name in ids))
        if topics == known.topics:
            return None
        return known.replace(topics=topics, version=self._state.catalog.image.offset, timestamp=wall_ms)
