"""The decisions of the producer core: one batch in flight, one outcome each, no resend that was not requested."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.client.producer_session import POLICY, RequestSession, error_of
from tidelog.client.accumulator import Attempt, PendingBatch
from tidelog.client.producer_core import LOOKUP_MS, OLD_LEADER_MS, OVERDUE_MS
from tidelog.client.producer_events import Flushed, Policy
from tidelog.errors import (
    CommitUnknown,
    ConnectionFailed,
    ConnectionLost,
    CorruptRecord,
    DeliveryTimedOut,
    DiskFull,
    LeaderNotAvailable,
    LeadershipLost,
    NodeShuttingDown,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    TidelogError,
)
from tidelog.types import NO_NODE, Acks, Endpoint, LeaderEpoch, Millis, NodeAddress, NodeId


def test_a_batch_lingers_and_is_then_sent_to_the_leader() -> None:
    session = RequestSession()
    session.put()
    session.lead()
    assert session.gives == []
    session.tick(4)
    session.put()
    assert session.gives == []
    session.tick(1)
    assert [(give.node, give.batch.outcome.records) for give in session.gives] == [(1, 2)]


def test_a_stream_that_breaks_without_a_batch_reports_nothing() -> None:
    """A place in the node's window was freed meanwhile: the next event fills it."""
    session = RequestSession()
    session.put()
    session.lead()
    session.tick(5)
    (attempt,) = session.core._attempts.values()
    session.core._leave_window(attempt)
    assert session.core.handle() == []
    session.tick(1)


def test_a_full_batch_does_not_linger() -> None:
    session = RequestSession()
    session.lead()
    for _ in range(3):
        session.put(b"x" * 400)
    session.lead()
    session.tick()
    assert [give.batch.outcome.records for give in session.gives] == [2]


def test_one_batch_of_a_partition_is_in_flight_and_partitions_do_not_wait_for_each_other() -> None:
    session = RequestSession()
    for partition in (0, 1):
        session.put(partition=partition)
        session.lead(partition=partition)
    session.tick(5)
    session.put(b"later")
    session.tick(500)
    assert [give.batch.queue.topic_partition.partition for give in session.gives] == [0, 1]
    first = session.gives[0].batch
    assert session.core.take(session.gives[0], Millis(session.now))
    session.acknowledge(first, offset=7)
    assert (first.outcome.done, first.outcome.base_offset) == (True, 7)
    assert len(session.gives) == 3
    assert session.gives[2].batch.queue.topic_partition.partition == 0


def test_a_flush_ends_the_lingering() -> None:
    session = RequestSession()
    session.lead()
    batch = session.put()
    session.lead()
    session.note(session.core.handle(Flushed(Millis(session.now))))
    assert [give.batch for give in session.gives] == [batch]


def test_without_a_leader_the_leader_is_looked_up_and_the_batch_waits() -> None:
    session = RequestSession()
    session.put()
    session.tick(5)
    assert session.sought == [session.key()]
    session.lead(NO_NODE, cause=LeaderNotAvailable("orders-0 has no leader"))
    assert session.gives == []
    session.tick(200)
    assert session.sought == [session.key()] * 2, "looked up again after a pause"
    session.lead(2)
    session.tick(200)
    assert [give.node for give in session.gives] == [2]


def test_a_batch_that_was_not_written_is_resent_before_later_records() -> None:
    session = RequestSession()
    session.lead()
    first = session.put(b"1")
    session.lead()
    session.tick(5)
    session.send()
    session.put(b"2")
    session.refuse(first, NotEnoughReplicas("one replica in sync, two needed"))
    assert len(session.gives) == 1, "not at once"
    session.tick(200)
    assert [give.batch for give in session.gives] == [first, first]
    assert not first.outcome.done


def test_a_newer_leader_hint_in_a_rejection_is_used_at_once() -> None:
    session = RequestSession()
    batch = session.put()
    session.lead(1, epoch=4)
    session.tick(5)
    session.send()
    hint = NodeAddress(NodeId(2), Endpoint("b", 2), "", LeaderEpoch(5))
    session.refuse(batch, NotLeaderOrFollower("node 2 leads", leader=hint))
    assert [give.node for give in session.gives] == [1, 2]
    assert session.sought == []

    session.send()
    stale = NodeAddress(NodeId(1), Endpoint("a", 1), "", LeaderEpoch(4))
    session.refuse(batch, NotLeaderOrFollower("node 1 leads", leader=stale))
    assert session.sought == [session.key()], "a stale hint: look it up"


