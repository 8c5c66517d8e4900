"""A transactional producer in a memory cluster, and what became of its transactions."""

from __future__ import annotations

from typing import Any

from tests.client.memory_cluster import MemoryCluster
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.protocol.v1 import transactions_pb2


def transactional(cluster: MemoryCluster, name: str = "t", **options: Any) -> Producer:
    return Producer(cluster.bootstrap, transactional_id=name, linger_ms=0, retry_backoff_ms=10, **options)


async def committed(cluster: MemoryCluster, topic: str = "out") -> list[bytes | None]:
    """What a read_committed consumer gets, up to the last stable offset."""
    async with Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        places = await consumer.partitions(topic)
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found = []
        for place in places:
            while await consumer.position(place) < ends[place]:
                found += [record.value for record in await consumer.poll(timeout=0.05)]
        return sorted(found, key=lambda value: value or b"")


def ends(cluster: MemoryCluster) -> list[bool]:
    """The EndTxn requests: whether they commit."""
    asked = cluster.transactions.asked
    return [each.committed for each in asked if isinstance(each, transactions_pb2.EndTxnRequest)]
