"""A partition and its (topic, index) pair are one key."""

from __future__ import annotations

from typing import Any

from node.api.admin_requests import TopicPartitionId
from tests.client.fetch_core_world import TOPIC_ID
from tests.client.memory_cluster import memory_cluster
from tests.client.numbered_records import P0
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.types import PartitionIndex, TopicPartition

PAIR: Any = ("orders", 0)
"""As programs write it; the types of the results name TopicPartition."""


def test_a_partition_is_equal_to_its_pair_and_to_nothing_else() -> None:
    assert P0 == PAIR
    assert PAIR == P0
    assert hash(P0) == hash(PAIR)
    for other in (("orders", 1), ("payments", 0), ("orders", 0, 0), "orders-0", None, ["orders", 0]):
        assert other != P0
    assert TopicPartition("b", PartitionIndex(1)) < P0


def test_a_partition_that_came_with_the_id_of_its_topic_is_found_among_those_without() -> None:
    with_id = TopicPartitionId("orders", PartitionIndex(0), TOPIC_ID)
    assert {P0, with_id, PAIR} == {with_id}
    assert P0 in {with_id: 1}
    assert repr(with_id) != repr(TopicPartitionId("orders", PartitionIndex(0)))


async def test_results_are_found_by_a_pair() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Consumer(cluster.bootstrap, group="g") as consumer, Admin(cluster.bootstrap) as admin:
            consumer.assign([PAIR])
            assert PAIR in consumer.assignment
            await consumer.commit({PAIR: 0})
            committed: Any = await consumer.committed([PAIR])
            assert committed[PAIR].offset == 0
            assert (await admin.list_offsets([PAIR]))[PAIR] == 0
