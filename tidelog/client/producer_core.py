"""Producer core: decides what to send next. Pure: queues of `accumulator.py`, events in, effects out.

Invariants, for every batch:
  1. It gets one outcome, at the latest `delivery_timeout_ms` after its first record was queued.
  2. Once an attempt may have been written, the outcome stays unknown, whatever the answers to later attempts, until an
     attempt is acknowledged. If the batch fails before that, the senders get CommitUnknown.
  3. A batch that its stream has not sent yet can be taken back: `take` decides whether it may still be sent.
  4. Batches of a partition are sent and resent in order.
Without idempotence:
  5. Each partition has at most one batch in flight. It is resent only if it was certainly not written, or with
     `resend_unknown`: then it is resent before later batches and may be written twice.
With idempotence (a queue with a `series`, see sequences.py):
  6. Each partition has up to five batches in flight. The same bytes are resent until an attempt is acknowledged. A
     batch is renumbered, in another epoch, only if no attempt was written.
  7. Nothing is sent in a new epoch before each batch of the old one has its outcome or is to be renumbered.
Not here: connections (produce_stream.py), metadata (cluster.py), the clock (events carry times), callers (delivery.py).
Source: KIP-98, KIP-360, Kafka's Sender and TransactionManager, which reuse sequences and renumber batches under weaker
conditions.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Mapping
from random import Random
from typing import Final

from tidelog.client.accumulator import Attempt, Failure, PartitionQueue, PendingBatch
from tidelog.client.core_events import FindLeader, LeaderKnown, TimePassed
from tidelog.client.node_window import NodeWindow
from tidelog.client.producer_events import (
    Acknowledged,
    Effect,
    Event,
    Finished,
    Flushed,
    InitProducerId,
    Lost,
    NotEncoded,
    Policy,
    ProducerIdKnown,
    ProducerIdRefused,
    Refused,
    SubmitAttempt,
)
from tidelog.client.producer_failures import commit_unknown, unsent_error
from tidelog.client.retries import backoff_ms
from tidelog.client.sequences import PLAIN, Series
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidProducerEpoch,
    LeadershipLost,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    Retry,
    TidelogError,
    UnknownProducerId,
)
from tidelog.types import (
    NO_NODE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Acks,
    Millis,
    NodeId,
    PartitionIndex,
    TopicPartition,
)

OVERDUE_MS: Final = 500
"""Answers slower than this trigger a leader lookup: acks=all takes milliseconds within a cluster."""
LOOKUP_MS: Final = 200
"""Interval of leader lookups while a batch waits for a retry, so that a new leader is used at once."""
OLD_LEADER_MS: Final = 1_000
"""How long to wait for the answer of a deposed leader; it answers at once unless it is partitioned or dead."""

_OUT_OF_SEQUENCE: Final = (OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch)


class ProducerCore:
    """State of one producer: its queues, batches and attempts."""

    def __init__(self, policy: Policy, rng: Random) -> None:
        self.policy = policy
        self.memory_used = 0
        """Bytes of all batches without an outcome."""
        self._rng = rng
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._attempts: dict[int, Attempt] = {}
        """Every attempt that may still be answered, including attempts that no longer decide the outcome."""
        self._changed: dict[PartitionQueue, None] = {}
        """Queues with a batch that was filled since the last event."""
        self._lingering: OrderedDict[PendingBatch, None] = OrderedDict()
        """Open batches that are not due yet, in order of creation."""
        self._young: OrderedDict[int, Attempt] = OrderedDict()
        """Attempts that are not overdue, in order of `lookup_ms`. Only an attempt that leaves this order unanswered
        sets an alarm of its own."""
        self._windows: dict[NodeId, NodeWindow] = {}
        self._touched: dict[NodeWindow, None] = {}
        """Windows in which a queue became due, or a batch left, during this event."""
        self._alarms: list[tuple[Millis, int, PartitionQueue]] = []
        self._throttled: dict[NodeId, Millis] = {}
        """Until when each node reads nothing from this client; the time may have passed."""
        self._numbers = 0
        self._producer_id, self._first_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._id_requested = False
        self._id_attempts = 0
        self._id_retry_ms = Millis(0)

    def queue(self, topic: str, partition: int, *, idempotent: bool = False) -> PartitionQueue:
        """Return the queue of a partition. idempotent: whether to send with idempotence, from the next batch on that is
        sent while no other is in flight."""
        key = TopicPartition(topic, PartitionIndex(partition))
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = PartitionQueue(key)
        queue.idempotent = idempotent
        return queue

    def open_batch(self, queue: PartitionQueue, at: Millis) -> PendingBatch:
        """Open a batch; must be followed by TimePassed. A batch that is open already is full."""
        if queue.batches:
            self.seal(queue)
        batch = PendingBatch(self._number(), queue, at, Millis(at + self.policy.delivery_timeout_ms))
        queue.batches.append(batch)
        self._lingering[batch] = None
        return batch

    def seal(self, queue: PartitionQueue) -> None:
        """Mark the open batch of the queue as full: it does not linger. Must be followed by TimePassed."""
        batch = queue.batches[-1]
        batch.full = batch.full or not batch.sealed
        batch.sealed = True
        self._lingering.pop(batch, None)
        self._changed[queue] = None

    def window(self, node: NodeId) -> NodeWindow:
        """Return the window of a node."""
        window = self._windows.get(node)
        if window is None:
            window = self._windows[node] = NodeWindow(self.policy.node_partial_max, self.policy.node_bytes_max)
        return window

    def queues(self) -> list[PartitionQueue]:
        """All queues, in order of creation."""
        return list(self._queues.values())

    def partition_of(self, attempt_id: int) -> TopicPartition | None:
        """Return the partition of an attempt, or None if its answer no longer matters."""
        attempt = self._attempts.get(attempt_id)
        return None if attempt is None else attempt.batch.queue.topic_partition

    def unfinished(self) -> list[PendingBatch]:
        """Return every batch without an outcome, in order of creation."""
        queues = self._queues.values()
        return sorted(
            (batch for queue in queues for batch in (*queue.begun, *queue.batches)), key=lambda batch: batch.batch_id
        )

    def next_alarm(self) -> Millis | None:
        """Return the time at which TimePassed must be sent at the latest, or None."""
        while self._alarms and self._alarms[0][2].alarm_ms != self._alarms[0][0]:
            heapq.heappop(self._alarms)
        times = [self._alarms[0][0]] if self._alarms else []
        if self._lingering:
            times.append(Millis(next(iter(self._lingering)).created_ms + self.policy.linger_ms))
        if self._young:
            times.append(next(iter(self._young.values())).lookup_ms)
        return min(times, default=None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way: only an overdue answer, or sending a batch that waits, can free memory."""
        return not any(window.under_way for window in self._windows.values())

    def is_wanted(self, attempt: Attempt) -> bool:
        """Whether the attempt's stream may still send the batch."""
        return attempt.batch.attempt is attempt and not attempt.sent

    def take(self, attempt: Attempt, at: Millis) -> bool:
        """Called when the attempt's stream is about to send the batch. Returns False if the batch was withdrawn."""
        if not self.is_wanted(attempt):
            return False
        batch = attempt.batch
        attempt.sent_ms = at
        attempt.give_up_ms = self._give_up(attempt, at)
        attempt.follows_open = batch.follows_open
        self._await_answer(attempt, at)
        return True

    def note_throttle(self, node: NodeId, throttle_time_ms: int, at: Millis) -> None:
        """Note that the node reads nothing from this client for this time, because a quota is exceeded (KIP-219).
        Answers to batches that it has not read are not overdue."""
        self._throttled[node] = Millis(at + throttle_time_ms)
        for attempt in self._attempts.values():
            if attempt.node == node and attempt.sent:
                attempt.give_up_ms = max(attempt.give_up_ms, self._give_up(attempt, at))

    def abandon(self, why: str) -> list[Finished]:
        """Give every batch its outcome now. The core must not be used afterwards."""
        effects: list[Finished] = []
        for batch in self.unfinished():
            attempt = batch.attempt
            error: TidelogError
            if attempt is not None and attempt.sent:
                error = commit_unknown(batch, attempt, ConnectionLost(f"{why} before the answer came."))
            else:
                error = unsent_error(batch, why, is_late=False)
            batch.attempt = None  # the stream may run once more: it must not send the batch any more
            effects.append(Finished(self._free(batch), error))
        for queue in self._queues.values():
            queue.begun.clear()
            queue.batches.clear()
        for state in (self._queues, self._attempts, self._changed, self._lingering, self._young, self._windows):
            state.clear()
        self._alarms.clear()
        return effects

    def handle(self, *events: Event) -> list[Effect]:
        """Apply events that came together, and return the effects. All batches that are due then are given to the
        streams in one pass, so that they share messages."""
        effects: list[Effect] = []
        for event in events:
            self._apply(event, effects)
        while self._touched and events:  # without an event, the next event fills the windows that `take` has touched
            self._fill(self._touched.popitem()[0], events[-1].at, effects)
        return effects

    def _apply(self, event: Event, effects: list[Effect]) -> None:
        match event:
            case Acknowledged(attempt_id, base_offset, append_time, at, receipt):
                attempt = self._end_attempt(attempt_id)
                if attempt is not None and not attempt.batch.finished:
                    queue = attempt.batch.queue
                    queue.failure = None
                    self._finish(at, effects, Finished(attempt.batch, None, base_offset, append_time, receipt))
                    if queue.begun or queue.batches:
                        self._advance(queue, at, effects)
            case TimePassed(at):
                self._tick(at, effects)
            case LeaderKnown():
                self._note_leader(event, effects)
            case Refused(attempt_id, error, at):
                self._answered(attempt_id, error, at, effects, refused=True)
            case Lost(attempt_id, cause, at):
                self._answered(attempt_id, cause, at, effects, refused=False)
            case NotEncoded(attempt_id, faulty, at):
                self._not_encoded(attempt_id, faulty, at, effects)
            case Flushed(at):
                self._flush(at, effects)
            case ProducerIdKnown(producer_id, epoch, at):
                self._producer_id, self._first_epoch = producer_id, epoch
                self._id_requested, self._id_attempts = False, 0
                self._advance_all(at, effects)
            case ProducerIdRefused(error, at):
                self._id_refused(error, at, effects)

    # --- what happened ------------------------------------------------------------------------------------------

    def _flush(self, at: Millis, effects: list[Effect]) -> None:
        for queue in self._queues.values():
            if queue.batches:
                queue.batches[-1].hurried = True
                self._lingering.pop(queue.batches[-1], None)
                self._advance(queue, at, effects)

    def _note_leader(self, event: LeaderKnown, effects: list[Effect]) -> None:
        queue = self._queues.get(event.topic_partition)
        if queue is None:
            return
        same_topic = queue.topic_id is None or event.topic_id in (None, queue.topic_id)
        if event.node != NO_NODE and same_topic and event.leader_epoch < queue.leader_epoch:
            return  # stale metadata
        moved = event.leader_epoch > queue.leader_epoch or not same_topic
        queue.lookup_pending = False
        queue.leader, queue.leader_epoch = event.node, max(event.leader_epoch, queue.leader_epoch)
        if event.topic_id is not None:
            queue.topic_id = event.topic_id
        if not same_topic:
            queue.leader_epoch = event.leader_epoch
            if queue.series is not None:
                queue.series.broken = True  # the leader of the new topic has no state of this producer
        if moved and event.node != NO_NODE:
            queue.retry_ms = min(queue.retry_ms, event.at)  # a new leader: retry at once
        if event.node == NO_NODE:
            queue.retry_ms = Millis(max(queue.retry_ms, event.at + self._backoff(1)))
            if event.cause is not None and (oldest := next(iter((*queue.begun, *queue.batches)), None)) is not None:
                oldest.cause = event.cause
        if moved:
            self._leave_old_leader(queue, event.at)
        self._advance(queue, event.at, effects)

    def _leave_old_leader(self, queue: PartitionQueue, at: Millis) -> None:
        """Handle batches sent to the old leader: with idempotence resend them at once, otherwise wait a little for its
        answer."""
        for batch in queue.begun:
            batch.attempts_elsewhere = batch.attempts
            attempt = batch.attempt
            if attempt is None:
                continue
            if not attempt.sent:
                self._take_back(batch)
            elif batch.stamp is PLAIN:
                attempt.give_up_ms = Millis(min(attempt.give_up_ms, at + OLD_LEADER_MS))
            else:
                lost = LeadershipLost(
                    f"node {attempt.node} stopped leading {queue.topic_partition} before it answered."
                )
                batch.unknown_cause = batch.unknown_cause or lost
                batch.cause, batch.attempt = lost, None

    def _id_refused(self, error: TidelogError, at: Millis, effects: list[Effect]) -> None:
        self._id_requested = False
        self._id_attempts += 1
        self._id_retry_ms = Millis(at + self._backoff(self._id_attempts))
        for queue in self._queues.values():
            if queue.series is None or queue.series.producer_id != NO_PRODUCER_ID:
                continue
            for batch in tuple(queue.batches):
                batch.cause = error
                if error.retry is Retry.NEVER:
                    batch.sealed = True
                    self._finish(at, effects, Finished(batch, error))
        self._advance_all(at, effects)

    def _answered(
        self, attempt_id: int, error: TidelogError, at: Millis, effects: list[Effect], *, refused: bool
    ) -> None:
        """Handle a failed attempt. refused: the node answered with an error; otherwise its stream broke."""
        attempt = self._end_attempt(attempt_id)
        if attempt is None or attempt.batch.attempt is not attempt:
            return  # a later attempt decides the outcome
        queue = attempt.batch.queue
        if refused:
            self._refuse(attempt, error, at, effects)
        elif attempt.sent:
            self._unknown(attempt, error, at, effects)
        else:
            self._retry(attempt.batch, error, at)
            self._look_up_leader(queue, effects)
        self._advance(queue, at, effects)

    def _not_encoded(
        self, attempt_id: int, faulty: Mapping[int, TidelogError], at: Millis, effects: list[Effect]
    ) -> None:
        """Remove the records that cannot be encoded; the rest of the batch stays. Its numbers included the removed
        records and no attempt was sent, so a numbered batch is renumbered in another epoch."""
        attempt = self._end_attempt(attempt_id)
        assert attempt is not None, "its stream was about to send it"
        batch, queue = attempt.batch, attempt.batch.queue
        if len(faulty) == batch.count:
            self._finish(at, effects, Finished(batch, faulty[0]))
        else:
            batch.leave_out(faulty)
            batch.attempt = None
            for later in queue.begun[queue.begun.index(batch) :]:
                self._take_back(later)
            if queue.series is not None and batch.stamp is not PLAIN:
                queue.series.broken = True
        self._advance(queue, at, effects)

    def _refuse(self, attempt: Attempt, error: TidelogError, at: Millis, effects: list[Effect]) -> None:
        batch, queue = attempt.batch, attempt.batch.queue
        if batch.stamp is not PLAIN and isinstance(error, _OUT_OF_SEQUENCE):
            self._out_of_sequence(attempt, error, at, effects)
        elif error.written is False and error.retry is not Retry.NEVER:
            leader = error.leader
            self._retry(batch, error, at)
            if leader is not None and leader.leader_epoch > queue.leader_epoch:
                queue.leader, queue.leader_epoch = leader.node_id, leader.leader_epoch
                queue.retry_ms = at
                self._leave_old_leader(queue, at)
            elif error.retry is Retry.ELSEWHERE:
                self._look_up_leader(queue, effects)
        elif error.written is None:
            self._unknown(attempt, error, at, effects)
        else:
            if batch.unknown_cause is not None:
                error = commit_unknown(batch, attempt, batch.unknown_cause)
            self._finish(at, effects, Finished(batch, error))

    def _out_of_sequence(self, attempt: Attempt, error: TidelogError, at: Millis, effects: list[Effect]) -> None:
        """The leader lacks an earlier batch, or knows a higher epoch: this attempt was not written."""
        batch = attempt.batch
        series = batch.queue.series
        assert series is not None, "a numbered batch has a series"
        if isinstance(error, InvalidProducerEpoch):
            series.fence()
        elif attempt.follows_open:  # the missing batch may still arrive
            self._retry(batch, error, at)
            return
        if batch.unknown_cause is not None:
            self._finish(at, effects, Finished(batch, commit_unknown(batch, attempt, batch.unknown_cause)))
        else:
            series.broken = True
            self._retry(batch, error, at)

    def _unknown(self, attempt: Attempt, cause: TidelogError, at: Millis, effects: list[Effect]) -> None:
        batch, queue = attempt.batch, attempt.batch.queue
        if batch.stamp is PLAIN:
            again = self.policy.resend_unknown
        else:
            again = cause.retry is not Retry.NEVER
        if again and at < batch.expires_ms:
            batch.unknown_cause = batch.unknown_cause or cause
            self._retry(batch, cause, at)
        else:
            self._finish(at, effects, Finished(batch, commit_unknown(batch, attempt, cause)))
            queue.retry_ms = Millis(at + self._backoff(1))
        self._look_up_leader(queue, effects)

    def _tick(self, at: Millis, effects: list[Effect]) -> None:
        changed, self._changed = self._changed, {}
        for queue in changed:
            self._advance(queue, at, effects)
        while self._lingering and (batch := next(iter(self._lingering))).created_ms + self.policy.linger_ms <= at:
            del self._lingering[batch]
            self._advance(batch.queue, at, effects)
        while self._young and (attempt := next(iter(self._young.values()))).lookup_ms <= at:
            self._release(attempt)
            self._advance(attempt.batch.queue, at, effects)
        while self._alarms and self._alarms[0][0] <= at:
            due, _, queue = heapq.heappop(self._alarms)
            if queue.alarm_ms == due:
                queue.alarm_ms = None
                self._advance(queue, at, effects)

    # --- what to do next ----------------------------------------------------------------------------------------

    def _advance_all(self, at: Millis, effects: list[Effect]) -> None:
        for queue in self._queues.values():
            self._advance(queue, at, effects)

    def _advance(self, queue: PartitionQueue, at: Millis, effects: list[Effect]) -> None:
        """Do all that is possible for this queue now. Afterwards its next batch waits for room in the node's window,
        for an alarm or for an event."""
        if not queue.begun and queue.idempotent is (queue.series is None):
            queue.switch()
        for batch in tuple(queue.begun):
            if batch.attempt is not None:
                self._watch(batch.attempt, at, effects)
        self._expire(queue, at, effects)
        if queue.series is not None and queue.series.broken:
            self._start_next_epoch(queue, queue.series, at, effects)
        self._offer(queue, at, effects)

    def _offer(self, queue: PartitionQueue, at: Millis, effects: list[Effect]) -> None:
        """Let the queue wait for its turn if its next batch is due."""
        batch = self._next(queue, at)
        if batch is not None and self._is_due(batch, at, effects):
            window = self.window(queue.leader)
            window.offer(queue, full=batch.full)
            self._touched[window] = None
            self._alarm(queue, batch.last_start_ms)

    def _fill(self, window: NodeWindow, at: Millis, effects: list[Effect]) -> None:
        """Give due batches to the node's stream, as far as the window allows."""
        if window.partial and window.has_place:
            before = window.partial_under_way
            while window.partial and window.has_room:
                self._take_turn(window.next_partial(), window, at, effects)
            window.last_round = window.partial_under_way - before
        while window.full and window.has_room:
            self._take_turn(window.next_full(), window, at, effects)

    def _take_turn(self, queue: PartitionQueue, window: NodeWindow, at: Millis, effects: list[Effect]) -> None:
        """Give the next batch of the queue to the node's stream, unless the queue has changed since it was due."""
        batch = self._next(queue, at)
        if batch is None or not self._is_due(batch, at, effects):
            return
        if self.window(queue.leader) is window:
            self._submit(batch, window, at, effects)
            if not queue.batches and queue.begun[-1] is batch:
                return
        self._offer(queue, at, effects)

    def _next(self, queue: PartitionQueue, at: Millis) -> PendingBatch | None:
        """Return the next batch for a stream, now or later, or None if an event must come first."""
        series = queue.series
        for batch in queue.begun:
            if batch.attempt is None and (series is None or not series.broken or batch.unknown_cause is not None):
                return batch
        if not queue.batches:
            return None
        if not queue.begun:
            return queue.batches[0]
        # Other batches are in flight: a batch that is not full waits for more records.
        following = queue.batches[0]
        if (
            series is not None
            and (following.sealed or following.hurried)
            and series.may_follow(queue.begun[0].place, at)
        ):
            return following
        return None

    def _is_due(self, batch: PendingBatch, at: Millis, effects: list[Effect]) -> bool:
        """Whether the batch may be given to its leader's stream now; if not, set the alarm."""
        queue = batch.queue
        if queue.retry_ms > at:
            needs_lookup = batch.cause is not None and (
                isinstance(batch.cause, ConnectionFailed) or batch.cause.retry is Retry.ELSEWHERE
            )
            if needs_lookup and queue.next_lookup_ms <= at:
                queue.next_lookup_ms = Millis(at + LOOKUP_MS)
                self._look_up_leader(queue, effects)
            due = min(queue.retry_ms, batch.last_start_ms)
            self._alarm(queue, min(due, queue.next_lookup_ms) if needs_lookup else due)
            return False
        if batch in self._lingering:
            return False
        if queue.leader == NO_NODE:
            self._look_up_leader(queue, effects)
            self._alarm(queue, batch.last_start_ms)
            return False
        if queue.batches and batch is queue.batches[0] and not self._has_id(queue, at, effects):
            last_ms = batch.last_start_ms
            self._alarm(queue, last_ms if self._id_requested else min(last_ms, self._id_retry_ms))
            return False
        return True

    def _submit(self, batch: PendingBatch, window: NodeWindow, at: Millis, effects: list[Effect]) -> None:
        """Give the batch to its leader's stream."""
        queue = batch.queue
        if queue.batches and batch is queue.batches[0]:
            self._begin(batch)
        batch.attempts += 1
        attempt = Attempt(
            self._number(), batch, queue.leader, queue.leader_epoch, batch.last_start_ms, Millis(at + OVERDUE_MS)
        )
        window.enter(attempt)
        batch.attempt = self._attempts[attempt.attempt_id] = attempt
        self._await_answer(attempt, at)
        effects.append(SubmitAttempt(attempt))

    def _await_answer(self, attempt: Attempt, at: Millis) -> None:
        """Watch an attempt that was given to a stream, or sent: from now on its answer may become overdue."""
        attempt.lookup_ms = Millis(at + OVERDUE_MS)
        self._young[attempt.attempt_id] = attempt
        self._young.move_to_end(attempt.attempt_id)
        if attempt.give_up_ms < attempt.lookup_ms:
            self._alarm(attempt.batch.queue, attempt.give_up_ms)

    def _release(self, attempt: Attempt) -> None:
        """Stop counting and watching an attempt that is answered or overdue."""
        self._young.pop(attempt.attempt_id, None)
        self._leave_window(attempt)

    def _end_attempt(self, attempt_id: int) -> Attempt | None:
        """Remove an attempt that was answered, or will not be answered. Returns None if it was removed before."""
        attempt = self._attempts.pop(attempt_id, None)
        if attempt is not None:
            self._release(attempt)
        return attempt

    def _leave_window(self, attempt: Attempt) -> None:
        """Stop counting the attempt in the window of its node."""
        if attempt.has_place:
            attempt.has_place = False
            window = self.window(attempt.node)
            window.leave(attempt)
            self._touched[window] = None

    def _begin(self, batch: PendingBatch) -> None:
        """Move the first waiting batch to the batches in flight."""
        queue = batch.queue
        queue.batches.popleft()
        self._lingering.pop(batch, None)
        queue.begun.append(batch)
        batch.sealed = True
        if queue.series is not None:
            batch.stamp, batch.place = queue.series.number(batch.count)

    def _has_id(self, queue: PartitionQueue, at: Millis, effects: list[Effect]) -> bool:
        """Whether batches of the queue can be numbered; if not, request a producer id."""
        series = queue.series
        if series is None or series.producer_id != NO_PRODUCER_ID:
            return True
        if self._producer_id not in (NO_PRODUCER_ID, series.exhausted_id):
            series.begin(self._producer_id, self._first_epoch)
            return True
        if not self._id_requested and self._id_retry_ms <= at:
            self._id_requested = True
            effects.append(InitProducerId(self._producer_id, series.epoch if series.exhausted_id >= 0 else -1))
        return False

    def _start_next_epoch(self, queue: PartitionQueue, series: Series, _at: Millis, _effects: list[Effect]) -> None:
        """Start a new epoch once every batch of the old one is settled: it was not written, or its senders got
        CommitUnknown."""
        if any(batch.attempt is not None or batch.unknown_cause is not None for batch in queue.begun):
            return
        for batch in reversed(queue.begun):
            batch.stamp = PLAIN
            queue.batches.appendleft(batch)
        queue.begun.clear()
        series.renew()

    def _give_up(self, attempt: Attempt, at: Millis) -> Millis:
        """The time until which to wait for the answer to a batch that is sent now, or that the node has not read
        yet."""
        since = max(at, self._throttled.get(attempt.node, at))
        return Millis(min(since + self.policy.request_timeout_ms, attempt.batch.expires_ms))

    def _watch(self, attempt: Attempt, at: Millis, effects: list[Effect]) -> None:
        """Check the timeouts of a batch that a stream has."""
        batch, queue = attempt.batch, attempt.batch.queue
        if attempt.give_up_ms <= at:
            if not attempt.sent:
                self._take_back(batch)
                return
            waited = at - (attempt.sent_ms or at)
            cause = RequestTimedOut(
                f"node {attempt.node} did not answer for {waited} ms: is it overloaded, stopped or partitioned?"
            )
            self._unknown(attempt, cause, at, effects)
            return
        if attempt.lookup_ms <= at:
            self._release(attempt)
            attempt.lookup_ms = Millis(at + OVERDUE_MS)
            if queue.begun[0] is batch:
                queue.lookup_pending = False
                self._look_up_leader(queue, effects)
        if attempt.attempt_id not in self._young or attempt.give_up_ms < attempt.lookup_ms:
            self._alarm(queue, min(attempt.give_up_ms, attempt.lookup_ms))

    def _expire(self, queue: PartitionQueue, at: Millis, effects: list[Effect]) -> None:
        expired = [batch for batch in queue.begun if batch.attempt is None and batch.last_start_ms <= at]
        expired += [batch for batch in queue.batches if batch.last_start_ms <= at]
        for batch in expired:
            limit = f"delivery_timeout_ms={self.policy.delivery_timeout_ms}"
            why = f"{limit} passed" if batch.expires_ms <= at else f"{limit} was nearly over"
            if self._throttled.get(queue.leader, at) > at:
                why += f" while a quota throttled this client at node {queue.leader}"
            self._finish(at, effects, Finished(batch, unsent_error(batch, why)))

    def _retry(self, batch: PendingBatch, cause: TidelogError, at: Millis) -> None:
        """Resend the batch after a pause; later batches that are not sent yet wait with it."""
        batch.cause = cause
        queue = batch.queue
        for later in queue.begun[queue.begun.index(batch) :]:
            self._take_back(later)
        batch.attempt = None
        pause_ms = self._backoff(max(1, batch.attempts - batch.attempts_elsewhere))
        queue.retry_ms = Millis(at + pause_ms)
        # With acks=0 no answer is needed: a sent batch counts as acknowledged.
        queue.failure = Failure(cause, at, 0 if self.policy.acks is Acks.NONE else pause_ms)

    def _take_back(self, batch: PendingBatch) -> None:
        """Withdraw the batch from its stream if it was not sent yet."""
        attempt = batch.attempt
        if attempt is not None and not attempt.sent:
            self._end_attempt(attempt.attempt_id)
            batch.attempt = None

    def _finish(self, at: Millis, effects: list[Effect], finished: Finished) -> None:
        batch, queue = finished.batch, finished.batch.queue
        if batch in queue.begun:
            queue.begun.remove(batch)
            if queue.series is not None and batch.stamp is not PLAIN:
                if finished.error is None:
                    queue.series.acknowledged(batch.stamp, at)
                else:
                    queue.series.broken = True
        else:
            queue.batches.remove(batch)
            self._lingering.pop(batch, None)
        self._take_back(batch)
        batch.attempt = None
        self._free(batch)
        effects.append(finished)

    def _free(self, batch: PendingBatch) -> PendingBatch:
        batch.finished = True
        self.memory_used -= batch.memory
        batch.queue.queued_bytes -= batch.size
        batch.drop()
        return batch

    def _look_up_leader(self, queue: PartitionQueue, effects: list[Effect]) -> None:
        if not queue.lookup_pending:
            queue.lookup_pending = True
            effects.append(FindLeader(queue.topic_partition))

    def _backoff(self, attempts: int) -> int:
        """Return milliseconds before the next attempt: doubling, bounded, with a random variation of a fifth."""
        policy = self.policy
        return backoff_ms(attempts, self._rng, first=policy.retry_backoff_ms, most=policy.retry_backoff_ms_max)

    def _alarm(self, queue: PartitionQueue, at: Millis) -> None:
        if queue.alarm_ms is None or at < queue.alarm_ms:
            queue.alarm_ms = at
            heapq.heappush(self._alarms, (at, self._number(), queue))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers
