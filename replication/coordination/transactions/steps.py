"""The next record of a transactional id, for each step."""

from __future__ import annotations

from typing import Any

from replication.coordination.coordinator_machine import Instant, TransactionalProducer
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
    TransactionState,
)
from replication.coordination.transaction_requests import WriteMarkers
from replication.coordination.transactions import identities
from replication.coordination.transactions.identities import EPOCH_BUMPED_VERSION, EPOCH_MAX
from replication.coordination.transactions.partitions import partitions_of
from replication.coordination.transactions.transaction_states import TRANSITIONS, TransactionCause
from tidelog.types import NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId


def record(transactional_id: str, value: TransactionLogValue | None) -> TransactionRecord:
    """The record of a value; None: the transactional id is removed."""
    return CoordinatorRecord(TransactionLogKey(transactional_id), value)


def recorded_version(transaction_version: int) -> int:
    """A transaction version as Kafka records it: 0 for the first protocol."""
    return transaction_version if transaction_version >= EPOCH_BUMPED_VERSION else 0


def moved(value: TransactionLogValue, cause: TransactionCause, now: Instant, **changes: Any) -> TransactionLogValue:
    """The value after a transition of the table. changes: fields that get another value; `previous_producer_id` is
    the former producer id if the producer id changes."""
    after = value.replace(
        transaction_status=TRANSITIONS[value.transaction_status, cause],
        transaction_last_update_timestamp_ms=now.wall_ms,
        previous_producer_id=NO_PRODUCER_ID,
        **changes,
    )
    if after.producer_id == value.producer_id:
        return after
    return after.replace(previous_producer_id=value.producer_id)


def initialized(
    value: TransactionLogValue,
    producer: TransactionalProducer,
    now: Instant,
    *,
    cause: TransactionCause,
    timeout_ms: int,
    continued: bool,
) -> TransactionLogValue:
    """A producer has got this producer id and epoch. continued: its holder is entitled to the former ones as well. The
    current ones are given once more if the answer was lost."""
    after = moved(
        value,
        cause,
        now,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_timeout_ms=timeout_ms,
        transaction_partitions=() if continued else None,
        transaction_start_timestamp_ms=NO_TIMESTAMP,
    )
    if producer == identities.current(value):
        return after.replace(previous_producer_id=value.previous_producer_id)
    return after


def ended(
    value: TransactionLogValue,
    now: Instant,
    *,
    committed: bool,
    version: int,
    next_producer_id: ProducerId = NO_PRODUCER_ID,
) -> TransactionLogValue:
    """EndTxn is decided. version: 2: the epoch grows. next_producer_id: if the epochs are used up."""
    cause = TransactionCause.COMMIT_REQUESTED if committed else TransactionCause.ABORT_REQUESTED
    bumped = version >= EPOCH_BUMPED_VERSION
    is_open = value.transaction_status is TransactionState.ONGOING
    return moved(
        value,
        cause,
        now,
        producer_epoch=value.producer_epoch + 1 if bumped else value.producer_epoch,
        next_producer_id=next_producer_id,
        transaction_partitions=value.transaction_partitions or (),
        transaction_start_timestamp_ms=value.transaction_start_timestamp_ms if is_open else now.wall_ms,
        client_transaction_version=recorded_version(version),
    )


def aborted_by_coordinator(value: TransactionLogValue, cause: TransactionCause, now: Instant) -> TransactionLogValue:
    """The coordinator aborts an open transaction: its producer has to learn that, so the epoch grows by one in any
    version. Source: Kafka's prepareFenceProducerEpoch, with the correction of KAFKA-19367."""
    epoch = min(value.producer_epoch + 1, EPOCH_MAX)  # at the maximum only after a defect of Kafka (KAFKA-20090)
    return moved(
        value,
        cause,
        now,
        producer_epoch=epoch,
        client_transaction_version=EPOCH_BUMPED_VERSION if epoch > value.producer_epoch else 0,
    )


def completed(value: TransactionLogValue, now: Instant) -> TransactionLogValue:
    """The markers of a prepared transaction are committed."""
    producer = identities.current(value)
    return moved(
        value,
        TransactionCause.MARKERS_WRITTEN,
        now,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        transaction_partitions=(),
    )


def markers_of(transactional_id: str, value: TransactionLogValue, coordinator_epoch: int) -> WriteMarkers:
    """The markers of a prepared transaction."""
    return WriteMarkers(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        coordinator_epoch,
        value.transaction_status is TransactionState.PREPARE_COMMIT,
        partitions_of(value),
        max(value.client_transaction_version, 1),
    )
