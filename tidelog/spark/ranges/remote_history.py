"""Which offsets of a query come from the object store, and from which object: arithmetic over the remote segments that
the leaders described when the query was planned.

Invariants:
  1. Each offset of a task is read once: from one of the segments that have it, or from the nodes.
  2. The plan pins the objects: a task that runs again reads the same ones, or fails. It never looks for others.
  3. The number of tasks, and the offsets of each, are those of planning.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from tidelog.spark.ranges.planning import OffsetRange, RemoteSource, TaskRanges
from tidelog.tiering.remote_segment import RemoteSegment
from tidelog.types import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class RemoteHistory:
    """What of a partition can be read from the store."""

    store_url: str
    segments: tuple[RemoteSegment, ...]
    """By start offset. Their end offsets grow too."""


def remote_history(store_url: str, segments: Iterable[RemoteSegment]) -> RemoteHistory:
    """The history of a partition. segments: finished and believed ones, in any order; they may overlap."""
    needed: list[RemoteSegment] = []
    for segment in sorted(segments, key=attrgetter("start_offset", "end_offset")):
        if not needed or segment.end_offset > needed[-1].end_offset:
            needed.append(segment)
    return RemoteHistory(store_url, tuple(needed))


def with_sources(tasks: Iterable[TaskRanges], histories: Mapping[TopicPartition, RemoteHistory]) -> list[TaskRanges]:
    """The tasks, with their ranges split where the source changes: from segment to segment, and to the nodes."""
    return [
        TaskRanges(tuple(piece for one in task.ranges for piece in _pieces(one, histories.get(one.topic_partition))))
        for task in tasks
    ]


def _pieces(wanted: OffsetRange, history: RemoteHistory | None) -> Iterator[OffsetRange]:
    offset = wanted.start
    if history is not None:
        first = bisect_right(history.segments, offset, key=attrgetter("end_offset"))
        for number in range(first, len(history.segments)):
            segment = history.segments[number]
            if segment.start_offset >= wanted.end or offset >= wanted.end:
                break
            if segment.start_offset > offset:  # it was never copied, or its copy is lost
                yield replace(wanted, start=offset, end=segment.start_offset)
                offset = segment.start_offset
            end = Offset(min(segment.end_offset, wanted.end))
            yield replace(wanted, start=offset, end=end, remote=RemoteSource(history.store_url, segment))
            offset = end
    if offset < wanted.end:
        yield replace(wanted, start=offset)
