"""The pure parts of the sink: digests of rows, entries and records, ids."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.coordinators.re2_patterns import compile_pattern
from tidelog.client.group_metadata import CommittedOffset
from tidelog.errors import InvalidRequest
from tidelog.spark.sink.batch_progress import (
    BatchRecord,
    LastOffset,
    RowSummary,
    TaskEntry,
    driver_group,
    entry_of,
    last_committed,
    partition_of,
    record_of,
    record_places,
    task_id,
    task_pattern,
)
from tidelog.spark.sink.row_digest import WORD, _sum_of_rows, digest_of, sum_of_rows
from tidelog.types import Offset, PartitionIndex, TopicPartition

VALUES = st.none() | st.binary(max_size=40)
ROWS = st.lists(
    st.tuples(
        VALUES,
        VALUES,
        st.none() | st.integers(0, 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.lists(st.tuples(st.text(max_size=5), VALUES), max_size=2).map(tuple),
    ),
    max_size=8,
)


def digest(rows: list[Any], topic: str = "t") -> int:
    keys, values, times, partitions, headers = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 5
    )
    return digest_of(topic, values, keys, headers, times, array("i", partitions))


@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter_and_their_division_neither(rows: list[Any], random: Any) -> None:
    mixed = random.sample(rows, len(rows))
    assert digest(mixed) == digest(rows)
    half = len(rows) // 2
    assert (digest(mixed[:half]) + digest(mixed[half:])) & WORD == digest(rows)


@given(ROWS, ROWS)
def test_other_rows_have_another_digest(rows: list[Any], others: list[Any]) -> None:
    assert (digest(rows) == digest(others)) == (sorted(map(repr, rows)) == sorted(map(repr, others)))
    assert not rows or digest(rows) != digest(rows, "other topic")


@pytest.mark.parametrize(
    ("row", "other"),
    [
        ((b"ab", b"c"), (b"a", b"bc")),
        ((None, b"a"), (b"", b"a")),
        ((b"a", None), (b"a", b"")),
        ((b"a", b"b"), (b"b", b"a")),
        ((b"\0" * 7, b""), (b"\0" * 8, b"")),
        ((b"x" * 16, b""), (b"x" * 8, b"x" * 8)),
    ],
)
def test_rows_that_look_alike_differ(row: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    assert digest([(*row, None, -1, ())]) != digest([(*other, None, -1, ())])


@given(ROWS)
def test_the_compiled_digest_is_that_of_the_reference(rows: list[Any]) -> None:
    keys, values, times, partitions, _ = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 5
    seed, places = array("Q", [7]), array("i", partitions)
    assert sum_of_rows(values, keys, times, places, seed) == _sum_of_rows(values, keys, times, places, seed)
    assert sum_of_rows(values, None, None, None, seed) == _sum_of_rows(values, None, None, None, seed)
    seeds = array("Q", range(len(rows)))
    if len(rows) != 1:
        assert sum_of_rows(values, keys, times, None, seeds) == _sum_of_rows(values, keys, times, None, seeds)


def test_the_digest_is_the_same_in_every_version() -> None:
    """Entries of one version are compared by the next one."""
    assert digest_of("orders", [b"value", None], [b"key", b""]) == 0xCE8EC0D12A961BF3
    assert digest_of("orders", []) == 0


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), st.integers(0, 10**9 - 1))
def test_the_pattern_of_a_sink_finds_its_transactional_ids_alone(sink: str, partition: int) -> None:
    matches = compile_pattern(task_pattern(sink))
    assert matches(task_id(sink, partition))
    assert not matches(task_id(sink + "x", partition))
    assert not matches(task_id("x" + sink, partition))


def test_a_sink_partition_is_named_by_its_id_and_ids_of_other_sinks_are_not_taken_for_it() -> None:
    assert partition_of("s", task_id("s", 12)) == 12
    for other in (
        "s-task-",
        "s-task-x",
        "s-task-1-task-2",
        "t-task-1",
        "s-driver",
        "s-task--1",
        "s-task-٣",
        "s.task-1",
    ):
        assert partition_of("s", other) is None
    assert partition_of("s.", "sx-task-1") is None
    names = {task_id(sink, 1) for sink in ("a", "a-task-1")} | {driver_group(sink) for sink in ("a", "a-task-1")}
    assert len(names) == 4


P0 = TopicPartition("out", PartitionIndex(0))


def test_entries_and_records_are_read_as_they_were_written() -> None:
    entry = TaskEntry(7, "run", RowSummary(3, 2**64 - 1))
    assert entry.to_offset().offset == 8
    assert entry_of(LastOffset(P0, entry.to_offset()), "g") == entry
    for is_complete in (True, False):
        record = BatchRecord(7, "run", 4, 100, is_complete)
        assert record_of(LastOffset(P0, record.to_offset()), "g") == record
    assert entry_of(None, "g") is None
    assert record_of(None, "g") is None


def test_the_last_offset_of_a_group_counts() -> None:
    p1 = TopicPartition("later", PartitionIndex(0))
    assert last_committed({}) is None
    assert last_committed({P0: None}) is None
    offsets = {P0: CommittedOffset(Offset(3)), p1: CommittedOffset(Offset(4))}
    assert last_committed(offsets) == LastOffset(p1, offsets[p1])


def test_a_record_replaces_offsets_that_are_as_late_and_no_others() -> None:
    """Of two equal offsets in several topics, none may say something else."""
    a, b, c = (TopicPartition(topic, PartitionIndex(0)) for topic in "abc")
    begun, done = (BatchRecord(7, "run", 1, 1, is_complete) for is_complete in (False, True))
    before: dict[TopicPartition, CommittedOffset | None] = {
        a: BatchRecord(5, "run", 1, 1, is_complete=True).to_offset(),
        b: BatchRecord(6, "run", 1, 1, is_complete=True).to_offset(),
    }
    assert record_places(["c"], begun, before) == {b, c}
    assert record_places(["c"], done, before) == {c}
    assert record_places([], done, before) == {b}, "a batch without rows"
    assert record_places(["c", "a"], done, {b: done.to_offset()}) == {a, b, c}
    assert record_places([], done, {}) == set()


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_what_something_else_has_committed_is_refused(metadata: str) -> None:
    committed = LastOffset(P0, CommittedOffset(Offset(3), metadata=metadata))
    for read in (entry_of, record_of):
        with pytest.raises(InvalidRequest, match=r"use another tidelog\.sink\.id"):
            read(committed, "g")


@pytest.mark.parametrize(
    "change", [{"v": 2}, {"rows": "many"}, {"rows": None}, {"digest": "xyz"}, {"tasks": [], "digest": 5}]
)
def test_what_another_version_has_committed_is_refused(change: dict[str, Any]) -> None:
    both = {"v": 1, "run": "r", "rows": 1, "digest": "0", "tasks": 1, "state": "complete", **change}
    committed = LastOffset(P0, CommittedOffset(Offset(3), metadata=json.dumps(both)))
    with pytest.raises(InvalidRequest):
        entry_of(committed, "g")
