"""The coordinator is replaced at each step of a transaction."""

from __future__ import annotations

import pytest

from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.transaction_records import TransactionLogKey
from replication.coordination.transaction_records import TransactionState as State
from replication.coordination.transaction_requests import MarkersWritten
from replication.coordination.transactions.transaction_machine import TransactionMachine
from tests.replication.transaction_world import TXN, World, is_error
from tidelog.errors import ConcurrentTransactions, ProducerFenced, TransactionAbortable, UnreadableCoordinatorRecord
from tidelog.types import Offset, ProducerId


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("compacted", [True, False])
def test_a_transaction_survives_a_replacement_after_each_step(version: int, committed: bool, compacted: bool) -> None:
    world = World()
    p = world.started(version=version)
    world.replace(compacted=compacted)
    world.write(p, "orders-0") if version == 2 else world.add(p, "orders-0")
    world.replace(compacted=compacted)
    world.write(p, "orders-1") if version == 2 else world.add(p, "orders-1")
    world.replace(compacted=compacted)
    answer = world.end(p, committed=committed, version=version)
    (asked,) = world.markers
    world.replace(compacted=compacted)
    (repeated,) = world.markers
    assert repeated.coordinator_epoch == asked.coordinator_epoch + 1 == 4
    assert (repeated.producer_epoch, repeated.partitions) == (asked.producer_epoch, asked.partitions)
    assert (repeated.committed, repeated.transaction_version) == (committed, version)
    assert is_error(world.end(p, committed=committed, version=version), ConcurrentTransactions)
    world.settle()
    world.replace(compacted=compacted)
    assert world.markers == []
    assert world.end(p, committed=committed, version=version) == answer
    assert world.state() is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)


def test_the_report_of_a_former_coordinator_does_not_complete_a_transaction() -> None:
    """Its markers may have been refused since: those of the new coordinator count."""
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.commit(p)
    (former,) = world.markers
    world.replace()
    world.decide(MarkersWritten(former))
    assert world.state() is State.PREPARE_COMMIT
    world.settle()
    assert world.state() is State.COMPLETE_COMMIT


def test_a_fence_survives_a_replacement() -> None:
    world = World()
    old = world.started()
    world.write(old, "orders-0")
    world.init()
    world.replace(compacted=True)
    assert is_error(world.commit(old), TransactionAbortable)
    world.settle()
    new = world.started()
    world.replace(compacted=True)
    assert is_error(world.abort(old), ProducerFenced)
    assert is_error(world.init(expected=old), ProducerFenced)
    world.write(new, "orders-0")
    assert world.commit(new) == TransactionalProducer(ProducerId(new[0]), new[1] + 1)


def test_a_timeout_survives_a_replacement_before_its_markers() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.later(60_000)
    world.replace()
    assert [each.committed for each in world.markers] == [False]
    world.settle()
    assert world.abort(p) == TransactionalProducer(ProducerId(p[0]), p[1] + 1)


def test_a_removed_id_stays_removed() -> None:
    world = World()
    world.started()
    world.later(7 * 86_400_000)
    for compacted in (False, True):
        world.replace(compacted=compacted)
        assert world.machine.values == {}


def test_an_abort_of_nothing_that_kafka_left_prepared_is_completed() -> None:
    world = World()
    world.with_epoch(3, State.PREPARE_ABORT)
    assert world.state() is State.COMPLETE_ABORT
    assert world.markers == []
    assert world.init().producer_epoch == 4


@pytest.mark.parametrize("state", [State.DEAD, State.PREPARE_EPOCH_FENCE])
def test_states_that_are_never_written_are_refused(state: State) -> None:
    with pytest.raises(UnreadableCoordinatorRecord, match=f"'payments-1' at offset 0 has state {state.name}"):
        World().with_epoch(3, state)


def test_records_of_a_transaction_are_refused() -> None:
    world = World()
    world.started()
    machine = TransactionMachine(world.config)
    producer = TransactionalProducer(ProducerId(7), 0)
    with pytest.raises(UnreadableCoordinatorRecord, match="'payments-1' at offset 5 is in a transaction"):
        machine.apply(CoordinatorRecord(TransactionLogKey(TXN), None), Offset(5), producer)
    machine.apply_marker(producer, committed=True)
    assert machine.values == {}
