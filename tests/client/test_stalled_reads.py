"""Reads that fail and are repeated, as while an object store is away: the program sees no error, the log says why."""

from __future__ import annotations

import logging

import pytest

from tests.client.fetch_core_world import RequestSession, batch, key
from tests.client.memory_cluster import memory_cluster
from tests.client.numbered_records import fill, numbered
from tidelog import Consumer
from tidelog.client import fetch_core
from tidelog.client.fetch_core import STALLED_AGAIN_MS, STALLED_MS
from tidelog.client.fetch_events import PlaceFound, ReportStall, Sought
from tidelog.errors import NotLeaderOrFollower, TidelogError
from tidelog.tiering.remote_errors import ObjectStoreUnavailable
from tidelog.types import LeaderEpoch, Millis, Offset

AWAY = ObjectStoreUnavailable(
    "reading history/7.segment in the object store s3://b failed: no route; it is tried again: look at the store"
)


def stalls(session: RequestSession, ms: int, error: TidelogError = AWAY, partition: int = 0) -> list[ReportStall]:
    """What is reported when the next fetch fails, after so many milliseconds."""
    session.tick(ms)
    return [each for each in session.failed(error, partition) if isinstance(each, ReportStall)]


def test_a_store_that_is_away_is_reported_at_a_bounded_rate() -> None:
    session = RequestSession()
    session.ready(7)
    assert [stalls(session, 0), stalls(session, STALLED_MS - 1)] == [[], []], "it may be a failover"
    assert stalls(session, 1_000) == [ReportStall(key(), Offset(7), STALLED_MS + 999, 0, AWAY)]
    assert stalls(session, STALLED_AGAIN_MS - 1) == []
    (again,) = stalls(session, 1_000)
    assert again.stalled_ms == STALLED_MS + STALLED_AGAIN_MS + 1_998


def test_an_answer_without_records_that_are_there_is_no_progress() -> None:
    """A node whose store hangs answers in time, without them."""
    session = RequestSession()
    session.ready(7)
    assert stalls(session, 0) == []
    session.tick(1_000)
    session.fetched()
    assert len(stalls(session, STALLED_MS)) == 1
    session.tick(1_000)
    session.fetched(readable_end=7)
    assert [stalls(session, STALLED_AGAIN_MS), stalls(session, STALLED_MS - 1)] == [[], []], "it was at the end"
    session.tick(1_000)
    session.fetched(batch(7))
    assert [stalls(session, STALLED_AGAIN_MS), stalls(session, STALLED_MS - 1)] == [[], []], "it has read records"


def test_a_store_that_stops_many_partitions_is_one_report_in_the_interval() -> None:
    session = RequestSession(partitions=3)
    session.ready(7)
    for partition in (1, 2):
        session.lead(partition=partition)
        session.handle(PlaceFound(key(partition), session.cursor(partition).number, Offset(7), Millis(session.now)))
    assert [stalls(session, 0, partition=each) for each in range(3)] == [[], [], []]
    session.tick(STALLED_MS)
    reports = [each for partition in range(3) for each in stalls(session, 0, partition=partition)]
    assert [(each.topic_partition, each.others) for each in reports] == [(key(), 2)]


def test_what_another_place_answers_counts_from_the_seek_on() -> None:
    session = RequestSession()
    session.ready(7)
    assert stalls(session, 0) == []
    session.handle(Sought(key(), Offset(50), LeaderEpoch(-1), Millis(session.now)))
    assert stalls(session, STALLED_MS) == []


def test_a_leader_that_moves_is_no_stall() -> None:
    session = RequestSession()
    session.ready(7)
    moved = NotLeaderOrFollower("node 1 does not lead orders-0")
    assert [stalls(session, 0, moved), stalls(session, STALLED_MS - 1, moved)] == [[], []]


async def test_a_consumer_logs_where_and_why_it_reads_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It polled without a word while the store was away."""
    monkeypatch.setattr(fetch_core, "STALLED_MS", 0)
    caplog.set_level(logging.WARNING, "tidelog.client")
    async with memory_cluster(1) as cluster:
        cluster.create("orders")
        fill(cluster, numbered(9))
        cluster.nodes[0].on_fetch = lambda _: AWAY
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            await consumer.seek(("orders", 0), 4)
            while not caplog.messages:
                assert await consumer.poll(timeout=0.1) == []
            cluster.nodes[0].on_fetch = lambda _: None
            assert [record.offset for record in await consumer.poll(timeout=30)][:1] == [4]
    (warning,) = caplog.messages
    for part in ("orders-0", "from offset 4 on", "the fetch is repeated", "history/7.segment", "look at the store"):
        assert part in warning
