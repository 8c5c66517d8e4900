"""A consumer subscribes, subscribes to something else, and unsubscribes while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.group_story import fill, place, settled
from tests.client.memory_cluster import cluster_in_a_thread, memory_cluster, start, until
from tidelog import sync
from tidelog.client.consumer import Consumer
from tidelog.errors import InvalidConfig, InvalidRequest, InvalidTopic
from tidelog.types import TopicPartition

ORDERS, PAYMENTS = place("orders", 0), place("payments", 0)


class Heard:
    """What the callbacks were called with."""

    def __init__(self) -> None:
        self.assigned: list[TopicPartition] = []
        self.revoked: list[TopicPartition] = []

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        self.assigned += partitions

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        self.revoked += partitions


async def test_a_consumer_of_a_group_joins_when_it_subscribes() -> None:
    heard = Heard()
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 2)
        async with Consumer(cluster.bootstrap, group="g", max_wait_ms=100) as consumer:
            with pytest.raises(InvalidRequest, match="no partitions are assigned: call assign or subscribe first"):
                await consumer.poll(timeout_ms=0)
            consumer.subscribe(["orders"], on_assigned=heard.on_assigned)
            assert len(await consumer.poll(timeout=10)) == 2
            assert heard.assigned == [ORDERS]


async def test_a_static_member_may_subscribe_at_run_time() -> None:
    """The options of a member hold for the subscription that comes later, as in Kafka's clients."""
    heard = Heard()
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 1)
        options: dict[str, Any] = {"instance_id": "one", "server_assignor": "range", "on_assigned": heard.on_assigned}
        async with Consumer(cluster.bootstrap, group="g", max_wait_ms=100, **options) as consumer:
            consumer.subscribe(["orders"])
            assert len(await consumer.poll(timeout=10)) == 1
            assert heard.assigned == [ORDERS]
            assert [member.instance_id for member in cluster.groups.groups["g"].members.values()] == ["one"]
            assert cluster.groups.heartbeats[0].server_assignor == "range"


async def test_another_subscription_keeps_the_member_and_what_both_have() -> None:
    heard = Heard()
    async with memory_cluster() as cluster:
        for topic in ("orders", "payments", "audit"):
            cluster.create(topic)
            fill(cluster, topic, 0, 1)
        async with Consumer(
            cluster.bootstrap, group="g", topics=["orders", "audit"], max_wait_ms=100, on_revoked=heard.on_revoked
        ) as consumer:
            await until(lambda: len(consumer.assignment) == 2)
            (member,) = cluster.groups.groups["g"].members
            audit = consumer.assigned_cursor(place("audit", 0))
            consumer.subscribe(["payments", "audit"])
            await until(lambda: set(consumer.assignment) == {PAYMENTS, place("audit", 0)})
            assert heard.revoked == [ORDERS]
            assert list(cluster.groups.groups["g"].members) == [member]
            assert consumer.assigned_cursor(place("audit", 0)) is audit, "its position stays"
            consumer.subscribe(topic_pattern="ord.*")
            await until(lambda: consumer.assignment == [ORDERS])


async def test_a_consumer_that_unsubscribes_leaves_and_commits() -> None:
    heard = Heard()
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 4)
        async with Consumer(
            cluster.bootstrap, group="g", topics=["orders"], max_wait_ms=100, on_revoked=heard.on_revoked
        ) as consumer:
            assert len(await consumer.poll(3, timeout=10)) == 3
            assert len(await consumer.poll(1, timeout=10)) == 1
            await consumer.unsubscribe()
            assert heard.revoked == [ORDERS]
            assert consumer.assignment == []
            assert cluster.groups.groups["g"].members == {}
            committed = (await consumer.committed([ORDERS]))[ORDERS]
            assert committed is not None
            assert committed.offset == 3, "the last record is not processed"
            consumer.assign([ORDERS])
            with pytest.raises(InvalidRequest, match="call unsubscribe"):
                consumer.subscribe(["orders"])
            await consumer.unsubscribe()
            consumer.subscribe(["orders"])
            assert [record.offset for record in await consumer.poll(timeout=10)] == [3]
        await settled(cluster, 0)


