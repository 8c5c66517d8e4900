"""InitProducerId: zombies are fenced, producers continue after errors (KIP-360), epochs end at 32,766."""

from __future__ import annotations

import pytest

from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.transaction_records import TransactionState as State
from replication.coordination.transaction_requests import (
    InitTransactionalProducer,
    InitWithProducerId,
    ProducerIdNeeded,
)
from tests.replication.transaction_world import TXN, World, is_error
from tidelog.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    TidelogError,
    TransactionAbortable,
)
from tidelog.types import ProducerId

LAST = 32_766
"""The last epoch that a producer gets."""


def test_a_new_transactional_id_gets_a_producer_id() -> None:
    world = World()
    request = InitTransactionalProducer(TXN, 1, ProducerId(-1), -1, 2)
    assert world.decide(request) == ProducerIdNeeded()
    assert world.log == []
    assert world.decide(InitWithProducerId(request, ProducerId(5))) == TransactionalProducer(ProducerId(5), 0)
    assert world.state() is State.EMPTY
    assert world.decide(InitWithProducerId(request, ProducerId(6))) == TransactionalProducer(ProducerId(5), 1)


def test_a_new_producer_fences_the_former_one() -> None:
    world = World()
    old = world.started()
    new = world.started()
    assert new == (old[0], old[1] + 1)
    assert world.write(old, "orders-0") == [ProducerFenced]
    assert is_error(world.abort(old), ProducerFenced)
    assert is_error(world.init(expected=old), ProducerFenced)
    assert world.write(new, "orders-0") == [None]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_an_open_transaction_is_aborted_before_a_new_producer_starts(version: int, committed: bool) -> None:
    world = World()
    old = world.started(version=version)
    world.write(old, "orders-0") if version == 2 else world.add(old, "orders-0")
    assert is_error(world.init(version=version), ConcurrentTransactions)
    assert world.state() is State.PREPARE_ABORT
    (markers,) = world.markers
    assert (markers.committed, markers.producer_epoch, markers.transaction_version) == (False, old[1] + 1, 2)
    assert isinstance(world.end(old, committed=committed, version=version), TidelogError)
    assert is_error(world.init(version=version), ConcurrentTransactions)
    world.settle()
    new = world.started(version=version)
    assert new == (old[0], old[1] + 2), "KAFKA-19367: the abort and the start raise the epoch by one each"
    assert is_error(world.end(old, committed=committed, version=version), ProducerFenced)


def test_a_zombie_cannot_abort_the_transaction_of_the_new_producer() -> None:
    """Neither by InitProducerId as if it continued, which Kafka lets it do."""
    world = World()
    old = world.started()
    new = world.started()
    world.write(new, "orders-0")
    assert is_error(world.init(expected=old), ProducerFenced)
    assert is_error(world.init(expected=(old[0] + 9, 0)), ProducerFenced)
    assert world.state() is State.ONGOING
    assert world.commit(new) == TransactionalProducer(ProducerId(new[0]), new[1] + 1)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_producer_continues_after_an_error(replaced: bool) -> None:
    """KIP-360: it gets the next epoch, and the same answer again if the first one was lost."""
    world = World()
    p = world.started()
    answer = world.init(expected=p)
    assert answer == TransactionalProducer(ProducerId(p[0]), p[1] + 1)
    for _ in range(2):
        if replaced:
            world.replace(compacted=True)
        assert world.init(expected=p) == answer
    assert world.write(p, "orders-0") == [ProducerFenced]
    assert world.write((p[0], p[1] + 1), "orders-0") == [None]
    assert is_error(world.init(expected=p), ProducerFenced), "the answer was not lost"


def test_a_producer_continues_by_aborting_its_own_transaction() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    assert is_error(world.init(expected=p), ConcurrentTransactions)
    assert is_error(world.init(expected=p), ConcurrentTransactions)
    world.settle()
    assert world.init(expected=p) == TransactionalProducer(ProducerId(p[0]), p[1] + 1)


def test_a_producer_continues_after_an_end_whose_answer_was_lost() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    answer = world.commit(p)
    assert is_error(world.init(expected=p), ConcurrentTransactions)
    world.settle()
    assert world.init(expected=p) == TransactionalProducer(answer.producer_id, answer.producer_epoch)
    assert world.init(expected=p) == TransactionalProducer(answer.producer_id, answer.producer_epoch)


def test_a_new_producer_fences_one_that_continued() -> None:
    world = World()
    p = world.started()
    world.init(expected=p)
    new = world.started()
    for epoch in range(new[1]):
        assert is_error(world.init(expected=(p[0], epoch)), ProducerFenced)


def test_an_expired_producer_continues_with_a_new_producer_id() -> None:
    world = World()
    assert world.init(expected=(77, 3)) == TransactionalProducer(ProducerId(world.next_id), 0)