@pytest.mark.parametrize(
    "error",
    [
        LeadershipLost("node 1 stopped leading"),
        NotEnoughReplicasAfterAppend("the in-sync set shrank"),
        RequestTimedOut("no acks in time"),
    ],
)
def test_an_unknown_outcome_is_reported_and_never_resent(error: TidelogError) -> None:
    session = RequestSession()
    batch = session.put()
    session.lead()
    session.tick(5)
    session.send()
    later = session.put(b"later")
    session.refuse(batch, error)
    failure = error_of(batch)
    assert isinstance(failure, CommitUnknown)
    assert (failure.__cause__, failure.topic_partition, failure.records, failure.written) == (
        error,
        session.key(),
        1,
        None,
    )
    session.lead()
    session.tick(2_000)
    assert [give.batch for give in session.gives] == [batch, later], "the next one is sent"


@pytest.mark.parametrize("cause", [ConnectionLost("broke"), NodeShuttingDown("the node is stopping")])
def test_a_stream_that_broke_after_sending_leaves_the_outcome_unknown(cause: TidelogError) -> None:
    """No error of a broken stream shows whether a batch that was sent is written."""
    session = RequestSession()
    batch = session.put()
    session.lead()
    session.tick(5)
    session.send()
    session.lose(batch, cause)
    assert isinstance(error_of(batch), CommitUnknown)
    assert session.sought == [session.key()]


def test_a_stream_that_broke_before_sending_does_not_fail_a_batch() -> None:
    session = RequestSession()
    batch = session.put()
    session.lead()
    session.tick(5)
    session.lose(batch, ConnectionFailed("refused"))
    assert not batch.outcome.done
    session.lead(2, epoch=1)
    session.tick(200)
    assert [give.node for give in session.gives] == [1, 2]


def test_a_permanent_rejection_fails_one_batch_and_the_next_is_sent() -> None:
    session = RequestSession()
    batch = session.put()
    session.lead()
    session.tick(5)
    session.send()
    later = session.put(b"later")
    session.refuse(batch, CorruptRecord("bad bytes"))
    assert isinstance(error_of(batch), CorruptRecord)
    session.tick(5)
    assert [give.batch for give in session.gives] == [batch, later]


def test_after_the_request_timeout_the_outcome_is_unknown_and_a_late_answer_is_ignored() -> None:
    session = RequestSession()
    batch = session.put()
    session.lead()
    session.tick(5)
    session.send()
    session.tick(POLICY.request_timeout_ms - 1)
    assert not batch.outcome.done
    assert session.sought, "a slow answer triggers a leader lookup"
    session.tick(1)
    failure = error_of(batch)
    assert isinstance(failure, CommitUnknown)
    assert isinstance(failure.__cause__, RequestTimedOut)
    session.acknowledge(batch, 3)
    assert error_of(batch) is failure


def test_a_new_leader_shortens_the_wait_for_the_old_one() -> None:
    session = RequestSession()
    batch = session.put()
    session.lead(1, epoch=0)
    session.tick(5)
    session.send()
    session.tick(OVERDUE_MS)
    assert session.sought == [session.key()]
    session.lead(2, epoch=1)
    session.tick(OLD_LEADER_MS)
    assert isinstance(error_of(batch), CommitUnknown)


def test_a_batch_that_is_not_sent_yet_follows_the_leader() -> None:
    """The old leader is unreachable: the batch waits in its outbox while another node is elected."""
    session = RequestSession()
    batch = session.put()
    session.lead(1, epoch=0)
    session.tick(5)
    session.lead(2, epoch=1)
    assert [give.node for give in session.gives] == [1, 2]
    assert not session.core.take(session.gives[0], Millis(session.now)), "the old stream must not send it"
    assert session.core.take(session.gives[1], Millis(session.now))
    assert session.gives[1].batch is batch


