"""What a new image of the cluster changes for groups: topics, partitions, racks, and the topics that patterns match."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    GroupRecord,
)
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.groups_state import GroupsState
from replication.coordination.groups.membership import epoch_record
from replication.coordination.groups.topic_patterns import TopicPatterns
from replication.coordination.machine import Decision
from tidelog.errors import InvalidRegularExpression
from tidelog.types import Millis


class MetadataChanges:
    """Gives groups a new epoch where the topics that they subscribe to have changed (KIP-1101)."""

    def __init__(self, state: GroupsState, patterns: TopicPatterns) -> None:
        self._state = state
        self._patterns = patterns

    def refresh_all(self, wall_ms: Millis) -> list[Decision[None]]:
        """Compare every group with the newest image."""
        return self._refresh(self._state.consumer.values(), frozenset(self._state.catalog.ids), wall_ms)

    def refresh(self, changed: Iterable[str], added: frozenset[str], wall_ms: Millis) -> list[Decision[None]]:
        """Compare groups that may be concerned with the newest image. changed: topic names that were created, deleted,
        or have another state. added: the names among them that did not exist before."""
        ids: dict[str, None] = {}
        for name in changed:
            ids.update(self._state.index.get(name, {}))
        groups = self._state.consumer
        if added:
            ids.update((group_id, None) for group_id, group in groups.items() if group.patterns)
        return self._refresh((groups[group_id] for group_id in sorted(ids)), added, wall_ms)

    def _refresh(self, groups: Iterable[ConsumerGroup], names: frozenset[str], wall_ms: Millis) -> list[Decision[None]]:
        decisions = (self._refreshed(group, names, wall_ms) for group in groups)
        return [decision for decision in decisions if decision is not None]

    def _refreshed(self, group: ConsumerGroup, names: frozenset[str], wall_ms: Millis) -> Decision[None] | None:
        """names: those that may be new to a pattern."""
        if not group.members:
            return None
        records: list[GroupRecord] = []
        topics = dict(group.topics)
        for pattern in sorted(group.patterns):
            resolved = self._resolved_again(pattern, group.patterns[pattern], names, wall_ms)
            if resolved is None:
                continue
            records.append(CoordinatorRecord(ConsumerGroupRegularExpressionKey(group.group_id, pattern), resolved))
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
        self, pattern: str, known: ConsumerGroupRegularExpressionValue, names: frozenset[str], wall_ms: Millis
    ) -> ConsumerGroupRegularExpressionValue | None:
        """The topics that a pattern matches now; None if these are the same."""
        ids = self._state.catalog.ids
        try:
            matching = self._patterns.matching(pattern, names)
        except InvalidRegularExpression:  # accepted by another version: keep what it has found
            matching = set()
        topics = tuple(sorted({*(name for name in known.topics if name in ids), *matching}))
        if topics == known.topics:
            return None
        return replace(known, topics=topics, version=self._state.catalog.image.offset, timestamp=wall_ms)
