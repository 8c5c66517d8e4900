"""Producers and consumers count under the names of Kafka's clients."""

from __future__ import annotations

import math

import pytest

from tests.client.memory_cluster import cluster_in_a_thread, memory_cluster
from tests.client.numbered_records import P0, fill, numbered
from tidelog import sync
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.errors import InvalidRecord, NotLeaderOrFollower


async def test_a_producer_counts_what_it_sends_again_and_what_fails() -> None:
    async with memory_cluster() as cluster:
        for topic in ("orders", "payments"):
            cluster.create(topic)
        async with Producer(cluster.bootstrap, linger_ms=0, buffer_bytes=1 << 20) as producer:
            before = producer.metrics()
            assert list(before) == ["producer-metrics"]
            assert before["producer-metrics"]["record-send-total"] == 0
            assert math.isnan(before["producer-metrics"]["batch-size-avg"])
            await producer.send("orders", b"0")
            refusals = [NotLeaderOrFollower("not now")]
            cluster.nodes[0].on_produce = lambda _: refusals.pop() if refusals else None
            await (await producer.enqueue_many("orders", [b"1", b"2"]))
            cluster.nodes[0].on_produce = lambda _: InvalidRecord("never")
            with pytest.raises(InvalidRecord):
                await producer.send("payments", b"3")
            found = producer.metrics()
            orders, all_topics = found["producer-topic-metrics.orders"], found["producer-metrics"]
            assert orders["record-send-total"] == 3
            assert orders["record-retry-total"] == 2
            assert orders["record-error-total"] == 0
            assert found["producer-topic-metrics.payments"]["record-error-total"] == 1
            assert all_topics["record-send-total"] == 4
            assert all_topics["byte-total"] > 4 * 61
            assert all_topics["batch-size-max"] >= all_topics["batch-size-avg"] > 61
            assert all_topics["request-latency-max"] >= 0
            assert all_topics["records-per-batch-avg"] == 4 / 3
            assert all_topics["buffer-available-bytes"] == all_topics["buffer-total-bytes"] == 1 << 20
            assert (all_topics["requests-in-flight"], all_topics["waiting-threads"]) == (0, 0)


async def test_a_consumer_counts_what_it_fetches_and_tells_its_lag() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(9))
        async with Consumer(cluster.bootstrap) as consumer:
            assert math.isnan(consumer.metrics()["consumer-fetch-manager-metrics"]["records-lag-max"])
            consumer.assign([P0])
            assert len(await consumer.poll(4, timeout=10)) > 0
            position = await consumer.position(P0)
            found = consumer.metrics()
            fetched = found["consumer-fetch-manager-metrics"]
            assert fetched["records-consumed-total"] == 9
            assert fetched["bytes-consumed-total"] == fetched["fetch-size-avg"] == fetched["fetch-size-max"]
            assert fetched["fetch-total"] == 1
            assert fetched["records-lag-max"] == 9 - position
            assert found["consumer-fetch-manager-metrics.orders-0"] == {"records-lag": 9 - position}
            assert found["consumer-coordinator-metrics"] == {"assigned-partitions": 1}


def test_synchronous_clients_tell_the_same() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        with sync.Producer(cluster.bootstrap) as producer:
            producer.send("orders", b"0")
            assert producer.metrics()["producer-metrics"]["record-send-total"] == 1
        with sync.Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("orders", 0)])
            assert consumer.metrics()["consumer-coordinator-metrics"]["assigned-partitions"] == 1