def test_a_new_leader_ends_the_waiting_for_the_next_attempt() -> None:
    """The backoff grows to a second; meanwhile the leader is looked up, and a new leader is tried at once."""
    session = RequestSession()
    batch = session.put()
    session.lead(1, epoch=0)
    session.tick(5)
    for attempt in range(7):
        session.lose(batch, ConnectionFailed("refused"))
        session.lead(1, epoch=0)
        session.tick(1_300 if attempt < 6 else 0)
    given, sought = len(session.gives), len(session.sought)
    session.lead(1, epoch=0)
    session.tick(LOOKUP_MS)
    assert len(session.sought) > sought, "looked up although the next attempt is not due"
    assert len(session.gives) == given
    session.lead(2, epoch=1)
    assert [give.node for give in session.gives[given:]] == [2]


def test_the_backoff_restarts_with_a_new_leader() -> None:
    """A leader that was just elected may lack in-sync replicas for a moment: a backoff of a second would be long."""
    session = RequestSession()
    batch = session.put()
    session.lead(1, epoch=0)
    session.tick(5)
    for _ in range(7):
        session.lose(batch, ConnectionFailed("refused"))
        session.tick(1_300)
    session.lead(2, epoch=1)
    given = len(session.gives)
    for _ in range(2):
        session.send()
        session.refuse(batch, NotEnoughReplicas("one replica in sync, two needed"))
        session.tick(250)
    assert [give.node for give in session.gives[given:]] == [2, 2]


def test_stale_metadata_changes_nothing() -> None:
    session = RequestSession()
    session.put()
    session.lead(2, epoch=5)
    session.lead(1, epoch=4)
    session.tick(5)
    assert [give.node for give in session.gives] == [2]


def test_a_batch_that_was_never_sent_is_reported_as_not_written() -> None:
    session = RequestSession()
    batch = session.put()
    for _ in range(40):
        session.tick(1_000)
        session.lead(NO_NODE, cause=LeaderNotAvailable("orders-0 has no leader"))
    failure = error_of(batch)
    assert isinstance(failure, DeliveryTimedOut)
    assert failure.written is False
    assert isinstance(failure.__cause__, LeaderNotAvailable)
    assert "delivery_timeout_ms=30000" in failure.message
    assert session.core.memory_used == 0


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_no_attempt_without_time_for_its_answer_makes_a_refused_batch_unknown(seed: int, idempotent: bool) -> None:
    """A full disk, which the leader reports after 400 ms. So it is for the batch that waits for the refused one."""
    session = RequestSession(seed=seed, idempotent=idempotent)
    refused = session.put()
    session.lead()
    session.tick(5)
    session.identify()
    session.tick(200)
    behind = session.put(b"behind")
    full = DiskFull("the log directory has no space left")
    while not behind.outcome.done:
        sent = session.wire()
        session.tick(400)
        for attempt in sent:
            session.refuse(attempt, full)
    for batch in (refused, behind):
        failure = error_of(batch)
        assert (type(failure), failure.written, failure.__cause__) == (DeliveryTimedOut, False, full)
        assert "delivery_timeout_ms=30000 was nearly over" in failure.message

    session.tick(POLICY.delivery_timeout_ms)
    later = session.put(b"later")
    session.tick(5)
    session.wire()
    session.acknowledge(later)
    assert (later.outcome.done, later.outcome.error) == (True, None)


def test_a_batch_that_came_after_a_failure_is_tried_however_little_time_it_has() -> None:
    """The pause after a refusal exceeds the whole time of a batch: if none were tried, no answer could end that."""
    session = RequestSession(replace(POLICY, delivery_timeout_ms=60))
    refused = session.put()
    session.lead()
    session.tick(5)
    session.send()
    session.refuse(refused, DiskFull("the log directory has no space left"))
    assert isinstance(error_of(refused), DeliveryTimedOut)
    session.tick(200)
    later = session.put(b"later")
    session.tick(5)
    assert session.send() is later


def test_a_batch_that_may_be_written_is_sent_again_until_its_time_is_over() -> None:
    """A repeated batch can only make its outcome known."""
    session = RequestSession(replace(POLICY, delivery_timeout_ms=1_000), idempotent=True)
    batch = session.put()
    session.lead()
    session.tick(5)
    session.identify()
    session.send()
    session.tick(900)
    session.lose(batch, ConnectionLost("broke"))
    session.lead(2, epoch=1)
    session.tick(20)
    assert session.send() is batch, "75 ms are left"
    session.refuse(batch, NotLeaderOrFollower("node 1 leads"))
    session.tick(POLICY.delivery_timeout_ms)
    assert isinstance(error_of(batch), CommitUnknown)


