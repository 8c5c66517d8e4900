"""Partitions that are added while clients run: producers and consumers find them, and read them from their start."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.client.coordinator_nodes import NODES, Nodes
from tests.client.fetch_core_world import RequestSession
from tests.client.group_story import fill, group_of, place, reading, settled, stored
from tests.client.memory_cluster import MemoryCluster, MemoryPartition, memory_cluster, start, until
from tests.client.numbered_records import read
from tidelog.client import initial_partitions
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.client.core_events import FindLeader
from tidelog.client.fetch_core import MISSING_PARTITION_MS, REFUSED_CLIENT_MS
from tidelog.client.initial_partitions import InitialPartitions
from tidelog.client.producer import Producer
from tidelog.clock import MachineClock
from tidelog.errors import (
    ConnectionFailed,
    NodeNotAvailable,
    SaslAuthenticationFailed,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.protocol.v1 import admin_pb2
from tidelog.protocol.v1 import groups_pb2 as pb
from tidelog.types import Endpoint, Millis, PartitionIndex, TopicId


def add_partitions(cluster: MemoryCluster, topic: str, count: int) -> None:
    cluster.topics[topic].partitions.extend(MemoryPartition(leader=0) for _ in range(count))
    cluster.version += 1


@pytest.mark.parametrize("way", ["send", "columns", "table"])
async def test_a_record_for_an_added_partition_is_sent_there(way: str) -> None:
    """The producer knows the topic with one partition; the metadata in its memory would last for five minutes."""
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


async def test_records_for_an_added_partition_keep_the_order_of_their_calls() -> None:
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


async def test_an_added_partition_is_listed_and_read() -> None:
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


@pytest.mark.parametrize(
    "subscription", [{"topics": ["orders"]}, {"topic_pattern": "orders.*"}], ids=["names", "pattern"]
)
async def test_what_appears_later_is_read_from_its_start_also_with_latest(subscription: dict[str, Any]) -> None:
    """Producers may have written to an added partition, or to a topic new to the pattern, before the member learns of
    it (KIP-1327). What existed when the member began is read from its end."""
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


async def test_a_member_that_begins_after_the_partition_was_added_reads_its_end() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        fill(cluster, "orders", 1, 5)
        async with group_of(cluster, auto_offset_reset="latest") as consumer:
            await settled(cluster, 1)
            await until(lambda: consumer.assignment)
            assert await consumer.position(("orders", 1)) == 5


def refusing(cluster: MemoryCluster, error: TidelogError) -> list[admin_pb2.GetMetadataRequest]:
    """The node refuses the question which partitions exist, of a member that subscribes by pattern. Returns the refused
    requests."""
    node, refused = cluster.nodes[0], list[admin_pb2.GetMetadataRequest]()
    current = node.on_get_metadata

    def on_get_metadata(request: admin_pb2.GetMetadataRequest) -> admin_pb2.GetMetadataResponse:
        if not request.all_topics:
            return current(request)
        refused.append(request)
        raise error

    node.on_get_metadata = on_get_metadata
    return refused


async def test_a_member_that_may_not_learn_what_existed_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asked ten times a second, without end and without a word."""
    monkeypatch.setattr(initial_partitions, "REFUSED_CLIENT_MS", 0)
    async with memory_cluster() as cluster:
        cluster.create("orders")
        refused = refusing(cluster, SaslAuthenticationFailed("wrong password"))
        async with Consumer(
            cluster.bootstrap, group="g", topic_pattern="orders.*", auto_offset_reset="latest"
        ) as consumer:
            for _ in range(2):
                with pytest.raises(SaslAuthenticationFailed, match="wrong password"):
                    await consumer.poll(timeout=20)
        assert len(refused) == 2, "a node may not know a new user yet"


async def test_a_member_closes_while_it_does_not_know_what_existed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its assignment waits for that."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        refused = refusing(cluster, NodeNotAvailable("the node is busy"))
        asked_for_offsets, fetch = list[object](), cluster.groups.fetch

        def offset_fetch(request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
            asked_for_offsets.append(request)
            return fetch(request)

        monkeypatch.setattr(cluster.groups, "fetch", offset_fetch)
        consumer = Consumer(cluster.bootstrap, group="g", topic_pattern="orders.*", auto_offset_reset="latest")
        async with consumer:
            await until(lambda: refused and asked_for_offsets)
        assert cluster.groups.groups["g"].members == {}
        assert stored(cluster) == {}


class Unpaused(MachineClock):
    """A clock that only pauses move, which end at once."""

    def __init__(self) -> None:
        self.now = 1_000

    def monotonic_ms(self) -> Millis:
        return Millis(self.now)

    async def sleep_ms(self, duration_ms: int) -> None:
        self.now += duration_ms


async def test_what_existed_is_asked_for_at_growing_intervals() -> None:
    """It was asked for every 100 ms. A failure that may go away restarts the time of the refusals."""
    nodes, clock, asked_at = Nodes(), Unpaused(), list[int]()
    wrong, silent = SaslAuthenticationFailed("wrong password"), ConnectionFailed("no node answered")

    def on_call(_: Endpoint) -> TidelogError:
        asked_at.append(clock.now)
        raise silent if len(asked_at) == 4 else wrong

    nodes.on_call = on_call
    cluster = Cluster(NODES[:1], nodes, clock, Random(3))
    initial = InitialPartitions(cluster, (), Random(3))
    await initial.find()
    with pytest.raises(SaslAuthenticationFailed):
        await initial.contain(TopicId(UUID(int=1)), PartitionIndex(0))
    pauses = [after - before for before, after in pairwise(asked_at)]
    assert 80 <= pauses[0] <= 120
    assert min(pauses[2:]) >= 320
    assert asked_at[-1] - asked_at[4] >= REFUSED_CLIENT_MS > asked_at[-2] - asked_at[4]
