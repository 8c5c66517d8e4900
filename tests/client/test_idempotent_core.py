"""The decisions of the idempotent producer, as stories and as random runs against a log that remembers producers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.client.producer_session import RequestSession, error_of
from tests.client.producer_states import ProducerStates
from tests.record_values import encoded_batch
from tidelog.client.accumulator import Attempt, PendingBatch
from tidelog.client.producer_events import Flushed, Policy, ProducerIdRefused
from tidelog.client.sequences import EPOCH_MAX, PROOF_MS, SEQUENCES, Stamp
from tidelog.errors import (
    CommitUnknown,
    ConnectionLost,
    DeliveryTimedOut,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    LeadershipLost,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RecordTooLarge,
    RequestTimedOut,
    TidelogError,
    UnknownProducerId,
    UnsupportedVersion,
)
from tidelog.types import Acks, Millis

POLICY = Policy(
    acks=Acks.ALL,
    linger_ms=0,
    batch_bytes=300,
    request_timeout_ms=2_000,
    delivery_timeout_ms=8_000,
    retry_backoff_ms=100,
    retry_backoff_ms_max=1_000,
)
FULL = b"x" * 270
"""A record that fills a batch."""


def session_with_id() -> RequestSession:
    """A producer with an id and a leader that knows the producer."""
    session = RequestSession(POLICY, idempotent=True)
    session.lead()
    first = session.put()
    session.lead()
    session.tick()
    session.identify()
    session.wire()
    session.acknowledge(first)
    session.gives.clear()
    return session


def full_batches(session: RequestSession, count: int) -> list[PendingBatch]:
    """Queue this number of batches, all sealed."""
    batches = [session.put(FULL) for _ in range(count)]
    session.tick()
    session.note(session.core.handle(Flushed(Millis(session.now))))
    return batches


def stamps(batches: list[PendingBatch]) -> list[tuple[int, int]]:
    return [(batch.stamp.epoch, batch.stamp.sequence) for batch in batches]


def test_nothing_is_sent_before_the_producer_has_an_id() -> None:
    session = RequestSession(POLICY, idempotent=True)
    session.lead()
    batch = session.put()
    session.put()
    session.lead()
    session.tick()
    assert [(want.producer_id, want.epoch) for want in session.ids_wanted] == [(-1, -1)]
    session.tick(500)
    assert (session.gives, len(session.ids_wanted)) == ([], 1), "requested once"
    session.identify(42)
    assert session.send() is batch
    assert batch.stamp == Stamp(42, 0, 0)  # type: ignore[arg-type]


def test_a_producer_id_is_requested_again_if_none_arrives() -> None:
    session = RequestSession(POLICY, idempotent=True)
    batch = session.put()
    session.lead()
    session.tick()
    session.note(session.core.handle(ProducerIdRefused(RequestTimedOut("no controller"), Millis(session.now))))
    session.tick(200)
    assert len(session.ids_wanted) == 2
    session.tick(8_000)
    failure = error_of(batch)
    assert isinstance(failure, DeliveryTimedOut)
    assert isinstance(failure.__cause__, RequestTimedOut)


def test_nodes_without_producer_ids_fail_the_records_at_once() -> None:
    session = RequestSession(POLICY, idempotent=True)
    batch = session.put()
    session.lead()
    session.tick()
    session.note(session.core.handle(ProducerIdRefused(UnsupportedVersion("an old node"), Millis(session.now))))
    assert isinstance(error_of(batch), UnsupportedVersion)


def test_the_first_batch_of_an_epoch_is_sent_alone_then_five_are_in_flight() -> None:
    session = RequestSession(POLICY, idempotent=True)
    session.lead()
    batches = full_batches(session, 8)
    session.lead()
    session.identify()
    assert [attempt.batch for attempt in session.wire()] == batches[:1]
    session.acknowledge(batches[0])
    assert [attempt.batch for attempt in session.wire()] == batches[1:6]
    assert stamps(batches[:6]) == [(0, number) for number in range(6)]
    session.acknowledge(batches[3])
    assert session.wire() == [], "the leader remembers five: the oldest must have its outcome first"
    session.acknowledge(batches[1])
    assert [attempt.batch for attempt in session.wire()] == batches[6:7]


def test_a_batch_that_is_not_full_waits_for_records_while_others_are_in_flight() -> None:
    session = session_with_id()
    first = session.put(b"1")
    session.tick()
    session.wire()
    second = session.put(b"2")
    session.tick(5)
    assert session.put(b"3") is second
    session.tick(5)
    assert session.wire() == []
    session.acknowledge(first)
    assert [attempt.batch for attempt in session.wire()] == [second]
    assert (second.stamp.sequence, second.outcome.records) == (2, 2)


def test_a_batch_that_may_be_written_is_resent_unchanged_before_later_ones() -> None:
    session = session_with_id()
    batches = full_batches(session, 3)
    sent = session.wire()
    before = [encoded_batch(batch) for batch in batches]
    later = full_batches(session, 1)
    session.wire()
    for attempt in sent:
        session.lose(attempt, ConnectionLost("broke"))
    assert not any(batch.outcome.done for batch in batches)
    session.lead()
    session.tick(300)
    assert [attempt.batch for attempt in session.gives[-3:]] == batches
    assert [encoded_batch(batch) for batch in batches] == before
    for offset, batch in enumerate(batches + later):
        session.wire()
        session.acknowledge(batch, offset)
    assert all(batch.outcome.error is None for batch in batches)


def test_a_new_leader_gets_all_batches_at_once_and_a_late_acknowledgement_of_the_old_one_counts() -> None:
    session = session_with_id()
    batches = full_batches(session, 2)
    old = session.wire()
    session.lead(2, epoch=1)
    new = session.wire()
    assert [(attempt.batch, attempt.node) for attempt in new] == [(batch, 2) for batch in batches]
    session.refuse(old[1], LeadershipLost("no more"))
    assert len(session.gives) == 4, "only the newest attempt decides what is next"
    session.acknowledge(old[0], 5)
    assert (batches[0].outcome.done, batches[0].outcome.base_offset) == (True, 5)
    session.acknowledge(new[0], 5)
    session.acknowledge(new[1], 6)
    assert batches[1].outcome.base_offset == 6


def test_an_unknown_outcome_stays_unknown_whatever_later_attempts_return() -> None:
    """Scenario 11: the answer is lost, the resend is rejected as not written, and the batch fails."""
    session = session_with_id()
    batch = session.put(b"A")
    session.tick()
    session.wire()
    session.lose(batch, ConnectionLost("broke"))
    while not batch.outcome.done:
        session.lead()
        session.tick(500)
        if session.wire():
            session.refuse(batch, NotEnoughReplicas("one in sync, two needed"))
    failure = error_of(batch)
    assert isinstance(failure, CommitUnknown)
    assert isinstance(failure.__cause__, ConnectionLost)
    later = session.put(b"B")
    session.lead()
    session.tick(2_000)
    session.wire()
    assert stamps([later]) == [(1, 0)], "its sequence is never used for another batch: a new epoch begins"


def test_a_batch_sent_to_an_old_leader_has_an_unknown_outcome() -> None:
    session = session_with_id()
    batch = session.put(b"A")
    session.tick()
    session.wire()
    session.lead(2, epoch=1)
    while not batch.outcome.done:
        if session.wire():
            session.refuse(batch, NotEnoughReplicas("one in sync, two needed"))
        session.tick(500)
    assert isinstance(error_of(batch), CommitUnknown)


def test_a_batch_that_was_never_sent_takes_no_sequence_with_it() -> None:
    session = session_with_id()
    session.lead(-1, epoch=1)
    batch = session.put()
    session.tick(8_100)
    assert isinstance(error_of(batch), DeliveryTimedOut)
    later = session.put()
    session.lead(1, epoch=2)
    session.tick(2_000)
    assert stamps([later]) == [(0, 1)]


def test_batches_after_a_rejected_one_are_renumbered() -> None:
    session = session_with_id()
    batches = full_batches(session, 3)
    sent = session.wire()
    session.refuse(sent[0], RecordTooLarge("too large"))
    assert isinstance(error_of(batches[0]), RecordTooLarge)
    session.refuse(sent[1], OutOfOrderSequenceNumber("gap"))
    assert session.wire() == [], "the last one may still be in flight"
    session.refuse(sent[2], OutOfOrderSequenceNumber("gap"))
    session.tick(300)
    assert [attempt.batch for attempt in session.wire()] == batches[1:2]
    assert stamps(batches[1:2]) == [(1, 0)]
    session.acknowledge(batches[1])
    assert [attempt.batch for attempt in session.wire()] == batches[2:]
    assert stamps(batches[2:]) == [(1, 1)]


def test_a_batch_that_may_be_written_is_not_renumbered() -> None:
    """The batch before it failed; this one cannot be written under its number, and may already be written."""
    session = session_with_id()
    first, second = full_batches(session, 2)
    sent = session.wire()
    session.lose(sent[1], ConnectionLost("broke"))
    session.refuse(sent[0], RecordTooLarge("too large"))
    session.lead()
    session.tick(300)
    again = session.wire()
    assert [attempt.batch for attempt in again] == [second]
    assert stamps([second]) == [(0, 2)]
    session.refuse(second, OutOfOrderSequenceNumber("gap"))
    assert isinstance(error_of(second), CommitUnknown)
    assert isinstance(error_of(first), RecordTooLarge)


def test_a_gap_is_retried_while_an_earlier_batch_is_in_flight() -> None:
    session = session_with_id()
    first, second = full_batches(session, 2)
    sent = session.wire()
    session.refuse(sent[0], NotEnoughReplicas("one in sync, two needed"))
    session.tick(300)
    assert [attempt.batch for attempt in session.wire()] == [first]
    session.acknowledge(first)
    session.refuse(sent[1], OutOfOrderSequenceNumber("gap"))  # before the first one was resent
    session.tick(300)
    assert [attempt.batch for attempt in session.wire()] == [second]
    assert stamps([first, second]) == [(0, 1), (0, 2)], "no new epoch"


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumber("gap"), UnknownProducerId("who?")])
def test_a_leader_without_state_of_the_producer_gets_a_new_epoch(error: TidelogError) -> None:
    session = session_with_id()
    batch = session.put()
    session.tick()
    session.wire()
    before = encoded_batch(batch)
    session.refuse(batch, error)
    session.tick(300)
    session.wire()
    assert stamps([batch]) == [(1, 0)]
    assert len(encoded_batch(batch)) == len(before)
    session.acknowledge(batch, 3)
    assert batch.outcome.base_offset == 3
    assert len(session.ids_wanted) == 1, "the producer increments epochs by itself"


def test_a_fenced_producer_takes_another_id() -> None:
    session = session_with_id()
    batch = session.put()
    session.tick()
    session.wire()
    session.refuse(batch, InvalidProducerEpoch("a higher epoch"))
    session.tick(300)
    assert [(want.producer_id, want.epoch) for want in session.ids_wanted] == [(-1, -1), (7, 1)]
    session.identify(8)
    session.wire()
    assert batch.stamp == Stamp(8, 0, 0)  # type: ignore[arg-type]


def test_exhausted_epochs_require_another_id() -> None:
    session = session_with_id()
    series = session.core.queue("orders", 0, idempotent=True).series
    assert series is not None
    series.epoch = EPOCH_MAX
    series.broken = True
    batch = session.put()
    session.tick()
    assert session.wire() == []
    assert [want.producer_id for want in session.ids_wanted] == [-1, 7]
    session.identify(8)
    session.wire()
    assert batch.stamp == Stamp(8, 0, 0)  # type: ignore[arg-type]


def test_sequences_continue_at_zero_after_the_last() -> None:
    session = session_with_id()
    series = session.core.queue("orders", 0, idempotent=True).series
    assert series is not None
    series.sequence = SEQUENCES - 1
    for expected in (SEQUENCES - 1, 1):
        batch = session.put(b"1")
        assert session.put(b"2") is batch
        session.tick()
        session.wire()
        assert batch.stamp.sequence == expected
        session.acknowledge(batch)


def test_a_topic_of_an_older_format_is_written_without_idempotence() -> None:
    session = session_with_id()
    session.idempotent = False
    batch = session.put()
    session.tick()
    session.wire()
    assert batch.stamp.producer_id == -1
    session.lose(batch, ConnectionLost("broke"))
    assert isinstance(error_of(batch), CommitUnknown)
    session.idempotent = True
    again = session.put()
    session.lead()
    session.tick(300)
    session.wire()
    assert stamps([again]) == [(0, 1)], "numbers that were used are not used again"


def test_partitions_have_epochs_of_their_own() -> None:
    session = session_with_id()
    session.lead(partition=1)
    session.put(partition=1)
    session.lead(partition=1)
    session.tick()
    other = session.wire()[0].batch
    broken = session.put()
    session.tick()
    session.wire()
    session.refuse(broken, RecordTooLarge("too large"))
    session.acknowledge(other)
    fine, renewed = session.put(partition=1), session.put(partition=0)
    session.tick(300)
    session.wire()
    assert stamps([fine, renewed]) == [(0, 1), (1, 0)]


# --- random runs ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Wire:
    """One stream: the batches in flight to its node, and the answers."""

    node: int
    out: deque[tuple[Attempt, Stamp]] = field(default_factory=deque)
    back: list[tuple[Attempt, int | TidelogError]] = field(default_factory=list)
    unanswered: list[Attempt] = field(default_factory=list)
    broken: bool = False


@dataclass(eq=False)
class Entry:
    """A batch in the log."""

    stamp: Stamp
    records: int
    batch_id: int
    offset: int


@dataclass(eq=False)
class Waiting:
    """An appended batch that waits for its commit."""

    wire: Wire
    attempt: Attempt
    entry: Entry
    leader_epoch: int


class ModelPartition:
    """A log with a committed part; its leader may change and lose the rest."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.leader, self.epoch = 1, 0
        self.log: list[Entry] = []
        self.committed = self.forgotten = 0
        self.states = ProducerStates(strict=strict)
        self.waiting: list[Waiting] = []

    def elect(self, node: int, kept: int) -> list[Waiting]:
        """Elect a leader that has only `kept` batches beyond the committed ones. Returns the batches that waited."""
        self.leader, self.epoch = node, self.epoch + 1
        del self.log[self.committed + kept :]
        self.states = ProducerStates(strict=self.strict)
        for entry in self.log[self.forgotten :]:
            self._remember(entry)
        waited, self.waiting = self.waiting, []
        return waited

    def append(self, wire: Wire, attempt: Attempt, stamp: Stamp) -> None:
        """Append a batch, which then waits for its commit. Raises the reason of a rejection."""
        if (wire.node, attempt.leader_epoch) != (self.leader, self.epoch):
            raise FencedLeaderEpoch("not in this epoch") if attempt.leader_epoch < self.epoch else NotLeaderOrFollower()
        records = attempt.batch.outcome.records
        first = self.states.judge(*stamp, records)
        if first is None:
            entry = Entry(stamp, records, attempt.batch.batch_id, len(self.log))
            self.log.append(entry)
            self._remember(entry)
        else:
            entry = self.log[first]
        self.waiting.append(Waiting(wire, attempt, entry, self.epoch))

    def forget(self) -> None:
        """The log loses the state of all producers."""
        self.states, self.forgotten = ProducerStates(strict=self.strict), len(self.log)

    def _remember(self, entry: Entry) -> None:
        self.states.appended(*entry.stamp, entry.records, entry.offset)

    def commit(self) -> list[Waiting]:
        self.committed = len(self.log)
        done, self.waiting = self.waiting, []
        return done


