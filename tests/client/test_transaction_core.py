"""The decisions of the transaction core: an outcome is reported only if it is certain, and a fenced producer ends.

The random lives run the core against a model of a coordinator (KIP-890) whose answers get lost, that times transactions
out, and that other producers use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.client.transactional_application import POLICY, Application
from tests.replication.pictures import DOCS, is_drawn
from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.group_offsets import OffsetCommitted
from tidelog.client.transaction_core import (
    TRANSITIONS,
    UNKNOWN_TOPIC_MS,
    AskEnd,
    AskOffsets,
    AskProducerId,
    TransactionalCause,
    TransactionalState,
    TransactionCore,
)
from tidelog.errors import (
    CommitFailed,
    ConcurrentTransactions,
    ConnectionFailed,
    ConnectionLost,
    CoordinatorLoadInProgress,
    DeliveryTimedOut,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NotCoordinator,
    ProducerFenced,
    RecordTooLarge,
    RequestTimedOut,
    StaleMemberEpoch,
    TidelogError,
    TransactionAbortable,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    TransactionOutcomeUnknown,
    UnknownTopicOrPartition,
)
from tidelog.types import Offset, PartitionIndex, ProducerId, TopicPartition

GROUP = GroupMetadata("g", "member", 3)
OFFSETS: Mapping[TopicPartition, OffsetCommitted] = {
    TopicPartition("in", PartitionIndex(0)): OffsetCommitted(CommittedOffset(Offset(7)))
}


def error_of(application: Application) -> TidelogError:
    error = application.done[-1]
    assert error is not None
    return error


def test_the_first_transaction_asks_for_a_producer_id_and_the_next_one_has_the_epoch_of_the_last_answer() -> None:
    application = Application()
    application.begin()
    assert application.done == []
    application.identify(7, 4)
    assert application.opened == [(7, 4)]
    application.commit()
    calls = [ask.call for ask in application.asked]
    assert calls == [AskProducerId(ProducerId(-1), -1), AskEnd(ProducerId(7), 4, committed=True)]
    application.identify(7, 5)
    application.begin()
    assert application.opened == [(7, 4), (7, 5)]
    assert application.done == [None, None, None]


def test_a_transaction_without_records_and_offsets_asks_nobody() -> None:
    application = Application().in_transaction()
    application.commit(has_written=False)
    application.begin()
    application.abort(has_written=False)
    assert application.done == [None] * 4
    assert len(application.asked) == 1
    application.begin()
    application.apply(application.core.add_offsets(GROUP, OFFSETS, application.at))
    application.apply(application.core.offsets_added())
    application.commit(has_written=False)
    assert isinstance(application.asked[-1].call, AskEnd), "offsets alone are a transaction"


def test_the_offset_of_an_unknown_partition_is_sent_again_for_three_seconds_only() -> None:
    application = Application().in_transaction()
    begun = application.at
    application.apply(application.core.add_offsets(GROUP, OFFSETS, begun))
    while len(application.done) == 1:
        application.refuse(UnknownTopicOrPartition("partition in-0 does not exist"))
    error = application.done[-1]
    assert isinstance(error, TransactionAborted)
    assert isinstance(error.__cause__, UnknownTopicOrPartition)
    assert 2_000 < application.at - begun <= UNKNOWN_TOPIC_MS


def test_a_commit_whose_answer_is_lost_is_asked_for_again_with_the_same_epoch() -> None:
    application = Application().in_transaction()
    application.commit()
    asked = application.asked[-1].call
    application.lose()
    application.refuse(NotCoordinator("moved"))
    application.refuse(CoordinatorLoadInProgress("loading"))
    application.refuse(ConcurrentTransactions("the markers are being written"))
    assert [ask.call for ask in application.asked[-5:]] == [asked] * 5
    assert application.done == [None]
    application.identify(7, 1)
    assert application.done == [None, None], "known at last: committed"


def test_a_commit_that_is_never_answered_ends_as_unknown_and_the_producer_with_it() -> None:
    application = Application().in_transaction()
    application.commit()
    start = application.now
    while len(application.done) == 1:
        application.lose()
    error = error_of(application)
    assert isinstance(error, TransactionOutcomeUnknown)
    assert error.written is None
    assert isinstance(error.__cause__, ConnectionLost)
    assert "committed offsets" in error.message
    assert POLICY.transaction_timeout_ms - 2_000 < application.now - start <= POLICY.transaction_timeout_ms
    with pytest.raises(TransactionOutcomeUnknown):
        application.begin()
    assert isinstance(application.refused[-1], TransactionOutcomeUnknown)


def test_a_commit_that_no_coordinator_got_is_certainly_not_one() -> None:
    """Nothing can have been applied: the transaction is aborted, when the producer asks for its next epoch."""
    application = Application().in_transaction()
    application.commit()
    while len(application.done) == 1:
        application.refuse(ConnectionFailed("no node answers"))
    assert isinstance(error_of(application), TransactionAborted)
    application.begin()
    assert application.asked[-1].call == AskProducerId(ProducerId(7), 0), "with its epoch: only the newest one gets on"


def test_a_fence_after_a_lost_answer_leaves_the_outcome_unknown() -> None:
    """The first attempt may have committed before the newer producer came."""
    application = Application().in_transaction()
    application.commit()
    application.lose()
    application.refuse(ProducerFenced("a newer producer has started"))
    assert isinstance(error_of(application), TransactionOutcomeUnknown)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("error", [TransactionAbortable("timed out"), InvalidTxnState("nothing was written")])
def test_a_commit_of_what_the_coordinator_has_aborted_is_an_abort(error: TidelogError, *, lost: bool) -> None:
    """The coordinator's word about the epoch of this transaction is certain, also after a lost answer."""
    application = Application().in_transaction()
    application.commit()
    if lost:
        application.lose()
    application.refuse(error)
    aborted = error_of(application)
    assert isinstance(aborted, TransactionAborted)
    assert aborted.__cause__ is error
    application.begin()
    application.identify(7, 2)
    assert application.opened[-1] == (7, 2)


