"""The offsets that each Spark task reads: pure arithmetic over the offsets that the cluster returned.

A range counts offsets, not records: control records and compaction leave holes. All ranges of a query are fixed when it
is planned, so a task that runs again reads the same records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from tidelog.errors import InvalidConfig, OffsetOutOfRange
from tidelog.tiering.remote_segment import RemoteSegment
from tidelog.topic_snapshots import LeftOutProducer
from tidelog.types import LeaderEpoch, Offset, TopicId, TopicPartition

OFFSETS_PER_TASK: Final = 500_000
"""Length of the pieces of a range if the query does not say how many tasks it wants. PySpark tells a Python source
nothing about cores: pieces are short enough to keep all of them busy, and long enough that a task decodes for about
half a second or more, many times what it costs to start one and to connect."""
TASKS_MAX: Final = 10_000
"""About the most tasks of a query that does not say how many it wants: larger ones have longer pieces."""
OFFSETS_TOGETHER: Final = 1_000
"""Most offsets of ranges that one task reads one after the other, if the query does not say how many tasks it wants: to
start a task takes longer than to read them."""
RANGES_TOGETHER: Final = 16
"""Most of such ranges: each takes some milliseconds, and waits for those before it."""


@dataclass(frozen=True)
class RemoteSource:
    """The object from which a range is read."""

    store_url: str
    segment: RemoteSegment


@dataclass(frozen=True)
class OffsetRange:
    """The offsets `start` to `end` - 1 of one partition."""

    topic_partition: TopicPartition
    topic_id: TopicId
    """Tells a topic from a later one of the same name."""
    planned_epoch: LeaderEpoch
    """Of the last record that was committed when the query was planned; a log without this epoch up to `end` was
    truncated."""
    start: Offset
    end: Offset
    left_out: tuple[LeftOutProducer, ...] = ()
    """Producers whose transactions are not in the snapshot that is read."""
    remote: RemoteSource | None = None
    """None: the range is read from the nodes."""

    @property
    def length(self) -> int:
        """How many offsets there are; at least as many as records."""
        return self.end - self.start


@dataclass(frozen=True)
class TaskRanges(InputPartition):
    """What one task reads, in this order."""

    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """One partition as the cluster described it, with the bounds of the query."""

    topic_partition: TopicPartition
    topic_id: TopicId
    last_epoch: LeaderEpoch
    """Leader epoch of its last record; NO_LEADER_EPOCH if there is none."""
    earliest: Offset
    latest: Offset
    """Its end."""
    query_start: Offset | None = None
    """None: no bound."""
    query_end: Offset | None = None
    """None: no bound."""


def is_outside(bounds: PartitionBounds) -> bool:
    """Whether the query asks for offsets outside of the log."""
    start = bounds.earliest if bounds.query_start is None else bounds.query_start
    end = bounds.latest if bounds.query_end is None else bounds.query_end
    return start < bounds.earliest or max(start, end) > bounds.latest


def offset_range(bounds: PartitionBounds, *, fail_on_data_loss: bool) -> OffsetRange:
    """The range to read of one partition: the bounds of the query, within the offsets of the log.

    Raises OffsetOutOfRange if a bound lies outside the log and `fail_on_data_loss` is set, InvalidConfig if the query
    ends before it starts.
    """
    start = bounds.earliest if bounds.query_start is None else bounds.query_start
    end = bounds.latest if bounds.query_end is None else bounds.query_end
    available = f"{bounds.topic_partition} holds offsets {bounds.earliest} to {bounds.latest}"
    if fail_on_data_loss and start < bounds.earliest:
        raise OffsetOutOfRange(
            f"{available}; the query starts at {start}, which retention has deleted: start at {bounds.earliest}, "
            'or set "failOnDataLoss" to "false" to read the remaining records'
        )
    if fail_on_data_loss and max(start, end) > bounds.latest:
        beyond = f"starts at {start}" if start > bounds.latest else f"ends at {end}"
        raise OffsetOutOfRange(
            f"{available}; the query {beyond}, which was never committed, has been truncated, or belongs "
            "to a transaction that is open (`tidelog partition who-holds-lso`): check that this is the intended topic, "
            'or set "failOnDataLoss" to "false"'
        )
    if end < start and bounds.query_end is not None and bounds.query_start is not None:
        raise InvalidConfig(
            f"{bounds.topic_partition}: the query starts at {start} and ends before that, at {end}; swap the bounds"
        )
    start = Offset(min(max(start, bounds.earliest), bounds.latest))
    end = Offset(max(start, min(end, bounds.latest)))
    return OffsetRange(bounds.topic_partition, bounds.topic_id, bounds.last_epoch, start, end)


def tasks_of(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, records_per_partition_max: int | None
) -> list[TaskRanges]:
    """The ranges as tasks: about `min_partitions` of them, none with more offsets than the maximum. The same ranges and
    options always give the same tasks. Empty ranges are dropped.

    As in Spark's Kafka source, each partition is split in proportion to its share of all offsets. min_partitions: None
    to split ranges that are longer than OFFSETS_PER_TASK, and to read short ones together, up to OFFSETS_TOGETHER and
    RANGES_TOGETHER.
    """
    pieces = _pieces(ranges, min_partitions, records_per_partition_max)
    if min_partitions is not None:
        return [TaskRanges((one,)) for one in pieces]
    together = min(OFFSETS_TOGETHER, records_per_partition_max or OFFSETS_TOGETHER)
    tasks: list[list[OffsetRange]] = []
    length = 0
    for one in pieces:
        if not tasks or length + one.length > together or len(tasks[-1]) == RANGES_TOGETHER:
            tasks.append([])
            length = 0
        tasks[-1].append(one)
        length += one.length
    return [TaskRanges(tuple(each)) for each in tasks]


def _pieces(
    ranges: Sequence[OffsetRange], min_partitions: int | None, records_per_partition_max: int | None
) -> list[OffsetRange]:
    ranges = [one for one in ranges if one.length > 0]
    total = sum(one.length for one in ranges)
    per_task = max(OFFSETS_PER_TASK, total // TASKS_MAX)
    pieces: list[OffsetRange] = []
    for one in ranges:
        count = 1
        if min_partitions is None:
            count = -(-one.length // per_task)
        elif min_partitions > len(ranges):
            count = max(1, round(one.length / total * min_partitions))
        if records_per_partition_max is not None:
            count = max(count, -(-one.length // records_per_partition_max))
        count = min(count, one.length)
        borders = [Offset(one.start + one.length * index // count) for index in range(count + 1)]
        pieces += [replace(one, start=start, end=end) for start, end in pairwise(borders)]
    return pieces


def require_all(
    given: Mapping[TopicPartition, object], partitions: Sequence[TopicPartition], option: str, advice: str
) -> None:
    """Check that an option names exactly the partitions that are read, as Spark's Kafka source requires.

    advice: what to give for a partition whose value does not matter.
    Raises InvalidConfig with the missing and the extra partitions.
    """
    missing = sorted(set(partitions) - set(given))
    extra = sorted(set(given) - set(partitions))
    if missing or extra:
        raise InvalidConfig(
            f"option {option!r} must name exactly the partitions that are read: "
            + (f"missing {', '.join(map(str, missing))}; " if missing else "")
            + (f"not read {', '.join(map(str, extra))}; " if extra else "")
            + advice
        )
