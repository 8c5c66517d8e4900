"""Partitions that are added while clients run: producers and consumers find them, and read them from their start."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.group_story import fill, group_of, place, reading, settled, stored
from tests.client.memory_cluster import MemoryCluster, MemoryPartition, memory_cluster, run, start, until
from tests.client.test_consumer import read
from tests.client.test_fetch_core import RequestSession
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.client.core_events import FindLeader
from tidelog.client.fetch_core import MISSING_PARTITION_MS
from tidelog.client.producer import Producer
from tidelog.errors import UnknownTopicOrPartition


def add_partitions(cluster: MemoryCluster, topic: str, count: int) -> None:
    cluster.topics[topic].partitions.extend(MemoryPartition(leader=0) for _ in range(count))
    cluster.version += 1


@pytest.mark.parametrize("way", ["send", "columns", "table"])
def test_a_record_for_an_added_partition_is_sent_there(way: str) -> None:
    """The producer knows the topic with one partition; the metadata in its memory would last for five minutes."""

    async def story() -> None:
        async with memory_cluster() as cluster:
            cluster.create("orders")
            async with Producer(cluster.bootstrap) as producer:
                assert (await producer.send("orders", b"before", partition=0)).partition == 0
                add_partitions(cluster, "orders", 2)
                if way == "send":
                    assert (await producer.send("orders", b"after", partition=2)).partition == 2
                elif way == "columns":
                    await (await producer.enqueue_many("orders", [b"after"], partition=2))
                else:
                    pa = pytest.importorskip("pyarrow")
                    await (await producer.enqueue_arrow("orders", pa.table({"value": [b"after"], "partition": [2]})))
                assert cluster.values("orders", 2) == [b"after"]
                assert await producer.partitions("orders") == 3, "keys go to all partitions from now on"

    run(story())


def test_records_for_an_added_partition_keep_the_order_of_their_calls() -> None:
    async def story() -> None:
        async with memory_cluster() as cluster:
            cluster.create("orders")
            async with Producer(cluster.bootstrap) as producer:
                await producer.partitions("orders")
                add_partitions(cluster, "orders", 1)
                with pytest.raises(UnknownTopicOrPartition, match="partition 1 does not exist"):
                    producer.send_nowait("orders", b"too early", partition=1)
                values = [b"%d" % number for number in range(20)]
                sends = [start(producer.send("orders", value, partition=1)) for value in values]
                await until(lambda: len(cluster.nodes[0].metadata_requests) > 1)
                for send in sends:
                    await send
                assert cluster.values("orders", 1) == values
                producer.send_nowait("orders", b"known", partition=1)

    run(story())


def test_a_partition_that_no_node_knows_is_refused_after_a_while() -> None:
    """A missing partition is reported as late as a missing topic: a node may learn of it in this time."""
    session = RequestSession()
    missing = UnknownTopicOrPartition("topic 'orders' has partitions 0 to 0; partition 1 does not exist")
    session.tick()
    session.lead(node=-1, cause=missing)
    assert session.tick(MISSING_PARTITION_MS - 1) == [FindLeader(session.cursor().topic_partition)]
    session.lead(node=-1, cause=missing)
    assert session.cursor().error is None
    session.tick(1)
    session.lead(node=-1, cause=missing)
    assert session.cursor().error is missing

    added = RequestSession()
    added.tick()
    added.lead(node=-1, cause=missing)
    added.tick(MISSING_PARTITION_MS - 1)
    added.lead()
    added.tick(1_000)
    added.lead(node=-1, cause=missing)
    assert added.cursor().error is None, "a leader was known meanwhile"


def test_an_added_partition_is_listed_and_read() -> None:
    async def story() -> None:
        async with memory_cluster() as cluster:
            cluster.create("orders")
            async with Consumer(cluster.bootstrap, max_wait_ms=50) as consumer:
                consumer.assign(await consumer.partitions("orders"))
                assert await consumer.position(("orders", 0)) == 0
                old = cluster.nodes[0].on_get_metadata(cluster.nodes[0].metadata_requests[-1])
                answers = [old, old]
                current = cluster.nodes[0].on_get_metadata
                cluster.nodes[0].on_get_metadata = lambda request: answers.pop() if answers else current(request)
                add_partitions(cluster, "orders", 1)
                fill(cluster, "orders", 1, 3)
                consumer.assign([("orders", 1)])  # the node lags behind
                assert [record.partition for record in await read(consumer, 3)] == [1, 1, 1]
                add_partitions(cluster, "orders", 1)
                assert await consumer.partitions("orders") == [place("orders", index) for index in range(3)]

    run(story())


@pytest.mark.parametrize(
    "subscription", [{"topics": ["orders"]}, {"topic_pattern": "orders.*"}], ids=["names", "pattern"]
)
def test_what_appears_later_is_read_from_its_start_also_with_latest(subscription: dict[str, Any]) -> None:
    """Producers may have written to an added partition, or to a topic new to the pattern, before the member learns of
    it (KIP-1327). What existed when the member began is read from its end."""

    async def story() -> None:
        async with memory_cluster() as cluster:
            cluster.create("orders")
            fill(cluster, "orders", 0, 7)
            found = list[ConsumerRecord]()
            async with (
                Consumer(
                    cluster.bootstrap, group="g", auto_offset_reset="latest", max_wait_ms=50, **subscription
                ) as consumer,
                reading(consumer, found),
            ):
                await settled(cluster, 1)
                await until(lambda: consumer.assignment)
                assert await consumer.position(("orders", 0)) == 7
                add_partitions(cluster, "orders", 1)
                fill(cluster, "orders", 1, 5)
                expected = {("orders", 1): 5}
                if "topic_pattern" in subscription:
                    cluster.create("orders-eu")
                    fill(cluster, "orders-eu", 0, 4)
                    expected["orders-eu", 0] = 4
                await cluster.groups.changed("g")
                await until(lambda: len(found) >= sum(expected.values()))
                assert {(each.topic, each.partition) for each in found} == set(expected)
                assert sorted(each.offset for each in found if each.topic == "orders") == [0, 1, 2, 3, 4]
            assert stored(cluster) == {0: 7, 1: 5}

    run(story())


def test_a_member_that_begins_after_the_partition_was_added_reads_its_end() -> None:
    async def story() -> None:
        async with memory_cluster() as cluster:
            cluster.create("orders", 2)
            fill(cluster, "orders", 1, 5)
            async with group_of(cluster, auto_offset_reset="latest") as consumer:
                await settled(cluster, 1)
                await until(lambda: consumer.assignment)
                assert await consumer.position(("orders", 1)) == 5

    run(story())
