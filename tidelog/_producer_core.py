"""What a plain producer does next: pure decisions over the queues of `_accumulator.py`; events in, effects out.

Kept true:
  1. At most one batch per partition is given to a node at a time, so order holds across retries.
  2. A batch is given again only when it is certainly not written and a retry can help. When nobody can tell, its
     senders get CommitUnknown, and the next batch goes on (`on_unknown="resend"` asks for the opposite: sent again
     before later ones, so possibly written twice).
  3. Every batch has one outcome, at the latest `delivery_timeout_ms` after its first record came.
  4. A batch that a stream has not yet put on the wire can be taken back: `take` says whether it may still go.
Left to others: connections and bytes (_produce_stream.py), metadata (_cluster.py), the clock (times come in the
events), waking the callers (delivery.py).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from tidelog._accumulator import InFlight, Memory, PartitionQueue, PendingBatch
from tidelog.errors import (
    CommitUnknown,
    ConnectionFailed,
    ConnectionLost,
    DeliveryTimedOut,
    RequestTimedOut,
    Retry,
    TidelogError,
)
from tidelog.types import (
    NO_NODE,
    NO_TIMESTAMP,
    Acks,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

OVERDUE_MS: Final = 500
"""An answer that takes longer makes the producer look up the leader: acks=all within a cluster takes milliseconds."""
LOOK_MS: Final = 200
"""How often the leader is looked up while a batch waits for its next attempt: a new one should not wait with it."""
MOVED_MS: Final = 1_000
"""How long the answer of a deposed leader is waited for; it answers at once unless it is cut off or dead."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How long, how often, how many; milliseconds and bytes."""

    acks: Acks
    linger_ms: int
    batch_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_ms_max: int
    resend_unknown: bool = False


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaderKnown:
    """The answer to FindLeader, or news: who leads a partition. NO_NODE: nobody, as far as `cause` tells why."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    node: NodeId
    leader_epoch: LeaderEpoch
    at: Millis
    cause: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The node has answered: done as asked."""

    batch_id: int
    base_offset: Offset
    append_time: Millis
    at: Millis


@dataclass(frozen=True, slots=True)
class Refused:
    """The node has answered with an error."""

    batch_id: int
    error: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream broke, or never came about, before an answer. Whether the batch was taken from here is known here."""

    batch_id: int
    cause: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class Flushed:
    """Send everything now, without lingering."""

    at: Millis


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed, or records have come."""

    at: Millis


Event: TypeAlias = LeaderKnown | Acknowledged | Refused | Lost | Flushed | Ticked


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Give:
    """Give the batch to the stream of this node; it asks `take` before it puts it on the wire."""

    batch: PendingBatch
    node: NodeId


@dataclass(frozen=True, slots=True)
class Finished:
    """The batch is done with and its memory free: tell its senders."""

    batch: PendingBatch
    error: TidelogError | None = None
    base_offset: Offset = Offset(-1)
    append_time: Millis = NO_TIMESTAMP

    def tell(self) -> None:
        """Give the batch its outcome; whoever waits is called."""
        if self.error is not None:
            self.batch.outcome.fail(self.error)
        else:
            self.batch.outcome.succeed(self.base_offset, self.append_time)


@dataclass(frozen=True, slots=True)
class FindLeader:
    """Look up who leads, and answer with LeaderKnown."""

    topic_partition: TopicPartition


Effect: TypeAlias = Give | Finished | FindLeader


