"""The records of a transactional producer: one epoch for all partitions, and nothing is renumbered."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from tests.client.producer_session import POLICY, RequestSession, error_of
from tests.record_values import encoded_batch
from tidelog.client.core_events import LeaderKnown
from tidelog.client.producer_events import Finished, NotEncoded
from tidelog.client.sequences import Stamp
from tidelog.client.transactional_core import CONCURRENT_MS, CONCURRENT_MS_MAX, TransactionalCore
from tidelog.errors import (
    ConcurrentTransactions,
    ConnectionLost,
    InconsistentTopicId,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionAborted,
    UnsupportedForMessageFormat,
)
from tidelog.records import RecordBatch
from tidelog.types import LeaderEpoch, Millis, NodeId, ProducerId, TopicId


class TransactionalSession(RequestSession):
    """A core of a transactional producer, in the epoch 4 of producer 7."""

    core: TransactionalCore

    def __init__(self, *, begins: bool = True) -> None:
        super().__init__(idempotent=True)
        self.core = TransactionalCore(POLICY, random.Random(1))
        if begins:
            self.begin(4)

    def begin(self, epoch: int) -> None:
        self.core.begin_transaction(ProducerId(7), epoch)

    def send_one(self, partition: int = 0) -> Finished | None:
        """Queue a record, and acknowledge it."""
        batch = self.put(partition=partition)
        self.lead(partition=partition)
        self.tick(5)
        self.send()
        self.acknowledge(batch)
        return self.finished[-1]

    def in_flight(self, count: int) -> None:
        """Send full batches of partition 0, after a first one that is acknowledged."""
        self.send_one()
        for _ in range(2 * count + 1):
            self.put(b"x" * 450)
        self.tick()
        self.wire()


def test_all_partitions_share_the_epoch_and_sequences_begin_at_zero_in_each_transaction() -> None:
    session = TransactionalSession()
    for epoch in (4, 5):
        if epoch == 5:
            session.begin(5)
        stamps = []
        for partition in (0, 1, 0):
            session.send_one(partition)
            stamps.append(session.finished[-1].batch.stamp)
        assert stamps == [Stamp(ProducerId(7), epoch, sequence) for sequence in (0, 0, 1)]
    assert session.ids_wanted == []


def test_batches_have_the_transactional_bit() -> None:
    session = TransactionalSession()
    batch = session.put()
    session.lead()
    session.tick(5)
    encoded = RecordBatch(encoded_batch(batch))
    assert (encoded.is_transactional, encoded.producer_id, encoded.producer_epoch) == (True, 7, 4)


def test_no_record_is_accepted_outside_of_a_transaction() -> None:
    session = TransactionalSession(begins=False)
    with pytest.raises(InvalidTxnState, match="no transaction is open"):
        session.put()
    session.begin(4)
    session.put()
    session.core.refuse_records(InvalidTxnState("it is being committed"))
    session.put()
    with pytest.raises(InvalidTxnState, match="being committed"):
        session.put(partition=1)
    session.idempotent = False
    session.core.drop_records(TransactionAborted("aborted"), Millis(session.now))
    session.begin(5)
    with pytest.raises(UnsupportedForMessageFormat):
        session.put()


def test_whether_a_record_may_have_reached_a_leader_is_known() -> None:
    session = TransactionalSession()
    session.put()
    seen = [session.core.has_written]
    session.lead()
    session.tick(5)
    seen.append(session.core.has_written)
    session.core.drop_records(TransactionAborted("aborted"), Millis(session.now))
    session.begin(5)
    seen.append(session.core.has_written)
    assert seen == [False, True, False]


def test_an_epoch_that_is_over_fails_the_batch_and_a_lost_answer_does_not() -> None:
    session = TransactionalSession()
    batch = session.put()
    session.lead()
    session.tick(5)
    session.send()
    session.lose(batch, ConnectionLost("broken"))
    session.lead()
    session.tick(200)
    assert [give.batch for give in session.gives] == [batch, batch]
    assert batch.stamp == Stamp(ProducerId(7), 4, 0)
    session.send()
    session.refuse(batch, InvalidProducerEpoch("the epoch is 5"))
    assert isinstance(error_of(batch), InvalidProducerEpoch)
    assert session.ids_wanted == []


def test_a_batch_behind_a_refused_one_is_resent_with_its_number() -> None:
    """The leader misses the first of two: that one is resent, and then the other; nothing is renumbered."""
    session = TransactionalSession()
    session.in_flight(2)
    first, second = (give.batch for give in session.gives[-2:])
    session.refuse(first, ConcurrentTransactions("completing"))
    session.refuse(second, OutOfOrderSequenceNumber("the one before is missing"))
    session.tick(200)
    assert [give.batch for give in session.gives[-2:]] == [first, second]
    assert (first.stamp.sequence, second.stamp.sequence) == (1, 1 + first.count)
    session.wire()
    session.refuse(first, OutOfOrderSequenceNumber("the leader lost its state"))
    assert isinstance(error_of(first), OutOfOrderSequenceNumber)
    session.tick()
    assert isinstance(error_of(second), TransactionAborted), "nothing can follow in this transaction"


def test_batches_follow_the_first_one_of_a_transaction_before_it_is_acknowledged() -> None:
    """Its leader lets a transaction begin with sequence 0 only. If the first is refused, all are resent in order."""
    session = TransactionalSession()
    for _ in range(7):
        session.put(b"x" * 450)
    session.lead()
    session.tick()
    under_way = [attempt.batch for attempt in session.wire()]
    assert [batch.stamp.sequence for batch in under_way] == [0, 2, 4]
    session.refuse(under_way[0], ConcurrentTransactions("completing"))
    for batch in under_way[1:]:
        session.refuse(batch, OutOfOrderSequenceNumber("sequence 0 is missing"))
    session.tick(200)
    assert [give.batch for give in session.gives[-3:]] == under_way
    assert [attempt.batch.stamp.sequence for attempt in session.wire()] == [0, 2, 4]


def test_a_leader_that_completes_the_last_transaction_is_asked_again_soon() -> None:
    session = TransactionalSession()
    batch = session.put()
    session.lead()
    session.tick(5)
    pauses = []
    for _ in range(6):
        session.send()
        refused_at, given = session.now, len(session.gives)
        session.refuse(batch, ConcurrentTransactions("the markers are being written"))
        while len(session.gives) == given:
            session.tick(1)
        pauses.append(session.now - refused_at)
    assert pauses[0] == CONCURRENT_MS
    assert max(pauses) == CONCURRENT_MS_MAX


def test_a_record_that_cannot_be_encoded_fails_its_batch_and_so_its_transaction() -> None:
    session = TransactionalSession()
    batch = session.put()
    session.put()
    session.lead()
    session.tick(5)
    error = InvalidRecord("cannot be encoded")
    session.note(session.core.handle(NotEncoded(session.last(batch), {1: error}, Millis(session.now))))
    assert batch.outcome.error is error, "the whole batch: a part of a transaction is missing"


def test_a_topic_that_is_created_again_during_a_transaction_ends_it() -> None:
    session = TransactionalSession()
    session.send_one()
    other = TopicId(UUID(int=2))
    session.note(session.core.handle(LeaderKnown(session.key(), other, NodeId(1), LeaderEpoch(0), Millis(session.now))))
    batch = session.put()
    session.tick(5)
    assert isinstance(error_of(batch), InconsistentTopicId)
    session.begin(5)
    batch = session.put()
    session.tick(5)
    session.send()
    session.acknowledge(batch)
    assert batch.outcome.error is None


def test_dropped_records_are_not_sent_and_late_answers_change_nothing() -> None:
    session = TransactionalSession()
    sent, queued = session.put(), session.put(partition=1)
    session.lead()
    session.tick(5)
    session.send()
    reason = TransactionAborted("an exception left the block")
    session.note(session.core.drop_records(reason, Millis(session.now)))
    assert [each.outcome.error for each in (sent, queued)] == [reason, reason]
    assert session.core.memory_used == 0
    session.acknowledge(session.gives[-1])
    session.lead(partition=1)
    session.begin(5)
    session.send_one()
    assert session.finished[-1].batch.stamp == Stamp(ProducerId(7), 5, 0)
    session.check_windows()
