"""The route of a topic: the queue that a record enters.

Invariant: a batch of records without keys is left only when it is full, and is then sealed.
Not here: how a partition is chosen (partitioner.py), when a batch is sent (producer_core.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidelog.client.accumulator import PartitionQueue
from tidelog.client.cluster import ensure_partition
from tidelog.client.key_hash import MURMUR2, KeyHash
from tidelog.client.partitioner import Partitioner
from tidelog.records.v2.header import HEADER_BYTES
from tidelog.types import NO_NODE


def batch_limits(configs: Mapping[str, str], batch_bytes: int, record_bytes_max: int) -> tuple[int, int]:
    """Return the size of a full batch without its header, and `max.message.bytes` of a topic with these settings. A
    batch must fit into a segment."""
    topic_bytes_max = int(configs.get("max.message.bytes", record_bytes_max))
    segment_bytes = int(configs.get("segment.bytes", topic_bytes_max))
    return min(batch_bytes, topic_bytes_max, segment_bytes) - HEADER_BYTES, topic_bytes_max


@dataclass(slots=True, eq=False)
class Route:
    """Routing of one topic's records: its partitions and size limits."""

    queues: list[PartitionQueue]
    partitioner: Partitioner
    batch_bytes: int
    topic_bytes_max: int
    record_bytes_max: int
    idempotent: bool
    seal: Callable[[PartitionQueue], None]
    """Called when a batch is full although no further record is queued behind it."""
    keys: KeyHash = MURMUR2
    """Chooses the partition of a record with a key."""

    def has(self, partition: int) -> bool:
        """Return whether the partition is known."""
        return partition < len(self.queues)

    def at(self, topic: str, partition: int) -> PartitionQueue:
        """Return the queue of a partition chosen by the caller. Raises UnknownTopicOrPartition."""
        ensure_partition(topic, len(self.queues), partition)
        return self.queues[partition]

    def chosen(self, key: bytes | None, size: int) -> PartitionQueue:
        """Return the queue that the program's own partitioner chooses for a record of `size` bytes; without one, that
        of a record without a key."""
        choose = self.keys.choose
        partition = None if choose is None else choose(key, len(self.queues))
        return self.without_key(size) if partition is None else self.queues[partition]

    def without_key(self, size: int) -> PartitionQueue:
        """Return the queue for a record of `size` bytes without a key."""
        partitioner, queues = self.partitioner, self.queues
        if partitioner.stays(size):
            return queues[partitioner.sticky]
        queue = queues[partitioner.sticky]
        batch = queue.batches[-1] if queue.batches else None
        if batch is not None and not batch.sealed:
            if batch.size + size <= self.batch_bytes:
                return queue
            self.seal(queue)
        partitioner.draw(size, lambda index: queues[index].queued_bytes, lambda index: queues[index].leader != NO_NODE)
        return queues[partitioner.sticky]
