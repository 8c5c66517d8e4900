"""The offset of a streaming query, as Spark writes it to the checkpoint: JSON, the same text for the same position.
Pure.

    {"version": 1, "cluster": "<id>", "lineage": "<hex>", "skipped": 0,
     "topics": {"orders": {"id": "<uuid>", "partitions": {"0": {"offset": 7, "epoch": 2, "skipped": 0}}}}}

Spark compares offsets as text: topics and partitions are sorted, and what has not moved keeps its epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from tidelog.errors import InvalidRequest, UnsupportedVersion
from tidelog.types import (
    INT32_MAX,
    INT64_MAX,
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

VERSION: Final = 1
_INDEX: Final = re.compile("0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """How far a partition is read."""

    next_offset: Offset
    """Everything below was read or skipped."""
    epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Of the log's last record when the position was chosen, NO_LEADER_EPOCH if unknown; a log that ends it below
    `next_offset` was truncated."""
    skipped: int = 0
    """Offsets that `failOnDataLoss=false` has skipped since the query began."""


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """How far a topic is read."""

    topic_id: TopicId
    """Topic id of the incarnation that was read."""
    partitions: Mapping[PartitionIndex, PartitionPosition]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a query has read."""

    cluster_id: str
    lineage: str
    """Made when the start of the query was chosen; distinguishes the progress of one checkpoint from another's."""
    topics: Mapping[str, TopicPosition] = field(default_factory=dict)
    skipped: int = 0
    """Offsets skipped in partitions that are gone."""

    def __iter__(self) -> Iterator[tuple[TopicPartition, TopicId, PartitionPosition]]:
        for name, topic in self.topics.items():
            for index, position in topic.partitions.items():
                yield TopicPartition(name, index), topic.topic_id, position

    def find(self, key: TopicPartition, topic_id: TopicId) -> PartitionPosition | None:
        """The position in this incarnation of the topic; None if it has none."""
        topic = self.topics.get(key.topic)
        return topic.partitions.get(key.partition) if topic is not None and topic.topic_id == topic_id else None

    def to_json(self) -> dict[str, Any]:
        """The JSON form, with its keys in order."""
        return {
            "version": VERSION,
            "cluster": self.cluster_id,
            "lineage": self.lineage,
            "skipped": self.skipped,
            "topics": {
                name: {
                    "id": str(topic.topic_id),
                    "partitions": {
                        str(index): {"offset": each.next_offset, "epoch": each.epoch, "skipped": each.skipped}
                        for index, each in sorted(topic.partitions.items())
                    },
                }
                for name, topic in sorted(self.topics.items())
            },
        }


def stream_offset(
    cluster_id: str,
    lineage: str,
    positions: Mapping[TopicPartition, tuple[TopicId, PartitionPosition]],
    skipped: int = 0,
) -> StreamOffset:
    """Build an offset of positions by partition; all partitions of a topic have one topic id."""
    topics: dict[str, TopicPosition] = {}
    for key, (topic_id, position) in sorted(positions.items()):
        known = topics.get(key.topic)
        others = {} if known is None else dict(known.partitions)
        topics[key.topic] = TopicPosition(topic_id, {**others, key.partition: position})
    return StreamOffset(cluster_id, lineage, topics, skipped)


def parse_offset(value: object) -> StreamOffset:
    """The offset of its JSON form. Raises InvalidRequest if it is none, UnsupportedVersion if a newer version wrote
    it."""
    fields = _object(value, "the offset")
    version = _number(fields, "version", 0, INT32_MAX)
    if version != VERSION:
        raise UnsupportedVersion(
            f"the checkpoint has offsets of version {version}, this version of tidelog reads version {VERSION}: use "
            "the version of tidelog that wrote it"
        )
    topics = {}
    for name, topic in sorted(_object(fields.get("topics"), "topics").items()):
        entry = _object(topic, f"topic {name!r}")
        partitions = {}
        for index, position in _object(entry.get("partitions"), f"the partitions of {name!r}").items():
            if not _INDEX.fullmatch(index) or int(index) > INT32_MAX:
                raise _invalid(f"{index!r} is no partition of {name!r}")
            partitions[PartitionIndex(int(index))] = _position(_object(position, f"partition {index} of {name!r}"))
        topics[name] = TopicPosition(_topic_id(entry.get("id"), name), dict(sorted(partitions.items())))
    return StreamOffset(
        _text(fields, "cluster"), _text(fields, "lineage"), topics, _number(fields, "skipped", 0, INT64_MAX)
    )


def _position(fields: Mapping[str, Any]) -> PartitionPosition:
    return PartitionPosition(
        Offset(_number(fields, "offset", 0, INT64_MAX)),
        LeaderEpoch(_number(fields, "epoch", NO_LEADER_EPOCH, INT32_MAX)),
        _number(fields, "skipped", 0, INT64_MAX),
    )


def _topic_id(value: object, name: str) -> TopicId:
    try:
        if isinstance(value, str):
            return TopicId(UUID(value))
    except ValueError:
        pass
    raise _invalid(f"topic {name!r} has the id {value!r}")


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(f"{what} is {value!r}, not an object")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise _invalid(f"{name!r} is {value!r}, not a text")
    return value


def _number(fields: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not least <= value <= most:
        raise _invalid(f"{name!r} is {value!r}, not a number from {least} to {most}")
    return value


def _invalid(why: str) -> InvalidRequest:
    return InvalidRequest(
        f"the checkpoint's offset is not one of a tidelog stream: {why}; use the checkpoint of this query, or a new one"
    )
