"""Small batches of a stream are read before Spark asks for them, and a query that is behind looks at the logs once.

Spark itself is not needed: reader and session run against a cluster in memory (test_stream_source.py has Spark).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tests.spark.reading_tasks import fill, offset_range
from tidelog.clock import MachineClock
from tidelog.spark.options.query_options import QueryOptions, parse_batch_options, parse_stream_options
from tidelog.spark.ranges import range_batches
from tidelog.spark.ranges.planning import TaskRanges
from tidelog.spark.ranges.reading import RangeReader
from tidelog.spark.streaming import read_ahead
from tidelog.spark.streaming.read_ahead import ReadAhead
from tidelog.spark.streaming.stream_cluster import StreamAdmin
from tidelog.spark.streaming.stream_session import LOOK_MS, StreamSession
from tidelog.types import Millis


class LateClock(MachineClock):
    """The machine's clock, ahead by as much as a test likes."""

    ahead = 0

    def monotonic_ms(self) -> Millis:
        return Millis(super().monotonic_ms() + self.ahead)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is little on a busy machine."""
    monkeypatch.setattr(read_ahead, "WAIT_S", 30)


def given(cluster: MemoryCluster) -> dict[str, str]:
    return {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}


def query(cluster: MemoryCluster) -> QueryOptions:
    return parse_batch_options(given(cluster)).query


def part(cluster: MemoryCluster, start: int, end: int, partition: int = 0) -> TaskRanges:
    return TaskRanges((offset_range(cluster, "orders", partition, start, end),))


async def offsets(ahead: ReadAhead, *tasks: TaskRanges) -> list[int | None] | None:
    """What is read ahead for a batch with these tasks; None: nothing."""
    await ahead.begin(tasks)
    rows = await ahead.take(tasks)
    return None if rows is None else [offset for batch in rows for offset in batch.column("offset").to_pylist()]


async def test_short_batches_are_read_one_after_the_other_by_open_connections() -> None:
    async with memory_cluster(1) as cluster:
        cluster.create("orders")
        fill(cluster, 4)
        ahead = ReadAhead(query(cluster), ("offset", "value"))
        try:
            assert await offsets(ahead, part(cluster, 0, 5)) == [0, 1, 2, 3, 4]
            asked = len(cluster.nodes[0].metadata_requests)
            assert await offsets(ahead, part(cluster, 5, 12)) == [5, 6, 7, 8, 9, 10, 11]
            assert len(cluster.nodes[0].metadata_requests) == asked
        finally:
            await ahead.close()


async def test_what_is_not_one_short_batch_is_left_to_its_tasks() -> None:
    """Two tasks, many offsets, a batch that was not the one that is planned, one that begins before it ends."""
    async with memory_cluster(1) as cluster:
        cluster.create("orders")
        fill(cluster, 4)
        ahead = ReadAhead(query(cluster), ("offset", "value"))
        try:
            assert await offsets(ahead, part(cluster, 0, 3), part(cluster, 3, 6)) is None
            assert await offsets(ahead, part(cluster, 0, 2_000)) is None
            await ahead.begin([part(cluster, 0, 3)])
            assert await ahead.take([part(cluster, 0, 6)]) is None
            await ahead.begin([part(cluster, 0, 3)])
            assert await offsets(ahead, part(cluster, 3, 6)) == [3, 4, 5]
            assert await ahead.take([part(cluster, 3, 6)]) is None, "rows are given once"
        finally:
            await ahead.close()


async def test_large_records_are_not_read_ahead_again() -> None:
    """The first batch shows that they are large: it is left to its task, and so are all later ones."""
    async with memory_cluster(1) as cluster:
        cluster.create("orders")
        fill(cluster, 2, records=1, size=1_000_000)
        ahead = ReadAhead(query(cluster), ("offset", "value"))
        try:
            assert await offsets(ahead, part(cluster, 0, 2)) is None
            assert await offsets(ahead, part(cluster, 0, 1)) is None
        finally:
            await ahead.close()


async def test_a_batch_whose_leader_does_not_answer_is_left_to_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan does not wait for it, nor fails; the next batch is read ahead by new connections."""
    async with memory_cluster(1) as cluster:
        cluster.create("orders")
        fill(cluster, 2)
        ahead = ReadAhead(query(cluster), ("offset", "value"))
        try:
            cluster.lead("orders", 0, -1)
            with monkeypatch.context() as impatient:
                impatient.setattr(read_ahead, "WAIT_S", 0.1)
                assert await offsets(ahead, part(cluster, 0, 3)) is None
            with monkeypatch.context() as impatient:
                impatient.setattr(range_batches, "RangeReader", partial(RangeReader, patience_ms=100))
                assert await offsets(ahead, part(cluster, 0, 3)) is None
            cluster.lead("orders", 0, 0)
            assert await offsets(ahead, part(cluster, 0, 3)) == [0, 1, 2]
        finally:
            await ahead.close()


async def test_a_defect_of_the_reader_does_not_fail_the_plan(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's driver would end the query, where a task is tried again."""
    async with memory_cluster(1) as cluster:
        cluster.create("orders")
        fill(cluster, 2)
        ahead = ReadAhead(query(cluster), ("offset", "value"))
        try:
            with monkeypatch.context() as broken:
                broken.setattr(range_batches.ColumnBuilder, "take", lambda _self: 1 // 0)
                assert await offsets(ahead, part(cluster, 0, 3)) is None
            assert "ZeroDivisionError" in caplog.text
            assert await offsets(ahead, part(cluster, 0, 3)) == [0, 1, 2]
        finally:
            await ahead.close()


async def test_a_query_that_is_behind_looks_at_the_logs_once_for_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as the last look fills its batches, and for a second: then it sees what was written meanwhile."""
    looks = 0
    end_positions = StreamAdmin.end_positions

    async def counted(self: StreamAdmin, *given: Any, **rest: Any) -> Any:
        nonlocal looks
        looks += 1
        return await end_positions(self, *given, **rest)

    monkeypatch.setattr(StreamAdmin, "end_positions", counted)
    async with memory_cluster(1) as cluster:
        cluster.create("orders")
        fill(cluster, 4)
        clock = LateClock()
        options = {**given(cluster), "startingOffsets": "earliest"}
        session = StreamSession(parse_stream_options(options), clock)
        found = []
        try:
            await session.start()
            at = await session.initial()
            for late in (0, 0, LOOK_MS, 0, 0):
                clock.ahead += late
                before = looks
                at = await session.advance(at, 5, may_wait=False)
                found += [(position.next_offset, looks > before) for _, _, position in at]
                fill(cluster, 1 if len(found) == 1 else 0, records=5)
        finally:
            await session.close()
        assert found == [(5, True), (10, False), (15, True), (17, True), (17, True)]
