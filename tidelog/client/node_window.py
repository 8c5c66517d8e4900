"""The bound of what a producer has under way to one node, and the partitions that wait for it.

Invariants:
  1. While `partial_max` or more batches that are not full are under way, and half of those that were sent together
     last, no further one is sent. The batches that wait stay open for records, so they fill while the node is busy;
     once there is a place, all of them go together. The other half keeps the node busy meanwhile.
  2. While `bytes_max` or more bytes are under way, nothing is sent.
  3. Partitions get their turns in the order in which they became due.
  4. A batch without an answer for OVERDUE_MS (producer_core.py) has no place: a partition that cannot commit does not
     delay the other partitions of its node.
Not here: which batch of a partition is next, and whether it is due (producer_core.py).
Source: `max.in.flight.requests.per.connection` and the drain per node of Kafka's Sender. What a message costs is the
number of its batches, so batches are counted here where Kafka counts requests.
"""

from __future__ import annotations

from typing import Final

from tidelog.client.accumulator import Attempt, PartitionQueue

PARTIAL_MAX: Final = 8
"""Default of `partial_max`: one batch per partition of a small topic, few enough that the batches of many partitions
fill. A full batch gains nothing by waiting and is not counted."""
BYTES_MAX: Final = 4 * 1024 * 1024
"""Default of `bytes_max`: a few messages, so that none of the stages of their way is idle."""


class NodeWindow:
    """What is under way to one node, and the queues whose next batch is due."""

    __slots__ = ("bytes_max", "full", "last_round", "partial", "partial_max", "partial_under_way", "under_way")

    def __init__(self, partial_max: int, bytes_max: int) -> None:
        self.partial_max, self.bytes_max = partial_max, bytes_max
        self.partial: dict[PartitionQueue, None] = {}
        """Queues whose next batch is due and not full, in order."""
        self.full: dict[PartitionQueue, None] = {}
        """Queues whose next batch is full, in order."""
        self.under_way = 0
        """Bytes."""
        self.partial_under_way = 0
        """Batches."""
        self.last_round = 0
        """How many batches that are not full were sent together last."""

    @property
    def has_room(self) -> bool:
        """Whether a full batch may be sent."""
        return self.under_way < self.bytes_max

    @property
    def has_place(self) -> bool:
        """Whether batches that are not full may be sent."""
        return self.partial_under_way < max(self.partial_max, self.last_round // 2) and self.has_room

    def offer(self, queue: PartitionQueue, *, full: bool) -> None:
        """The next batch of the queue is due. A queue that waits already keeps its turn unless its batch is full by
        now."""
        if full:
            self.partial.pop(queue, None)
            self.full[queue] = None
        else:
            self.partial[queue] = None

    def next_partial(self) -> PartitionQueue:
        """Remove and return the queue that has waited longest with a batch that is not full."""
        queue = next(iter(self.partial))
        del self.partial[queue]
        return queue

    def next_full(self) -> PartitionQueue:
        """Remove and return the queue that has waited longest with a full batch."""
        queue = next(iter(self.full))
        del self.full[queue]
        return queue

    def enter(self, attempt: Attempt) -> None:
        """The attempt is under way."""
        self.under_way += attempt.batch.size
        self.partial_under_way += not attempt.batch.full

    def leave(self, attempt: Attempt) -> None:
        """The attempt has its answer, will get none, or is overdue."""
        self.under_way -= attempt.batch.size
        self.partial_under_way -= not attempt.batch.full
