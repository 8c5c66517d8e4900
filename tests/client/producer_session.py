"""A producer's core with a clock, driven by hand: its events and its effects."""

from __future__ import annotations

import random
from uuid import UUID

from tidelog.client.accumulator import OBJECT_BYTES, Attempt, PendingBatch, record_size
from tidelog.client.core_events import FindLeader, LeaderKnown, TimePassed
from tidelog.client.producer_core import ProducerCore
from tidelog.client.producer_events import (
    Acknowledged,
    Effect,
    Finished,
    InitProducerId,
    Lost,
    Policy,
    ProducerIdKnown,
    Refused,
    SubmitAttempt,
)
from tidelog.errors import TidelogError
from tidelog.types import (
    Acks,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicPartition,
)

TOPIC_ID = TopicId(UUID(int=1))
POLICY = Policy(
    acks=Acks.ALL,
    linger_ms=5,
    batch_bytes=1000,
    request_timeout_ms=10_000,
    delivery_timeout_ms=30_000,
    retry_backoff_ms=100,
    retry_backoff_ms_max=1_000,
)


class RequestSession:
    """A core with a clock, and its effects."""

    def __init__(self, policy: Policy = POLICY, seed: int = 1, *, idempotent: bool = False) -> None:
        self.core = ProducerCore(policy, random.Random(seed))
        self.idempotent = idempotent
        self.now = 1_000
        self.gives: list[Attempt] = []
        self.ids_wanted: list[InitProducerId] = []
        self.finished: list[Finished] = []
        self.sought: list[TopicPartition] = []

    def key(self, partition: int = 0) -> TopicPartition:
        return TopicPartition("orders", PartitionIndex(partition))

    def put(self, value: bytes = b"v", partition: int = 0) -> PendingBatch:
        """Queue a record as the producer does."""
        queue = self.core.queue("orders", partition, idempotent=self.idempotent)
        size = record_size(None, value, ())
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or batch.sealed or batch.size + size > self.core.policy.batch_bytes:
            batch = self.core.open_batch(queue, Millis(self.now))
        batch.records.append((None, value, Millis(1), ()))
        batch.size += size
        batch.outcome.records += 1
        batch.outcome.is_read = True
        queue.queued_bytes += size
        self.core.memory_used += size + OBJECT_BYTES
        return batch

    def note(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case SubmitAttempt(attempt):
                    self.gives.append(attempt)
                case Finished():
                    effect.notify()
                    self.finished.append(effect)
                case FindLeader(topic_partition):
                    self.sought.append(topic_partition)
                case InitProducerId():
                    self.ids_wanted.append(effect)
        return effects

    def tick(self, ms: int = 0) -> list[Effect]:
        """Time passes, alarm by alarm."""
        end = self.now + ms
        effects = self.note(self.core.handle(TimePassed(Millis(self.now))))
        while (alarm := self.core.next_alarm()) is not None and alarm <= end:
            self.now = max(self.now, alarm)
            effects += self.note(self.core.handle(TimePassed(Millis(self.now))))
        self.now = end
        return effects

    def lead(self, node: int = 1, epoch: int = 0, partition: int = 0, cause: TidelogError | None = None) -> None:
        event = LeaderKnown(self.key(partition), TOPIC_ID, NodeId(node), LeaderEpoch(epoch), Millis(self.now), cause)
        self.note(self.core.handle(event))

    def identify(self, producer_id: int = 7, epoch: int = 0) -> None:
        """Deliver the requested producer id."""
        self.note(self.core.handle(ProducerIdKnown(ProducerId(producer_id), epoch, Millis(self.now))))

    def send(self) -> PendingBatch:
        """Send the newest batch that was given to a stream."""
        attempt = self.gives[-1]
        assert self.core.take(attempt, Millis(self.now))
        return attempt.batch

    def wire(self) -> list[Attempt]:
        """Send all batches that may still be sent, in order."""
        return [attempt for attempt in self.gives if self.core.take(attempt, Millis(self.now))]

    def last(self, batch: PendingBatch) -> int:
        """The number of the batch's newest attempt."""
        return next(attempt.attempt_id for attempt in reversed(self.gives) if attempt.batch is batch)

    def acknowledge(self, of: PendingBatch | Attempt, offset: int = 0) -> None:
        self.note(self.core.handle(Acknowledged(self._number(of), Offset(offset), Millis(-1), Millis(self.now))))

    def refuse(self, of: PendingBatch | Attempt, error: TidelogError) -> None:
        self.note(self.core.handle(Refused(self._number(of), error, Millis(self.now))))

    def lose(self, of: PendingBatch | Attempt, error: TidelogError) -> None:
        self.note(self.core.handle(Lost(self._number(of), error, Millis(self.now))))

    def check_windows(self) -> None:
        """The places in each node's window are those of its attempts, and a due batch waits only for a place."""
        attempts = [attempt for attempt in self.core._attempts.values() if attempt.has_place]
        for node, window in self.core._windows.items():
            batches = [attempt.batch for attempt in attempts if attempt.node == node]
            assert window.under_way == sum(batch.size for batch in batches)
            assert window.partial_under_way == sum(not batch.full for batch in batches)
            assert not window.partial or not window.has_place
            assert not window.full or not window.has_room

    def _number(self, of: PendingBatch | Attempt) -> int:
        return of.attempt_id if isinstance(of, Attempt) else self.last(of)


def error_of(batch: PendingBatch) -> TidelogError:
    assert batch.outcome.error is not None
    return batch.outcome.error