HASTY = Policy(Acks.ALL, 0, 300, 600, 1_500, 50, 150, node_partial_max=1, node_bytes_max=900)


class IdempotentMachine(RuleBasedStateMachine):
    """A producer and a cluster that loses, repeats and delays messages, answers late, changes leaders and forgets
    producers."""

    @initialize(seed=st.integers(0, 1000), strict=st.booleans(), begun=st.sampled_from([True, True, True, False]))
    def begin(self, seed: int, strict: bool, begun: bool) -> None:
        self.session = RequestSession(HASTY, seed, idempotent=True)
        self.partition = ModelPartition(strict=strict)
        self.wires: list[Wire] = []
        self.batches: list[PendingBatch] = []
        self.answered_ids = 0
        self.given_ids = 0
        self.congested = False
        self.session.lead(1, 0)
        if begun:
            self.put([0])
            self.answer_id(given=True)
            self._fair_weather()

    # --- the producer ---

    @rule(sizes=st.lists(st.sampled_from([0, 270, 270]), min_size=1, max_size=6))
    def put(self, sizes: list[int]) -> None:
        for size in sizes:
            batch = self.session.put(b"x" * size)
            if batch not in self.batches:
                self.batches.append(batch)
        self.session.tick()
        self.session.note(self.session.core.handle(Flushed(Millis(self.session.now))))
        self.streams_take()

    @rule(ms=st.sampled_from([50, 100, 200, 400, 900]))
    def wait(self, ms: int) -> None:
        self.session.tick(ms)
        self.streams_take()

    @precondition(lambda self: self.answered_ids < len(self.session.ids_wanted))
    @rule(given=st.booleans())
    def answer_id(self, given: bool) -> None:
        self.answered_ids += 1
        if given:
            self.given_ids += 1
            self.session.identify(100 + self.given_ids)
        else:
            self.session.note(
                self.session.core.handle(ProducerIdRefused(RequestTimedOut("late"), Millis(self.session.now)))
            )

    @rule(congested=st.sampled_from([True, False, False, False]))
    def congest(self, congested: bool) -> None:
        """The streams send nothing for a while, or all that they were given."""
        self.congested = congested
        self.streams_take()

    def streams_take(self) -> None:
        if self.congested:
            return
        for attempt in self.session.wire():
            wire = next((one for one in self.wires if one.node == attempt.node and not one.broken), None)
            if wire is None:
                wire = Wire(attempt.node)
                self.wires.append(wire)
            wire.out.append((attempt, attempt.batch.stamp))
            wire.unanswered.append(attempt)

    # --- the cluster ---

    def _wire_with(self, data: Any, busy: Any) -> Wire | None:
        candidates = [wire for wire in self.wires if busy(wire)]
        return data.draw(st.sampled_from(candidates)) if candidates else None

    @rule(
        data=st.data(),
        hows=st.lists(st.sampled_from(["take", "take", "take", "refuse", "refuse", "never"]), min_size=1, max_size=6),
    )
    def deliver(self, data: Any, hows: list[str]) -> None:
        """The node handles a message; of a broken stream possibly late, or never."""
        wire = self._wire_with(data, lambda one: one.out)
        for how in hows:
            if wire is None or not wire.out:
                return
            attempt, stamp = wire.out.popleft()
            try:
                if how == "refuse":
                    raise NotEnoughReplicas("one in sync, two needed")
                if how == "never":
                    raise RecordTooLarge("the limit was lowered")
                self.partition.append(wire, attempt, stamp)
            except TidelogError as error:
                wire.back.append((attempt, error))

    @rule(well=st.sampled_from([True, True, False]))
    def commit(self, well: bool) -> None:
        """The waiting batches are committed; or the in-sync set shrinks and the outcome is unknown."""
        if well:
            for waiting in self.partition.commit():
                waiting.wire.back.append((waiting.attempt, waiting.entry.offset))
            return
        waited, self.partition.waiting = self.partition.waiting, []
        for waiting in waited:
            waiting.wire.back.append((waiting.attempt, NotEnoughReplicasAfterAppend("the set shrank")))

    @rule(node=st.sampled_from([1, 2]), kept=st.integers(0, 4), failure=st.booleans())
    def elect(self, node: int, kept: int, failure: bool) -> None:
        for waiting in self.partition.elect(node, kept):
            waiting.wire.back.append((waiting.attempt, LeadershipLost("stopped leading")))
        if failure:
            self.tell_leader()

    @rule()
    def tell_leader(self) -> None:
        self.session.lead(self.partition.leader, self.partition.epoch)
        self.streams_take()

    @precondition(lambda self: all(batch.outcome.done for batch in self.batches))
    @rule()
    def forget(self) -> None:
        """Nothing is sent until the leader has forgotten the producer; then many records are sent."""
        if not any(wire.out for wire in self.wires) and not self.partition.waiting:
            self.session.tick(PROOF_MS)
            self.partition.forget()
            self.put([270, 270, 270])

    @rule(data=st.data(), picks=st.lists(st.integers(0, 5), min_size=1, max_size=6))
    def answer(self, data: Any, picks: list[int]) -> None:
        """Answers arrive in any order."""
        wire = self._wire_with(data, lambda one: one.back and not one.broken)
        for pick in picks:
            if wire is None or not wire.back:
                return
            attempt, outcome = wire.back.pop(pick % len(wire.back))
            self._answer(wire, attempt, outcome)
        self.streams_take()

    def _answer(self, wire: Wire, attempt: Attempt, outcome: int | TidelogError) -> None:
        wire.unanswered.remove(attempt)
        if isinstance(outcome, TidelogError):
            self.session.refuse(attempt, outcome)
        else:
            self.session.acknowledge(attempt, outcome)

    @rule(data=st.data(), arrives=st.integers(0, 6))
    def break_stream(self, data: Any, arrives: int) -> None:
        """Some of the messages in flight arrive after the break, sooner or later."""
        wire = self._wire_with(data, lambda one: not one.broken)
        if wire is not None:
            wire.broken = True
            while len(wire.out) > arrives:
                wire.out.pop()
            unanswered, wire.unanswered = wire.unanswered, []
            for attempt in unanswered:
                self.session.lose(attempt, ConnectionLost("broke"))
            self.tell_leader()

    # --- what must hold ---

    @invariant()
    def each_batch_is_there_once_and_in_order(self) -> None:
        if hasattr(self, "session"):
            found = [entry.batch_id for entry in self.partition.log]
            assert found == sorted(set(found)), "once, in the order of the calls"

    @invariant()
    def what_was_told_is_true(self) -> None:
        if not hasattr(self, "session"):
            return
        committed = {entry.batch_id: entry.offset for entry in self.partition.log[: self.partition.committed]}
        there = {entry.batch_id for entry in self.partition.log}
        for batch in self.batches:
            if batch.outcome.done:
                error = batch.outcome.error
                if error is None:
                    assert committed.get(batch.batch_id) == batch.outcome.base_offset, "acknowledged but not in the log"
                elif error.written is False:
                    assert batch.batch_id not in there, f"{error!r} said that it is not written"

    @invariant()
    def the_books_are_true(self) -> None:
        if not hasattr(self, "session"):
            return
        core = self.session.core
        self.session.check_windows()
        unfinished = core.unfinished()
        assert core.memory_used == sum(batch.memory for batch in unfinished)
        assert {id(batch) for batch in unfinished} == {id(one) for one in self.batches if not one.outcome.done}
        queue = core.queues()[0] if core.queues() else None
        if queue is not None:
            assert len(queue.begun) <= 5
            order = [batch.batch_id for batch in (*queue.begun, *queue.batches)]
            assert order == sorted(order)

    def teardown(self) -> None:
        """Without faults a new record is acknowledged soon; late messages arrive and change no reported outcome."""
        if not hasattr(self, "session"):
            return
        self.congested = False
        batch = self.session.put(b"after all")
        if batch not in self.batches:
            self.batches.append(batch)
        while not all(one.outcome.done for one in self.batches):
            self._fair_weather()
        last = self.session.put(b"and another")
        self.batches.append(last)
        while not last.outcome.done:
            self._fair_weather()
        assert last.outcome.error is None, f"{last.outcome.error!r} in fair weather"
        for wire in self.wires:
            self._work(wire)
        self.each_batch_is_there_once_and_in_order()
        self.partition.commit()
        self.what_was_told_is_true()
        assert self.session.core.memory_used == 0

    def _fair_weather(self) -> None:
        self.session.tick(100)
        self.tell_leader()
        if self.answered_ids < len(self.session.ids_wanted):
            self.answer_id(given=True)
        self.streams_take()
        for wire in self.wires:
            if not wire.broken:
                self._work(wire)
        self.commit(well=True)
        for wire in self.wires:
            while wire.back and not wire.broken:
                self._answer(wire, *wire.back.pop(0))
        self.streams_take()

    def _work(self, wire: Wire) -> None:
        while wire.out:
            attempt, stamp = wire.out.popleft()
            try:
                self.partition.append(wire, attempt, stamp)
            except TidelogError as error:
                wire.back.append((attempt, error))


IdempotentMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
test_random_idempotent_lives = IdempotentMachine.TestCase