def test_a_fenced_commit_was_not_committed_and_the_producer_must_end() -> None:
    application = Application().in_transaction()
    application.commit()
    application.refuse(ProducerFenced("a newer producer has started"))
    assert isinstance(error_of(application), ProducerFenced)
    for call in (application.begin, application.commit, application.abort):
        with pytest.raises(ProducerFenced, match="'t' is fenced"):
            call()
    assert not application.core.is_busy


@pytest.mark.parametrize("error", [InvalidProducerEpoch("epoch 0 is over"), InvalidProducerIdMapping("expired")])
def test_who_is_fenced_is_decided_by_the_coordinator(error: TidelogError) -> None:
    """KIP-588: an epoch may be over because the transaction timed out. The producer asks for the next one."""
    application = Application().in_transaction()
    application.commit()
    application.refuse(error)
    assert isinstance(error_of(application), TransactionAborted)
    application.begin()
    assert application.asked[-1].call == AskProducerId(ProducerId(7), 0)
    application.refuse(ProducerFenced("the epoch is 4"))
    assert isinstance(error_of(application), ProducerFenced)
    assert application.core.state is TransactionalState.FAILED


def test_a_failed_record_makes_the_transaction_abort_only() -> None:
    application = Application().in_transaction()
    application.fail_records(RecordTooLarge("too large"))
    assert isinstance(application.refused[-1], TransactionAborted)
    assert isinstance(application.refused[-1].__cause__, RecordTooLarge)
    with pytest.raises(TransactionAborted):
        application.commit()
    application.fail_records(DeliveryTimedOut("another"))
    application.abort()
    assert application.asked[-1].call == AskEnd(ProducerId(7), 0, committed=False)
    application.identify(7, 1)
    application.begin()
    assert application.opened[-1] == (7, 1)


def test_a_record_of_a_fenced_producer_ends_it_without_another_question() -> None:
    application = Application().in_transaction()
    application.fail_records(ProducerFenced("epoch 0 is over"))
    with pytest.raises(ProducerFenced):
        application.abort()
    assert len(application.asked) == 1


@pytest.mark.parametrize("error", [ConnectionLost("broken"), InvalidProducerEpoch("over"), InvalidTxnState("empty")])
def test_an_abort_is_certain_before_the_coordinator_confirms_it(error: TidelogError) -> None:
    application = Application().in_transaction()
    application.abort()
    while len(application.done) == 1:
        application.refuse(error, is_applied=error.written)
    assert application.done[-1] is None
    application.begin()
    assert application.asked[-1].call == AskProducerId(ProducerId(7), 0)


