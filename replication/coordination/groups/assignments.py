"""Assignments in two forms: sets of partitions to compute with, and the sorted tuples of records and requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, cast
from uuid import UUID

from replication.coordination.group_records import TopicPartitions
from tidelog.types import PartitionIndex

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; no empty sets."""
AssignedTopics: TypeAlias = tuple[TopicPartitions, ...]
"""The same in the form of records: by topic id, partitions ascending, no topic without partitions."""

NOTHING: Final[Assignment] = {}


def as_sets(topics: Iterable[TopicPartitions]) -> dict[UUID, frozenset[int]]:
    """The partitions by topic id. A topic may occur more than once."""
    sets: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            known = sets.get(topic.topic_id)
            partitions = frozenset(topic.partitions)
            sets[topic.topic_id] = partitions if known is None else known | partitions
    return sets


def as_topics(assignment: Mapping[UUID, Iterable[int]]) -> AssignedTopics:
    """The form of records: equal assignments give equal tuples."""
    return tuple(
        TopicPartitions(topic_id, cast("tuple[PartitionIndex, ...]", tuple(sorted(partitions))))
        for topic_id, partitions in sorted(assignment.items(), key=_by_topic_id)
        if partitions
    )


def _by_topic_id(entry: tuple[UUID, Iterable[int]]) -> int:
    return entry[0].int


def canonical(topics: AssignedTopics) -> AssignedTopics:
    """The same partitions, sorted and without repetition: records of other writers may have another order."""
    before = -1
    for topic in topics:
        partitions = topic.partitions
        if topic.topic_id.int <= before or not partitions or any(map(int.__ge__, partitions, partitions[1:])):
            return as_topics(as_sets(topics))
        before = topic.topic_id.int
    return topics


def is_within(topics: Iterable[TopicPartitions], whole: Assignment) -> bool:
    """Whether each partition is also in `whole`."""
    return all(whole.get(topic.topic_id, _NONE).issuperset(topic.partitions) for topic in topics)


_NONE: Final[frozenset[int]] = frozenset()
