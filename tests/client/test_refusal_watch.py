"""A producer whose batches are refused for long says so before it gives up."""

from __future__ import annotations

import logging

import pytest

from tests.client.memory_cluster import memory_cluster, until
from tidelog.client import refusal_watch
from tidelog.client.producer import Producer
from tidelog.client.refusal_watch import OVER_MS, WARN_AFTER_MS, WARN_AGAIN_MS, RefusalWatch
from tidelog.errors import DiskFull, InvalidRecord, NotLeaderOrFollower
from tidelog.types import Endpoint, Millis

FULL = DiskFull("the disk of /data is full: delete topics")
WARNED = "the node at a:1 has refused records for {} s, they are sent again: the disk of /data is full: delete topics"


def test_refusals_that_last_are_warned_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    watch = RefusalWatch(Endpoint("a", 1))
    for at in range(0, WARN_AFTER_MS, 500):
        watch.refused(FULL, Millis(at))
    assert caplog.messages == []
    for at in range(WARN_AFTER_MS, WARN_AFTER_MS + WARN_AGAIN_MS, 500):
        watch.refused(FULL, Millis(at))
    assert caplog.messages == [WARNED.format(2)]
    end = WARN_AFTER_MS + WARN_AGAIN_MS
    watch.refused(FULL, Millis(end))
    assert caplog.messages == [WARNED.format(2), WARNED.format(32)]
    watch.refused(FULL, Millis(end + OVER_MS + 1))
    watch.refused(FULL, Millis(end + OVER_MS + 1_000))
    assert len(caplog.messages) == 2, "the node had accepted records meanwhile"


def test_errors_that_are_not_waited_for_are_none(caplog: pytest.LogCaptureFixture) -> None:
    watch = RefusalWatch(Endpoint("a", 1))
    for at in range(0, WARN_AFTER_MS * 2, 500):
        watch.refused(NotLeaderOrFollower("node 1 leads"), Millis(at))
        watch.refused(InvalidRecord("no key"), Millis(at))
    assert caplog.messages == []


async def test_a_producer_warns_of_a_full_disk(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_watch, "WARN_AFTER_MS", 0)
    async with memory_cluster() as cluster:
        cluster.create("orders")
        cluster.nodes[0].on_produce = lambda entry: FULL
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            await producer.enqueue("orders", b"value")
            await until(lambda: any("the disk of /data is full" in each.getMessage() for each in caplog.records))
            (warned,) = (each for each in caplog.records if "they are sent again" in each.getMessage())
            assert (warned.name, warned.levelno) == ("tidelog.client", logging.WARNING)
            await producer.close(flush=False)
