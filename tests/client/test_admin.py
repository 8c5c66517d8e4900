"""Administration and the synchronous clients, against a cluster in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID

import pytest

import tidelog.sync
from tests.client.jumping_clock import WaitsNotAtAll
from tests.client.memory_cluster import cluster_in_a_thread, memory_cluster, start, until
from tidelog.client.admin import Admin
from tidelog.client.admin_calls import NODES_AGAIN_MS, NODES_START_MS
from tidelog.client.producer import Producer
from tidelog.client.topic_admin import NewTopic
from tidelog.errors import (
    ConnectionFailed,
    InconsistentClusterId,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    OffsetOutOfRange,
    RequestTimedOut,
    Retry,
    TooFewNodes,
    TopicExists,
    UnknownTopicOrPartition,
)
from tidelog.protocol.v1 import data_pb2
from tidelog.types import PartitionIndex, QuotaEntity, TopicPartition


async def test_topics_are_created_described_listed_and_deleted() -> None:
    async with memory_cluster(2) as cluster, Admin(cluster.bootstrap) as admin:
        topic_id = await admin.create_topic("orders", partitions=3, configs={"durability": "page-cache"})
        assert isinstance(topic_id, UUID)
        with pytest.raises(TopicExists, match="choose another name"):
            await admin.create_topic("orders")
        topic = await admin.describe_topic("orders")
        assert (topic.topic_id, len(topic.partitions), topic.configs) == (topic_id, 3, {"durability": "page-cache"})
        assert [partition.leader for partition in topic.partitions] == [0, 1, 0]
        await admin.create_topic("audit")
        assert [topic.name for topic in await admin.list_topics()] == ["audit", "orders"]
        await admin.delete_topic("audit")
        assert [topic.name for topic in await admin.list_topics()] == ["orders"]
        for absent in (admin.describe_topic("audit"), admin.delete_topic("audit")):
            with pytest.raises(UnknownTopicOrPartition):
                await absent


@pytest.mark.parametrize("end", ["", "."])
async def test_a_change_of_unknown_outcome_is_said_in_whole_sentences(end: str) -> None:
    """The messages of nodes end with a full stop or without one."""
    async with memory_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.nodes[0].scripted["alter_client_quotas"] = RequestTimedOut(f"check the result before you retry{end}")
        with pytest.raises(RequestTimedOut) as caught:
            await admin.alter_client_quotas({QuotaEntity("alice", ""): {"producer_byte_rate": 1.0}})
    assert "before you retry. It is unknown whether the change was applied: check before" in caught.value.message


async def test_the_cluster_is_described_by_any_node_that_answers() -> None:
    async with memory_cluster(3) as cluster, Admin(cluster.bootstrap) as admin:
        await cluster.nodes[1].stop()
        for _ in range(5):
            found = await admin.describe_cluster()
            assert [(node.node_id, node.fenced) for node in found.nodes] == [(0, False), (1, True), (2, False)]
        assert found.cluster_id == "memory"


async def test_a_topic_is_created_once_enough_nodes_have_registered() -> None:
    """A program that starts with the cluster creates its topics while nodes register: it was refused for good."""
    async with memory_cluster(2) as cluster, Admin(cluster.bootstrap) as admin:
        await cluster.nodes[1].stop()
        creation = start(admin.create_topic("orders", replication_factor=2))
        await until(lambda: cluster.refused_for_nodes > 0)
        await cluster.nodes[1].start()
        assert isinstance(await creation, UUID)


async def test_a_topic_that_needs_more_nodes_than_ever_start_is_refused_after_some_seconds() -> None:
    async with memory_cluster(1) as cluster, Admin(cluster.bootstrap, clock=WaitsNotAtAll()) as admin:
        with pytest.raises(InvalidReplicationFactor, match="1 nodes are usable") as refused:
            await admin.create_topic("wide", replication_factor=3)
        assert refused.value.retry is Retry.LATER
        assert cluster.refused_for_nodes == NODES_START_MS // NODES_AGAIN_MS + 1


async def test_a_validation_says_at_once_that_a_topic_needs_more_nodes_than_run() -> None:
    clock = WaitsNotAtAll()
    async with memory_cluster(1) as cluster, Admin(cluster.bootstrap, clock=clock) as admin:
        with pytest.raises(TooFewNodes, match="1 nodes are usable"):
            await admin.create_topic("wide", replication_factor=3, validate_only=True)
        found = await admin.create_topics([NewTopic("wide", replication_factor=3)], validate_only=True)
        assert isinstance(found["wide"], TooFewNodes)
        assert cluster.refused_for_nodes == 2 and clock.monotonic_ms() == 0


async def test_a_cluster_that_is_starting_is_waited_for() -> None:
    async with memory_cluster() as cluster:
        await cluster.nodes[0].stop()
        async with Admin(cluster.bootstrap) as admin:
            waiting = start(admin.describe_cluster())
            impatient = Admin(cluster.bootstrap, patience_ms=100)
            async with impatient:
                with pytest.raises(ConnectionFailed, match=r"Is a node running there"):
                    await impatient.describe_cluster()
            await cluster.nodes[0].start()
            assert (await waiting).cluster_id == "memory"


async def test_offsets_are_listed_through_moving_leaders() -> None:
    async with memory_cluster(2) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.create("orders", 2)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            for number in range(4):
                await producer.send("orders", b"v", partition=0, timestamp=number * 1000)
        both = [("orders", 1), ("orders", 0)]
        first, second = TopicPartition("orders", PartitionIndex(1)), TopicPartition("orders", PartitionIndex(0))
        assert await admin.list_offsets(both) == {first: 0, second: 4}
        cluster.lead("orders", 0, 1)
        assert await admin.list_offsets(both, "latest") == {first: 0, second: 4}
        assert await admin.list_offsets(both, "earliest") == {first: 0, second: 0}
        assert await admin.list_offsets(both, datetime.fromtimestamp(1.5, UTC)) == {first: 0, second: 2}
        assert list(await admin.list_offsets(both)) == [first, second], "in the order of the request"
        with pytest.raises(InvalidRequest):
            await admin.list_offsets(both, datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(InvalidRequest):
            await admin.list_offsets(both, "middle")  # type: ignore[arg-type]


async def test_records_are_deleted_below_an_offset_a_time_or_the_end() -> None:
    async with memory_cluster(2) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.create("orders", 3)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            for index in range(3):
                for number in range(4):
                    await producer.send("orders", b"v", partition=index, timestamp=number * 1000)
        cluster.lead("orders", 0, 1)
        first, second, third = (TopicPartition("orders", PartitionIndex(index)) for index in range(3))
        at = datetime.fromtimestamp(1.5, UTC)
        deleted = await admin.delete_records({third: at, ("orders", 0): 3, second: "latest"})
        assert deleted == {third: 2, first: 3, second: 4}
        assert await admin.list_offsets([first, second, third], "earliest") == {first: 3, second: 4, third: 2}
        assert await admin.delete_records({first: 1}) == {first: 3}, "nothing comes back"
        assert await admin.delete_records({third: -1}) == {third: 4}, "in Kafka -1 stands for the end"
        assert await admin.delete_records({}) == {}


async def test_each_partition_whose_records_are_deleted_has_its_outcome() -> None:
    """A partition beyond its end, one that is missing and one of a missing topic do not keep the others' records."""
    async with memory_cluster(2) as cluster, Admin(cluster.bootstrap, clock=WaitsNotAtAll()) as admin:
        cluster.create("orders", 2)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            for index in range(2):
                await producer.send("orders", b"v", partition=index)
        deleted = await admin.delete_records(
            {
                ("nothing", 0): "latest",
                ("orders", 0): 5,
                ("orders", 7): 1,
                ("nothing", 1): 4,
                ("orders", 1): "latest",
            }
        )
        assert list(deleted) == [("nothing", 0), ("orders", 0), ("orders", 7), ("nothing", 1), ("orders", 1)]
        assert deleted["orders", 1] == 1
        missing = UnknownTopicOrPartition
        assert [type(deleted[key]) for key in list(deleted)[:4]] == [missing, OffsetOutOfRange, missing, missing]
        assert await admin.list_offsets([("orders", 0), ("orders", 1)], "earliest") == {
            ("orders", 0): 0,
            ("orders", 1): 1,
        }


