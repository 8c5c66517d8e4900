"""The identity of a streaming query on the cluster, and what its group's committed offsets say about it. Pure.

PySpark gives a Python reader neither the query's id nor its checkpoint. The identity is the option `tidelog.group.id`,
or the lineage: made when the start of a query is chosen, and in each offset of its checkpoint from then on. So two
queries have one identity only if they have one checkpoint, or the same option.

The group's offsets are either the pin, where a query begins that has no progress yet, or progress. Each entry says
which, and of which lineage (tidelog/client/query_notes.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.query_notes import EntryKind, EntryNote, parse_note
from tidelog.spark.options.offset_bounds import Bound
from tidelog.spark.options.query_options import StreamOptions
from tidelog.spark.streaming.stream_offsets import PartitionPosition, StreamOffset, stream_offset
from tidelog.types import Millis, TopicId, TopicPartition

DIGEST_CHARACTERS: Final = 16

EMPTY_START: Final = "none-"
"""Begins the lineage of a start without partitions: all that appear later are read from their start."""


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
