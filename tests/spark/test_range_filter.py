"""Conditions narrow the ranges of a query and lose no record that meets them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidelog.spark.ranges.planning import OffsetRange
from tidelog.spark.ranges.range_filter import RangeFilter, push_filters
from tidelog.types import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition

TOPICS = ("orders", "orders-eu", "payments")
LENGTH = 12
ALL = [TopicPartition(topic, PartitionIndex(number)) for topic in TOPICS for number in range(3)]
MOMENT = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def holds(condition: Filter, row: dict[str, Any]) -> bool:
    """What Spark would say of a row; an obvious twin of the code under test."""
    if isinstance(condition, Not):
        child: Filter = condition.child
        return not holds(child, row)
    name: tuple[str, ...] = getattr(condition, "attribute")  # noqa: B009 - every filter but Not has one
    found: Any = row[name[0]]
    value: Any = getattr(condition, "value", None)
    answers: dict[type, Callable[[], Any]] = {
        IsNull: lambda: False,
        IsNotNull: lambda: True,
        EqualTo: lambda: found == value,
        EqualNullSafe: lambda: found == value,
        In: lambda: found in value,
        GreaterThan: lambda: found > value,
        GreaterThanOrEqual: lambda: found >= value,
        LessThan: lambda: found < value,
        LessThanOrEqual: lambda: found <= value,
        StringStartsWith: lambda: found.startswith(value),
        StringEndsWith: lambda: found.endswith(value),
        StringContains: lambda: value in found,
    }
    return bool(answers[type(condition)]())


def conditions_on(column: str, values: st.SearchStrategy[Any], *more: type[Any]) -> st.SearchStrategy[Filter]:
    compared = st.builds(lambda kind, value: kind((column,), value), st.sampled_from((*COMPARISONS, *more)), values)
    among = st.lists(values, max_size=4).map(lambda found: In((column,), tuple(found)))
    plain = st.one_of(compared, among, st.sampled_from([IsNull((column,)), IsNotNull((column,))]))
    return st.one_of(plain, plain.map(Not))


CONDITIONS = st.one_of(
    conditions_on("topic", st.sampled_from((*TOPICS, "or", "s")), StringStartsWith, StringEndsWith, StringContains),
    conditions_on("partition", st.integers(-1, 4)),
    conditions_on("offset", st.integers(-2, LENGTH + 2)),
    conditions_on("timestamp", st.integers(-3, LENGTH + 3).map(lambda second: MOMENT + timedelta(seconds=second))),
)


def check(conditions: list[Filter]) -> None:
    """Each record is one second later than the one before; the log's answer for a time is the first record from it."""
    pushed, remaining = push_filters(conditions)
    assert all(any(one is given for given in conditions) for one in remaining), "Spark takes back its own objects only"
    for partition in ALL:
        rows: list[dict[str, Any]] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": at,
                "timestamp": MOMENT + at * SECOND,
            }
            for at in range(LENGTH)
        ]
        since = 0
        if pushed.since_ms is not None:
            since = next(
                (i for i, row in enumerate(rows) if row["timestamp"].timestamp() * 1000 >= pushed.since_ms), LENGTH
            )
        whole = OffsetRange(partition, TopicId(UUID(int=1)), LeaderEpoch(0), Offset(0), Offset(LENGTH))
        left = pushed.narrowed(whole, Offset(since))
        assert 0 <= left.start <= left.end <= LENGTH
        read = rows[left.start : left.end] if pushed.keeps(partition) else []
        wanted = [row for row in rows if all(holds(one, row) for one in conditions)]
        assert [row for row in read if all(holds(one, row) for one in remaining)] == wanted


@pytest.mark.parametrize("kind", COMPARISONS)
def test_every_row_that_meets_a_comparison_is_read(kind: type[Any]) -> None:
    for number in range(-1, LENGTH + 2):
        for condition in (
            kind(("offset",), number),
            kind(("partition",), number),
            kind(("timestamp",), MOMENT + number * SECOND),
        ):
            check([condition])
            check([Not(condition)])


@given(st.lists(CONDITIONS, max_size=4))
def test_every_row_that_meets_the_conditions_is_read_and_spark_excludes_the_others(conditions: list[Filter]) -> None:
    check(conditions)


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("topic", "nested"), "orders"),
        EqualTo(("topic",), None),
        EqualTo(("offset",), 3.5),
        EqualTo(("offset",), True),  # noqa: FBT003 - the value of a column
        In(("partition",), (1, None)),
        Not(In(("partition",), (1, None))),
        GreaterThan(("timestamp",), datetime(2026, 3, 1)),  # noqa: DTZ001 - of a column without a time zone
        IsNotNull(("key",)),
        IsNull(("headers",)),
    ],
)
def test_what_ranges_cannot_express_is_left_to_spark(condition: Filter) -> None:
    assert push_filters([condition]) == (RangeFilter(), [condition])


def test_conditions_on_offsets_and_partitions_leave_nothing_for_spark_to_do() -> None:
    exact = [
        EqualTo(("topic",), "orders"),
        In(("partition",), (0, 2)),
        GreaterThanOrEqual(("offset",), 3),
        LessThan(("offset",), 7),
    ]
    pushed, remaining = push_filters(exact)
    assert remaining == []
    assert [str(one) for one in ALL if pushed.keeps(one)] == ["orders-0", "orders-2"]
    assert (pushed.start, pushed.end) == (3, 7)


def test_a_condition_on_time_is_a_lower_bound_only() -> None:
    since, until = GreaterThan(("timestamp",), MOMENT), LessThan(("timestamp",), MOMENT + timedelta(hours=1))
    pushed, remaining = push_filters([since, until])
    assert remaining == [since, until], "a batch's other records are in the range"
    assert pushed == RangeFilter(since_ms=int(MOMENT.timestamp() * 1000))
