"""A partition's leader in one leader epoch: which fetches agree, what is committed, which produce requests are done.

Invariants:
  1. A follower's fetch counts only if its leader epoch is this one, its incarnation is the registered one and its log
     agrees with the leader's. A diverging fetch discards the positions that were recorded before.
  2. `acks=all` is acknowledged when the high watermark of *this* epoch has passed the records, `acks=1` when they are
     durable on the leader. When the leadership ends, every waiting request fails with `LeadershipLost`: whether the
     records remain is unknown.
  3. With fewer in-sync replicas than `min.insync.replicas`, `acks=all` is rejected before the append (`ensure_enough`).
     If the set shrinks below it later, waiting requests fail with `NotEnoughReplicasAfterAppend`: appended, not
     committed yet.
  4. Until the high watermark has reached the start of the epoch, the committed log end is not reported (KIP-207).
  5. Only committed records are deleted. A deletion is answered when the low watermark (`InSyncSet.low_watermark`) has
     reached its offset. Repeating one has no further effect. Its deadline limits the wait for other replicas: it counts
     once the leader's own log starts there.

Not here: follower positions (isr.py), bytes and waiting fetches (node/replicas/leader_replica.py), elections
(replication/controller/elections.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from replication.common_events import ClockTicked
from replication.partition import leader_events as events
from replication.partition.acks import AckWaiters
from replication.partition.isr import InSyncSet
from tidelog.epochs import divergence, divergence_for_reader, end_for_reader, ensure_epoch
from tidelog.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    LeadershipLost,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    StaleNodeEpoch,
    TidelogError,
    UnknownLeaderEpoch,
)
from tidelog.types import (
    HIGH_WATERMARK,
    Acks,
    EpochEnd,
    EpochStart,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    TopicPartition,
)

OWN_DELETION_MS: Final = 10_000
"""How long after its deadline a deletion still waits for the leader's own disk, which may have failed."""


