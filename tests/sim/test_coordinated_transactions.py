"""Each rule of real producers' transactions fails if it is broken, and only then: over a hand-made ledger."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from testbed.sim.coordinated_transactions import CoordinatedTransaction, CoordinatedTransactions, Instance
from testbed.sim.ledger import Ledger, Violation
from testbed.sim.workload import Fate, Sent
from tests.sim.ledger_book import Book


class World:
    """Transactions of one transactional id, and ledgers of two partitions."""

    def __init__(self) -> None:
        self.transactions = CoordinatedTransactions()
        self.books = [Book(), Book()]
        for number, book in enumerate(self.books):
            book.ledger.name = f"t-{number}"
        self.instance = Instance("id", "client-1")
        self.transactions.began(self.instance, (7, 0), 0)

    def begin(self) -> CoordinatedTransaction:
        return self.transactions.begin(self.instance)

    def send(
        self, transaction: CoordinatedTransaction, value: bytes, partition: int = 0, *, write: bool = True
    ) -> Sent:
        """An acknowledged record; without `write` it is in no log."""
        sent = Sent("t", partition, value, -1, Fate.ACKNOWLEDGED, transaction=transaction)
        transaction.sent.append(sent)
        ledger = self.books[partition].ledger
        if write:
            self.books[partition].put((None, value), producer=7)
            ledger.offsets[value] = ledger.end - 1
            self.transactions.appended(ledger, ledger.end - 1, sent)
        return sent

    def mark(self, partition: int, sent: Sequence[Sent], *, commit: bool) -> None:
        book = self.books[partition]
        book.decide(7, 0, commit=commit)
        self.transactions.decided(book.ledger, sent, committed=commit)

    @property
    def ledgers(self) -> list[Ledger]:
        return [book.ledger for book in self.books]

    def judge(self) -> None:
        self.transactions.all_or_nothing(self.ledgers)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_of_two_partitions_passes(world: World, commit: bool) -> None:
    transaction = world.begin()
    first, second = world.send(transaction, b"a"), world.send(transaction, b"b", 1)
    world.mark(0, [first], commit=commit)
    world.transactions.told(transaction, committed=commit)
    world.mark(1, [second], commit=commit)
    world.judge()


def test_markers_that_differ(world: World) -> None:
    transaction = world.begin()
    first, second = world.send(transaction, b"a"), world.send(transaction, b"b", 1)
    world.mark(0, [first], commit=True)
    with pytest.raises(Violation, match=r"t-1: transaction 0 of id .* is aborted here, and elsewhere it is not"):
        world.mark(1, [second], commit=False)


def test_an_outcome_that_the_client_was_not_told(world: World) -> None:
    transaction = world.begin()
    first = world.send(transaction, b"a")
    world.transactions.told(transaction, committed=True)
    with pytest.raises(Violation, match="is aborted, and its client was told that it is committed"):
        world.mark(0, [first], commit=False)


def test_a_client_that_is_told_the_opposite(world: World) -> None:
    transaction = world.begin()
    world.mark(0, [world.send(transaction, b"a")], commit=False)
    with pytest.raises(Violation, match="is aborted, and its client was told that it is committed"):
        world.transactions.told(transaction, committed=True)


def test_a_late_write_in_the_next_transaction(world: World) -> None:
    first, second = world.begin(), world.begin()
    late, own = world.send(first, b"late"), world.send(second, b"own")
    with pytest.raises(Violation, match=r"of transaction 1 .* is decided by a marker of transaction 0"):
        world.mark(0, [late, own], commit=True)


def test_a_zombie_that_writes(world: World) -> None:
    transaction = world.begin()
    world.transactions.began(Instance("id", "client-2"), (7, 1), 50)
    in_flight = world.send(transaction, b"a", write=False)
    in_flight.began_us = 40
    world.transactions.appended(world.ledgers[0], 0, in_flight)
    in_flight.began_us = 60
    with pytest.raises(Violation, match="client-1 began to send it after a newer instance had its epoch"):
        world.transactions.appended(world.ledgers[0], 0, in_flight)


def test_an_older_instance_that_learns_late_of_its_epoch_fences_none(world: World) -> None:
    newer = Instance("id", "client-2")
    late = Instance("id", "client-3")
    world.transactions.began(newer, (7, 2), 50)
    world.transactions.began(late, (7, 1), 60)
    assert newer.fenced_us is None
    assert (world.instance.fenced_us, late.fenced_us) == (50, 60)


def test_a_transaction_that_is_never_decided(world: World) -> None:
    world.send(world.begin(), b"a")
    with pytest.raises(Violation, match=r"transaction 0 of id .* is still open at offset 0"):
        world.judge()


def test_a_lost_record_of_a_committed_transaction(world: World) -> None:
    transaction = world.begin()
    world.send(transaction, b"a", write=False)
    world.transactions.told(transaction, committed=True)
    with pytest.raises(Violation, match=r"is committed, and .* is lost"):
        world.judge()


def test_a_record_that_is_decided_unlike_its_transaction(world: World) -> None:
    transaction = world.begin()
    world.mark(0, [world.send(transaction, b"a")], commit=True)
    transaction.committed = False
    with pytest.raises(Violation, match="is aborted, but not at offset 0"):
        world.judge()