def test_offsets_of_a_member_that_lost_its_partitions_abort_the_transaction() -> None:
    """Not even the member's next epoch may be tried with the same offsets."""
    application = Application().in_transaction()
    application.apply(application.core.add_offsets(GROUP, OFFSETS, application.at))
    assert application.asked[-1].call == AskOffsets(ProducerId(7), 0, GROUP, OFFSETS)
    application.refuse(StaleMemberEpoch("the member has epoch 4"))
    error = error_of(application)
    assert isinstance(error, TransactionAborted)
    assert isinstance(error.__cause__, StaleMemberEpoch)
    with pytest.raises(TransactionAborted):
        application.commit()


def test_a_member_whose_epoch_grew_commits_with_the_next_one() -> None:
    """Unlike fixed metadata: each attempt asks the member, which refuses if it has lost what it read."""
    application = Application().in_transaction()
    application.apply(application.core.add_offsets(GROUP, OFFSETS, application.at, has_member=True))
    application.refuse(StaleMemberEpoch("the member has epoch 4"))
    assert application.asked[-1].call == application.asked[-2].call
    application.refuse(CommitFailed("partitions were given up"))
    assert isinstance(error_of(application).__cause__, CommitFailed)


def test_offsets_are_repeated_while_their_coordinator_moves_but_not_for_a_transaction_that_failed() -> None:
    application = Application().in_transaction()
    application.apply(application.core.add_offsets(GROUP, OFFSETS, application.at))
    application.lose()
    application.refuse(NotCoordinator("moved"))
    assert len(application.asked) == 4
    application.fail_records(RecordTooLarge("too large"))
    application.refuse(NotCoordinator("moved again"))
    assert len(application.asked) == 4
    assert isinstance(error_of(application), TransactionAborted)


def test_a_start_that_fails_can_be_tried_again() -> None:
    application = Application()
    application.begin()
    application.refuse(InvalidTransactionTimeout("above transaction.max.timeout.ms"))
    assert isinstance(error_of(application), InvalidTransactionTimeout)
    application.begin()
    application.refuse(TransactionalIdAuthorizationFailed("no WRITE on transactional id 't'"))
    assert isinstance(error_of(application), TransactionalIdAuthorizationFailed)
    application.begin()
    while len(application.done) == 2:
        application.refuse(RequestTimedOut("no answer"), is_applied=None)
    assert isinstance(error_of(application), RequestTimedOut)
    application.begin()
    application.identify()
    assert application.done[-1] is None


def test_one_transaction_at_a_time() -> None:
    application = Application()
    with pytest.raises(InvalidTxnState, match="no open transaction"):
        application.commit()
    application.in_transaction()
    with pytest.raises(InvalidTxnState, match="one at a time"):
        application.begin()
    application.commit()
    with pytest.raises(InvalidTxnState, match="being committed"):
        application.begin()


def test_the_states_and_causes_are_in_the_docs() -> None:
    is_drawn("client.md", ((source, cause, to) for (source, cause), to in TRANSITIONS.items()))
    page = (DOCS / "client.md").read_text(encoding="utf-8")
    assert [cause.name for cause in TransactionalCause if f"`{cause.name}`" not in page] == []


# --- random lives -----------------------------------------------------------------------------------------------


@dataclass
class Ended:
    """How the coordinator ended the transaction of an epoch."""

    committed: bool


class Coordinator:
    """A model of KIP-890 for one transactional id: epochs grow with each end, and a repeated request is recognized."""

    def __init__(self) -> None:
        self.epoch = -1
        self.is_open = False
        self.last: tuple[int, Ended] | None = None
        """The former epoch, if the present one came from its end."""
        self.ended: dict[int, Ended] = {}

    def initialize(self, epoch: int) -> int:
        if epoch >= 0 and epoch != self.epoch and (self.last is None or epoch != self.last[0]):
            raise ProducerFenced(f"the epoch is {self.epoch}")
        if self.is_open:
            self.end_by_itself()
            raise ConcurrentTransactions("aborting")
        self.last = (epoch, Ended(committed=False)) if epoch >= 0 else None
        self.epoch += 1
        return self.epoch

    def end_by_itself(self) -> None:
        """A timeout, or a newer producer."""
        self._end(Ended(committed=False))

    def _end(self, ended: Ended) -> int:
        self.ended[self.epoch] = ended
        self.last, self.is_open = (self.epoch, ended), False
        self.epoch += 1
        return self.epoch

    def end(self, epoch: int, *, committed: bool) -> int:
        if self.last is not None and epoch == self.last[0]:
            if self.last[1].committed is committed:
                return self.epoch
            raise TransactionAbortable("aborted") if committed else InvalidTxnState("committed")
        if epoch != self.epoch:
            raise ProducerFenced(f"the epoch is {self.epoch}")
        if committed and not self.is_open:
            raise InvalidTxnState("nothing is open")
        return self._end(Ended(committed))