class PartitionLeader:
    """State machine of one leader. Each leader epoch has a new object, even on the same node."""

    def __init__(
        self,
        *,
        name: TopicPartition,
        me: NodeId,
        leader_epoch: LeaderEpoch,
        history: Sequence[EpochStart],
        log_start: Offset,
        log_end: Offset,
        durable_offset: Offset,
        high_watermark: Offset,
        known: events.StateKnown,
        lag_ms_max: int,
    ) -> None:
        """history: the epoch entries of the log. If this epoch is not among them, it starts at `log_end`; otherwise the
        node has led in it before and resumes it."""
        self.name: Final = name
        self.leader_epoch: Final = leader_epoch
        self._me = me
        began = next((entry.start_offset for entry in history if entry.epoch == leader_epoch), log_end)
        earlier = [entry for entry in history if entry.epoch < leader_epoch and entry.start_offset < began]
        self._history: tuple[EpochStart, ...] = (*earlier, EpochStart(leader_epoch, began))
        self._set = InSyncSet(
            me=me,
            log_start=log_start,
            log_end=log_end,
            durable_offset=durable_offset,
            high_watermark=high_watermark,
            known=known,
            lag_ms_max=lag_ms_max,
        )
        self._for_commit = AckWaiters()
        self._for_durable = AckWaiters()
        self._for_deletion = AckWaiters()
        self._ended: str | None = None

    # --- queries ---

    @property
    def high_watermark(self) -> Offset:
        """Every record below is committed, as far as this leader knows."""
        return self._set.high_watermark

    @property
    def in_sync(self) -> InSyncSet:
        """The in-sync set, for reading only."""
        return self._set

    @property
    def waiting(self) -> int:
        """Number of waiting produce requests and deletions."""
        return len(self._for_commit) + len(self._for_durable) + len(self._for_deletion)

    @property
    def deadline(self) -> Millis:
        """No waiting request has an earlier deadline, and no failed proposal is repeated earlier."""
        requests = min(self._for_commit.deadline, self._for_durable.deadline, self._for_deletion.deadline)
        return min(requests, self._set.retry_at)

    @property
    def knows_committed_end(self) -> bool:
        """True if the high watermark has reached the start of this epoch."""
        return self._set.high_watermark >= self._set.epoch_start

    def ensure_enough(self, acks: Acks) -> None:
        """Check before an append. Raises NotEnoughReplicas for acks=all while the in-sync set is too small."""
        if acks is Acks.ALL and not self._set.is_enough:
            raise NotEnoughReplicas(
                f"partition {self.name} has {len(self._set.isr)} in-sync replicas, min.insync.replicas is "
                f"{self._set.min_insync}; nothing was written, retry once another replica is in sync"
            )

    def committed_end(self) -> Offset:
        """The end of the committed log. Raises OffsetNotAvailable while a new leader does not know it (KIP-207)."""
        if not self.knows_committed_end:
            raise OffsetNotAvailable(
                f"partition {self.name}: the leader of epoch {self.leader_epoch} has high watermark "
                f"{self._set.high_watermark}, its epoch starts at offset {self._set.epoch_start}; "
                "the committed end is not known yet, retry after a pause"
            )
        return self._set.high_watermark

    def deletable(self, offset: Offset) -> Offset:
        """The offset below which a deletion up to `offset`, or up to HIGH_WATERMARK, deletes records. Raises
        OffsetOutOfRange above the high watermark, OffsetNotAvailable while a new leader does not know it."""
        if offset == HIGH_WATERMARK:
            return self.committed_end()
        if offset > self._set.high_watermark or offset < 0:
            end = self.committed_end() if offset >= 0 else self._set.high_watermark
            raise OffsetOutOfRange(
                f"partition {self.name} has its high watermark at {end}: records below offset {offset} cannot be "
                "deleted; name an offset up to it, or -1 for all that is committed"
            )
        return offset

    def epoch_end(self, epoch: LeaderEpoch) -> EpochEnd:
        """The largest epoch that is at most `epoch`, and its end, for readers; if the log has none, because its records
        are deleted: `epoch`, and where the first known one begins."""
        return end_for_reader(self._history, epoch, self._set.log_start, self._set.log_end)

    def diverging(self, next_offset: Offset, last_epoch: LeaderEpoch) -> EpochEnd | None:
        """Where the log of a follower diverges from this one; None if it agrees."""
        return divergence(self._history, self._set.log_start, self._set.log_end, next_offset, last_epoch)

    def diverging_from_reader(self, next_offset: Offset, last_epoch: LeaderEpoch) -> EpochEnd | None:
        """Where what a consumer has read diverges from the log; None if it agrees."""
        return divergence_for_reader(self._history, self._set.log_start, self._set.log_end, next_offset, last_epoch)

    # --- events ---

    def handle(self, event: events.LeaderEvent) -> list[events.LeaderEffect]:
        """Process one event. The driver executes the returned effects in order."""
        assert self._ended is None, "event for a leadership that has ended"
        match event:
            case events.Appended(log_end, durable_offset):
                self._set.append(log_end, durable_offset)
                return self._moved()
            case events.AckAwaited():
                return self._await_ack(event)
            case events.FollowerDurable():
                return self._follower_durable(event)
            case events.FollowerFetched():
                return self._fetched(event)
            case events.LocalDurable(durable_offset):
                self._set.set_durable(durable_offset)
                return self._moved()
            case ClockTicked(at):
                return self._ticked(at)
            case events.StateKnown():
                changed = self._set.learn(event)
                return self._reconsidered(event.at, changed=changed)
            case events.LogStartMoved() | events.LogStartKept() | events.DeletionAwaited():
                return self._delete(event)
            case events.ProposalAccepted():
                return self._accepted(event)
            case events.ProposalFailed(based_on, at):
                self._set.proposal_failed(based_on, at)
                return []
            case events.LeadershipEnded(reason):
                return self._end(reason)
            case _:
                assert_never(event)

    # --- produce requests ---

    def _await_ack(self, event: events.AckAwaited) -> list[events.LeaderEffect]:
        waiters, position = self._for_commit, self._set.high_watermark
        if event.acks is Acks.LEADER:
            waiters, position = self._for_durable, self._set.durable_offset
        if event.acks is Acks.NONE or event.end_offset <= position:
            return [events.Acknowledge((event.ticket,))]
        waiters.add(event.ticket, event.end_offset, event.deadline)
        return []

    def _moved(self) -> list[events.LeaderEffect]:
        """After a position moved: advance the high watermark, and acknowledge the requests it satisfies."""
        effects: list[events.LeaderEffect] = []
        if self._for_durable and (durable_offset := self._for_durable.reached(self._set.durable_offset)):
            effects.append(events.Acknowledge(durable_offset))
        reached = self._set.commit()
        if reached is not None:
            effects.append(events.CommitUpTo(reached))
            if committed := self._for_commit.reached(reached):
                effects.append(events.Acknowledge(committed))
        return effects

    # --- deletions ---

    def _delete(
        self, event: events.LogStartMoved | events.LogStartKept | events.DeletionAwaited
    ) -> list[events.LeaderEffect]:
        match event:
            case events.LogStartMoved(log_start):
                self._set.log_start = log_start
                return self._deleted()
            case events.LogStartKept(error):
                return self._fail_deletions(error)
            case events.DeletionAwaited(ticket, offset, deadline):
                self._for_deletion.add(ticket, offset, deadline)
                return self._deleted() if offset <= self._set.log_start else [events.MoveLogStart(offset)]

    def _deleted(self) -> list[events.LeaderEffect]:
        """Answer the deletions that the low watermark has reached."""
        if not self._for_deletion:
            return []
        low = self._set.low_watermark
        reached = self._for_deletion.reached(low)
        return [events.RecordsDeleted(reached, low)] if reached else []

    def _fail_deletions(self, error: TidelogError) -> list[events.LeaderEffect]:
        tickets = self._for_deletion.all()
        return [events.DeletionFailed(tickets, error, self._set.low_watermark)] if tickets else []

    # --- followers ---

    def _fetched(self, fetch: events.FollowerFetched) -> list[events.LeaderEffect]:
        refusal = self._refusal(fetch)
        if refusal is not None:
            return [events.FetchRefused(refusal)]
        end = self.diverging(fetch.next_offset, fetch.last_epoch)
        if end is not None:
            self._set.forget(fetch.replica, fetch.at)  # its positions were of a log that it is about to truncate
            return [events.FetchDiverged(end)]
        self._set.agree(fetch)
        return [events.FetchAgreed(), *self._followed(fetch.replica, fetch.at)]

    def _follower_durable(self, report: events.FollowerDurable) -> list[events.LeaderEffect]:
        if report.leader_epoch != self.leader_epoch or not self._set.record_durable(report):
            return []
        return self._followed(report.replica, report.at)

    def _followed(self, replica: NodeId, at: Millis) -> list[events.LeaderEffect]:
        effects = [*self._moved(), *self._deleted()]
        if replica not in self._set.isr:
            effects += self._propose(at, reporting=replica)
        return effects

    def _refusal(self, fetch: events.FollowerFetched) -> TidelogError | None:
        """Return why the fetch is rejected, or None."""
        try:
            ensure_epoch(self.name, self.leader_epoch, fetch.leader_epoch)
        except (FencedLeaderEpoch, UnknownLeaderEpoch) as error:
            return error
        if fetch.replica not in self._set.replicas or fetch.replica == self._me:
            return NotLeaderOrFollower(
                f"node {fetch.replica} is no follower of partition {self.name} in the leader's metadata; "
                "retry once it is assigned"
            )
        if not self._set.is_present(fetch.replica, fetch.incarnation):
            return StaleNodeEpoch(
                f"node {fetch.replica} fetches partition {self.name} as incarnation {fetch.incarnation}, which is "
                "not the registered one in the leader's metadata: an earlier process, or stale metadata"
            )
        if not 0 <= fetch.durable_offset <= fetch.next_offset:
            return InvalidRequest(
                f"node {fetch.replica} reports durable offset {fetch.durable_offset} for partition "
                f"{self.name}, outside 0 to its log end {fetch.next_offset}; its process is faulty"
            )
        if fetch.next_offset < self._set.log_start:
            self._set.forget(fetch.replica, fetch.at)
            return OffsetOutOfRange(
                f"partition {self.name} starts at offset {self._set.log_start}, node {fetch.replica} fetches from "
                f"{fetch.next_offset}; the follower restarts at the leader's log start"
            )
        return None

    # --- the set ---

    def _ticked(self, at: Millis) -> list[events.LeaderEffect]:
        self._set.tick(at)
        effects = self._propose(at)
        late = (*self._for_commit.expired(at), *self._for_durable.expired(at))
        if late:
            effects.append(
                events.Fail(
                    late,
                    RequestTimedOut(
                        f"partition {self.name}: appended, but not acknowledged in time by the in-sync replicas "
                        f"{sorted(self._set.isr)}; the records may or may not remain in the log"
                    ),
                )
            )
        # The timeout of a deletion is for the other replicas: with 0 and no other replica it must succeed, as in Kafka.
        undeleted = self._for_deletion.expired(at, self._set.log_start)
        undeleted += self._for_deletion.expired(Millis(at - OWN_DELETION_MS))
        if undeleted:
            effects.append(self._deletions_expired(undeleted))
        return effects

    def _deletions_expired(self, tickets: tuple[events.Ticket, ...]) -> events.DeletionFailed:
        low = self._set.low_watermark
        error = RequestTimedOut(
            f"partition {self.name}: records are deleted below offset {self._set.log_start}, but not on all replicas "
            f"in time: the lowest of them has low watermark {low}; it follows by itself, repeat to wait for it"
        )
        return events.DeletionFailed(tickets, error, low)

    def _accepted(self, answer: events.ProposalAccepted) -> list[events.LeaderEffect]:
        if answer.leader_epoch != self.leader_epoch:
            return []  # the set of another leadership: this one learns it from the metadata
        changed = self._set.accepted(frozenset(answer.isr), answer.partition_epoch, answer.at)
        return self._reconsidered(answer.at, changed=changed)

    def _reconsidered(self, at: Millis, *, changed: bool) -> list[events.LeaderEffect]:
        effects = [*self._moved(), *self._deleted()]
        if changed and not self._set.is_enough and (failed := self._for_commit.all()):
            effects.append(
                events.Fail(
                    failed,
                    NotEnoughReplicasAfterAppend(
                        f"partition {self.name}: appended, then the in-sync replicas shrank to "
                        f"{sorted(self._set.isr)}, below min.insync.replicas={self._set.min_insync}; "
                        "not committed yet, the records may still be committed later"
                    ),
                )
            )
        return [*effects, *self._propose(at)]

    def _propose(self, at: Millis, *, reporting: NodeId | None = None) -> list[events.LeaderEffect]:
        proposal = self._set.propose(at, reporting=reporting)
        if proposal is None:
            return []
        return [events.ProposeIsr(self.leader_epoch, proposal.based_on, proposal.members)]

    def _end(self, reason: str) -> list[events.LeaderEffect]:
        self._ended = reason
        deletions = self._fail_deletions(
            LeadershipLost(f"partition {self.name}: {reason}; the next leader may or may not have deleted the records")
        )
        waiting = (*self._for_commit.all(), *self._for_durable.all())
        if not waiting:
            return deletions
        error = LeadershipLost(
            f"partition {self.name}: appended in leader epoch {self.leader_epoch}, then {reason}; "
            "the next leader may or may not have the records"
        )
        return [events.Fail(waiting, error), *deletions]
