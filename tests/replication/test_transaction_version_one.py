"""Version 1 (KIP-98): partitions are added by the producer, the epoch stays, repetitions are told by the state."""

from __future__ import annotations

import pytest

from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.group_requests import CommittedPartition, CommittedPartitions
from replication.coordination.partitioning import partition_of
from replication.coordination.transaction_records import TransactionState as State
from replication.coordination.transaction_requests import AddOffsetsToTxn, AddOffsetsToTxnAnswer, WriteMarkers
from tests.replication.transaction_world import TOPICS, TXN, World, is_error, parts
from tidelog.errors import (
    ConcurrentTransactions,
    InvalidTxnState,
    OperationNotAttempted,
    ProducerFenced,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from tidelog.types import PartitionIndex, ProducerId


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_keeps_its_epoch(committed: bool) -> None:
    world = World()
    p = world.started(version=1)
    for _ in range(2):
        assert world.add(p, "orders-0", "payments-1") == CommittedPartitions(
            (CommittedPartition("orders", PartitionIndex(0)), CommittedPartition("payments", PartitionIndex(1)))
        )
        assert world.end(p, committed=committed, version=1) == TransactionalProducer(ProducerId(p[0]), p[1])
        wanted = parts("orders-0", "payments-1")
        assert world.markers == [WriteMarkers(TXN, ProducerId(p[0]), p[1], 0, committed, wanted, 1)]
        world.settle()
        assert world.state() is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
        assert world.machine.values[TXN].client_transaction_version == 0, "as Kafka records it"


@pytest.mark.parametrize("committed", [True, False])
def test_a_repeated_end_gives_the_same_answer_and_the_other_is_refused(committed: bool) -> None:
    """Trap 18: EndTxn retried in the other direction is refused."""
    world = World()
    p = world.started(version=1)
    world.add(p, "orders-0")
    answer = world.end(p, committed=committed, version=1)
    assert is_error(world.end(p, committed=committed, version=1), ConcurrentTransactions)
    assert is_error(world.end(p, committed=not committed, version=1), InvalidTxnState)
    assert is_error(world.add(p, "orders-0"), ConcurrentTransactions)
    world.settle()
    assert world.end(p, committed=committed, version=1) == answer
    assert is_error(world.end(p, committed=not committed, version=1), InvalidTxnState)


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_that_never_began_cannot_end(committed: bool) -> None:
    world = World()
    p = world.started(version=1)
    assert is_error(world.end(p, committed=committed, version=1), InvalidTxnState)


def test_a_leader_verifies_and_adds_nothing() -> None:
    world = World()
    p = world.started(version=1)
    assert world.verify(p, "orders-0") == [TransactionAbortable]
    world.add(p, "orders-0")
    assert world.verify(p, "orders-0", "orders-1") == [None, TransactionAbortable]
    world.end(p, committed=True, version=1)
    assert world.verify(p, "orders-0") == [ConcurrentTransactions]
    world.settle()
    assert world.verify(p, "orders-0") == [TransactionAbortable], "a late write must not open a transaction"
    assert world.state() is State.COMPLETE_COMMIT


def test_all_of_the_partitions_are_added_or_none() -> None:
    world = World()
    p = world.started(version=1)
    errors = [type(each.error) for each in world.add(p, "orders-0", "nothing-0").partitions]
    assert errors == [OperationNotAttempted, UnknownTopicOrPartition]
    assert world.verify(p, "orders-0") == [TransactionAbortable]


def test_the_offsets_of_a_group_are_a_partition_of_the_transaction() -> None:
    world = World()
    p = world.started(version=1)
    request = AddOffsetsToTxn(TXN, ProducerId(p[0]), p[1], "billing")
    assert world.ask(request) == AddOffsetsToTxnAnswer()
    assert world.ask(request) == AddOffsetsToTxnAnswer()
    world.end(p, committed=True, version=1)
    index = partition_of("billing", TOPICS["__consumer_offsets"])
    assert world.markers[0].partitions == parts(f"__consumer_offsets-{index}")
    assert is_error(world.ask(request), ConcurrentTransactions)


def test_a_producer_of_version_one_that_timed_out_is_fenced_and_may_continue() -> None:
    """KIP-588: its epoch is behind, and it continues by naming it."""
    world = World()
    p = world.started(version=1)
    world.add(p, "orders-0")
    world.later(60_000)
    for _ in range(2):
        assert is_error(world.end(p, committed=True, version=1), ProducerFenced)
        assert is_error(world.end(p, committed=False, version=1), ProducerFenced)
        assert world.verify(p, "orders-0") == [ProducerFenced]
        world.settle()
    answer = world.init(expected=p, version=1)
    assert answer == TransactionalProducer(ProducerId(p[0]), p[1] + 1)
    world.add((p[0], p[1] + 1), "orders-0")
    assert world.end((p[0], p[1] + 1), committed=True, version=1) == TransactionalProducer(ProducerId(p[0]), p[1] + 1)


def test_a_producer_may_change_to_version_two() -> None:
    world = World()
    p = world.started(version=1)
    world.add(p, "orders-0")
    world.end(p, committed=True, version=1)
    world.settle()
    world.write(p, "orders-1")
    assert world.commit(p) == TransactionalProducer(ProducerId(p[0]), p[1] + 1)
