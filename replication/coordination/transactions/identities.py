"""Producer id and epoch of a transactional id: the current ones, the former ones, and the next.

All of it follows from the last record alone, because compaction keeps nothing else. So a coordinator that has just
loaded its partition recognizes repeated requests as its predecessor did; Kafka forgets the former epoch of a producer
that continued after an error (KIP-360).

  - Version 2 (KIP-890): a Prepare record has the epoch after the transaction's; its markers have that epoch too.
  - A producer that continued after an error is recorded as EMPTY with an empty list of partitions, one that started
    with none (null), as Kafka records every EMPTY. Kafka ignores the list in this state.
  - previous_producer_id names the former producer id in the record that replaces it, and next_producer_id the next one
    from the Prepare record on, if the transaction has used up the epochs.
"""

from __future__ import annotations

from typing import Final

from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.transaction_records import NO_PRODUCER_EPOCH, TransactionLogValue, TransactionState
from replication.coordination.transactions.transaction_states import PREPARED_STATES
from tidelog.types import INT16_MAX, NO_PRODUCER_ID, ProducerId

EPOCH_MAX: Final = INT16_MAX
"""Only the coordinator uses this epoch, to fence the last producer of a producer id; no producer gets it."""

EPOCH_BUMPED_VERSION: Final = 2
"""The transaction version in which each transaction has an epoch of its own (KIP-890)."""


def is_exhausted(epoch: int) -> bool:
    """Return True if a producer with this epoch gets another producer id instead of a higher epoch."""
    return epoch >= EPOCH_MAX - 1


def is_usable(producer: TransactionalProducer) -> bool:
    """Return True if the epoch may be given to a producer."""
    return 0 <= producer.producer_epoch < EPOCH_MAX


def current(value: TransactionLogValue) -> TransactionalProducer:
    """The producer of the open transaction or, when there is none or it is decided, of the next one."""
    if value.next_producer_id != NO_PRODUCER_ID:
        return TransactionalProducer(value.next_producer_id, 0)
    return TransactionalProducer(value.producer_id, value.producer_epoch)


def former(value: TransactionLogValue) -> TransactionalProducer | None:
    """The producer before `current`, if its holder is entitled to it: the answer that named it may have been lost.
    None: there is none, or it was fenced."""
    if value.transaction_status is TransactionState.ONGOING:
        return None
    if value.transaction_status is TransactionState.EMPTY:
        entitled = value.transaction_partitions is not None
    else:
        entitled = value.client_transaction_version >= EPOCH_BUMPED_VERSION
    if not entitled:
        return None
    if value.transaction_status not in PREPARED_STATES and is_replaced(value):
        return TransactionalProducer(value.previous_producer_id, EPOCH_MAX - 1)
    if value.producer_epoch == 0:
        return None
    return TransactionalProducer(value.producer_id, value.producer_epoch - 1)


def is_replaced(value: TransactionLogValue) -> bool:
    """Return True if the record replaces the producer id."""
    return value.previous_producer_id not in (NO_PRODUCER_ID, value.producer_id)


def expected_of(producer_id: ProducerId, producer_epoch: int) -> TransactionalProducer | None:
    """The producer that a request for initialization says it continues; None for a new one."""
    if producer_id == NO_PRODUCER_ID and producer_epoch == NO_PRODUCER_EPOCH:
        return None
    return TransactionalProducer(producer_id, producer_epoch)