@pytest.mark.parametrize("timeout_ms", [0, 900_001])
def test_a_timeout_outside_the_settings_is_refused(timeout_ms: int) -> None:
    world = World()
    assert is_error(world.init(timeout_ms=timeout_ms), InvalidTransactionTimeout)
    assert world.log == []


# --- the last epoch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("continued", [True, False])
def test_a_producer_that_starts_after_the_last_epoch_gets_another_producer_id(continued: bool) -> None:
    world = World()
    p = world.with_epoch(LAST)
    answer = world.init(expected=p if continued else (-1, -1))
    assert (answer.producer_id, answer.producer_epoch) == (world.next_id, 0)
    assert world.machine.values[TXN].previous_producer_id == 7
    again = world.init(expected=p)
    if continued:
        assert again == answer, "KIP-360: the answer was lost"
    else:
        assert is_error(again, ProducerFenced)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("replaced", [True, False])
def test_a_transaction_in_the_last_epoch_ends_with_another_producer_id(committed: bool, replaced: bool) -> None:
    world = World()
    p = world.with_epoch(LAST)
    world.write(p, "orders-0")
    answer = world.end(p, committed=committed)
    assert answer == TransactionalProducer(ProducerId(world.next_id), 0)
    assert (world.markers[0].producer_id, world.markers[0].producer_epoch) == (7, LAST + 1)
    assert is_error(world.end(p, committed=committed), ConcurrentTransactions)
    new = (answer.producer_id, 0)
    assert world.write(new, "orders-0") == [ConcurrentTransactions], "KAFKA-18660: it must not be fenced"
    assert world.write((7, LAST + 1), "orders-0") == [ProducerFenced]
    if replaced:
        world.replace(compacted=True)
    world.settle()
    assert world.end(p, committed=committed) == answer
    assert is_error(world.end(p, committed=not committed), TransactionAbortable if not committed else InvalidTxnState)
    for _ in range(2):
        assert world.init(expected=p) == TransactionalProducer(*new)
    assert world.machine.values[TXN].next_producer_id == -1
    assert world.write(p, "orders-0") == [InvalidProducerIdMapping]
    assert world.write(new, "orders-0") == [None]


def test_an_abort_of_nothing_in_the_last_epoch_gives_another_producer_id() -> None:
    world = World()
    p = world.with_epoch(LAST)
    answer = world.abort(p)
    assert answer == TransactionalProducer(ProducerId(world.next_id), 0)
    assert world.abort(p) == answer


@pytest.mark.parametrize("replaced", [True, False])
def test_a_transaction_that_times_out_in_the_last_epoch_leaves_no_producer_with_the_largest(replaced: bool) -> None:
    """KAFKA-20090: the coordinator uses epoch 32,767 for its markers, and nobody may write with it."""
    world = World()
    p = world.with_epoch(LAST)
    world.write(p, "orders-0")
    world.later(60_000)
    assert world.state() is State.PREPARE_ABORT
    assert world.producer() == (7, LAST + 1)
    world.settle()
    assert world.write((7, LAST + 1), "orders-0") == [ProducerFenced]
    assert is_error(world.abort((7, LAST + 1)), ProducerFenced)
    answer = world.abort(p)
    assert answer == TransactionalProducer(ProducerId(world.next_id), 0)
    if replaced:
        world.replace(compacted=True)
    assert world.abort(p) == answer
    assert is_error(world.commit(p), ProducerFenced)
    assert world.write((answer.producer_id, 0), "orders-0") == [None]


def test_a_producer_that_continues_after_a_timeout_in_the_last_epoch_gets_another_producer_id() -> None:
    world = World()
    p = world.with_epoch(LAST)
    world.write(p, "orders-0")
    world.later(60_000)
    world.settle()
    answer = world.init(expected=p)
    assert answer == TransactionalProducer(ProducerId(world.next_id), 0)
    assert world.init(expected=p) == answer


def test_a_new_producer_after_a_fence_in_the_last_epoch_gets_another_producer_id() -> None:
    world = World()
    p = world.with_epoch(LAST)
    world.write(p, "orders-0")
    assert is_error(world.init(), ConcurrentTransactions)
    world.settle()
    answer = world.init()
    assert (answer.producer_id, answer.producer_epoch) == (world.next_id, 0)
    assert is_error(world.abort(p), InvalidProducerIdMapping)


def test_an_open_transaction_that_kafka_left_in_the_largest_epoch_is_aborted() -> None:
    """KAFKA-20090: a coordinator of Kafka may have given that epoch away. Its marker cannot have a higher one."""
    world = World()
    world.with_epoch(LAST + 1, State.ONGOING)
    assert is_error(world.init(), ConcurrentTransactions)
    assert (world.markers[0].producer_epoch, world.markers[0].transaction_version) == (LAST + 1, 1)
    world.settle()
    assert world.init() == TransactionalProducer(ProducerId(world.next_id), 0)
