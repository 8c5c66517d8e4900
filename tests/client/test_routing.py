"""The compiled passes over many records equal the reference on any input."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client import routing
from tidelog.client.partitioner import partition_for_key

COLUMNS = st.lists(st.none() | st.binary(max_size=20), max_size=40)


def compiled() -> Any:
    return pytest.importorskip("tidelog.client._routing", reason="the compiled code was not built")


@given(st.lists(st.none() | st.binary(max_size=3) | st.text(max_size=2) | st.integers(), max_size=10))
def test_foreign_entries_are_found_alike(column: list[Any]) -> None:
    assert compiled().first_other(column) == routing._first_other(column)


@given(st.data(), COLUMNS, st.integers(0, 30))
def test_records_are_measured_alike(data: st.DataObject, values: list[bytes | None], each: int) -> None:
    keys = data.draw(
        st.none() | st.lists(st.none() | st.binary(max_size=5), min_size=len(values), max_size=len(values))
    )
    assert compiled().measure(values, keys, each) == routing._measure(values, keys, each)


@given(st.data(), st.lists(st.integers(0, 50), max_size=40), st.integers(0, 400), st.integers(0, 900))
def test_the_same_records_fit(data: st.DataObject, sizes: list[int], room: int, memory: int) -> None:
    at = data.draw(st.integers(0, len(sizes)))
    end = data.draw(st.integers(at, len(sizes)))
    arguments = (array("q", sizes), at, end, room, memory, 20)
    behind, total = routing._fit(*arguments)
    assert compiled().fit(*arguments) == (behind, total)
    assert total == sum(sizes[at:behind]) <= room
    assert total + 20 * (behind - at) <= memory
    if behind < end:
        more = total + sizes[behind]
        assert more > room or more + 20 * (behind + 1 - at) > memory


@given(COLUMNS, st.integers(1, 1_500))
def test_keys_go_to_the_partition_that_kafka_chooses(keys: list[bytes | None], partitions: int) -> None:
    targets = compiled().partitions_of(keys, partitions)
    assert targets == routing._partitions_of(keys, partitions)
    assert list(targets) == [-1 if key is None else partition_for_key(key, partitions) for key in keys]


@given(st.data(), st.lists(st.integers(0, 6), max_size=40))
def test_records_are_grouped_by_partition_in_order(data: st.DataObject, targets: list[int]) -> None:
    at = data.draw(st.integers(0, len(targets)))
    end = data.draw(st.integers(at, len(targets)))
    mixed = array("i", [target - 1 for target in targets])
    assert compiled().unassigned(mixed, at, end) == routing._unassigned(mixed, at, end) == mixed[at:end].count(-1)
    groups = compiled().group(array("i", targets), at, end, 7)
    assert groups == routing._group(array("i", targets), at, end, 7)
    assert sorted(index for _, indexes in groups for index in indexes) == list(range(at, end))
    for partition, indexes in groups:
        assert list(indexes) == [index for index in range(at, end) if targets[index] == partition]


@given(st.data(), st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=20))
def test_records_wait_alike(data: st.DataObject, values: list[bytes | None]) -> None:
    def column(entries: st.SearchStrategy[Any]) -> Any:
        return data.draw(st.lists(entries, min_size=len(values), max_size=len(values)))

    keys = data.draw(st.sampled_from((None, column(st.none() | st.binary(max_size=3)))))
    timestamps = data.draw(st.sampled_from((7, column(st.integers(0, 9)))))
    headers = data.draw(st.sampled_from((None, column(st.just((("h", b"1"),)) | st.just(())))))
    indexes = array("i", data.draw(st.lists(st.integers(0, len(values) - 1))))
    begin = data.draw(st.integers(0, len(values)))
    for records in (indexes, range(begin, data.draw(st.integers(begin, len(values))))):
        arguments = (records, values, keys, timestamps, headers)
        found = compiled().waiting(*arguments)
        assert found == routing._waiting(*arguments)
        assert not any(map(gc.is_tracked, found))


@given(st.data(), st.lists(st.binary(max_size=3), min_size=1, max_size=20))
def test_sizes_are_picked_alike(data: st.DataObject, column: list[bytes]) -> None:
    indexes = array("i", data.draw(st.lists(st.integers(0, len(column) - 1))))
    sizes = array("q", range(len(column)))
    assert compiled().pick_sizes(sizes, indexes) == routing._pick_sizes(sizes, indexes)


def test_nothing_outside_a_column_is_touched() -> None:
    fast = compiled()
    calls: tuple[Callable[[], object], ...] = (
        lambda: fast.waiting(array("i", [1]), [b"a"], None, 1, None),
        lambda: fast.waiting(array("i", [-1]), [b"a"], None, 1, None),
        lambda: fast.waiting(range(2), [b"a"], None, 1, None),
        lambda: fast.waiting(range(-1, 1), [b"a"], None, 1, None),
        lambda: fast.waiting(range(1), [b"a"], [], 1, None),
        lambda: fast.waiting(range(1), [b"a"], None, [], None),
        lambda: fast.pick_sizes(array("q", [1]), array("i", [1])),
        lambda: fast.fit(array("q", [1]), 0, 2, 9, 9, 0),
        lambda: fast.unassigned(array("i", [1]), 0, 2),
        lambda: fast.group(array("i", [3]), 0, 1, 3),
        lambda: fast.group(array("i", [-1]), 0, 1, 3),
        lambda: fast.group(array("i", [0]), 0, 2, 3),
    )
    for call in calls:
        with pytest.raises(IndexError):
            call()
    with pytest.raises(TypeError):
        fast.measure(["a"], None, 1)
    with pytest.raises(TypeError):
        fast.partitions_of([1], 2)
