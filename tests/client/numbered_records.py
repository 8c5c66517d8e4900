"""Records with numbers as values in a memory cluster, and a consumer that reads them."""

from __future__ import annotations

from tests.client.memory_cluster import MemoryCluster
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Codec, Millis, Offset, PartitionIndex, TopicPartition

P0 = TopicPartition("orders", PartitionIndex(0))


def fill(cluster: MemoryCluster, values: list[bytes], *, per_batch: int = 3, codec: Codec = Codec.NONE) -> None:
    """Append values to orders-0; the timestamp of each is its number times 1000."""
    partition = cluster.topics["orders"].partitions[0]
    for first in range(0, len(values), per_batch):
        records = [
            Record(Offset(index), Millis((partition.end + index) * 1000), None, value)
            for index, value in enumerate(values[first : first + per_batch])
        ]
        partition.append(build_batch(records, codec, base_offset=0))


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        found += await consumer.poll(count - len(found))
    return found
