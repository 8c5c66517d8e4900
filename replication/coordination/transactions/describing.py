"""ListTransactions and DescribeTransactions (KIP-664, KIP-994)."""

from __future__ import annotations

from collections.abc import Mapping

from replication.coordination.coordinator_machine import Decision, Instant
from replication.coordination.transaction_records import TransactionLogValue, TransactionState
from replication.coordination.transaction_requests import (
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsAnswer,
    ListedTransaction,
    ListTransactions,
    ListTransactionsAnswer,
)
from replication.coordination.transactions.partitions import partitions_of
from replication.coordination.transactions.transaction_states import IDLE_STATES, STATE_NAMES
from tidelog.errors import InvalidRequest, TransactionalIdNotFound
from tidelog.types import NO_TIMESTAMP, Millis


def is_open(value: TransactionLogValue) -> bool:
    """Return True if a transaction is open, or decided and not complete: consumers of its partitions wait for it."""
    return value.transaction_status not in IDLE_STATES


def start_of(value: TransactionLogValue) -> Millis:
    """Wall time at which the open transaction began, -1 if none is open."""
    return value.transaction_start_timestamp_ms if is_open(value) else NO_TIMESTAMP


def list_transactions(
    values: Mapping[str, TransactionLogValue], request: ListTransactions, now: Instant
) -> Decision[ListTransactionsAnswer]:
    """Decide on ListTransactions. values: by transactional id."""
    by_case = {name.lower(): name for name in STATE_NAMES.values()}
    states = frozenset(by_case.get(name.lower(), name) for name in request.states)
    unknown = sorted(states - set(STATE_NAMES.values()))
    if unknown:
        raise InvalidRequest(f"unknown transaction state {unknown[0]!r}; use {', '.join(sorted(STATE_NAMES.values()))}")
    producer_ids = frozenset(request.producer_ids)

    def is_wanted(value: TransactionLogValue) -> bool:
        if states and STATE_NAMES[value.transaction_status] not in states:
            return False
        if producer_ids and value.producer_id not in producer_ids:
            return False
        if request.duration_ms_min < 0:
            return True
        return is_open(value) and now.wall_ms - start_of(value) >= request.duration_ms_min

    return Decision(
        ListTransactionsAnswer(
            tuple(
                ListedTransaction(
                    transactional_id, value.producer_id, STATE_NAMES[value.transaction_status], start_of(value)
                )
                for transactional_id, value in sorted(values.items())
                if is_wanted(value)
            )
        )
    )


def describe_transactions(
    values: Mapping[str, TransactionLogValue], request: DescribeTransactions, coordinator_epoch: int
) -> Decision[DescribeTransactionsAnswer]:
    """Decide on DescribeTransactions. values: by transactional id."""
    return Decision(
        DescribeTransactionsAnswer(
            tuple(_described(name, values.get(name), coordinator_epoch) for name in request.transactional_ids)
        )
    )


def _described(
    transactional_id: str, value: TransactionLogValue | None, coordinator_epoch: int
) -> DescribedTransaction:
    if value is None:
        return DescribedTransaction(
            transactional_id,
            TransactionalIdNotFound(
                f"transactional id {transactional_id!r} does not exist: no producer has used it, or it has expired"
            ),
        )
    return DescribedTransaction(
        transactional_id,
        None,
        STATE_NAMES[value.transaction_status],
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        start_of(value),
        partitions_of(value) if value.transaction_status is not TransactionState.EMPTY else (),
        coordinator_epoch,
    )
