"""Transactions of real producers: what clients sent and were told, compared with the markers in all partitions.

  - A transaction has one outcome: its markers agree with each other and with what its client was told.
  - A marker decides records of one transaction only: no late write enters the next one (KIP-890).
  - Nothing that an instance began to send after a newer instance had its epoch is ever committed to a log.
  - In the end no transaction is open, all acknowledged records of a committed one are committed, and none of an
    aborted one is.

Not here: the coordinator's record of its decisions (transaction_log.py), records alone (checkers.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from testbed.sim.ledger import Ledger, Violation
from testbed.sim.workload import Fate, Sent, Transaction


@dataclass(slots=True, eq=False)
class Instance:
    """One running producer of a transactional id. producer: its id and the last epoch that it was told. fenced_us: when
    a newer instance was told its epoch; None: it is the newest."""

    transactional_id: str
    name: str
    producer: tuple[int, int] = (-1, -1)
    fenced_us: int | None = None


@dataclass(slots=True, eq=False)
class CoordinatedTransaction(Transaction):
    """A transaction that a real coordinator decides. committed: as its first marker has it. told: what its client
    knows; None if it does not know."""

    instance: Instance = field(default_factory=lambda: Instance("", ""))
    number: int = 0
    told: bool | None = None

    def is_contradicted(self, *, committed: bool) -> bool:
        """Not for scripted coordinators: CoordinatedTransactions.decided compares all its markers."""
        return False

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.instance.transactional_id} ({self.instance.name})"


class CoordinatedTransactions:
    """All transactions of the real producers of a world."""

    def __init__(self) -> None:
        self.all: list[CoordinatedTransaction] = []
        self.instance_numbers = itertools.count(1)
        self._newest: dict[str, Instance] = {}

    def began(self, instance: Instance, producer: tuple[int, int], now_us: int) -> None:
        """An instance was told its producer id and epoch: all older ones of the transactional id are fenced."""
        instance.producer = producer
        other = self._newest.setdefault(instance.transactional_id, instance)
        if other is instance:
            return
        older, newer = (instance, other) if _is_older(producer, other.producer) else (other, instance)
        self._newest[instance.transactional_id] = newer
        if older.fenced_us is None:
            older.fenced_us = now_us

    def begin(self, instance: Instance) -> CoordinatedTransaction:
        """A new transaction of an instance."""
        transaction = CoordinatedTransaction(-1, -1, instance=instance, number=len(self.all))
        self.all.append(transaction)
        return transaction

    def told(self, transaction: CoordinatedTransaction, *, committed: bool) -> None:
        """The client of a transaction was told its outcome. Raises Violation if a marker says otherwise."""
        transaction.told = committed
        if transaction.committed not in (None, committed):
            raise Violation(
                f"{transaction} is {_word(not committed)}, and its client was told that it is {_word(committed)}"
            )

    def appended(self, ledger: Ledger, offset: int, sent: Sent) -> None:
        """A record of a transaction is committed to a log, its transaction perhaps still open."""
        transaction = sent.transaction
        if not isinstance(transaction, CoordinatedTransaction):
            return
        fenced_us = transaction.instance.fenced_us
        if fenced_us is not None and sent.began_us > fenced_us:
            raise Violation(
                f"{ledger.name}: {sent} is at offset {offset}, and {transaction.instance.name} began to send it after "
                f"a newer instance had its epoch"
            )

    def decided(self, ledger: Ledger, records: Sequence[Sent], *, committed: bool) -> None:
        """A marker decides these records of one partition."""
        found = [sent.transaction for sent in records]
        ours = [each for each in found if isinstance(each, CoordinatedTransaction)]
        for transaction, sent in zip(ours, records, strict=False):
            if transaction is not ours[0]:
                raise Violation(f"{ledger.name}: {sent} of {transaction} is decided by a marker of {ours[0]}")
        if not ours:
            return
        transaction = ours[0]
        if transaction.committed is None:
            transaction.committed = committed
        if transaction.committed is not committed:
            raise Violation(f"{ledger.name}: {transaction} is {_word(committed)} here, and elsewhere it is not")
        if transaction.told not in (None, committed):
            raise Violation(
                f"{ledger.name}: {transaction} is {_word(committed)}, and its client was told that it is "
                f"{_word(not committed)}"
            )

    def all_or_nothing(self, ledgers: Iterable[Ledger]) -> None:
        """Check every transaction at the end of a world, when all faults are over. Raises Violation."""
        by_name = {ledger.name: ledger for ledger in ledgers if not ledger.lossy}
        for transaction in self.all:
            for sent in transaction.sent:
                ledger = by_name.get(f"{sent.topic}-{sent.partition}")
                if ledger is not None:
                    _judge(transaction, sent, ledger)


def _judge(transaction: CoordinatedTransaction, sent: Sent, ledger: Ledger) -> None:
    offset = ledger.offsets.get(sent.value)
    outcome = transaction.committed if transaction.committed is not None else transaction.told
    if offset is None:
        if outcome and sent.fate is Fate.ACKNOWLEDGED:
            raise Violation(f"{ledger.name}: {transaction} is committed, and {sent} is lost")
        return
    if ledger.is_undecided(offset):
        raise Violation(f"{ledger.name}: {transaction} is still open at offset {offset} ({sent})")
    if (offset in ledger.aborted) is outcome:
        raise Violation(f"{ledger.name}: {transaction} is {_word(bool(outcome))}, but not at offset {offset} ({sent})")


def _is_older(producer: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether this producer id and epoch were given out before the others: an id is replaced when it has no epoch
    left."""
    return producer[0] == other[0] and producer[1] < other[1]


def _word(committed: bool) -> str:
    return "committed" if committed else "aborted"
