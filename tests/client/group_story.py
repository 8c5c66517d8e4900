"""What the stories about consumers in a group share."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tests.client.memory_cluster import MemoryCluster, start, until
from tests.client.memory_groups import is_settled
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.clock import MachineClock
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Codec, Millis, Offset, PartitionIndex, TopicPartition


class AtTenSeconds(MachineClock):
    """A clock whose wall time stands still."""

    def wall_ms(self) -> Millis:
        return Millis(10_000)


def place(topic: str, index: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


def fill(cluster: MemoryCluster, topic: str, index: int, count: int) -> None:
    """Append `count` records; the value of each is its offset, its timestamp the offset times 1000."""
    partition = cluster.topics[topic].partitions[index]
    first = partition.end
    records = [
        Record(Offset(number), Millis((first + number) * 1000), None, b"%d" % (first + number))
        for number in range(count)
    ]
    partition.append(build_batch(records, Codec.NONE, base_offset=0))


def stored(cluster: MemoryCluster, topic: str = "orders") -> dict[int, int]:
    group = cluster.groups.groups["g"]
    return {index: each.offset for (name, index), each in sorted(group.offsets.items()) if name == topic}


async def settled(cluster: MemoryCluster, members: int) -> None:
    await until(lambda: is_settled(cluster.groups, "g", members))


async def collect(consumer: Consumer, into: list[ConsumerRecord]) -> None:
    async for record in consumer:
        into.append(record)  # noqa: PERF401 - the story looks at it meanwhile


@contextlib.asynccontextmanager
async def reading(consumer: Consumer, into: list[ConsumerRecord]) -> Any:
    """Read beside the story."""
    task = start(collect(consumer, into))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def group_of(cluster: MemoryCluster, **options: Any) -> Consumer:
    return Consumer(cluster.bootstrap, group="g", topics=["orders"], max_wait_ms=100, **options)
