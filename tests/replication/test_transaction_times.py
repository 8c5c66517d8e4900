"""Timeouts of open transactions, and the expiry of transactional ids."""

from __future__ import annotations

import pytest

from replication.coordination.coordinator_machine import Instant, TransactionalProducer
from replication.coordination.transaction_records import TransactionState as State
from replication.coordination.transaction_requests import InitTransactionalProducer
from replication.coordination.transactions.transaction_config import TransactionConfig
from replication.coordination.transactions.transaction_machine import NO_TIMEOUT_MS
from tests.replication.transaction_world import TIMEOUT_MS, TXN, World, is_error
from tidelog.errors import ConcurrentTransactions, InvalidProducerIdMapping, ProducerFenced, TransactionAbortable
from tidelog.types import Millis, ProducerId

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def test_an_open_transaction_is_aborted_when_its_timeout_has_passed() -> None:
    """KIP-588, KIP-890: its producer is asked to abort, does so, and continues with the next epoch."""
    world = World()
    p = world.started()
    world.later(TIMEOUT_MS * 3)
    world.write(p, "orders-0")
    world.later(TIMEOUT_MS - 1)
    world.write(p, "orders-1")
    assert world.state() is State.ONGOING
    world.later(1)
    assert world.state() is State.PREPARE_ABORT
    assert [(each.committed, each.producer_epoch) for each in world.markers] == [(False, p[1] + 1)]
    assert world.write(p, "orders-0") == [ProducerFenced]
    assert is_error(world.commit(p), TransactionAbortable)
    assert is_error(world.abort(p), ConcurrentTransactions)
    world.settle()
    assert is_error(world.commit(p), TransactionAbortable)
    assert world.abort(p) == TransactionalProducer(ProducerId(p[0]), p[1] + 1)
    assert world.write((p[0], p[1] + 1), "orders-0") == [None]


def test_a_timeout_is_noticed_and_says_whose_transaction_it_was() -> None:
    world = World()
    world.write(world.started(), "orders-0")
    world.now = Instant(Millis(world.now.monotonic_ms + TIMEOUT_MS), Millis(world.now.wall_ms + TIMEOUT_MS))
    [decision] = world.machine.tick(world.now)
    assert f"the transaction of {TXN!r}" in decision.notice
    assert f"timeout of {TIMEOUT_MS} ms" in decision.notice


def test_many_timeouts_at_once_take_several_ticks_of_one_round() -> None:
    """10,000 transactions of one principal took the loop 240 ms when they timed out together."""
    world = World(TransactionConfig(abort_timed_out_interval_ms=Millis(5_000)))
    for number in range(1_100):
        p = world.init(name=f"id-{number}")
        world.write((p.producer_id, p.producer_epoch), "orders-0", name=f"id-{number}")
    world.now = Instant(Millis(world.now.monotonic_ms + TIMEOUT_MS), Millis(world.now.wall_ms + TIMEOUT_MS))
    aborted = []
    for _ in range(3):
        decisions = world.machine.tick(world.now)
        aborted.append(len(decisions))
        world.step(decisions)
    assert aborted == [500, 500, 100]
    deadline = world.machine.deadline()
    assert deadline is None or deadline > world.now.monotonic_ms
    assert {world.state(f"id-{number}") for number in range(1_100)} == {State.PREPARE_ABORT}


def test_a_commit_that_comes_first_is_not_aborted() -> None:
    """The other order of the race: a decision is made once."""
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.later(TIMEOUT_MS - 1)
    world.commit(p)
    world.later(TIMEOUT_MS)
    assert world.state() is State.PREPARE_COMMIT
    assert [each.committed for each in world.markers] == [True]
    world.settle()
    world.write((p[0], p[1] + 1), "orders-0")
    world.later(TIMEOUT_MS - 1)
    assert world.state() is State.ONGOING, "the next transaction has a timeout of its own"


def test_rounds_of_timeouts_keep_their_interval() -> None:
    world = World(TransactionConfig(abort_timed_out_interval_ms=Millis(5_000)))
    for number, name in enumerate(("a", "b", "c")):
        p = world.init(name=name)
        world.write((p.producer_id, p.producer_epoch), "orders-0", name=name)
        world.later(1_000)
        assert world.machine.open_transactions == number + 1
    world.later(TIMEOUT_MS - 3_000)
    assert [world.state(name) for name in "abc"] == [State.PREPARE_ABORT, State.ONGOING, State.ONGOING]
    world.later(4_999)
    assert world.state("b") is State.ONGOING
    world.later(1)
    assert [world.state(name) for name in "bc"] == [State.PREPARE_ABORT] * 2
    assert world.machine.deadline() == world.now.monotonic_ms - 5_000 + WEEK_MS, "when a expires"


