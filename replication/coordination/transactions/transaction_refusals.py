"""Errors of a transactional id, with the same words in each request."""

from __future__ import annotations

from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.transaction_records import TransactionLogValue
from replication.coordination.transactions import identities
from replication.coordination.transactions.transaction_states import STATE_NAMES
from tidelog.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TidelogError,
    TransactionAbortable,
)


def unknown(transactional_id: str) -> TidelogError:
    """There is no such transactional id: it never was initialized here, or it expired."""
    return InvalidProducerIdMapping(
        f"transactional id {transactional_id!r} has no producer id: it expired, or was never initialized; initialize "
        f"the producer again"
    )


def completing(transactional_id: str, value: TransactionLogValue) -> TidelogError:
    """The transaction is decided, and its markers are not all written yet."""
    return ConcurrentTransactions(
        f"the transaction of {transactional_id!r} is in state {STATE_NAMES[value.transaction_status]}: its markers are "
        f"being written; retry"
    )


def not_current(transactional_id: str, value: TransactionLogValue, asked: TransactionalProducer) -> TidelogError:
    """The producer is not the current one of the transactional id."""
    now = identities.current(value)
    if asked.producer_id not in (now.producer_id, value.producer_id):
        return InvalidProducerIdMapping(
            f"transactional id {transactional_id!r} belongs to producer id {now.producer_id}, not {asked.producer_id}: "
            f"another producer uses it; give each running producer a transactional id of its own"
        )
    return fenced(transactional_id, value, asked)


def fenced(transactional_id: str, value: TransactionLogValue, asked: TransactionalProducer) -> TidelogError:
    """The producer has an epoch that is not the current one."""
    now = identities.current(value)
    return ProducerFenced(
        f"producer {asked.producer_id} in epoch {asked.producer_epoch} of transactional id {transactional_id!r} is "
        f"fenced by producer {now.producer_id} in epoch {now.producer_epoch}: a newer producer has started, or the "
        f"transaction timed out; stop this producer"
    )


def nothing_open(transactional_id: str, value: TransactionLogValue, *, committed: bool) -> TidelogError:
    """There is no transaction that could be ended so."""
    return InvalidTxnState(
        f"the transaction of {transactional_id!r} cannot be {'committed' if committed else 'aborted'}: its state is "
        f"{STATE_NAMES[value.transaction_status]}; end a transaction only after something was written in it"
    )


def other_outcome(transactional_id: str, *, committed: bool) -> TidelogError:
    """The transaction was ended the other way. A producer that wants to commit what was aborted, by a timeout or by
    a newer producer, may abort and begin again, or learns then that it is fenced. Source: KIP-588, KIP-890."""
    if committed:
        return TransactionAbortable(
            f"the transaction of {transactional_id!r} was aborted already, for example because it timed out; abort it, "
            f"and begin again"
        )
    return InvalidTxnState(
        f"the transaction of {transactional_id!r} was committed already and cannot be aborted; continue with the next"
    )
