"""How far a table has the records of its topic: read from the table itself. Pure.

Each snapshot that the job commits has the position behind its rows in its summary, and the same commit writes it to the
properties of the table. Snapshots of others (compaction, deletes) have none, and expiry removes those that have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.errors import InvalidConfig, LogTruncated
from tidelog.spark.ranges.planning import OffsetRange
from tidelog.spark.streaming.stream_offsets import StreamOffset
from tidelog.types import Offset

POSITION: Final = "tidelog.position"


@dataclass(frozen=True, slots=True)
class SnapshotNote:
    """What is known of a snapshot."""

    snapshot_id: int
    parent: int | None
    position: str | None
    """None: another program has committed it."""


def position_of(
    snapshots: Iterable[SnapshotNote], current: int | None, prop: str | None, table_name: str
) -> str | None:
    """The position behind the rows of the table; None if it has none. prop: the property of the table.

    The newest ancestor of the current snapshot that has a position says it: after a rollback the property is of rows
    that the table has no more. Raises InvalidConfig if neither is known to be right.
    """
    notes: Mapping[int, SnapshotNote] = {each.snapshot_id: each for each in snapshots}
    ancestors: set[int] = set()
    at = current
    while at is not None and at in notes and at not in ancestors:
        ancestors.add(at)
        note = notes[at]
        if note.position is not None:
            return note.position
        at = note.parent
    if prop is not None and any(each.position == prop for each in notes.values() if each.snapshot_id not in ancestors):
        raise InvalidConfig(
            f"table {table_name} was rolled back to a snapshot whose position is not known any more, since those "
            f"before it are expired: name another table with --to, or roll back to a snapshot with {POSITION!r} in "
            "its summary"
        )
    return prop


def ensure_continues(start: StreamOffset, ranges: Iterable[OffsetRange]) -> None:
    """Raises LogTruncated if a batch would read an offset that is in the table already: then the log was truncated,
    and has other records there."""
    for one in ranges:
        position = start.find(one.topic_partition, one.topic_id)
        least = Offset(0) if position is None else position.next_offset
        if one.start < least:
            raise LogTruncated(
                f"{one.topic_partition} was truncated to offset {one.start}, and the table has rows up to "
                f"{least - 1}: those from {one.start} on are not in the log any more. Compare them, and continue in "
                "another table with --to"
            )
