"""InitProducerId with a transactional id: a producer starts, or continues after an error.

A new producer fences the former one: the epoch grows by one, or the producer id changes where the epochs are used up.
An open transaction is aborted first, and the producer asks again until that is complete. A producer that continues
(KIP-360) names what it has; it gets the next epoch, or the same answer once more if the first one was lost.
Source: KIP-98, KIP-360; Kafka's TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from typing import TypeAlias

from replication.coordination.coordinator_machine import Decision, Instant, TransactionalProducer
from replication.coordination.transaction_records import TransactionLogValue, TransactionState
from replication.coordination.transaction_requests import InitTransactionalProducer, ProducerIdNeeded
from replication.coordination.transactions import identities, steps, transaction_refusals
from replication.coordination.transactions.transaction_states import PREPARED_STATES, TransactionCause
from tidelog.types import NO_TIMESTAMP, ProducerId

InitAnswer: TypeAlias = TransactionalProducer | ProducerIdNeeded


def initialize(
    value: TransactionLogValue | None,
    request: InitTransactionalProducer,
    fresh: ProducerId | None,
    coordinator_epoch: int,
    now: Instant,
) -> Decision[InitAnswer]:
    """Decide on InitProducerId. value: None if the transactional id is new. fresh: a producer id that was never
    assigned; None: ask for one if it is needed. Raises the error that refuses it."""
    transactional_id = request.transactional_id
    if value is None:
        return _first(request, fresh, now)
    expected = identities.expected_of(request.producer_id, request.producer_epoch)
    if expected is not None and expected not in (identities.current(value), identities.former(value)):
        raise transaction_refusals.fenced(transactional_id, value, expected)
    if value.transaction_status in PREPARED_STATES:
        raise transaction_refusals.completing(transactional_id, value)
    if value.transaction_status is TransactionState.ONGOING:
        aborted = steps.aborted_by_coordinator(value, TransactionCause.FENCED, now)
        # The only refusal with records: the producer asks again, and finds the transaction aborted.
        return Decision(
            transaction_refusals.completing(transactional_id, aborted),
            (steps.record(transactional_id, aborted),),
            effects=(steps.markers_of(transactional_id, aborted, coordinator_epoch),),
            notice=f"the transaction of {transactional_id!r} (producer {value.producer_id}) is aborted, and its "
            "producer fenced: a producer with the same transactional id starts, or an operator asked for it",
        )
    producer = _next(value, expected, fresh)
    if producer is None:
        return Decision(ProducerIdNeeded())
    after = steps.initialized(
        value,
        producer,
        now,
        cause=TransactionCause.INITIALIZED,
        timeout_ms=request.transaction_timeout_ms,
        continued=expected is not None,
    )
    return Decision(producer, (steps.record(transactional_id, after),))


def _first(request: InitTransactionalProducer, fresh: ProducerId | None, now: Instant) -> Decision[InitAnswer]:
    if fresh is None:
        return Decision(ProducerIdNeeded())
    value = TransactionLogValue(
        producer_id=fresh,
        producer_epoch=0,
        transaction_timeout_ms=request.transaction_timeout_ms,
        transaction_status=TransactionState.EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=now.wall_ms,
        transaction_start_timestamp_ms=NO_TIMESTAMP,
    )
    return Decision(TransactionalProducer(fresh, 0), (steps.record(request.transactional_id, value),))


def _next(
    value: TransactionLogValue, expected: TransactionalProducer | None, fresh: ProducerId | None
) -> TransactionalProducer | None:
    """What the producer gets; None: a producer id is needed for it."""
    current = identities.current(value)
    if expected is not None and expected == identities.former(value) and identities.is_usable(current):
        return current
    if not identities.is_exhausted(current.producer_epoch):
        return TransactionalProducer(current.producer_id, current.producer_epoch + 1)
    return None if fresh is None else TransactionalProducer(fresh, 0)
