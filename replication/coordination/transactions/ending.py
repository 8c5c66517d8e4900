"""EndTxn: the open transaction is committed or aborted, once.

The decision is the Prepare record. Its markers are written after it is committed, and a Complete record follows them.
Version 2 (KIP-890) raises the epoch with each end; the answer names the next producer id and epoch, and a repeated
request is recognized by the former ones. An abort with nothing open raises the epoch too: a producer sends it when it
cannot tell whether its first write will still arrive. In version 1 the epoch stays, and the state alone tells.
Source: KIP-98, KIP-890; Kafka's TransactionCoordinator.endTransaction, with the corrections of KAFKA-18464, KAFKA-18660
and KAFKA-20090.
"""

from __future__ import annotations

from typing import TypeAlias

from replication.coordination.coordinator_machine import Decision, Instant, TransactionalProducer
from replication.coordination.transaction_records import TransactionLogValue, TransactionState
from replication.coordination.transaction_requests import EndTxn, MarkersWritten, ProducerIdNeeded
from replication.coordination.transactions import identities, steps, transaction_refusals
from replication.coordination.transactions.identities import EPOCH_BUMPED_VERSION
from replication.coordination.transactions.transaction_states import PREPARED_STATES, TransactionCause
from tidelog.types import NO_PRODUCER_ID, ProducerId

EndAnswer: TypeAlias = TransactionalProducer | ProducerIdNeeded

_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def end(
    value: TransactionLogValue | None,
    request: EndTxn,
    fresh: ProducerId | None,
    coordinator_epoch: int,
    now: Instant,
) -> Decision[EndAnswer]:
    """Decide on EndTxn. value: None if the transactional id is unknown. fresh: as for InitProducerId. Raises the error
    that refuses it."""
    transactional_id = request.transactional_id
    if value is None:
        raise transaction_refusals.unknown(transactional_id)
    asked = TransactionalProducer(request.producer_id, request.producer_epoch)
    has_epochs = request.transaction_version >= EPOCH_BUMPED_VERSION
    if has_epochs and asked == identities.former(value):
        return _repeated(value, request, fresh, now)
    if asked != identities.current(value) or not identities.is_usable(asked):
        raise transaction_refusals.not_current(transactional_id, value, asked)
    if value.transaction_status is not TransactionState.ONGOING:
        if not has_epochs:
            return Decision(_repeated_without_epoch(value, request))
        if value.transaction_status in PREPARED_STATES:
            raise transaction_refusals.completing(transactional_id, value)
        if request.committed:
            raise transaction_refusals.nothing_open(transactional_id, value, committed=True)
    if has_epochs and identities.is_exhausted(value.producer_epoch) and fresh is None:
        return Decision(ProducerIdNeeded())
    return _decided(value, request, fresh if has_epochs else None, coordinator_epoch, now)


def _decided(
    value: TransactionLogValue, request: EndTxn, fresh: ProducerId | None, coordinator_epoch: int, now: Instant
) -> Decision[EndAnswer]:
    transactional_id, version = request.transactional_id, request.transaction_version
    next_id = NO_PRODUCER_ID if fresh is None or not identities.is_exhausted(value.producer_epoch) else fresh
    prepared = steps.ended(value, now, committed=request.committed, version=version, next_producer_id=next_id)
    answer = identities.current(prepared)
    markers = steps.markers_of(transactional_id, prepared, coordinator_epoch)
    if markers.partitions:
        return Decision(answer, (steps.record(transactional_id, prepared),), effects=(markers,))
    complete = steps.completed(prepared, now)
    return Decision(answer, (steps.record(transactional_id, prepared), steps.record(transactional_id, complete)))


def _repeated(
    value: TransactionLogValue, request: EndTxn, fresh: ProducerId | None, now: Instant
) -> Decision[EndAnswer]:
    """The producer has the epoch of the transaction that ended last: it did not get the answer, or the coordinator has
    aborted that transaction."""
    transactional_id = request.transactional_id
    if value.transaction_status is TransactionState.EMPTY:
        if request.committed or not identities.is_replaced(value):
            asked = TransactionalProducer(request.producer_id, request.producer_epoch)
            raise transaction_refusals.fenced(transactional_id, value, asked)
        return Decision(identities.current(value))
    if request.committed is not (value.transaction_status in _COMMITTED):
        raise transaction_refusals.other_outcome(transactional_id, committed=request.committed)
    if value.transaction_status in PREPARED_STATES:
        raise transaction_refusals.completing(transactional_id, value)
    producer = identities.current(value)
    if identities.is_usable(producer):
        return Decision(producer)
    if fresh is None:
        return Decision(ProducerIdNeeded())
    producer = TransactionalProducer(fresh, 0)
    after = steps.initialized(
        value,
        producer,
        now,
        cause=TransactionCause.PRODUCER_ID_REPLACED,
        timeout_ms=value.transaction_timeout_ms,
        continued=True,
    )
    return Decision(producer, (steps.record(transactional_id, after),))


def _repeated_without_epoch(value: TransactionLogValue, request: EndTxn) -> TransactionalProducer:
    """Version 1, no transaction is open."""
    transactional_id, status = request.transactional_id, value.transaction_status
    if status is TransactionState.EMPTY or request.committed is not (status in _COMMITTED):
        raise transaction_refusals.nothing_open(transactional_id, value, committed=request.committed)
    if status in PREPARED_STATES:
        raise transaction_refusals.completing(transactional_id, value)
    return TransactionalProducer(request.producer_id, request.producer_epoch)


def complete(
    value: TransactionLogValue | None, event: MarkersWritten, coordinator_epoch: int, now: Instant
) -> Decision[None]:
    """The markers are committed. An event of a transaction that is complete already changes nothing."""
    transactional_id = event.markers.transactional_id
    if value is None or value.transaction_status not in PREPARED_STATES:
        return Decision(None)
    if event.markers != steps.markers_of(transactional_id, value, coordinator_epoch):
        return Decision(None)
    return Decision(None, (steps.record(transactional_id, steps.completed(value, now)),))
