"""Committed batches of all logs reach the rules of groups, transactions and pipelines."""

from __future__ import annotations

from uuid import UUID

import pytest

from replication.coordination import group_records, transaction_records
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import GROUP_RECORDS
from replication.coordination.transaction_records import (
    TRANSACTION_RECORDS,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from testbed.sim.coordination import SCRIPTED_FROM, Coordination, place_of
from testbed.sim.exactly_once import ExactlyOnce, result_of
from testbed.sim.ledger import Ledger, Violation
from tests.sim.ledger_book import Book
from tidelog.types import Millis, Offset, PartitionIndex, ProducerId

PRODUCER = 7


class World:
    """Ledgers whose batches the rules see."""

    def __init__(self) -> None:
        self.coordination = Coordination(topic_name={UUID(int=7): "orders"}.get)
        self.books: dict[str, Book] = {}

    def book(self, name: str) -> Book:
        found = self.books.setdefault(name, Book())
        found.ledger.name = name
        return found

    def see(self, name: str, decided: list[int] | None = None) -> None:
        """Show the newest batch of a ledger to the rules."""
        self.coordination.committed(self.book(name).ledger, self.book(name).batches[-1], decided or [], [])

    def commit(self, offset: int, producer: int = -1) -> None:
        identity = self.coordination.attempts.sending("g", ("orders", 0), offset, client="a")
        key = group_records.OffsetCommitKey("g", "orders", PartitionIndex(0))
        value = group_records.OffsetCommitValue(Offset(offset), identity, Millis(0))
        self.book("__consumer_offsets-1").put(GROUP_RECORDS.encode(CoordinatorRecord(key, value)), producer=producer)
        self.see("__consumer_offsets-1")

    def state(self, state: TransactionState, epoch: int) -> None:
        topics = (transaction_records.TransactionTopicPartitions("events", (PartitionIndex(0),)),)
        value = TransactionLogValue(ProducerId(PRODUCER), epoch, 1000, state, topics, Millis(0), Millis(0))
        self.book("__transaction_state-0").put(
            TRANSACTION_RECORDS.encode(CoordinatorRecord(TransactionLogKey("t"), value))
        )
        self.see("__transaction_state-0")

    def mark(self, name: str, epoch: int, *, commit: bool, producer: int = PRODUCER) -> None:
        ledger: Ledger = self.book(name).ledger
        decided = list(ledger._undecided.get(producer, []))
        self.book(name).decide(producer, epoch, commit=commit)
        self.see(name, decided)


@pytest.fixture
def world() -> World:
    return World()


def test_the_partition_of_a_name() -> None:
    assert place_of("a-b-12") == ("a-b", 12)


def test_commits_alone_and_in_transactions(world: World) -> None:
    world.commit(5)
    world.commit(6, producer=PRODUCER)
    log = world.coordination.log_of("g")
    assert log is not None
    assert log.committed("g", ("orders", 0)) == 5
    world.mark("__consumer_offsets-1", 0, commit=True)
    assert log.committed("g", ("orders", 0)) == 6


def test_a_marker_needs_its_decision(world: World) -> None:
    world.mark("events-0", 0, commit=True)  # nothing is known of coordinators: a scripted one
    for state in (TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_COMMIT):
        world.state(state, 1 if state is TransactionState.PREPARE_COMMIT else 0)
    world.mark("events-0", 1, commit=True)
    world.mark("events-0", 0, commit=True, producer=SCRIPTED_FROM)
    with pytest.raises(Violation, match=r"events-0: a marker .commit. of producer 7 in epoch 2"):
        world.mark("events-0", 2, commit=True)


def test_results_count_when_their_transaction_commits(world: World) -> None:
    world.coordination.pipelines.append(ExactlyOnce("p"))
    for number, commit in enumerate((False, True, True)):
        world.book("events-0").put((None, result_of("orders", 0, 3, f"w/{number}")), producer=PRODUCER)
        if number < 2:
            world.mark("events-0", 0, commit=commit)
    with pytest.raises(Violation, match="orders-0@3 has two committed results"):
        world.mark("events-0", 0, commit=True)
