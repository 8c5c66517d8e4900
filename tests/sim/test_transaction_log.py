"""Each rule of a transaction log fails if it is broken, and only then: over hand-made records, without a cluster."""

from __future__ import annotations

import pytest

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionTopicPartitions,
)
from replication.coordination.transaction_records import TransactionState as State
from testbed.sim.commit_attempts import Place
from testbed.sim.ledger import Violation
from testbed.sim.transaction_log import Decisions, Marker, TransactionLog
from tidelog.types import Millis, PartitionIndex, ProducerId

ORDERS = ("orders", 0)


class Log:
    """A transaction log that a test appends to."""

    def __init__(self) -> None:
        self.decisions = Decisions()
        self.markers: set[tuple[Place, Marker]] = set()
        self.log = TransactionLog(
            "__transaction_state-0",
            self.decisions,
            has_marker=lambda place, marker: (place, marker) in self.markers,
        )

    def add(self, state: State | None, epoch: int = 0, *partitions: int) -> None:
        value = None
        if state is not None:
            topics = (
                (TransactionTopicPartitions("orders", tuple(map(PartitionIndex, partitions))),) if partitions else ()
            )
            value = TransactionLogValue(ProducerId(70), epoch, 1000, state, topics, Millis(0), Millis(0))
        self.log.replayed(CoordinatorRecord(TransactionLogKey("t"), value))

    def mark(self, epoch: int, *, committed: bool) -> None:
        self.markers.add((ORDERS, (70, epoch)))
        self.decisions.written(ORDERS, (70, epoch), committed=committed)


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_commit_and_an_abort_pass(log: Log) -> None:
    log.add(State.EMPTY)
    log.add(State.ONGOING, 0, 0)
    log.add(State.PREPARE_COMMIT, 1, 0)
    log.mark(1, committed=True)
    log.add(State.COMPLETE_COMMIT, 1)
    log.add(State.ONGOING, 1, 0)
    log.add(State.PREPARE_ABORT, 2, 0)
    log.mark(2, committed=False)
    log.add(State.COMPLETE_ABORT, 2)
    log.add(None)


def test_an_id_begins_without_a_transaction(log: Log) -> None:
    with pytest.raises(Violation, match="t begins in state ONGOING"):
        log.add(State.ONGOING)


@pytest.mark.parametrize("later", [State.COMPLETE_COMMIT, State.PREPARE_ABORT, State.ONGOING, State.EMPTY])
def test_a_decision_does_not_change(log: Log, later: State) -> None:
    log.add(State.EMPTY)
    log.add(State.ONGOING, 0, 0)
    log.add(State.PREPARE_COMMIT, 1, 0)
    with pytest.raises(Violation, match=f"from PREPARE_COMMIT to {later.name}|is complete, but"):
        log.add(later, 1)


def test_an_epoch_that_goes_back(log: Log) -> None:
    log.add(State.EMPTY, 4)
    with pytest.raises(Violation, match="back from epoch 4 to 3"):
        log.add(State.EMPTY, 3)


def test_a_decision_for_other_partitions(log: Log) -> None:
    log.add(State.EMPTY)
    log.add(State.ONGOING, 0, 0, 1)
    with pytest.raises(Violation, match="loses partitions"):
        log.add(State.ONGOING, 0, 1)
    with pytest.raises(Violation, match="with other partitions"):
        log.add(State.PREPARE_COMMIT, 1, 0)


def test_an_id_that_is_removed_while_a_transaction_is_open(log: Log) -> None:
    log.add(State.EMPTY)
    log.add(State.ONGOING, 0, 0)
    with pytest.raises(Violation, match="t is removed in state ONGOING"):
        log.add(None)


def test_a_transaction_that_is_complete_without_its_marker(log: Log) -> None:
    log.add(State.EMPTY)
    log.add(State.ONGOING, 0, 0, 1)
    log.add(State.PREPARE_COMMIT, 1, 0, 1)
    log.mark(1, committed=True)
    with pytest.raises(Violation, match="t is complete, but orders-1 has no marker of producer 70 in epoch 1"):
        log.add(State.COMPLETE_COMMIT, 1)


def test_a_marker_that_nobody_decided(log: Log) -> None:
    with pytest.raises(Violation, match="no committed record of a coordinator decides that"):
        log.mark(1, committed=True)
    log.decisions.aborts_by_hand(ORDERS, 70)
    log.mark(1, committed=False)
    log.decisions.decided((70, 2), committed=False)
    with pytest.raises(Violation, match="but its coordinator decided otherwise"):
        log.mark(2, committed=True)