async def test_what_cannot_be_sent_is_the_outcome_of_its_partition() -> None:
    """As with `create_topics`: the others' records are deleted."""
    async with memory_cluster(1) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.create("orders", 3)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            await producer.send("orders", b"v", partition=0)
        deleted = await admin.delete_records(
            {
                ("orders", 1): -2,
                ("two words", 0): "latest",
                ("orders", -1): 1,
                ("orders", 2): datetime(2026, 1, 1),  # noqa: DTZ001
                ("orders", 0): 1,
            }
        )
        assert [type(each) for each in list(deleted.values())[:4]] == [
            InvalidRequest,
            InvalidTopic,
            UnknownTopicOrPartition,
            InvalidRequest,
        ]
        assert str(deleted["orders", 1]).startswith("the offset for orders-1=-2")
        assert "has no time zone" in str(deleted["orders", 2])
        assert deleted["orders", 0] == 1


async def test_a_deletion_that_is_sent_again_deletes_no_newer_records() -> None:
    """It names the offset, not "latest": the first request may have been carried out although its answer was lost."""
    async with memory_cluster(1) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            await producer.send("orders", b"v", partition=0)
        await admin.delete_records({("orders", 0): "latest"})
        (request,) = (each for each in cluster.nodes[0].asked if isinstance(each, data_pb2.DeleteRecordsRequest))
        assert [each.offset for each in request.partitions] == [1]