class TransactionalLives(RuleBasedStateMachine):
    """One application, its coordinator, and everything that happens between them."""

    @initialize(seed=st.integers(0, 100))
    def start(self, seed: int) -> None:
        self.application = Application(seed)
        self.coordinator = Coordinator()
        self.epoch = -1
        """Of the open or the ending transaction."""
        self.wrote = False
        self.ending: bool | None = None
        """Whether the application commits or aborts at this moment."""
        self.outcomes = 0

    @property
    def core(self) -> TransactionCore:
        return self.application.core

    @precondition(
        lambda self: self.core.state in (TransactionalState.NEW, TransactionalState.READY) and not self.core.is_busy
    )
    @rule()
    def begin(self) -> None:
        self.ending, self.wrote = None, False
        self.application.begin()

    @precondition(lambda self: self.core.state is TransactionalState.OPEN)
    @rule()
    def write(self) -> None:
        """A record reaches its leader, which adds its partition."""
        self.epoch = self.application.opened[-1][1]
        self.wrote = True
        if self.epoch == self.coordinator.epoch:
            self.coordinator.is_open = True
        else:
            self.application.fail_records(InvalidProducerEpoch("over"))

    @precondition(lambda self: self.core.state is TransactionalState.OPEN)
    @rule()
    def commit(self) -> None:
        self.epoch, self.ending = self.application.opened[-1][1], True
        self.application.commit(has_written=self.wrote)

    @precondition(lambda self: self.core.state in (TransactionalState.OPEN, TransactionalState.ABORT_ONLY))
    @rule()
    def abort(self) -> None:
        self.epoch, self.ending = self.application.opened[-1][1], False
        self.application.abort(has_written=self.wrote)

    @precondition(lambda self: self.core.is_busy)
    @rule(fate=st.sampled_from(["answered", "answer lost", "request lost", "refused", "late"]))
    def work(self, fate: str) -> None:
        """The call under way is made."""
        call = self.application.asked[-1].call
        if fate == "refused":
            self.application.refuse(NotCoordinator("moved"))
        elif fate == "request lost":
            self.application.lose()
        else:
            try:
                epoch = self._apply(call)
            except TidelogError as error:
                self.application.refuse(error)
                return
            if fate == "answered":
                self.application.identify(7, epoch)
            else:
                self.application.now += 30_000 if fate == "late" else 0
                self.application.lose()

    def _apply(self, call: object) -> int:
        if isinstance(call, AskEnd):
            return self.coordinator.end(call.epoch, committed=call.committed)
        assert isinstance(call, AskProducerId)
        return self.coordinator.initialize(call.epoch)

    @precondition(lambda self: self.coordinator.is_open)
    @rule()
    def time_out(self) -> None:
        self.coordinator.end_by_itself()

    @rule()
    def another_producer_starts(self) -> None:
        for _ in range(2):
            try:
                self.coordinator.initialize(-1)
                break
            except ConcurrentTransactions:
                pass

    @invariant()
    def what_is_reported_is_so(self) -> None:
        if self.ending is None or self.core.is_busy or self.core.state is TransactionalState.OPEN:
            return
        error = self.application.done[-1]
        committed = self.coordinator.ended.get(self.epoch, Ended(committed=False)).committed
        if isinstance(error, TransactionOutcomeUnknown):
            assert self.core.state is TransactionalState.FAILED
        elif self.ending and error is None:
            assert committed or not self.wrote, "reported as committed"
        else:
            assert not committed, f"reported as aborted: {error!r}"


TestTransactionalLives = TransactionalLives.TestCase
TestTransactionalLives.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
