"""Version 2 (KIP-890): partitions enter with the first write, each transaction has an epoch, EndTxn may be repeated."""

from __future__ import annotations

import pytest

from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.transaction_records import TransactionState as State
from replication.coordination.transaction_requests import (
    AddOffsetsToTxn,
    AddOffsetsToTxnAnswer,
    MarkersRefused,
    MarkersWritten,
    WriteMarkers,
)
from tests.replication.transaction_world import TXN, World, is_error, parts
from tidelog.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTopic,
    InvalidTxnState,
    OperationNotAttempted,
    ProducerFenced,
    TransactionAbortable,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from tidelog.types import ProducerId


def next_of(producer: tuple[int, int]) -> tuple[ProducerId, int]:
    return ProducerId(producer[0]), producer[1] + 1


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_decided_then_marked_then_complete(committed: bool) -> None:
    world = World()
    p = world.started()
    assert p[1] == 0
    assert world.write(p, "orders-0", "orders-2") == [None, None]
    assert world.write(p, "payments-1") == [None]
    assert world.state() is State.ONGOING
    assert world.end(p, committed=committed) == TransactionalProducer(*next_of(p))
    assert world.state() is (State.PREPARE_COMMIT if committed else State.PREPARE_ABORT)
    wanted = parts("orders-0", "orders-2", "payments-1")
    assert world.markers == [WriteMarkers(TXN, ProducerId(p[0]), p[1] + 1, 0, committed, wanted, 2)]
    world.settle()
    assert world.state() is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert world.producer() == next_of(p)
    assert world.write(next_of(p), "orders-0") == [None]


def test_a_partition_that_is_in_the_transaction_is_not_recorded_again() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0", "orders-1")
    length = len(world.log)
    assert world.write(p, "orders-1") == [None]
    assert world.write(p, "orders-1", "orders-1", "orders-2") == [None] * 3
    assert len(world.log) == length + 1


def test_a_late_write_cannot_enter_the_next_transaction() -> None:
    """KIP-890: the write of an aborted transaction arrives at its leader while the next one is open."""
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.abort(p)
    world.settle()
    world.write(next_of(p), "orders-1")
    assert world.write(p, "orders-0") == [ProducerFenced]
    world.commit(next_of(p))
    assert world.markers[0].partitions == parts("orders-1")


@pytest.mark.parametrize("settled", [True, False])
def test_a_late_write_cannot_open_a_transaction_that_nobody_ends(settled: bool) -> None:
    """KIP-890: the first write of a transaction arrives after its abort. Without the epoch it would hang for ever."""
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.abort(p)
    if settled:
        world.settle()
    assert world.write(p, "orders-1") == [ProducerFenced]
    world.settle()
    assert world.machine.open_transactions == 0


def test_an_abort_of_nothing_fences_a_first_write_that_is_still_on_its_way() -> None:
    world = World()
    p = world.started()
    assert world.abort(p) == TransactionalProducer(*next_of(p))
    assert world.state() is State.COMPLETE_ABORT
    assert world.markers == []
    assert world.write(p, "orders-0") == [ProducerFenced]
    assert world.abort(p) == TransactionalProducer(*next_of(p)), "a repetition of the first request"
    assert world.abort(next_of(p)) == TransactionalProducer(ProducerId(p[0]), p[1] + 2), "another abort of nothing"


@pytest.mark.parametrize("ends", ["nothing", "commit", "abort"])
def test_nothing_cannot_be_committed(ends: str) -> None:
    world = World()
    p = world.started()
    if ends != "nothing":
        world.write(p, "orders-0")
        world.end(p, committed=ends == "commit")
        world.settle()
        p = next_of(p)
    assert is_error(world.commit(p), InvalidTxnState)


@pytest.mark.parametrize("committed", [True, False])
def test_a_repeated_end_gives_the_same_answer(committed: bool) -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    answer = world.end(p, committed=committed)
    assert is_error(world.end(p, committed=committed), ConcurrentTransactions)
    world.settle()
    length = len(world.log)
    assert world.end(p, committed=committed) == answer
    assert len(world.log) == length
    world.write(next_of(p), "orders-0")
    assert is_error(world.end(p, committed=committed), ProducerFenced), "the next transaction is open"


