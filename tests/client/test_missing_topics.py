"""Members that subscribe to topics that do not exist: one warning for each, and a line once it exists."""

from __future__ import annotations

import logging

import pytest

from tests.client.group_story import fill, reading
from tests.client.memory_cluster import CLOCK, memory_cluster, until
from tidelog.client import missing_topics
from tidelog.client.consumer import Consumer, ConsumerRecord


async def test_a_misspelt_topic_is_reported_once_and_read_once_it_exists(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_topics, "NEW_TOPIC_MS", 50)
    caplog.set_level(logging.INFO, "tidelog.client")

    def said(text: str) -> int:
        return sum(text in record.getMessage() for record in caplog.records)

    async with memory_cluster() as cluster:
        cluster.create("orders", 1)
        read = list[ConsumerRecord]()
        consumer = Consumer(cluster.bootstrap, group="g", topics=["orders", "ordres"], max_wait_ms=100)
        async with consumer, reading(consumer, read):
            await until(lambda: said("topic 'ordres' does not exist, or this user may not describe it"))
            await CLOCK.sleep_ms(300)
            assert said("does not exist") == 1, "not again with each answer"
            assert said("'orders'") == 0
            cluster.create("ordres", 1)
            fill(cluster, "ordres", 0, 1)
            await until(lambda: said("topic 'ordres' exists now"))
    assert "check the spelling" in caplog.text.lower()
    assert said("exists now") == 1


async def test_a_topic_that_a_lagging_node_does_not_know_yet_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.client")
    async with memory_cluster() as cluster:
        read = list[ConsumerRecord]()
        consumer = Consumer(cluster.bootstrap, group="g", topics=["orders"], max_wait_ms=100)
        async with consumer, reading(consumer, read):
            await CLOCK.sleep_ms(100)
            cluster.create("orders", 1)
            fill(cluster, "orders", 0, 1)
            await until(lambda: read)
    assert "orders" not in caplog.text