def test_with_acks_none_a_batch_is_sent_until_its_time_is_over() -> None:
    """It needs no answer."""
    session = RequestSession(replace(POLICY, acks=Acks.NONE, delivery_timeout_ms=1_000))
    batch = session.put()
    session.lead()
    session.tick(950)
    session.lose(batch, ConnectionFailed("refused"))
    session.lead(2, epoch=1)
    assert session.send() is batch, "50 ms are left"


def test_resending_keeps_the_order_and_an_unknown_outcome_stays_unknown() -> None:
    policy = Policy(Acks.ALL, 5, 1000, 10_000, 30_000, 100, 1_000, resend_unknown=True)
    session = RequestSession(policy)
    batch = session.put()
    session.lead()
    session.tick(5)
    session.send()
    later = session.put(b"later")
    session.lose(batch, ConnectionLost("broke"))
    session.lead()
    session.tick(300)
    assert [give.batch for give in session.gives] == [batch, batch]
    session.send()
    session.refuse(batch, CorruptRecord("bad bytes"))
    failure = error_of(batch)
    assert isinstance(failure, CommitUnknown), "the first attempt may have been written"
    assert isinstance(failure.__cause__, ConnectionLost)
    session.tick(300)
    assert session.gives[-1].batch is later


def test_resending_ends_with_the_delivery_timeout() -> None:
    policy = Policy(Acks.ALL, 0, 1000, 1_000, 3_000, 100, 100, resend_unknown=True)
    session = RequestSession(policy)
    batch = session.put()
    session.lead()
    session.tick()
    while not batch.outcome.done:
        session.send()
        session.lose(batch, ConnectionLost("broke"))
        session.lead()
        session.tick(500)
    failure = error_of(batch)
    assert isinstance(failure, CommitUnknown)
    assert session.now - 1_000 < 4_000


def test_abandoning_reports_the_known_outcome_of_each_batch() -> None:
    session = RequestSession()
    on_the_wire = session.put()
    session.lead()
    session.tick(5)
    session.send()
    waiting = session.put(b"waiting")
    for effect in session.core.abandon("the producer was closed"):
        effect.notify()
    assert isinstance(error_of(on_the_wire), CommitUnknown)
    assert isinstance(error_of(waiting), DeliveryTimedOut)
    assert session.core.memory_used == 0


def test_nothing_is_sent_after_abandoning() -> None:
    """A stream and the timer may have one more turn of the loop before they are cancelled."""
    session = RequestSession()
    given = session.put()
    session.lead()
    session.tick(5)
    session.put(b"x" * 900, partition=1)
    session.lead(partition=1)
    session.put(b"x" * 900, partition=1)
    for effect in session.core.abandon("the producer was closed"):
        effect.notify()
    assert isinstance(error_of(given), DeliveryTimedOut)
    assert not session.core.is_wanted(session.gives[-1])
    assert session.tick(60_000) == []


ERRORS: list[TidelogError] = [
    NotLeaderOrFollower("not I"),
    NotEnoughReplicas("too few"),
    LeadershipLost("lost"),
    RequestTimedOut("late"),
    CorruptRecord("bad"),
]


PARTITIONS = 4


