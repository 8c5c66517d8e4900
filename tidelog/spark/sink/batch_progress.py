"""What the sink commits as offsets of its groups, to know after a failure what is written. Pure.

    transactional id and group `<sink id>-task-<p>`   one entry, by sink partition p, in the transaction of its rows
    group `<sink id>-driver`                          one record, by the driver, after each batch

A committed offset counts batches: the next one to write. Its metadata says the rest, as JSON. Offsets belong to
partitions and are deleted with their topic, so it is committed for partition 0 of each topic that has rows of the
batch: the sink remembers the batch while one of them exists. The position in these partitions has no meaning.
Source: KIP-98 (offsets that are committed with the records they follow from).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog.client.group_metadata import CommittedOffset
from tidelog.errors import InvalidRequest
from tidelog.types import Offset, PartitionIndex, TopicPartition

_VERSION: Final = 1


def task_id(sink_id: str, partition: int) -> str:
    """The transactional id of a sink partition, and its group."""
    return f"{sink_id}-task-{partition}"


def partition_of(sink_id: str, transactional_id: str) -> int | None:
    """The sink partition of a transactional id; None if it is not of this sink."""
    match = re.fullmatch(re.escape(sink_id) + r"-task-(\d{1,9})", transactional_id, re.ASCII)
    return int(match[1]) if match else None


def task_pattern(sink_id: str) -> str:
    """The pattern (RE2) of the transactional ids of a sink; `partition_of` decides."""
    return re.escape(sink_id) + "-task-[0-9]+"


def driver_group(sink_id: str) -> str:
    """The group of the driver's record."""
    return f"{sink_id}-driver"


@dataclass(frozen=True, slots=True)
class RowSummary:
    """The identity of the rows of a task, whatever their order."""

    rows: int = 0
    digest: int = 0
    """Their sum (row_digest.py)."""


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """What a sink partition has committed last."""

    batch_id: int
    run_id: str
    """Id of the run that wrote it (a start of the query)."""
    summary: RowSummary

    def to_offset(self) -> CommittedOffset:
        """The entry as a committed offset."""
        text = _written(run=self.run_id, rows=self.summary.rows, digest=f"{self.summary.digest:016x}")
        return CommittedOffset(Offset(self.batch_id + 1), metadata=text)


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What the driver has recorded last."""

    batch_id: int
    run_id: str
    tasks: int
    """Number of tasks of the batch or, before it is complete, of the one before; 0 if unknown."""
    rows: int
    """As `tasks`."""
    is_complete: bool
    """True if each task of the batch is committed; otherwise the run has begun to commit it."""

    def to_offset(self) -> CommittedOffset:
        """The record as a committed offset."""
        state = "complete" if self.is_complete else "begun"
        text = _written(run=self.run_id, tasks=self.tasks, rows=self.rows, state=state)
        return CommittedOffset(Offset(self.batch_id + self.is_complete), metadata=text)


@dataclass(frozen=True, slots=True)
class LastOffset:
    """The last entry or record of a group, and the partition to whose offset it belongs."""

    place: TopicPartition
    offset: CommittedOffset


def last_committed(offsets: Mapping[TopicPartition, CommittedOffset | None]) -> LastOffset | None:
    """The last one of the offsets of a group; those of the same batch are alike (`record_places`)."""
    found = ((each.offset, place, each) for place, each in offsets.items() if each is not None)
    last = max(found, key=lambda each: each[:2], default=None)
    return None if last is None else LastOffset(last[1], last[2])


def entry_places(topics: Iterable[str]) -> set[TopicPartition]:
    """Where the entry of a task belongs that wrote to these topics."""
    return {TopicPartition(topic, PartitionIndex(0)) for topic in topics}


def record_places(
    topics: Iterable[str], record: BatchRecord, offsets: Mapping[TopicPartition, CommittedOffset | None]
) -> set[TopicPartition]:
    """Where the record of a batch with rows in these topics belongs; empty if no batch had a row yet. offsets: those of
    the group. An offset as late as the record is replaced, so that of equal ones none says something else."""
    last, next_batch = last_committed(offsets), record.to_offset().offset
    places = entry_places(topics)
    places |= {place for place, each in offsets.items() if each is not None and each.offset >= next_batch}
    return places or ({last.place} if last is not None else set())


def entry_of(committed: LastOffset | None, group: str) -> TaskEntry | None:
    """The entry of a sink partition. Raises InvalidRequest if something else has committed offsets of this group."""
    if committed is None:
        return None
    fields = _read(committed, group, ("run", "rows", "digest"))
    try:
        summary = RowSummary(int(fields["rows"]), int(fields["digest"], 16))
    except (TypeError, ValueError) as error:
        raise _not_of_the_sink(committed, group) from error
    return TaskEntry(committed.offset.offset - 1, str(fields["run"]), summary)


def record_of(committed: LastOffset | None, group: str) -> BatchRecord | None:
    """The record of the driver. Raises InvalidRequest if something else has committed offsets of this group."""
    if committed is None:
        return None
    fields = _read(committed, group, ("run", "tasks", "rows", "state"))
    is_complete = fields["state"] == "complete"
    try:
        tasks, rows = int(fields["tasks"]), int(fields["rows"])
    except (TypeError, ValueError) as error:
        raise _not_of_the_sink(committed, group) from error
    return BatchRecord(committed.offset.offset - is_complete, str(fields["run"]), tasks, rows, is_complete)


def total_rows(summaries: Iterable[RowSummary]) -> int:
    """The rows of a batch."""
    return sum(summary.rows for summary in summaries)


def _written(**fields: str | int) -> str:
    return json.dumps({"v": _VERSION, **fields}, separators=(",", ":"))


def _read(committed: LastOffset, group: str, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        fields = json.loads(committed.offset.metadata)
    except (ValueError, RecursionError) as error:
        raise _not_of_the_sink(committed, group) from error
    if not isinstance(fields, dict) or fields.get("v") != _VERSION or not fields.keys() >= set(names):
        raise _not_of_the_sink(committed, group)
    return fields


def _not_of_the_sink(committed: LastOffset, group: str) -> InvalidRequest:
    return InvalidRequest(
        f"group {group!r} has the offset {committed.offset.offset} of {committed.place} with the metadata "
        f"{committed.offset.metadata!r}, which this version of the Spark sink did not commit: use another "
        "tidelog.sink.id, or the version of tidelog that wrote it"
    )
