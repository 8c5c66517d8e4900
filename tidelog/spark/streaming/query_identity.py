"""The identity of a streaming query on the cluster, and what its group's committed offsets say about it. Pure.

PySpark gives a Python reader neither the query's id nor its checkpoint. The identity is the option `tidelog.group.id`,
or the lineage: made when the start of a query is chosen, and in each offset of its checkpoint from then on. So two
queries have one identity only if they have one checkpoint, or the same option.

The group's offsets are either the pin, where a query begins that has no progress yet, or progress. Each entry says
which, and of which lineage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal
from uuid import UUID

from tidelog.client.group_metadata import CommittedOffset
from tidelog.spark.options.offset_bounds import Bound
from tidelog.spark.options.query_options import StreamOptions
from tidelog.spark.streaming.stream_offsets import PartitionPosition, StreamOffset, stream_offset
from tidelog.types import Millis, TopicId, TopicPartition

TRANSACTIONAL_ID_PREFIX: Final = "spark-source-"
DIGEST_CHARACTERS: Final = 16

EMPTY_START: Final = "none-"
"""Begins the lineage of a start without partitions: all that appear later are read from their start."""

EntryKind = Literal["pinned", "progress"]


def start_digest(options: StreamOptions) -> str:
    """A digest of the query's topics and start: a pin serves only queries with the same digest."""
    reads = json.dumps([str(options.query.selection), _bound_text(options.query.starting)])
    return sha256(reads.encode()).hexdigest()[:DIGEST_CHARACTERS]


def group_of(options: StreamOptions, lineage: str) -> str:
    """The group of the query: as given, or `<groupIdPrefix>-<lineage>`. An earlier version wrote an empty lineage."""
    return options.group_id or f"{options.group_id_prefix}-{lineage or start_digest(options)}"


def began_empty(lineage: str) -> bool:
    """Whether the start was one without partitions."""
    return not lineage or lineage.startswith(EMPTY_START)


def transactional_id_of(group_id: str) -> str:
    """The transactional id under which the offsets of the query are committed."""
    return TRANSACTIONAL_ID_PREFIX + group_id


@dataclass(frozen=True, slots=True)
class EntryNote:
    """What the metadata of a committed offset say."""

    kind: EntryKind
    lineage: str
    digest: str
    """Digest of the query that chose the start."""
    topic_id: TopicId
    at: Millis
    """When it was committed (since 1970)."""

    def to_text(self) -> str:
        """The metadata of the committed offset, some 150 characters."""
        return json.dumps(
            {
                "spark": self.kind,
                "lineage": self.lineage,
                "start": self.digest,
                "topic": str(self.topic_id),
                "at": self.at,
            }
        )


def parse_note(text: str) -> EntryNote | None:
    """The note of an entry; None for an entry that another program committed."""
    try:
        fields = json.loads(text)
        kind, at = fields["spark"], fields["at"]
        lineage, digest, topic_id = str(fields["lineage"]), str(fields["start"]), UUID(fields["topic"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if kind not in ("pinned", "progress") or type(at) is not int:
        return None
    return EntryNote(kind, lineage, digest, TopicId(topic_id), Millis(at))


def group_entries(
    offset: StreamOffset, kind: EntryKind, digest: str, at: Millis
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets to commit for a position of the query."""
    return {
        key: CommittedOffset(
            position.next_offset, position.epoch, EntryNote(kind, offset.lineage, digest, topic_id, at).to_text()
        )
        for key, topic_id, position in offset
    }


def pinned_offset(
    entries: Mapping[TopicPartition, CommittedOffset | None], digest: str, cluster_id: str
) -> StreamOffset | None:
    """The pin of a query that has made no progress yet; None if there is none.

    entries: the group's committed offsets. A pin of another digest is of another query. A pin whose lineage has made
    progress is of another checkpoint: its own would not ask for a start any more.
    """
    notes = {key: (each, note) for key, each in entries.items() if each and (note := parse_note(each.metadata))}
    advanced = {note.lineage for _, note in notes.values() if note.kind == "progress"}
    pins = {
        note.lineage: note.at
        for _, note in notes.values()
        if note.kind == "pinned" and note.digest == digest and note.lineage not in advanced
    }
    if not pins:
        return None
    newest = max(pins, key=lambda lineage: (pins[lineage], lineage))
    positions = {
        key: (note.topic_id, PartitionPosition(each.offset, each.leader_epoch))
        for key, (each, note) in notes.items()
        if note.lineage == newest
    }
    return stream_offset(cluster_id, newest, _of_one_id(positions))


def _of_one_id(
    positions: Mapping[TopicPartition, tuple[TopicId, PartitionPosition]],
) -> dict[TopicPartition, tuple[TopicId, PartitionPosition]]:
    """A pin is committed at once, so its partitions of a topic have one id; entries of another one are left out."""
    ids: dict[str, TopicId] = {}
    return {key: each for key, each in positions.items() if ids.setdefault(key.topic, each[0]) == each[0]}


def _bound_text(bound: Bound) -> Any:
    if bound.everywhere is not None:
        return bound.everywhere
    if bound.timestamp_ms is not None:
        return f"time {bound.timestamp_ms}"
    kind, numbers = ("times", bound.times) if bound.times is not None else ("offsets", bound.offsets or {})
    return [kind, sorted([key.topic, key.partition, number] for key, number in numbers.items())]
