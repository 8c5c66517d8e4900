"""Verification of transactions in a log (KIP-890): guards, sequences, markers with the next epoch; and a random machine
of a producer, a coordinator and a log whose messages are late."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from storage.append_info import Origin
from storage.log.log import Log
from storage.log_config import LogConfig
from storage.producers.verification import (
    KEPT_MAX,
    NOTHING_VERIFIED,
    TransactionCheck,
    VerificationGuard,
    Verifications,
)
from tests.storage.producer_batches import from_producer
from tests.storage.workbench import NOW, Bench
from tidelog.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TidelogError,
    TransactionCoordinatorFenced,
)
from tidelog.records import EndTxnMarker, control_batch
from tidelog.types import LeaderEpoch, Offset, ProducerId

PRODUCER = ProducerId(9)


class Leader:
    """A log as its leader appends to it."""

    def __init__(self) -> None:
        self.bench = Bench(LogConfig())
        self.log: Log = self.bench.log

    def begin(self, sequence: int = 0, *, epoch: int = 0) -> VerificationGuard:
        return self.log.producers.begin_verification(from_producer(PRODUCER, sequence, epoch=epoch, txn=True))

    def append(self, sequence: int, guard: VerificationGuard | None, *, epoch: int = 0, version: int = 2) -> int:
        """Append a batch of one record; returns its offset."""
        info = self.log.append(
            from_producer(PRODUCER, sequence, epoch=epoch, txn=True),
            assign_offsets=True,
            leader_epoch=LeaderEpoch(0),
            check=TransactionCheck(version, guard),
        )
        return info.first_offset

    def mark(self, *, epoch: int, version: int = 2, coordinator: int = 0, commit: bool = False) -> int:
        marker = control_batch(
            EndTxnMarker(commit, coordinator), timestamp=NOW, producer_id=PRODUCER, producer_epoch=epoch
        )
        info = self.log.append(
            marker,
            assign_offsets=True,
            leader_epoch=LeaderEpoch(0),
            origin=Origin.COORDINATOR,
            check=TransactionCheck(version),
        )
        return info.first_offset

    @property
    def is_open(self) -> bool:
        return bool(self.log.producers.state.open_transactions)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_a_guard_admits_the_first_batch_and_the_open_transaction_the_others(leader: Leader) -> None:
    guard = leader.begin()
    assert guard is not NOTHING_VERIFIED
    assert leader.append(0, guard) == 0
    assert leader.begin(1) is NOTHING_VERIFIED
    assert leader.append(1, NOTHING_VERIFIED) == 1


def test_without_a_guard_of_this_log_nothing_is_admitted(leader: Leader) -> None:
    leader.begin()
    for guard in (NOTHING_VERIFIED, VerificationGuard()):
        with pytest.raises(InvalidTxnState, match="no transaction of this epoch is open"):
            leader.append(0, guard)
    assert leader.log.log_end_offset == 0


def test_without_verification_everything_is_admitted(leader: Leader) -> None:
    assert leader.append(5, None, version=1) == 0


def test_two_questions_about_one_transaction_have_one_guard(leader: Leader) -> None:
    assert leader.begin(0) is leader.begin(1)
    assert leader.begin(0) is not leader.begin(0, epoch=1), "another epoch is another transaction"


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_makes_every_earlier_guard_useless(leader: Leader, version: int) -> None:
    guard = leader.begin()
    leader.mark(epoch=version - 1, version=version)
    with pytest.raises(InvalidTxnState if version == 1 else InvalidProducerEpoch):
        leader.append(0, guard, version=version)
    assert not leader.is_open


def test_the_marker_of_a_transaction_leaves_the_guards_of_the_next_one(leader: Leader) -> None:
    """KIP-890: the producer begins the next transaction while the markers of the last one are being written."""
    leader.append(0, leader.begin())
    guard = leader.begin(0, epoch=1)
    leader.mark(epoch=1, commit=True)
    assert leader.append(0, guard, epoch=1) == 2
    assert leader.is_open


def test_a_guard_is_used_once(leader: Leader) -> None:
    guard = leader.begin()
    leader.append(0, guard, version=1)
    leader.mark(epoch=0, version=1)
    with pytest.raises(InvalidTxnState):
        leader.append(1, guard, version=1)


def test_a_truncation_makes_guards_useless(leader: Leader) -> None:
    leader.bench.log.append(from_producer(4, 0), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    guard = leader.begin()
    leader.log.truncate_to(Offset(0))
    with pytest.raises(InvalidTxnState):
        leader.append(0, guard)


def test_the_lowest_sequence_that_was_seen_comes_first(leader: Leader) -> None:
    leader.begin(3)
    guard = leader.begin(4)
    with pytest.raises(OutOfOrderSequenceNumber, match="expected 3"):
        leader.append(4, guard, version=1)
    assert leader.append(3, guard, version=1) == 0


def test_with_version_2_an_unknown_producer_begins_with_sequence_0(leader: Leader) -> None:
    guard = leader.begin(3)
    with pytest.raises(OutOfOrderSequenceNumber, match="expected 0"):
        leader.append(3, guard, version=2)


def test_an_older_epoch_asks_nobody(leader: Leader) -> None:
    leader.mark(epoch=4)
    with pytest.raises(InvalidProducerEpoch):
        leader.begin(0, epoch=3)


def test_after_an_abort_offsets_are_as_kafkas(leader: Leader) -> None:
    """Trap 18: a marker takes one offset, and the end is right behind it."""
    leader.append(0, leader.begin())
    assert leader.mark(epoch=1) == 1
    leader.log.advance_high_watermark(leader.log.log_end_offset)
    assert leader.log.log_end_offset == leader.log.last_stable_offset == 2
    assert [(one.first_offset, one.last_offset) for one in leader.log.aborted_transactions(Offset(0), Offset(2))] == [
        (0, 1)
    ]


def test_control_batches_of_clients_are_refused(leader: Leader) -> None:
    """Trap 18."""
    marker = control_batch(
        EndTxnMarker(committed=True, coordinator_epoch=0), timestamp=NOW, producer_id=PRODUCER, producer_epoch=0
    )
    with pytest.raises(InvalidRecord):
        leader.log.append(marker, assign_offsets=True, leader_epoch=LeaderEpoch(0))


def test_a_plain_batch_in_an_open_transaction_is_refused(leader: Leader) -> None:
    leader.append(0, leader.begin())
    with pytest.raises(InvalidTxnState):
        leader.log.append(from_producer(PRODUCER, 1), assign_offsets=True, leader_epoch=LeaderEpoch(0))


def test_a_marker_of_version_2_may_be_repeated_until_the_next_transaction_is_open(leader: Leader) -> None:
    leader.append(0, leader.begin())
    leader.mark(epoch=1, coordinator=2)
    leader.mark(epoch=1, coordinator=2)
    with pytest.raises(TransactionCoordinatorFenced):
        leader.mark(epoch=1, coordinator=1)
    leader.append(0, leader.begin(epoch=1), epoch=1)
    with pytest.raises(InvalidProducerEpoch, match="late copy"):
        leader.mark(epoch=1, coordinator=2)
    assert leader.is_open


def test_a_log_remembers_a_bounded_number_of_verifications() -> None:
    verifications = Verifications()
    first = verifications.begin(ProducerId(0), 0, 0)
    for number in range(1, KEPT_MAX + 1):
        last = verifications.begin(ProducerId(number), 0, 7)
    assert verifications.lowest_sequence(ProducerId(0), 0, first) is None
    assert verifications.lowest_sequence(ProducerId(KEPT_MAX), 0, last) == 7


@dataclass
class Question:
    """A batch whose verification is under way. confirmed: None: not answered yet."""

    epoch: int
    sequence: int
    guard: VerificationGuard
    confirmed: bool | None = None


class LateMessages(RuleBasedStateMachine):
    """A producer and a coordinator of version 2, or 1, and one partition. Questions, answers, batches and markers are
    delivered late, repeatedly and in any order. What is in the log lies in transactions as the coordinator knows them.
    """

    VERSION = 2

    def __init__(self) -> None:
        super().__init__()
        self.leader = Leader()
        self.epoch = 0
        self.has_partition = False
        """The open transaction contains the partition."""
        self.prepared = False
        """The last transaction is decided, and its marker not known to be written."""
        self.sequence = 0
        self.questions: list[Question] = []
        self.batches: list[tuple[int, int]] = [(0, 0)]
        """Batches that the producer has sent: epoch and sequence."""

    @rule(adds=st.booleans())
    def send(self, adds: bool) -> None:
        """The producer sends its next batch. adds: with version 1, it adds the partition before."""
        if self.VERSION == 1 and adds and not self.prepared:
            self.has_partition = True
        self.batches.append((self.epoch, self.sequence))
        self.sequence += 1

    @rule(back=st.integers(0, 3), at_once=st.booleans())
    def arrive(self, back: int, at_once: bool) -> None:
        """One of the last batches arrives at the leader. at_once: the coordinator answers at once."""
        epoch, sequence = self.batches[-1 - min(back, len(self.batches) - 1)]
        try:
            guard = self.leader.begin(sequence, epoch=epoch)
            if guard is NOTHING_VERIFIED:
                self.append(epoch, sequence, guard)
                return
        except TidelogError:
            return
        self.questions.append(Question(epoch, sequence, guard))
        if at_once:
            self.decide(self.questions[-1])

    @precondition(lambda self: any(each.confirmed is None for each in self.questions))
    @rule()
    def answer(self) -> None:
        """The coordinator answers the oldest question."""
        self.decide(next(each for each in self.questions if each.confirmed is None))

    def decide(self, question: Question) -> None:
        """Answer as a coordinator does; with version 2 it adds the partition."""
        current = question.epoch == self.epoch and not self.prepared
        if self.VERSION == 2:
            question.confirmed = current
            self.has_partition = self.has_partition or current
        else:
            question.confirmed = current and self.has_partition

    @precondition(lambda self: any(each.confirmed is not None for each in self.questions))
    @rule(newest=st.booleans())
    def admit(self, newest: bool) -> None:
        """An answer arrives at the leader."""
        answered = [each for each in self.questions if each.confirmed is not None]
        question = answered[-1 if newest else 0]
        self.questions.remove(question)
        if question.confirmed:
            try:
                self.append(question.epoch, question.sequence, question.guard)
            except TidelogError:
                return

    def append(self, epoch: int, sequence: int, guard: VerificationGuard) -> None:
        end = self.leader.log.log_end_offset
        self.leader.append(sequence, guard, epoch=epoch, version=self.VERSION)
        if self.leader.log.log_end_offset > end:
            assert epoch == self.epoch if not self.prepared else epoch == self.epoch - (self.VERSION == 2)
            assert self.has_partition, "a batch was appended to a transaction that the coordinator does not know"

    @precondition(lambda self: not self.prepared)
    @rule(mark=st.booleans())
    def end(self, mark: bool) -> None:
        """The producer commits or aborts. mark: the marker is written at once."""
        self.prepared = True
        self.epoch += self.VERSION == 2
        self.sequence = 0 if self.VERSION == 2 else self.sequence
        if mark:
            self.complete(repeated=False)

    @precondition(lambda self: self.prepared)
    @rule(repeated=st.booleans())
    def complete(self, repeated: bool) -> None:
        """The marker is written, if the transaction has the partition; then the transaction is complete."""
        if self.has_partition:
            self.leader.mark(epoch=self.epoch, version=self.VERSION)
            if repeated:
                self.leader.mark(epoch=self.epoch, version=self.VERSION)
        self.prepared = self.has_partition = False

    @invariant()
    def no_transaction_hangs(self) -> None:
        """An open transaction in the log is one that the coordinator will end."""
        assert not self.leader.is_open or self.has_partition


class LateMessagesOfVersion1(LateMessages):
    """The epoch stays, so that only guards tell transactions apart."""

    VERSION = 1


TestLateMessages = LateMessages.TestCase
TestLateMessagesOfVersion1 = LateMessagesOfVersion1.TestCase
TestLateMessages.settings = TestLateMessagesOfVersion1.settings = settings(
    max_examples=250, stateful_step_count=25, deadline=None
)
