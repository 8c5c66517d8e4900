"""Producer core of a transactional producer: as `ProducerCore`, for batches that belong to a transaction.

What differs from an idempotent producer:
  1. All partitions share the producer id and epoch of the transaction, and sequences begin at 0 in each transaction
     (KIP-890). Nothing is renumbered: a batch that fails ends its transaction, which can only be aborted.
  2. A record is accepted only while a transaction accepts records.
  3. A leader that is still completing the last transaction of the producer refuses the first batch of the next one for
     some milliseconds (ConcurrentTransactions): it is resent sooner than after other refusals.
Not here: when a transaction begins and how it ends (transaction_core.py).
Source: KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from tidelog.client.accumulator import Attempt, PartitionQueue, PendingBatch
from tidelog.client.producer_core import ProducerCore
from tidelog.client.producer_events import Effect, Finished, Policy
from tidelog.client.sequences import Series
from tidelog.errors import (
    ConcurrentTransactions,
    InconsistentTopicId,
    InvalidProducerEpoch,
    InvalidTxnState,
    TidelogError,
    TransactionAborted,
    UnsupportedForMessageFormat,
)
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Millis, ProducerId

CONCURRENT_MS: Final = 5
"""First pause after ConcurrentTransactions: markers are written in some milliseconds."""
CONCURRENT_MS_MAX: Final = 20
"""Longest pause after it: a longer one would delay the transaction by more than the saved requests are worth."""

NO_TRANSACTION: Final = (
    "no transaction is open: a producer with a transactional_id sends records inside "
    "`async with producer.transaction()`"
)


class TransactionalCore(ProducerCore):
    """State of a transactional producer's records. Accepts none before `begin_transaction`."""

    def __init__(self, policy: Policy, rng: Random) -> None:
        super().__init__(policy, rng)
        self.has_written = False
        """A batch of the transaction may have reached a leader."""
        self._identity = (ProducerId(NO_PRODUCER_ID), NO_PRODUCER_EPOCH)
        self._refusal: TidelogError | None = InvalidTxnState(NO_TRANSACTION)
        """Why no record is accepted; None: a transaction accepts records."""
        self._has_failed = False
        """A batch of the transaction has failed."""

    def queue(self, topic: str, partition: int, *, idempotent: bool = False) -> PartitionQueue:
        """Return the queue of a partition."""
        queue = super().queue(topic, partition, idempotent=idempotent)
        queue.is_transactional = True
        return queue

    def begin_transaction(self, producer_id: ProducerId, epoch: int) -> None:
        """Accept records. No batch of the last transaction is left."""
        assert not self.unfinished(), "each batch of the last transaction has its outcome"
        self._identity = producer_id, epoch
        self.has_written = self._has_failed = False
        self._refusal = None
        for queue in self._queues.values():
            if queue.series is not None:
                queue.series.restart(producer_id, epoch)

    def refuse_records(self, reason: TidelogError) -> None:
        """Accept no further record, except into batches that are open already."""
        self._refusal = reason

    def drop_records(self, reason: TidelogError, at: Millis) -> list[Effect]:
        """Accept no further record, and fail all that have no outcome yet: the transaction is aborted."""
        self._refusal = reason
        effects: list[Effect] = []
        for batch in self.unfinished():
            self._finish(at, effects, Finished(batch, reason))
        return effects

    def open_batch(self, queue: PartitionQueue, at: Millis) -> PendingBatch:
        """Open a batch. Raises the reason if the transaction accepts no records, UnsupportedForMessageFormat."""
        if self._refusal is not None:
            raise type(self._refusal)(self._refusal.message) from self._refusal.__cause__
        if not queue.idempotent:
            raise UnsupportedForMessageFormat(
                f"topic {queue.topic_partition.topic!r} has a message.format below v2, which has no transactions: send "
                "its records with another producer, or set message.format=v2"
            )
        batch = super().open_batch(queue, at)
        batch.outcome.is_read = True  # the end of the transaction reports a failure
        return batch

    def _has_id(self, queue: PartitionQueue, at: Millis, effects: list[Effect]) -> bool:  # noqa: ARG002
        series = queue.series
        assert series is not None, "open_batch accepts no other queue"
        if (series.producer_id, series.epoch) != self._identity:
            series.restart(*self._identity)
        self.has_written = True
        return True

    def _start_next_epoch(  # a broken series does not continue in this transaction
        self, queue: PartitionQueue, _series: Series, at: Millis, effects: list[Effect]
    ) -> None:
        topic_partition = queue.topic_partition
        error: TidelogError
        if self._has_failed:
            error = TransactionAborted(
                f"records for {topic_partition} were not sent: an earlier batch of their transaction failed"
            )
        else:
            error = InconsistentTopicId(
                f"topic {topic_partition.topic!r} was deleted and created again during the transaction"
            )
        for batch in (*queue.begun, *queue.batches):
            self._finish(at, effects, Finished(batch, error))

    def _out_of_sequence(self, attempt: Attempt, error: TidelogError, at: Millis, effects: list[Effect]) -> None:
        if attempt.follows_open and not isinstance(error, InvalidProducerEpoch):
            self._retry(attempt.batch, error, at)
        else:
            self._finish(at, effects, Finished(attempt.batch, error))

    def _not_encoded(
        self, attempt_id: int, faulty: Mapping[int, TidelogError], at: Millis, effects: list[Effect]
    ) -> None:
        attempt = self._end_attempt(attempt_id)
        assert attempt is not None, "its stream was about to send it"
        self._finish(at, effects, Finished(attempt.batch, faulty[min(faulty)]))
        self._advance(attempt.batch.queue, at, effects)

    def _retry(self, batch: PendingBatch, cause: TidelogError, at: Millis) -> None:
        super()._retry(batch, cause, at)
        if isinstance(cause, ConcurrentTransactions):
            pause_ms = min(CONCURRENT_MS_MAX, CONCURRENT_MS << min(batch.attempts - 1, 10))
            batch.queue.retry_ms = min(batch.queue.retry_ms, Millis(at + pause_ms))

    def _finish(self, at: Millis, effects: list[Effect], finished: Finished) -> None:
        if finished.error is not None:
            self._has_failed = True
        super()._finish(at, effects, finished)
