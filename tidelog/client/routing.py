"""Sizes and partitions of many records in one pass: the pure-Python reference of the compiled code.

    first_other     the first value that is neither bytes nor None
    measure         upper bounds of the encoded sizes
    fit             how many records fit
    partitions_of   the partition of each key
    unassigned      how many records have no partition yet
    group           the records of each partition, in order
    pick_sizes      some entries of an array of sizes
    waiting         records as they wait in a batch

Invariants: both implementations give the same results; tests compare them. Columns are lists; sizes are arrays of
64-bit numbers ("q"), partitions and indexes of 32-bit numbers ("i").
Not here: the partition of a record without a key, and the way of records into batches (many_records.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.client.accumulator import Headers, Waiting
from tidelog.client.partitioner import partition_for_key
from tidelog.records.v2.fast_paths import is_pure_python_requested
from tidelog.types import Millis

NO_PARTITION = -1
"""The partition of a record without a key."""

if TYPE_CHECKING:
    Numbers: TypeAlias = array[int]


def _first_other(column: list[Any]) -> int:
    """Return the index of the first entry that is neither None nor exactly of the type bytes; -1 if there is none."""
    return next((at for at, entry in enumerate(column) if entry is not None and type(entry) is not bytes), -1)


def _measure(values: list[bytes | None], keys: list[bytes | None] | None, each: int) -> Numbers:
    """Return the size of each record: `each` bytes, and those of key and value. keys: as many as values, or None."""
    if keys is None:
        return array("q", [each + len(value or b"") for value in values])
    return array("q", [each + len(key or b"") + len(value or b"") for key, value in zip(keys, values, strict=True)])


def _fit(sizes: Numbers, at: int, end: int, room: int, memory: int, each: int) -> tuple[int, int]:
    """Return the index behind the records from `at` on, below `end`, that fit together, and their size.

    room: bound of their sizes. memory: bound of their sizes and `each` bytes for every one of them.
    """
    total = 0
    for index in range(at, end):
        size = total + sizes[index]
        if size > room or size + each * (index + 1 - at) > memory:
            return index, total
        total = size
    return max(at, end), total


def _partitions_of(keys: list[bytes | None], partitions: int) -> Numbers:
    """Return the partition of each key, NO_PARTITION for None."""
    return array("i", [NO_PARTITION if key is None else partition_for_key(key, partitions) for key in keys])


def _unassigned(targets: Numbers, at: int, end: int) -> int:
    """Return how many records from `at` to below `end` have NO_PARTITION."""
    return targets[at:end].count(NO_PARTITION)


def _group(targets: Numbers, at: int, end: int, partitions: int) -> list[tuple[int, Numbers]]:
    """Return the indexes of the records from `at` to below `end` by partition, in ascending order. targets: the
    partition of each record, from 0 to below `partitions`."""
    found: dict[int, Numbers] = {}
    for index in range(at, end):
        if not 0 <= targets[index] < partitions:
            raise IndexError(f"partition {targets[index]} of {partitions}")
        found.setdefault(targets[index], array("i")).append(index)
    return sorted(found.items())


def _pick_sizes(sizes: Numbers, indexes: Sequence[int]) -> Numbers:
    """Return these entries of the sizes."""
    return array("q", [sizes[index] for index in indexes])


def _waiting(
    records: Sequence[int],
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    timestamps: Millis | list[Millis],
    headers: list[Headers] | None,
) -> list[Waiting]:
    """Return these records of the columns as (key, value, timestamp, headers). records: a range, or an array of
    indexes. timestamps: one of all records, or a list. None stands for a column of nulls or without headers."""
    return [
        (
            None if keys is None else keys[record],
            values[record],
            timestamps if isinstance(timestamps, int) else timestamps[record],
            () if headers is None else headers[record],
        )
        for record in records
    ]


if TYPE_CHECKING:
    first_other, measure, fit = _first_other, _measure, _fit
    partitions_of, unassigned, group, pick_sizes, waiting = _partitions_of, _unassigned, _group, _pick_sizes, _waiting
else:
    try:
        if is_pure_python_requested():
            raise ImportError
        from tidelog.client._routing import (
            first_other,
            fit,
            group,
            measure,
            partitions_of,
            pick_sizes,
            unassigned,
            waiting,
        )
    except ImportError:
        first_other, measure, fit = _first_other, _measure, _fit
        partitions_of, unassigned, group = _partitions_of, _unassigned, _group
        pick_sizes, waiting = _pick_sizes, _waiting