class ProducerCore:
    """The books of one producer."""

    def __init__(self, policy: Policy, rng: Random) -> None:
        self.policy = policy
        self.memory = Memory()
        self._rng = rng
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._given: dict[int, InFlight] = {}
        self._changed: dict[PartitionQueue, None] = {}
        self._alarms: list[tuple[Millis, int, PartitionQueue]] = []
        self._numbers = 0

    @property
    def pending(self) -> int:
        """Batches without an outcome."""
        return len(self._given) + sum(len(queue.batches) for queue in self._queues.values())

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition."""
        key = TopicPartition(topic, PartitionIndex(partition))
        found = self._queues.get(key)
        if found is None:
            found = self._queues[key] = PartitionQueue(key)
        return found

    def open_batch(self, queue: PartitionQueue, at: Millis) -> PendingBatch:
        """Seal the open batch of the queue and put a new one behind it; Ticked has to follow."""
        if queue.batches:
            queue.batches[-1].sealed = True
        batch = PendingBatch(self._number(), queue, at, Millis(at + self.policy.delivery_timeout_ms))
        queue.batches.append(batch)
        self._changed[queue] = None
        return batch

    def queues(self) -> list[PartitionQueue]:
        """All queues, in the order in which they were made."""
        return list(self._queues.values())

    def partition_of(self, batch_id: int) -> TopicPartition | None:
        """Where a batch that was given to a node goes; None once it is not there any more."""
        given = self._given.get(batch_id)
        return None if given is None else given.batch.queue.topic_partition

    def unfinished(self) -> list[PendingBatch]:
        """Every batch without an outcome, in the order in which they were opened."""
        waiting = [batch for queue in self._queues.values() for batch in queue.batches]
        return sorted([*waiting, *(given.batch for given in self._given.values())], key=lambda batch: batch.batch_id)

    def next_alarm(self) -> Millis | None:
        """When Ticked is due at the latest; None: when something happens."""
        while self._alarms and self._alarms[0][2].alarm_ms != self._alarms[0][0]:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def is_wanted(self, batch: PendingBatch, node: NodeId) -> bool:
        """Whether the stream of `node` may still put the batch on the wire."""
        given = self._given.get(batch.batch_id)
        return given is not None and given.node == node and not given.sent

    def take(self, batch: PendingBatch, node: NodeId, at: Millis) -> InFlight | None:
        """The stream of `node` is about to put the batch on the wire. None: it must not, the batch was taken back."""
        if not self.is_wanted(batch, node):
            return None
        given = self._given[batch.batch_id]
        given.sent_ms = at
        given.give_up_ms = Millis(min(at + self.policy.request_timeout_ms, batch.expires_ms))
        given.ask_ms = Millis(at + OVERDUE_MS)
        self._alarm(batch.queue, min(given.give_up_ms, given.ask_ms))
        return given

    def abandon(self, why: str) -> list[Finished]:
        """Give every batch its outcome now; the core is of no use afterwards."""
        effects: list[Effect] = []
        for batch in self.unfinished():
            given = self._given.pop(batch.batch_id, None)
            error: TidelogError
            if given is not None and given.sent:
                error = commit_unknown(batch, given, ConnectionLost(f"{why} before the answer came."))
            else:
                error = self._given_up(batch, why)
            effects.append(Finished(self._free(batch), error))
        self._queues.clear()
        return [effect for effect in effects if isinstance(effect, Finished)]

    def handle(self, event: Event) -> list[Effect]:
        """Note what happened; say what to do."""
        effects: list[Effect] = []
        match event:
            case LeaderKnown():
                self._note_leader(event, effects)
            case Acknowledged(batch_id, base_offset, append_time, at):
                if given := self._given.get(batch_id):
                    self._settle(given)
                    effects.append(Finished(self._free(given.batch), None, base_offset, append_time))
                    self._advance(given.batch.queue, at, effects)
            case Refused(batch_id, error, at):
                if given := self._given.get(batch_id):
                    self._refuse(given, error, at, effects)
            case Lost(batch_id, cause, at):
                if given := self._given.get(batch_id):
                    self._lose(given, cause, at, effects)
            case Flushed(at):
                for queue in self._queues.values():
                    if queue.batches:
                        queue.batches[-1].sealed = True
                        self._advance(queue, at, effects)
            case Ticked(at):
                self._tick(at, effects)
        return effects

    # --- what happened ------------------------------------------------------------------------------------------

    def _note_leader(self, event: LeaderKnown, effects: list[Effect]) -> None:
        queue = self._queues.get(event.topic_partition)
        if queue is None:
            return
        same_life = queue.topic_id is None or event.topic_id in (None, queue.topic_id)
        if event.node != NO_NODE and same_life and event.leader_epoch < queue.leader_epoch:
            return  # old news
        moved = event.leader_epoch > queue.leader_epoch or not same_life
        queue.leader_sought = False
        queue.leader, queue.leader_epoch = event.node, max(event.leader_epoch, queue.leader_epoch)
        if event.topic_id is not None:
            queue.topic_id = event.topic_id
        if not same_life:
            queue.leader_epoch = event.leader_epoch
        if moved and event.node != NO_NODE:
            queue.retry_ms = min(queue.retry_ms, event.at)  # another leader, another chance
        if event.node == NO_NODE:
            queue.retry_ms = Millis(max(queue.retry_ms, event.at + self._backoff(1)))
            if queue.batches and event.cause is not None:
                queue.batches[0].cause = event.cause
        given = queue.in_flight
        if given is not None and moved:
            if given.sent:
                given.give_up_ms = Millis(min(given.give_up_ms, event.at + MOVED_MS))
            elif given.node != event.node:
                self._take_back(given)
        self._advance(queue, event.at, effects)

    def _refuse(self, given: InFlight, error: TidelogError, at: Millis, effects: list[Effect]) -> None:
        batch = given.batch
        if error.written is False and error.retry is not Retry.NEVER:
            hint = error.leader
            self._retry(given, error, at)
            queue = batch.queue
            if hint is not None and hint.leader_epoch > queue.leader_epoch:
                queue.leader, queue.leader_epoch = hint.node_id, hint.leader_epoch
                queue.retry_ms = at
            elif error.retry is Retry.ELSEWHERE:
                self._seek(queue, effects)
            self._advance(queue, at, effects)
        elif error.written is None:
            self._unknown(given, error, at, effects)
        else:
            if batch.doubt is not None:
                error = commit_unknown(batch, given, batch.doubt)
            self._settle(given)
            effects.append(Finished(self._free(batch), error))
            self._advance(batch.queue, at, effects)

    def _lose(self, given: InFlight, cause: TidelogError, at: Millis, effects: list[Effect]) -> None:
        if given.sent:
            self._unknown(given, cause, at, effects)
            return
        self._retry(given, cause, at)
        self._seek(given.batch.queue, effects)
        self._advance(given.batch.queue, at, effects)

    def _unknown(self, given: InFlight, cause: TidelogError, at: Millis, effects: list[Effect]) -> None:
        batch, queue = given.batch, given.batch.queue
        if self.policy.resend_unknown and at < batch.expires_ms:
            batch.doubt = batch.doubt or cause
            self._retry(given, cause, at)
        else:
            self._settle(given)
            effects.append(Finished(self._free(batch), commit_unknown(batch, given, cause)))
            queue.retry_ms = Millis(at + self._backoff(1))
        self._seek(queue, effects)
        self._advance(queue, at, effects)

    def _tick(self, at: Millis, effects: list[Effect]) -> None:
        changed, self._changed = self._changed, {}
        for queue in changed:
            self._advance(queue, at, effects)
        while self._alarms and self._alarms[0][0] <= at:
            due, _, queue = heapq.heappop(self._alarms)
            if queue.alarm_ms == due:
                queue.alarm_ms = None
                self._advance(queue, at, effects)

    # --- what to do next ----------------------------------------------------------------------------------------

    def _advance(self, queue: PartitionQueue, at: Millis, effects: list[Effect]) -> None:
        """Do for this queue all that can be done now, and set its alarm for the rest."""
        self._expire(queue, at, effects)
        given = queue.in_flight
        if given is not None:
            self._watch(given, at, effects)
            if queue.in_flight is not None:
                return
        if not queue.batches:
            return
        head = queue.batches[0]
        due = head.created_ms if head.sealed or head.attempts else head.created_ms + self.policy.linger_ms
        due = max(due, queue.retry_ms)
        if due > at:
            look = head.cause is not None and (
                isinstance(head.cause, ConnectionFailed) or head.cause.retry is Retry.ELSEWHERE
            )
            if look and queue.look_ms <= at:
                queue.look_ms = Millis(at + LOOK_MS)
                self._seek(queue, effects)
            next_look = queue.look_ms if look else due
            self._alarm(queue, Millis(min(due, next_look, head.expires_ms)))
        elif queue.leader == NO_NODE:
            self._seek(queue, effects)
            self._alarm(queue, head.expires_ms)
        else:
            queue.batches.popleft()
            head.sealed = True
            head.attempts += 1
            given = InFlight(head, queue.leader, queue.leader_epoch, head.expires_ms, Millis(at + OVERDUE_MS))
            queue.in_flight = self._given[head.batch_id] = given
            effects.append(Give(head, queue.leader))
            self._alarm(queue, min(given.give_up_ms, given.ask_ms))

    def _watch(self, given: InFlight, at: Millis, effects: list[Effect]) -> None:
        """A batch is in flight: has its time come?"""
        queue = given.batch.queue
        if given.give_up_ms <= at:
            if not given.sent:
                self._take_back(given)
                self._expire(queue, at, effects)
                return
            waited = at - (given.sent_ms or at)
            cause = RequestTimedOut(
                f"node {given.node} did not answer for {waited} ms: is it overloaded, stopped or cut off?"
            )
            self._unknown(given, cause, at, effects)
            return
        if given.ask_ms <= at:
            given.ask_ms = Millis(at + OVERDUE_MS)
            queue.leader_sought = False
            self._seek(queue, effects)
        self._alarm(queue, min(given.give_up_ms, given.ask_ms))

    def _expire(self, queue: PartitionQueue, at: Millis, effects: list[Effect]) -> None:
        timed_out = f"delivery_timeout_ms={self.policy.delivery_timeout_ms} passed"
        while queue.batches and queue.batches[0].expires_ms <= at:
            batch = queue.batches.popleft()
            effects.append(Finished(self._free(batch), self._given_up(batch, timed_out)))

    def _given_up(self, batch: PendingBatch, why: str) -> TidelogError:
        """The outcome of a batch that is not with any node."""
        queue, records, cause = batch.queue, batch.outcome.records, batch.doubt or batch.cause
        tried = f"{why}, after {batch.attempts} attempts" if batch.attempts else f"{why} before it was sent"
        unled = "no node said who leads it." if queue.leader == NO_NODE else "earlier batches of it took too long."
        said = cause.message if cause is not None else unled
        error: TidelogError
        if batch.doubt is not None:
            error = _about(
                batch,
                CommitUnknown(
                    f"nobody can tell whether {records} records for "
                    f"{queue.topic_partition} are committed: {tried}: {said}"
                ),
            )
        else:
            error = DeliveryTimedOut(f"{records} records for {queue.topic_partition} are not written: {tried}: {said}")
        error.__cause__ = cause
        return error

    def _retry(self, given: InFlight, cause: TidelogError, at: Millis) -> None:
        given.batch.cause = cause
        self._take_back(given)
        given.batch.queue.retry_ms = Millis(at + self._backoff(given.batch.attempts))

    def _take_back(self, given: InFlight) -> None:
        self._settle(given)
        given.batch.queue.batches.appendleft(given.batch)

    def _settle(self, given: InFlight) -> None:
        del self._given[given.batch.batch_id]
        given.batch.queue.in_flight = None

    def _free(self, batch: PendingBatch) -> PendingBatch:
        self.memory.used -= batch.memory
        batch.queue.queued_bytes -= batch.size
        batch.records, batch.encoded = [], None
        return batch

    def _seek(self, queue: PartitionQueue, effects: list[Effect]) -> None:
        if not queue.leader_sought:
            queue.leader_sought = True
            effects.append(FindLeader(queue.topic_partition))

    def _backoff(self, attempts: int) -> int:
        """Milliseconds before the next attempt: doubling, bounded, a fifth of it by lot."""
        full = min(self.policy.retry_backoff_ms_max, self.policy.retry_backoff_ms << min(attempts - 1, 20))
        return int(full * self._rng.uniform(0.8, 1.2))

    def _alarm(self, queue: PartitionQueue, at: Millis) -> None:
        if queue.alarm_ms is None or at < queue.alarm_ms:
            queue.alarm_ms = at
            heapq.heappush(self._alarms, (at, self._number(), queue))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers


def commit_unknown(batch: PendingBatch, given: InFlight, cause: TidelogError) -> CommitUnknown:
    """What the senders of a batch are told when nobody can tell."""
    error = CommitUnknown(
        f"nobody can tell whether {batch.outcome.records} records for {batch.queue.topic_partition} are committed: "
        f"sent to node {given.node} in leader epoch {given.leader_epoch}, then: {cause.message} Read the partition to "
        'find out, or send them again and accept duplicates (on_unknown="resend" does that in order).'
    )
    error.__cause__ = cause
    return _about(batch, error)


def _about(batch: PendingBatch, error: CommitUnknown) -> CommitUnknown:
    error.topic_partition, error.records = batch.queue.topic_partition, batch.outcome.records
    return error