class ProducerMachine(RuleBasedStateMachine):
    """Random runs of a producer against a log that appends: the reported outcomes must agree with the log."""

    @initialize(resend=st.booleans(), seed=st.integers(0, 1000))
    def begin(self, resend: bool, seed: int) -> None:
        policy = Policy(Acks.ALL, 5, 300, 2_000, 8_000, 100, 1_000, resend_unknown=resend)
        self.session = RequestSession(replace(policy, node_partial_max=2, node_bytes_max=600), seed)
        self.resend = resend
        self.batches: list[PendingBatch] = []
        self.order: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.log: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.on_wire: list[Attempt] = []
        self.epoch = dict.fromkeys(range(PARTITIONS), 0)

    @rule(partition=st.integers(0, PARTITIONS - 1), size=st.integers(0, 200))
    def put(self, partition: int, size: int) -> None:
        batch = self.session.put(b"x" * size, partition)
        if not any(batch is known for known in self.batches):
            self.batches.append(batch)
            self.order[partition].append(batch.batch_id)
        self.session.tick()

    @rule(ms=st.integers(0, 3_000))
    def wait(self, ms: int) -> None:
        self.session.tick(ms)

    @rule(partition=st.integers(0, PARTITIONS - 1), node=st.sampled_from([-1, 1, 2]), newer=st.booleans())
    def elect(self, partition: int, node: int, newer: bool) -> None:
        self.epoch[partition] += newer
        self.session.lead(node, self.epoch[partition], partition)

    @rule(arrives=st.booleans())
    def wire(self, arrives: bool) -> None:
        """Send every batch that a stream may still send; some of them are appended."""
        for attempt in self.session.wire():
            self.on_wire.append(attempt)
            if arrives:
                self.log[attempt.batch.queue.topic_partition.partition].append(attempt.batch.batch_id)

    @rule(data=st.data())
    def answer(self, data: Any) -> None:
        if not self.on_wire:
            return
        attempt = self.on_wire.pop(data.draw(st.integers(0, len(self.on_wire) - 1)))
        batch = attempt.batch
        partition = batch.queue.topic_partition.partition
        written = batch.batch_id in self.log[partition]
        how = data.draw(st.sampled_from(["truth", "lost", "error"]))
        if how == "lost":
            self.session.lose(attempt, ConnectionLost("broke"))
        elif how == "truth" and written:
            self.session.acknowledge(attempt, self.log[partition].index(batch.batch_id))
        else:
            possible = [error for error in ERRORS if error.written is None or not written]
            self.session.refuse(attempt, data.draw(st.sampled_from(possible)))

    @invariant()
    def one_in_flight_and_memory_counted(self) -> None:
        if not hasattr(self, "session"):
            return
        core = self.session.core
        unfinished = core.unfinished()
        assert core.memory_used == sum(batch.memory for batch in unfinished)
        assert {id(batch) for batch in unfinished} == {id(b) for b in self.batches if not b.outcome.done}
        for queue in core.queues():
            assert all(batch.sealed for batch in list(queue.batches)[:-1])

    @invariant()
    def windows_are_bounded_and_used(self) -> None:
        if hasattr(self, "session"):
            self.session.check_windows()

    @invariant()
    def what_was_told_is_true(self) -> None:
        if not hasattr(self, "session"):
            return
        for batch in self.batches:
            partition = batch.queue.topic_partition.partition
            copies = self.log[partition].count(batch.batch_id)
            if not self.resend:
                assert copies <= 1, "nothing is resent unless requested"
            if batch.outcome.done:
                error = batch.outcome.error
                if error is None:
                    assert copies >= 1
                elif error.written is False:
                    assert copies == 0, f"{error!r} said it is not written"
        for number, log in self.log.items():
            firsts = list(dict.fromkeys(log))
            assert firsts == [batch for batch in self.order[number] if batch in firsts], "order of the calls"

    def teardown(self) -> None:
        """At the end every batch has its outcome."""
        if not hasattr(self, "session"):
            return
        for _ in range(20):
            self.session.tick(1_000)
        assert all(batch.outcome.done for batch in self.batches)
        assert self.session.core.memory_used == 0


ProducerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_random_lives = ProducerMachine.TestCase


def test_a_batch_that_a_throttling_node_has_not_read_is_not_late() -> None:
    session = RequestSession()
    first = session.put()
    session.put(partition=1)
    session.lead()
    session.lead(partition=1)
    session.tick(5)
    (attempt, later) = session.gives
    assert session.core.take(attempt, Millis(session.now))
    session.core.note_throttle(NodeId(1), 12_000, Millis(session.now))
    assert session.core.take(later, Millis(session.now)), "sent meanwhile, and not read either"
    session.tick(12_000 + POLICY.request_timeout_ms - 1)
    assert session.finished == []
    session.tick(1)
    assert isinstance(error_of(first).__cause__, RequestTimedOut)
    assert isinstance(error_of(later.batch).__cause__, RequestTimedOut)


def test_a_batch_that_expires_because_of_a_quota_says_so() -> None:
    session = RequestSession()
    batch = session.put()
    session.lead()
    session.core.note_throttle(NodeId(1), 60_000, Millis(session.now))
    session.tick(POLICY.delivery_timeout_ms)
    failure = error_of(batch)
    assert isinstance(failure, DeliveryTimedOut), "it was not sent"
    assert "delivery_timeout_ms=30000 passed while a quota throttled this client at node 1" in failure.message