@pytest.mark.parametrize("pause_ms", [0, TIMEOUT_MS // 2, TIMEOUT_MS * 2])
def test_a_new_coordinator_counts_from_the_start_of_the_transaction(pause_ms: int) -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    start = world.now
    world.now = Instant(Millis(77), Millis(start.wall_ms + pause_ms))  # another machine
    world.replace(compacted=True)
    left = TIMEOUT_MS - pause_ms
    if left > 0:
        world.later(left - 1)
        assert world.state() is State.ONGOING
    world.later(1)
    assert world.state() is State.PREPARE_ABORT


def test_a_clock_that_was_set_back_delays_a_timeout_by_one_timeout_at_most() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.now = Instant(world.now.monotonic_ms, Millis(world.now.wall_ms - DAY_MS))
    world.replace()
    world.later(TIMEOUT_MS - 1)
    assert world.state() is State.ONGOING
    world.later(1)
    assert world.state() is State.PREPARE_ABORT


def test_a_clock_that_is_set_while_a_transaction_is_open_does_not_change_its_timeout() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.later(TIMEOUT_MS - 1)
    world.now = Instant(world.now.monotonic_ms, Millis(world.now.wall_ms + DAY_MS))
    world.write(p, "orders-1")
    assert world.machine.tick(world.now) == []
    world.later(1)
    assert world.state() is State.PREPARE_ABORT


def test_a_transaction_that_kafka_prepared_for_two_phases_does_not_time_out() -> None:
    world = World(TransactionConfig(transaction_max_timeout_ms=Millis(NO_TIMEOUT_MS)))
    answer = world.ask(InitTransactionalProducer(TXN, NO_TIMEOUT_MS, ProducerId(-1), -1, 2))
    world.write((answer.producer_id, answer.producer_epoch), "orders-0")
    world.replace()
    world.later(60 * DAY_MS)
    assert world.state() is State.ONGOING


def test_the_oldest_open_transaction_is_known_until_it_is_complete() -> None:
    world = World()
    assert world.machine.oldest_open_start() is None
    starts = []
    for name in ("a", "b"):
        answer = world.init(name=name)
        starts.append(world.now.wall_ms)
        world.write((answer.producer_id, answer.producer_epoch), "orders-0", name=name)
        world.later(500)
    assert world.machine.oldest_open_start() == starts[0]
    world.end(world.producer("a"), committed=True, name="a")
    world.replace()
    assert (world.machine.oldest_open_start(), world.machine.open_transactions) == (starts[0], 2)
    world.settle()
    assert (world.machine.oldest_open_start(), world.machine.open_transactions) == (starts[1], 1)


# --- expiry -----------------------------------------------------------------------------------------------------


def test_a_transactional_id_without_activity_expires() -> None:
    world = World()
    p = world.started()
    world.later(WEEK_MS - 1)
    assert TXN in world.machine.values
    world.later(1)
    assert world.log[-1].value is None
    assert TXN not in world.machine.values
    assert world.machine.deadline() is None
    assert world.write(p, "orders-0") == [InvalidProducerIdMapping]
    assert is_error(world.abort(p), InvalidProducerIdMapping)
    assert world.started() == (world.next_id, 0)


def test_a_transaction_that_is_not_complete_does_not_expire() -> None:
    world = World()
    p = world.started()
    world.write(p, "orders-0")
    world.commit(p)
    world.later(WEEK_MS * 2)
    assert world.state() is State.PREPARE_COMMIT
    world.settle()
    world.later(WEEK_MS)
    assert world.machine.values == {}


@pytest.mark.parametrize("replaced", [True, False])
def test_activity_postpones_expiry_and_the_others_expire(replaced: bool) -> None:
    world = World()
    world.init(name="a")
    world.init(name="b")
    world.later(DAY_MS)
    world.init(name="a")
    if replaced:
        world.replace(compacted=True)
    world.later(WEEK_MS - DAY_MS)
    assert set(world.machine.values) == {"a"}


def test_rounds_of_expiry_keep_their_interval_and_their_batches_are_bounded() -> None:
    world = World(TransactionConfig(remove_expired_interval_ms=Millis(3_600_000)))
    world.step([])
    for number in range(1_201):
        if number == 1_200:
            world.later(1_000)
        world.decide_quickly(f"id-{number}")
    world.later(WEEK_MS - 1_000)
    assert set(world.machine.values) == {"id-1200"}
    assert [len(batch) for batch in world.batches[-3:]] == [500, 500, 200]
    world.later(3_599_999)
    assert set(world.machine.values) == {"id-1200"}
    world.later(1)
    assert world.machine.values == {}