async def test_an_iteration_continues_with_another_subscription() -> None:
    async with memory_cluster(2) as cluster:
        for topic in ("orders", "payments"):
            cluster.create(topic)
            fill(cluster, topic, 0, 3)
        with pytest.raises(RuntimeError, match="it cannot be processed"):
            async with Consumer(cluster.bootstrap, group="g", topics=["orders"], max_wait_ms=100) as consumer:
                async for record in consumer:
                    if record.topic == "orders":
                        await consumer.unsubscribe()
                        consumer.subscribe(["payments"])
                    elif record.offset == 2:
                        raise RuntimeError("it cannot be processed")
        committed = cluster.groups.groups["g"].offsets
        assert {topic: each.offset for (topic, _), each in committed.items()} == {"orders": 0, "payments": 2}


async def test_a_consumer_that_leaves_cannot_subscribe_yet() -> None:
    refused: list[InvalidRequest] = []

    async with memory_cluster() as cluster:
        cluster.create("orders")

        def subscribe(_: object) -> None:
            try:
                consumer.subscribe(["payments"])
            except InvalidRequest as error:
                refused.append(error)

        async with Consumer(cluster.bootstrap, group="g", topics=["orders"], on_revoked=subscribe) as consumer:
            await until(lambda: consumer.assignment)
            await consumer.unsubscribe()
            consumer.subscribe(["orders"])
            await until(lambda: consumer.assignment == [ORDERS])
        assert [each.message for each in refused[:1]] == [
            "the consumer is leaving its group: subscribe once unsubscribe() has returned"
        ]


async def test_a_poll_that_waits_ends_with_the_subscription() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Consumer(cluster.bootstrap, group="g", topics=["orders"], max_wait_ms=100) as consumer:
            waiting = start(consumer.poll(timeout=60))
            await until(lambda: consumer.assignment)
            await consumer.unsubscribe()
            with pytest.raises(InvalidRequest, match="no partitions are assigned"):
                await waiting


WRONG: list[tuple[Any, type[Exception], str]] = [
    ((), InvalidConfig, "subscribe to topics or to a topic_pattern"),
    (("orders",), TypeError, "topics must be a list of names, not str: 'orders'"),
    ((["a b"],), InvalidTopic, "is not allowed"),
]


@pytest.mark.parametrize(("arguments", "error", "says"), WRONG)
async def test_a_wrong_subscription_changes_nothing(arguments: Any, error: type[Exception], says: str) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Consumer(cluster.bootstrap, group="g", topics=["orders"]) as consumer:
            with pytest.raises(error, match=says):
                consumer.subscribe(*arguments)
            with pytest.raises(TypeError, match="on_lost must be a function or None, not int: 5"):
                consumer.subscribe(["payments"], on_lost=5)  # type: ignore[arg-type]
            await until(lambda: consumer.assignment == [ORDERS])


async def test_only_a_consumer_with_a_group_subscribes() -> None:
    async with memory_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        with pytest.raises(InvalidRequest, match="the consumer has no group"):
            consumer.subscribe(["orders"])
        await consumer.unsubscribe()


def test_a_synchronous_consumer_subscribes_too() -> None:
    names: list[str] = []
    with cluster_in_a_thread() as cluster:
        for topic in ("orders", "payments"):
            cluster.create(topic)
        with sync.Producer(cluster.bootstrap) as producer:
            producer.send("orders", b"0")
            producer.send("payments", b"1")
        with sync.Consumer(cluster.bootstrap, group="g", max_wait_ms=100) as consumer:
            consumer.subscribe(
                ["orders"], on_assigned=lambda _: names.extend(str(each) for each in consumer.assignment)
            )
            assert next(iter(consumer)).value == b"0"
            consumer.subscribe(["payments"])
            assert next(iter(consumer)).value == b"1"
            consumer.unsubscribe()
            assert consumer.assignment == []
    assert names == ["orders-0", "payments-0"]
