"""Where the offsets of a task come from: from one segment each, or from the nodes; whatever segments there are."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.ranges.planning import OffsetRange, tasks_of
from tidelog.spark.ranges.remote_history import remote_history, with_sources
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState
from tidelog.types import LeaderEpoch, Millis, NodeId, Offset, PartitionIndex, TopicId, TopicPartition

TOPIC_ID = TopicId(UUID(int=1))
PARTITIONS = tuple(TopicPartition("orders", PartitionIndex(index)) for index in range(2))
offsets = st.integers(0, 40)


def segment(number: int, start: int, end: int) -> RemoteSegment:
    return RemoteSegment(
        RemoteSegmentId(UUID(int=number)),
        TOPIC_ID,
        PartitionIndex(0),
        Offset(start),
        Offset(end),
        (),
        Millis(-1),
        100,
        LeaderEpoch(0),
        NodeId(0),
        Millis(0),
        RemoteSegmentState.COPY_SEGMENT_FINISHED,
    )


@st.composite
def copies(draw: st.DrawFn) -> list[RemoteSegment]:
    """Segments of several leaders: they may overlap, be the same, and leave gaps."""
    borders = draw(st.lists(st.tuples(offsets, st.integers(1, 15)), max_size=8))
    return [segment(number, start, start + size) for number, (start, size) in enumerate(borders)]


@st.composite
def wanted_ranges(draw: st.DrawFn) -> list[OffsetRange]:
    found = []
    for key in PARTITIONS:
        start = draw(offsets)
        end = Offset(start + draw(st.integers(0, 20)))
        found.append(OffsetRange(key, TOPIC_ID, LeaderEpoch(0), Offset(start), end))
    return found


@given(
    ranges=wanted_ranges(),
    copied=st.tuples(copies(), copies()),
    min_partitions=st.none() | st.integers(1, 9),
    most=st.none() | st.integers(1, 9),
)
def test_every_offset_has_one_source_and_tasks_stay_as_they_are(
    ranges: list[OffsetRange],
    copied: tuple[list[RemoteSegment], list[RemoteSegment]],
    min_partitions: int | None,
    most: int | None,
) -> None:
    tasks = tasks_of(ranges, min_partitions=min_partitions, records_per_partition_max=most)
    histories = {key: remote_history("s3://b", each) for key, each in zip(PARTITIONS, copied, strict=True)}

    split = with_sources(tasks, histories)

    assert len(split) == len(tasks)
    for task, before in zip(split, tasks, strict=True):
        read = [(one.topic_partition, offset) for one in task.ranges for offset in range(one.start, one.end)]
        assert read == [(one.topic_partition, offset) for one in before.ranges for offset in range(one.start, one.end)]
        for one in task.ranges:
            there = copied[one.topic_partition.partition]
            if one.remote is None:
                gap = range(one.start, one.end)
                assert not any(each.start_offset <= offset < each.end_offset for each in there for offset in gap)
            else:
                assert one.remote.segment in there
                assert one.remote.segment.start_offset <= one.start < one.end <= one.remote.segment.end_offset
        for one, following in pairwise(task.ranges):
            same_place = one.topic_partition == following.topic_partition
            assert not (same_place and one.end == following.start and one.remote == following.remote), "split in vain"


def test_a_partition_without_history_is_read_from_the_nodes() -> None:
    key = PARTITIONS[0]
    tasks = tasks_of(
        [OffsetRange(key, TOPIC_ID, LeaderEpoch(0), Offset(3), Offset(30))],
        min_partitions=None,
        records_per_partition_max=None,
    )
    assert with_sources(tasks, {}) == tasks
    (task,) = with_sources(tasks, {key: remote_history("s3://b", [segment(1, 0, 10), segment(2, 10, 20)])})
    assert [(one.start, one.end, one.remote is None) for one in task.ranges] == [
        (3, 10, False),
        (10, 20, False),
        (20, 30, True),
    ]