@pytest.mark.parametrize("settled", [True, False])
def test_a_commit_cannot_be_turned_into_an_abort(settled: bool) -> None:
    """Trap 18: EndTxn retried in the other direction is refused."""
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.commit(p)
    if settled:
        world.settle()
    assert is_error(world.abort(p), InvalidTxnState)


@pytest.mark.parametrize("settled", [True, False])
def test_an_abort_cannot_be_turned_into_a_commit(settled: bool) -> None:
    """Trap 18, and KIP-588: the producer is asked to abort, which it then can."""
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.abort(p)
    if settled:
        world.settle()
    assert is_error(world.commit(p), TransactionAbortable)
    world.settle()
    assert world.abort(p) == TransactionalProducer(*next_of(p))


def test_the_next_transaction_waits_for_the_markers() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.commit(p)
    assert world.write(next_of(p), "orders-0") == [ConcurrentTransactions]
    assert is_error(world.abort(next_of(p)), ConcurrentTransactions), "KAFKA-18464: it must not be fenced"
    assert is_error(world.init(), ConcurrentTransactions)


def test_requests_of_others_are_refused() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    stranger, zombie, future = (p[0] + 50, p[1]), (p[0], p[1] - 1), (p[0], p[1] + 1)
    for wrong, error in ((stranger, InvalidProducerIdMapping), (zombie, ProducerFenced), (future, ProducerFenced)):
        assert world.write(wrong, "orders-0") == [error]
        assert world.verify(wrong, "orders-0") == [error]
        assert is_error(world.add(wrong, "orders-0"), error)
        assert is_error(world.commit(wrong), error)
        assert is_error(world.commit(wrong, version=1), error)
    assert is_error(world.end(p, committed=True, name="nobody"), InvalidProducerIdMapping)
    assert world.write(p, "orders-0", name="nobody") == [InvalidProducerIdMapping]
    assert world.state() is State.ONGOING


def test_partitions_that_do_not_exist_are_refused_and_none_is_added() -> None:
    world = World()
    p = world.started()
    assert world.write(p, "orders-0", "orders-3", "nothing-0") == [
        OperationNotAttempted,
        UnknownTopicOrPartition,
        UnknownTopicOrPartition,
    ]
    assert world.write(p, "orders--1") == [UnknownTopicOrPartition]
    assert world.write(p, "__transaction_state-0") == [InvalidTopic]
    assert is_error(world.add(p), InvalidRequest)
    assert world.state() is State.EMPTY


def test_a_topic_can_be_added_once_the_metadata_has_it() -> None:
    world = World(topics={})
    p = world.started()
    group = AddOffsetsToTxn(TXN, ProducerId(p[0]), p[1], "g")
    assert world.write(p, "orders-0") == [UnknownTopicOrPartition]
    assert world.ask(group).code == 15, "COORDINATOR_NOT_AVAILABLE"
    assert world.machine.on_image(World().image, world.now) == ()
    assert world.write(p, "orders-0") == [None]
    assert world.ask(group) == AddOffsetsToTxnAnswer()


def test_markers_that_were_reported_twice_or_for_another_decision_change_nothing() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.commit(p)
    (markers,) = world.markers
    world.settle()
    length = len(world.log)
    world.decide(MarkersWritten(markers))
    world.write(next_of(p), "orders-0")
    world.commit(next_of(p))
    world.decide(MarkersWritten(markers))
    assert world.state() is State.PREPARE_COMMIT
    assert len(world.log) == length + 2


def test_a_refused_marker_leaves_the_transaction_to_the_newer_coordinator() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.commit(p)
    error = TransactionCoordinatorFenced("orders-0 has a marker of coordinator epoch 9")
    assert world.decide(MarkersRefused(world.markers.pop(), error)) is error
    assert world.state() is State.PREPARE_COMMIT
    world.replace()
    world.settle()
    assert world.state() is State.COMPLETE_COMMIT
