"""The offsets of each task: together exactly the requested ones, with any split."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidConfig, OffsetOutOfRange
from tidelog.spark.ranges.planning import (
    OFFSETS_PER_TASK,
    OFFSETS_TOGETHER,
    RANGES_TOGETHER,
    TASKS_MAX,
    OffsetRange,
    PartitionBounds,
    offset_range,
    require_all,
    tasks_of,
)
from tidelog.types import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition

TOPIC = TopicId(UUID(int=7))


def bounds(earliest: int, latest: int, start: int | None = None, end: int | None = None) -> PartitionBounds:
    return PartitionBounds(
        TopicPartition("orders", PartitionIndex(0)),
        TOPIC,
        LeaderEpoch(3),
        Offset(earliest),
        Offset(latest),
        None if start is None else Offset(start),
        None if end is None else Offset(end),
    )


def whole(partition: int, start: int, end: int) -> OffsetRange:
    tp = TopicPartition("orders", PartitionIndex(partition))
    return OffsetRange(tp, TOPIC, LeaderEpoch(0), Offset(start), Offset(end))


def test_without_bounds_all_committed_records_are_read() -> None:
    planned = offset_range(bounds(5, 90), fail_on_data_loss=True)
    assert (planned.start, planned.end, planned.topic_id) == (5, 90, TOPIC)


def test_offsets_deleted_by_retention_are_an_error_unless_loss_is_allowed() -> None:
    with pytest.raises(OffsetOutOfRange, match="retention has deleted"):
        offset_range(bounds(50, 90, start=10), fail_on_data_loss=True)
    assert offset_range(bounds(50, 90, start=10), fail_on_data_loss=False).start == 50


def test_offsets_never_committed_are_an_error_unless_loss_is_allowed() -> None:
    with pytest.raises(OffsetOutOfRange, match="the query ends at 91, which was never committed"):
        offset_range(bounds(0, 90, end=91), fail_on_data_loss=True)
    with pytest.raises(
        OffsetOutOfRange, match="orders-0 holds offsets 0 to 90; the query starts at 1000000, which was"
    ):
        offset_range(bounds(0, 90, start=1_000_000), fail_on_data_loss=True)
    lenient = offset_range(bounds(0, 90, start=95, end=99), fail_on_data_loss=False)
    assert (lenient.start, lenient.end) == (90, 90)


def test_a_query_that_ends_before_it_starts_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match="swap"):
        offset_range(bounds(0, 90, start=50, end=40), fail_on_data_loss=True)


@given(
    lengths=st.lists(st.integers(0, 5_000), min_size=1, max_size=8),
    min_partitions=st.one_of(st.none(), st.integers(1, 40)),
    longest=st.one_of(st.none(), st.integers(1, 1_000)),
)
def test_pieces_cover_each_offset_exactly_once(
    lengths: list[int], min_partitions: int | None, longest: int | None
) -> None:
    ranges = [whole(index, 100, 100 + length) for index, length in enumerate(lengths)]
    tasks = tasks_of(ranges, min_partitions=min_partitions, records_per_partition_max=longest)
    pieces = [piece for task in tasks for piece in task.ranges]
    for one in ranges:
        mine = [piece for piece in pieces if piece.topic_partition == one.topic_partition]
        borders = [one.start, *(piece.end for piece in mine)]
        assert [piece.start for piece in mine] == borders[:-1]
        assert borders[-1] == one.end
    assert all(piece.start < piece.end for piece in pieces)
    if longest is not None:
        assert all(sum(piece.length for piece in task.ranges) <= longest for task in tasks)
    if min_partitions is not None:
        assert all(len(task.ranges) == 1 for task in tasks), "the query has said how many it wants"


def test_without_a_number_of_tasks_long_ranges_are_split_into_equal_pieces() -> None:
    def lengths(*ranges: int, **wanted: int) -> list[int]:
        asked = {"min_partitions": None, "records_per_partition_max": None, **wanted}
        tasks = tasks_of([whole(index, 7, 7 + length) for index, length in enumerate(ranges)], **asked)
        return [piece.length for task in tasks for piece in task.ranges]

    most = OFFSETS_PER_TASK
    assert lengths(most, 1, 0) == [most, 1]
    assert lengths(most + 2) == [most // 2 + 1] * 2
    assert lengths(2 * most, most) == [most] * 3
    assert lengths(2 * most, min_partitions=1) == [2 * most], "the query's own number wins"
    assert lengths(most, records_per_partition_max=most // 2) == [most // 2] * 2
    assert len(lengths(10 * TASKS_MAX * most)) == TASKS_MAX


def test_short_ranges_are_read_together_by_one_task() -> None:
    """A small batch of many partitions is not worth a task for each; the query's own number of tasks wins."""

    def tasks(*lengths: int, **wanted: int) -> list[list[int]]:
        asked = {"min_partitions": None, "records_per_partition_max": None, **wanted}
        ranges = [whole(index, 7, 7 + length) for index, length in enumerate(lengths)]
        return [[piece.length for piece in task.ranges] for task in tasks_of(ranges, **asked)]

    most = OFFSETS_TOGETHER
    assert tasks(3, 0, 5, most - 8, 1) == [[3, 5, most - 8], [1]]
    assert tasks(1, most, 1) == [[1], [most], [1]], "in the order of the partitions"
    assert tasks(1, 5 * most, 1, 1) == [[1], [5 * most], [1, 1]]
    assert tasks(3, 5, min_partitions=1) == [[3], [5]]
    assert tasks(3, 5, 4, records_per_partition_max=8) == [[3, 5], [4]]
    assert [len(each) for each in tasks(*[1] * (2 * RANGES_TOGETHER + 3))] == [RANGES_TOGETHER, RANGES_TOGETHER, 3]
    assert tasks() == []


def test_offsets_given_one_by_one_must_cover_the_read_range() -> None:
    first, second = TopicPartition("orders", PartitionIndex(0)), TopicPartition("orders", PartitionIndex(1))
    require_all({first: 1, second: 2}, [first, second], "startingOffsets", "x")
    with pytest.raises(InvalidConfig, match="missing orders-1; give both"):
        require_all({first: 1}, [first, second], "startingOffsets", "give both")
    with pytest.raises(InvalidConfig, match="not read orders-1"):
        require_all({first: 1, second: 2}, [first], "startingOffsets", "x")