async def test_nodes_of_two_clusters_are_not_mixed() -> None:
    async with memory_cluster() as one, memory_cluster() as other:
        for cluster in (one, other):
            cluster.create("orders")
        other.cluster_id = "another"
        async with Producer(f"{one.bootstrap},{other.bootstrap}", linger_ms=0, max_block_ms=2_000) as producer:
            await producer.send("orders", b"1")
            known = {str(node) for node in producer._cluster.view.nodes.values()}
            stray = one if one.bootstrap not in known else other
            await (one if stray is other else other).nodes[0].stop()
            with pytest.raises(InconsistentClusterId, match="one cluster only"):
                await producer._cluster.refresh("orders")


@pytest.mark.usefixtures("no_lag")
def test_the_synchronous_clients_do_the_same() -> None:
    before = set(threading.enumerate())  # other tests of this process may have left threads
    with cluster_in_a_thread() as cluster:
        with tidelog.sync.Admin(cluster.bootstrap) as admin:
            assert isinstance(admin.create_topic("orders", partitions=2), UUID)
            assert [topic.name for topic in admin.list_topics()] == ["orders"]
            assert admin.describe_topic("orders").partitions[1].leader == 1
            assert len(admin.describe_cluster().nodes) == 2
        with tidelog.sync.Producer(cluster.bootstrap, linger_ms=0) as producer:
            assert producer.send("orders", b"0", partition=0).offset == 0
            results = producer.send_all("orders", [(None, str(n).encode()) for n in range(1, 100)], partition=0)
            assert [result.offset for result in results] == list(range(1, 100))
            producer.flush()
            with pytest.raises(UnknownTopicOrPartition):
                producer.send("orders", b"", partition=9)
        with tidelog.sync.Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("orders", 0)])
            assert len(consumer.poll(10)) == 10
            assert consumer.position(("orders", 0)) == 10
            assert consumer.seek(("orders", 0), 98) == 98
            assert [record.value for record in islice(consumer, 2)] == [b"98", b"99"]
            assert list(consumer.end_offsets([("orders", 0)]).values()) == [100]
            assert len(consumer.partitions("orders")) == 2
            assert consumer.poll(timeout=0.01) == []
            threads: set[int] = set()

            def one_by_one() -> Iterator[tuple[str, int]]:
                threads.add(threading.get_ident())
                yield ("orders", 0)

            assert list(consumer.end_offsets(partitions=one_by_one()).values()) == [100]
            assert list(consumer.end_offsets(one_by_one()).values()) == [100]
            assert threads == {threading.get_ident()}, "an iterator may call the client, so it must not run on its loop"
        own = set(threading.enumerate()) - before
        assert [thread.name for thread in own if thread.name.startswith("tidelog")] == []


def test_close_is_idempotent() -> None:
    producer = tidelog.sync.Producer("127.0.0.1:1")
    producer.close()
    producer.close()
