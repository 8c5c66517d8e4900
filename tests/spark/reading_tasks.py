"""A partition of a memory cluster and the offsets that a Spark task reads of it."""

from __future__ import annotations

from tests.client.memory_cluster import MemoryCluster
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.spark.options.query_options import parse_batch_options
from tidelog.spark.ranges.batch_reader import TidelogReader
from tidelog.spark.ranges.planning import OffsetRange, TaskRanges
from tidelog.types import (
    LeaderEpoch,
    Millis,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)


def fill(cluster: MemoryCluster, batches: int, records: int = 3, size: int = 1) -> None:
    """`batches` batches with `records` records each, in partition 0 of topic `orders`."""
    for _ in range(batches):
        made = [Record(Offset(index), Millis(1), None, b"x" * size) for index in range(records)]
        cluster.topics["orders"].partitions[0].append(build_batch(made))


def offset_range(cluster: MemoryCluster, topic: str, partition: int, start: int, end: int) -> OffsetRange:
    key, topic_id = TopicPartition(topic, PartitionIndex(partition)), TopicId(cluster.topics[topic].topic_id)
    return OffsetRange(key, topic_id, LeaderEpoch(0), Offset(start), Offset(end))


def task_offsets(cluster: MemoryCluster, start: int, end: int, **options: str) -> list[int]:
    """Return the offsets that a Spark task reads of the range."""
    asked = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders", **options}
    wanted = offset_range(cluster, "orders", 0, start, end)
    found = TidelogReader(parse_batch_options(asked), ("offset", "value")).read(TaskRanges((wanted,)))
    return [offset for batch in found for offset in batch.column("offset").to_pylist() if offset is not None]
