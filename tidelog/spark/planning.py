"""Which offsets each Spark task reads: pure arithmetic over what the cluster answered.

A range is offsets, not a count of records: control records and compaction leave holes. All ranges of a query are fixed
when it is planned, so a task that runs again reads the same records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from tidelog.errors import InvalidConfig, OffsetOutOfRange
from tidelog.types import LeaderEpoch, Offset, TopicId, TopicPartition


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """What one task reads: the offsets `start` to `end` - 1 of one partition of one life of a topic. planned_epoch: of
    the last record that was committed when the query was planned; a log without it up to `end` was truncated."""

    topic_partition: TopicPartition
    topic_id: TopicId
    planned_epoch: LeaderEpoch
    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """One partition as the cluster described it: the offsets held, the leader epoch of the last record
    (NO_LEADER_EPOCH where there is none), and what the query asks of them (None: no bound)."""

    topic_partition: TopicPartition
    topic_id: TopicId
    last_epoch: LeaderEpoch
    earliest: Offset
    latest: Offset
    asked_start: Offset | None = None
    asked_end: Offset | None = None


def offset_range(bounds: PartitionBounds, *, fail_on_data_loss: bool) -> OffsetRange:
    """The range to read of one partition.

    Raises OffsetOutOfRange where an asked offset is not there any more, or not yet, and the query must not lose data.
    """
    start = bounds.earliest if bounds.asked_start is None else bounds.asked_start
    end = bounds.latest if bounds.asked_end is None else bounds.asked_end
    durable_offset = f"{bounds.topic_partition} holds offsets {bounds.earliest} to {bounds.latest}"
    if fail_on_data_loss and start < bounds.earliest:
        raise OffsetOutOfRange(
            f"{durable_offset}; the query starts at {start}, which has aged out: start at {bounds.earliest}, "
            'or set "failOnDataLoss" to "false" to read what is left'
        )
    if fail_on_data_loss and max(start, end) > bounds.latest:
        raise OffsetOutOfRange(
            f"{durable_offset}; the query asks for {start} to {end}, which was never committed or has been truncated: "
            'check that this is the same topic, or set "failOnDataLoss" to "false"'
        )
    if end < start and bounds.asked_end is not None and bounds.asked_start is not None:
        raise InvalidConfig(
            f"{bounds.topic_partition}: the query starts at {start} and ends before, at {end}; swap them"
        )
    start = Offset(min(max(start, bounds.earliest), bounds.latest))
    end = Offset(max(start, min(end, bounds.latest)))
    return OffsetRange(bounds.topic_partition, bounds.topic_id, bounds.last_epoch, start, end)


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, records_per_partition_max: int | None
) -> list[OffsetRange]:
    """Cut ranges into about `min_partitions`, none longer than the maximum; empty ones are dropped.

    As in Spark's Kafka source: a partition is cut in proportion to its share of all offsets.
    """
    ranges = [one for one in ranges if one.end > one.start]
    total = sum(one.end - one.start for one in ranges)
    pieces: list[OffsetRange] = []
    for one in ranges:
        length = one.end - one.start
        count = 1
        if min_partitions is not None and min_partitions > len(ranges):
            count = max(1, round(length / total * min_partitions))
        if records_per_partition_max is not None:
            count = max(count, -(-length // records_per_partition_max))
        pieces += _cut(one, min(count, length))
    return pieces


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    length = whole.end - whole.start
    borders = [Offset(whole.start + length * index // count) for index in range(count + 1)]
    return [
        OffsetRange(whole.topic_partition, whole.topic_id, whole.planned_epoch, start, end)
        for start, end in pairwise(borders)
    ]


def require_all(asked: Mapping[TopicPartition, object], partitions: Sequence[TopicPartition], option: str) -> None:
    """Offsets given one by one must cover exactly the partitions that are read, as Spark's Kafka source asks.

    Raises InvalidConfig that lists what is missing or too much.
    """
    missing = sorted(set(partitions) - set(asked))
    foreign = sorted(set(asked) - set(partitions))
    if missing or foreign:
        raise InvalidConfig(
            f"option {option!r} must name each partition that is read: "
            + (f"missing {', '.join(map(str, missing))}; " if missing else "")
            + (f"not among them {', '.join(map(str, foreign))}; " if foreign else "")
            + "-2 stands for the earliest offset, -1 for the latest"
        )
