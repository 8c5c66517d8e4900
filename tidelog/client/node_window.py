"""Limits the batches that a producer has under way to one node, and keeps the partitions that wait for their turn.

Invariants:
  1. While at least `partial_max` batches that are not full are under way, and at least half of those that were sent
     together last, no further one is sent. The waiting batches stay open for records and fill while the node is busy;
     then all of them are sent together. The half that is still under way keeps the node busy until they arrive.
  2. While `bytes_max` or more bytes are under way, nothing is sent.
  3. Partitions get their turns in the order in which they became due.
  4. A batch without an answer for OVERDUE_MS (producer_core.py) is not counted: a partition that cannot commit must not
     delay the other partitions of its node.
Not here: which batch of a partition is next, and whether it is due (producer_core.py).
Source: `max.in.flight.requests.per.connection` and the drain per node of Kafka's Sender. The cost of a message depends
on the number of its batches, so batches are counted here where Kafka counts requests.
"""

from __future__ import annotations

from typing import Final

from tidelog.client.accumulator import Attempt, PartitionQueue

PARTIAL_MAX: Final = 8
"""Default of `partial_max`: one batch per partition of a small topic, few enough that the batches of many partitions
fill. A full batch gains nothing by waiting and is not counted."""
BYTES_MAX: Final = 4 * 1024 * 1024
"""Default of `bytes_max`: a few messages, so that client, network and node all have one to work on."""


class NodeWindow:
    """The batches under way to one node, and the queues whose next batch is due."""

    __slots__ = ("bytes_max", "full", "last_round", "partial", "partial_max", "partial_under_way", "under_way")

    def __init__(self, partial_max: int, bytes_max: int) -> None:
        self.partial_max, self.bytes_max = partial_max, bytes_max
        self.partial: dict[PartitionQueue, None] = {}
        """Queues whose next batch is due and not full, in order."""
        self.full: dict[PartitionQueue, None] = {}
        """Queues whose next batch is full, in order."""
        self.under_way = 0
        """Bytes under way."""
        self.partial_under_way = 0
        """Number of batches under way that are not full."""
        self.last_round = 0
        """Number of such batches that were sent together last."""

    @property
    def has_room(self) -> bool:
        """Whether a full batch may be sent."""
        return self.under_way < self.bytes_max

    @property
    def has_place(self) -> bool:
        """Whether batches that are not full may be sent."""
        return self.partial_under_way < max(self.partial_max, self.last_round // 2) and self.has_room

    def offer(self, queue: PartitionQueue, *, full: bool) -> None:
        """Let a queue wait for its turn: its next batch is due. A queue that waits already keeps its turn, unless its
        batch has become full."""
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
        """Count an attempt that is now under way."""
        self.under_way += attempt.batch.size
        self.partial_under_way += not attempt.batch.full

    def leave(self, attempt: Attempt) -> None:
        """Stop counting an attempt: it was answered, will not be answered, or is overdue."""
        self.under_way -= attempt.batch.size
        self.partial_under_way -= not attempt.batch.full
