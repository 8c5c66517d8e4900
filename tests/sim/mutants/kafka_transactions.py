"""Listeners of Kafka's protocol and coordinators that break a rule of transaction version 2 (KIP-890)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from node.listeners.kafka import kafka_produce, kafka_server, kafka_transactions
from node.listeners.kafka.kafka_apis import KAFKA_APIS
from replication.coordination.coordinator_machine import Decision, TransactionalProducer
from replication.coordination.transactions import ending, steps, transaction_refusals
from replication.coordination.transactions.transaction_states import TransactionCause
from tests.sim import kafka_transaction_stories as stories
from tests.sim.mutants.coordinators import any_epoch_adds_partitions
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.errors import ProducerFenced, TidelogError


def batches_do_not_enter_transactions(patch: Patch) -> None:
    """A batch of version 2 is verified as one of version 1, whose producer has added the partition before."""
    patch.setattr(kafka_produce, "transaction_version", lambda *_: 1)


def ends_raise_no_epoch(patch: Patch) -> None:
    """EndTxn of version 2 is handled as that of version 1."""
    patch.setattr(kafka_transactions, "transaction_version", lambda *_: 1)


def ends_name_the_former_epoch(patch: Patch) -> None:
    """The answer to EndTxn has the epoch of the transaction that ended."""
    end_txn = kafka_transactions.END_TXN

    def former(message: Any, _answer: Any, version: int) -> Any:
        return end_txn.write(message, TransactionalProducer(message.producer_id, message.producer_epoch), version)

    apis = tuple(replace(each, write=former) if each is end_txn else each for each in KAFKA_APIS)
    patch.setattr(kafka_server, "KAFKA_APIS", apis)


def a_repeated_end_raises_the_epoch_again(patch: Patch) -> None:
    """EndTxn that is sent again, because its answer was lost, raises the epoch once more."""
    repeated = ending._repeated

    def raising(value: Any, request: Any, fresh: Any, now: Any) -> Any:
        decision = repeated(value, request, fresh, now)
        producer = decision.answer
        if not isinstance(producer, TransactionalProducer):
            return decision
        raised = TransactionalProducer(producer.producer_id, producer.producer_epoch + 1)
        after = steps.initialized(
            value,
            raised,
            now,
            cause=TransactionCause.INITIALIZED,
            timeout_ms=value.transaction_timeout_ms,
            continued=True,
        )
        return Decision(raised, (steps.record(request.transactional_id, after),))

    patch.setattr(ending, "_repeated", raising)


def a_timeout_fences_its_producer(patch: Patch) -> None:
    """A commit of what the coordinator has aborted is answered as to a producer that another one has replaced."""

    def other_outcome(transactional_id: str, *, committed: bool) -> TidelogError:
        return ProducerFenced(f"{transactional_id} ended otherwise, committed={not committed}")

    patch.setattr(transaction_refusals, "other_outcome", other_outcome)


GIVEN: Final = r"and was given producer id \d+, epoch \d+"

MUTANTS: Final = (
    Mutant(
        batches_do_not_enter_transactions,
        "KIP-890",
        stories.transactions_of_kafka_clients,
        "the client of Kafka is told False",
    ),
    Mutant(ends_raise_no_epoch, "KIP-890", stories.transactions_of_kafka_clients, "and its log says None"),
    Mutant(ends_name_the_former_epoch, "KIP-890", stories.transactions_of_kafka_clients, GIVEN),
    Mutant(
        a_repeated_end_raises_the_epoch_again,
        "KIP-890",
        stories.ends_of_kafka_clients_are_repeated,
        f"{GIVEN}|and its log says",
    ),
    Mutant(
        any_epoch_adds_partitions,
        "KIP-890",
        stories.late_batches_of_kafka_clients_are_refused,
        "is accepted in the epoch of a transaction that has ended",
    ),
    Mutant(
        a_timeout_fences_its_producer,
        "KIP-890",
        stories.transaction_of_a_kafka_client_times_out,
        "it is told None",
    ),
)
"""The planted bugs of transactions of clients of Kafka."""
