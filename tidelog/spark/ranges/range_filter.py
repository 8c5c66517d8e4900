"""The conditions of a query that narrow its ranges before anything is read: on topic, partition, offset and timestamp.

Pure. Invariant: a record that meets all conditions is in a range that is left. A condition that the ranges express
exactly is not evaluated again by Spark; any other is.
A timestamp only gives a lower bound: the log finds the first record at or after a time, and so all records before it
are older; the timestamps of producers need not increase, so that no offset is known behind which all are younger.
Not here: whether Spark pushes filters at all (batch_reader.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

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

from tidelog.records.v2.varint import INT64_MAX
from tidelog.spark.ranges.planning import OffsetRange
from tidelog.types import Offset, TopicPartition

_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
_VALUE_TYPES: Final[Mapping[str, type]] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RangeFilter:
    """What pushed conditions leave of the ranges. partitions: conditions on topic and partition. start, end: of the
    offsets, `end` exclusive. since_ms: no record before this time, in milliseconds since 1970, is wanted. The default
    leaves everything."""

    partitions: tuple[Filter, ...] = ()
    start: int = 0
    end: int = INT64_MAX
    since_ms: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        """Whether the partition may hold records that are wanted."""
        return all(_holds(one, {"topic": partition.topic, "partition": partition.partition}) for one in self.partitions)

    def narrowed(self, whole: OffsetRange, since: Offset) -> OffsetRange:
        """What is left of the range, possibly nothing. since: no earlier offset is wanted."""
        start = Offset(min(max(whole.start, self.start, since), whole.end))
        return replace(whole, start=start, end=Offset(max(start, min(whole.end, self.end))))


def push_filters(filters: Iterable[Filter]) -> tuple[RangeFilter, list[Filter]]:
    """Apply the conditions, which are all to hold. Returns the filter, and those that Spark must still evaluate."""
    pushed, remaining = RangeFilter(), list[Filter]()
    for one in filters:
        narrower, is_exact = _pushed(pushed, one)
        pushed = narrower
        if not is_exact:
            remaining.append(one)
    return pushed, remaining


def _pushed(before: RangeFilter, condition: Filter) -> tuple[RangeFilter, bool]:
    """The filter with one more condition, and whether the ranges express it exactly."""
    inner = condition.child if isinstance(condition, Not) else condition
    column = _column(inner)
    if column is None or not _is_comparable(inner, column):
        return before, False
    if column in ("topic", "partition"):
        return replace(before, partitions=(*before.partitions, condition)), True
    match condition:
        case IsNotNull():
            return before, True
        case IsNull():
            return replace(before, end=0), True
        case Not():
            return before, False
    values = _values(condition)
    if column == "offset":
        return _by_offset(before, condition, values)
    return _by_time(before, condition, values), False


def _column(condition: Filter) -> str | None:
    """The name of the column, if the condition is about one that is never null."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    return attribute[0] if len(attribute) == 1 and attribute[0] in _NEVER_NULL else None


def _is_comparable(condition: Filter, column: str) -> bool:
    """Whether Python and Spark compare the column and the values alike: values are of the column's type, never null."""
    if isinstance(condition, IsNull | IsNotNull):
        return True
    expected = _VALUE_TYPES.get(column)
    values = _values(condition)
    return expected is not None and all(
        isinstance(value, expected)
        and not isinstance(value, bool)
        and (not isinstance(value, datetime) or value.tzinfo is not None)
        for value in values
    )


def _values(condition: Filter) -> Sequence[Any]:
    return tuple(condition.value) if isinstance(condition, In) else (getattr(condition, "value", None),)


def _by_offset(before: RangeFilter, condition: Filter, values: Sequence[int]) -> tuple[RangeFilter, bool]:
    if not values:
        return replace(before, end=0), True
    lowest, highest = min(values), max(values)
    first, end = 0, highest + 1
    match condition:
        case EqualTo() | EqualNullSafe() | In():
            first = lowest
        case GreaterThan():
            first, end = lowest + 1, before.end
        case GreaterThanOrEqual():
            first, end = lowest, before.end
        case LessThan():
            end = highest
        case LessThanOrEqual():
            end = highest + 1
        case _:
            return before, False
    narrower = replace(before, start=max(before.start, first), end=max(min(before.end, end), 0))
    return narrower, not isinstance(condition, In) or highest - lowest + 1 == len(set(values))


def _by_time(before: RangeFilter, condition: Filter, values: Sequence[datetime]) -> RangeFilter:
    if not values or not isinstance(condition, EqualTo | EqualNullSafe | In | GreaterThan | GreaterThanOrEqual):
        return before
    moment_ms = (min(values) - _EPOCH) // timedelta(milliseconds=1)
    if moment_ms <= 0:
        return before
    return replace(before, since_ms=max(moment_ms, before.since_ms or 0))


def _holds(condition: Filter, row: Mapping[str, Any]) -> bool:
    """Whether a condition on topic or partition holds for the partition."""
    if isinstance(condition, Not):
        return not _holds(condition.child, row)
    column = _column(condition)
    assert column is not None, "only conditions on topic and partition are kept"
    found, values = row[column], _values(condition)
    match condition:
        case IsNull():
            return False
        case EqualTo() | EqualNullSafe() | In():
            return found in values
        case GreaterThan():
            return bool(found > values[0])
        case GreaterThanOrEqual():
            return bool(found >= values[0])
        case LessThan():
            return bool(found < values[0])
        case LessThanOrEqual():
            return bool(found <= values[0])
        case StringStartsWith():
            return bool(found.startswith(values[0]))
        case StringEndsWith():
            return bool(found.endswith(values[0]))
        case StringContains():
            return values[0] in found
    return True
