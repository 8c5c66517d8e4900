"""In-sync replicas and high watermark of one partition, as its leader tracks them in one leader epoch.

Invariants:
  1. The high watermark advances to N only when every counted replica has made all offsets below N durable. It never
     decreases.
  2. Counted are the members of the in-sync set, removed members until the removal is known to be committed, and joining
     replicas from their proposal until a higher partition epoch without them is known: the maximal in-sync set
     (KIP-497). Neither a missing answer nor a rejection ends this, because a copy of the proposal may still be in
     flight.
  3. The high watermark does not advance while the set is smaller than `min.insync.replicas`, whatever `acks` was
     (KIP-966).
  4. Follower positions start empty. They count only after a fetch of the follower's registered incarnation agreed with
     the leader's log in this epoch, and only from the stream of that fetch. The driver passes on what a follower sends
     on its latest stream only (node/replicas/follower_streams.py).
  5. A change of the set is applied only with a higher partition epoch than the known one.
  6. A deletion of records is acknowledged when the log start has passed them on every replica that is counted, that may
     be eligible to lead (a former member is, until the metadata say otherwise), or that is in service. A replica that
     joins the set later has the leader's log start by then. So a leader from a clean election never has them again.

A member lags when its durable offset is below the leader's log end of `lag_ms_max` ago. A replica may join when its
durable offset has reached the high watermark and the start of the leader epoch, and its log start that of the leader.

Not here: whether a fetch agrees (leader.py), the decision on a proposal (replication/controller/alter_partition.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from replication.partition.follower_events import NOTHING_HELD
from replication.partition.leader_events import FollowerDurable, FollowerFetched, ReplicaView, Session, StateKnown
from tidelog.types import Incarnation, Millis, NodeEpoch, NodeId, Offset, PartitionEpoch
from tidelog.values import dataclass

MARKS_PER_LAG: Final = 16
"""Resolution of the log end's history. The driver records the end, and checks the members, at reviews that are as far
apart: a lagging member is detected at most 2/16 of the lag time too late."""

NO_RETRY: Final = Millis(1 << 62)
"""No proposal has failed since the last one."""

PROPOSAL_PAUSE_MS: Final = 200
"""Pause after a proposal was rejected or not answered: long enough for the metadata that explains it to arrive, short
compared with a session."""


@dataclass(slots=True)
class Positions:
    """Positions of one follower, as it last reported them."""

    incarnation: Incarnation
    session: Session
    log_end: Offset
    durable_offset: Offset
    log_start: Offset
    held_from: Offset = NOTHING_HELD


@dataclass(frozen=True, slots=True)
class ProposedIsr:
    """A proposed in-sync set, each member with its registration. based_on: the partition epoch that it changes."""

    members: tuple[tuple[NodeId, NodeEpoch], ...]
    based_on: PartitionEpoch


class InSyncSet:
    """The in-sync set of one leader epoch: follower positions, high watermark and proposals."""

    def __init__(
        self,
        *,
        me: NodeId,
        log_start: Offset,
        log_end: Offset,
        durable_offset: Offset,
        high_watermark: Offset,
        known: StateKnown,
        lag_ms_max: int,
    ) -> None:
        """log_end: where the epoch starts. high_watermark: as known to this node; the true one may be higher."""
        self._me = me
        self.log_start = log_start
        """Of the leader's log, durable."""
        self.epoch_start: Final = log_end
        self.log_end = log_end
        self.durable_offset = durable_offset
        self.high_watermark = high_watermark
        self._lag_ms_max = lag_ms_max
        self._mark_ms = lag_ms_max // MARKS_PER_LAG
        self._marks: deque[tuple[Millis, Offset]] = deque([(known.at, log_end)])
        self._progress: dict[NodeId, Positions] = {}
        self._since: dict[NodeId, Millis] = {}
        self.replicas: tuple[NodeId, ...] = ()
        self.isr: frozenset[NodeId] = frozenset()
        self._elr: tuple[NodeId, ...] = ()
        self._removed: frozenset[NodeId] = frozenset()
        """Former members, until the metadata tells which of them are eligible to lead."""
        self.partition_epoch = PartitionEpoch(-1)
        self.min_insync = 0
        self._views: Mapping[NodeId, ReplicaView] = {}
        self._joiners: frozenset[NodeId] = frozenset()
        self._in_flight = False
        self._not_before = known.at
        self.retry_at = NO_RETRY
        """When a failed proposal is repeated."""
        self._resigns = False
        self._resign_at = known.at
        self._others_counted: tuple[NodeId, ...] = ()
        self.learn(known)

    # --- state of the set ---

    def learn(self, known: StateKnown) -> bool:
        """Apply the partition's state in the metadata. Returns True if the set is newer (a higher partition epoch)."""
        self._views = known.views
        for replica in [r for r, position in self._progress.items() if not self._is_present(r, position.incarnation)]:
            self.forget(replica, known.at)
        for replica, position in self._progress.items():
            if not self._is_eligible(replica):
                position.held_from = NOTHING_HELD
        if known.partition_epoch >= self.partition_epoch:
            self._elr, self._removed = known.elr, frozenset()  # the answer to a proposal does not contain it
        if known.partition_epoch <= self.partition_epoch:
            return False
        self.replicas, self.min_insync = known.replicas, known.min_insync
        self._take(frozenset(known.isr), known.partition_epoch, known.at)
        return True

    def accepted(self, isr: frozenset[NodeId], partition_epoch: PartitionEpoch, at: Millis) -> bool:
        """Apply the controller's answer to a proposal. Returns True if it was applied.

        Only the partition epoch that directly follows the known one is applied. After a larger step the metadata
        contains more than the new set (a new minimum, for example), and the leader waits for it.
        """
        if partition_epoch != self.partition_epoch + 1:
            return False  # an older answer, or one that skips a change which only the metadata describes
        self._removed |= self.isr - isr
        self._take(isr, partition_epoch, at)
        return True

    def _take(self, isr: frozenset[NodeId], partition_epoch: PartitionEpoch, at: Millis) -> None:
        for replica in isr - self.isr:
            self._since[replica] = at
        self.isr, self.partition_epoch = isr, partition_epoch
        self._joiners, self._in_flight, self._not_before, self._resign_at = frozenset(), False, at, at
        self.retry_at = NO_RETRY
        self._count()

    def _count(self) -> None:
        self._others_counted = tuple(sorted((self.isr | self._joiners) - {self._me}))

    @property
    def counted(self) -> tuple[NodeId, ...]:
        """The maximal in-sync set: the replicas whose positions bound the high watermark."""
        return tuple(sorted({self._me, *self._others_counted}))

    @property
    def is_enough(self) -> bool:
        """Whether the committed set has at least `min.insync.replicas` members."""
        return len(self.isr) >= self.min_insync

    def is_present(self, replica: NodeId, incarnation: Incarnation) -> bool:
        """Whether this is the replica's incarnation in the metadata."""
        return replica in self.replicas and self._is_present(replica, incarnation)

    def _is_present(self, replica: NodeId, incarnation: Incarnation) -> bool:
        view = self._views.get(replica)
        return view is not None and view.incarnation == incarnation

    # --- positions ---

    def append(self, log_end: Offset, durable_offset: Offset) -> None:
        """The leader's own log grew."""
        assert log_end >= self.log_end, "a leader never truncates itself"
        self.log_end = log_end
        self.set_durable(durable_offset)

    def set_durable(self, durable_offset: Offset) -> None:
        """The leader's own log is durable below `durable_offset`."""
        assert self.durable_offset <= durable_offset <= self.log_end, "durable offset decreased or above log end"
        self.durable_offset = durable_offset

    def agree(self, fetch: FollowerFetched) -> None:
        """A fetch agreed with the leader's log: from now on the follower's reported positions count."""
        before = self._progress.get(fetch.replica)
        held_from = NOTHING_HELD if before is None else before.held_from
        # After a truncation of the follower, markers between its new and its old end may be gone: hold from here again.
        goes_back = before is not None and fetch.next_offset < before.log_end
        if (goes_back or held_from == NOTHING_HELD) and self._is_eligible(fetch.replica):
            is_empty = fetch.next_offset == fetch.log_start  # its first batch may begin below its log start
            held_from = Offset(0) if is_empty else fetch.next_offset
        self._progress[fetch.replica] = Positions(
            fetch.incarnation, fetch.session, fetch.next_offset, fetch.durable_offset, fetch.log_start, held_from
        )

    def held_from(self, replica: NodeId) -> Offset:
        """The markers of all transactions that the follower has fetched from here on were kept for it, whichever
        streams it used; NOTHING_HELD while its node is fenced or stopping, since `first_unfetched` ignores it then."""
        position = self._progress.get(replica)
        return NOTHING_HELD if position is None else position.held_from

    def record_durable(self, report: FollowerDurable) -> bool:
        """A follower reports its durable offset between fetches. Returns True if the report counts."""
        position = self._progress.get(report.replica)
        if position is None or position.incarnation != report.incarnation or position.session != report.session:
            return False
        if report.durable_offset > position.log_end:  # invalid: the log end cannot move while the fetch is open
            return False
        position.durable_offset = report.durable_offset
        position.log_start = max(position.log_start, report.log_start)
        return True

    def first_unfetched(self) -> Offset:
        """The smallest log end of the followers that fetch. One whose node is fenced or stopping does not count."""
        ends = (position.log_end for replica, position in self._progress.items() if self._is_eligible(replica))
        return min(ends, default=self.log_end)

    def forget(self, replica: NodeId, at: Millis) -> None:
        """Discard the follower's positions until a fetch of it agrees again."""
        if self._progress.pop(replica, None) is not None:
            self._since[replica] = at

    def positions(self, replica: NodeId) -> Positions | None:
        """The last positions of a follower; None if none count."""
        return self._progress.get(replica)

    def nearest(self, rack: str, offset: Offset) -> NodeId | None:
        """The in-sync follower in `rack` with the largest log end that has `offset` (KIP-392). None if there is none,
        or if the leader is in that rack."""
        mine = self._views.get(self._me)
        if not rack or (mine is not None and mine.rack == rack):
            return None
        found = [
            (-position.log_end, replica)
            for replica, position in self._progress.items()
            if replica in self.isr
            and self._is_eligible(replica)
            and self._views[replica].rack == rack
            and position.log_start <= offset <= position.log_end
        ]
        return min(found)[1] if found else None

    def holders(self, end: Offset) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]:
        """The in-sync replicas that have every offset below `end`, and those that have them durable, as far as this
        leader knows: a follower that has not fetched in this epoch is in neither."""
        has = {self._me: (self.log_end, self.durable_offset)}
        has.update((replica, (each.log_end, each.durable_offset)) for replica, each in self._progress.items())
        members = sorted(self.isr & has.keys())
        return (
            tuple(replica for replica in members if has[replica][0] >= end),
            tuple(replica for replica in members if has[replica][1] >= end),
        )

    def commit(self) -> Offset | None:
        """Advance the high watermark as far as the positions allow. Returns the new value, None if it did not
        change."""
        if len(self.isr) < self.min_insync:
            return None  # an unclean loss of so few replicas could take back what was reported as committed
        reached = self.durable_offset
        for replica in self._others_counted:
            position = self._progress.get(replica)
            if position is None:
                return None  # a member that has not fetched in this epoch may have a log that diverges
            if position.durable_offset < reached:
                reached = position.durable_offset
        if reached <= self.high_watermark:
            return None
        self.high_watermark = reached
        return reached

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start of the replicas that must delete what the leader deletes; -1 if one of them has not
        fetched in this epoch."""
        in_service = (replica for replica in self.replicas if self._is_eligible(replica))
        low = self.log_start
        for replica in {*self._others_counted, *self._elr, *self._removed, *in_service} - {self._me}:
            position = self._progress.get(replica)
            low = min(low, Offset(-1) if position is None else position.log_start)
        return low

    # --- membership ---

    def tick(self, at: Millis) -> None:
        """Record the current log end in the history."""
        if at - self._marks[-1][0] >= self._mark_ms and self._marks[-1][1] != self.log_end:
            self._marks.append((at, self.log_end))

    def may_join(self, replica: NodeId) -> bool:
        """Whether a replica outside the set has caught up and its node is eligible in the metadata."""
        position, view = self._progress.get(replica), self._views.get(replica)
        if position is None or view is None or not view.eligible or replica not in self.replicas:
            return False
        # With a lower log start it would lead with records that the sender of a deletion knows to be deleted.
        if view.incarnation != position.incarnation or position.log_start < self.log_start:
            return False
        return position.durable_offset >= max(self.high_watermark, self.epoch_start)

    def is_behind(self, replica: NodeId, at: Millis) -> bool:
        """Whether the member's durable offset is below the leader's log end of `lag_ms_max` ago. False for a member
        that joined less than that time ago."""
        if at - self._since.get(replica, at) < self._lag_ms_max:
            return False
        durable_offset = self.durable_offset
        if replica != self._me:
            position = self._progress.get(replica)
            if position is None:
                return True
            durable_offset = position.durable_offset
        then = self._end_before(Millis(at - self._lag_ms_max))
        return then is not None and durable_offset < then

    def _end_before(self, at: Millis) -> Offset | None:
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= at:
            marks.popleft()
        return marks[0][1] if marks[0][0] <= at else None

    def is_settled(self, at: Millis) -> bool:
        """True if time alone cannot change anything: all members are caught up, and no proposal is pending."""
        if self._in_flight or self._joiners or at < self._not_before or self.durable_offset < self.log_end:
            return False
        for replica in self.isr:
            if replica == self._me:
                continue
            position = self._progress.get(replica)
            if position is None or position.durable_offset < self.log_end or not self._is_eligible(replica):
                return False
        return True

    def propose(self, at: Millis, *, reporting: NodeId | None = None) -> ProposedIsr | None:
        """The change of the set to propose now; None if the set is right, or an answer is outstanding.

        reporting: a replica that has just reported its positions. Only such a replica is newly admitted: the recorded
        positions of any other may belong to a dead node.
        A joiner that was proposed and is no longer wanted leads to a proposal of the unchanged set: it raises the
        partition epoch, which invalidates every copy of the earlier proposal. Joiners are counted from here on.
        """
        if self._in_flight or at < self._not_before:
            return None
        self.retry_at = NO_RETRY
        stays = {r for r in self.isr if r == self._me or (self._is_eligible(r) and not self.is_behind(r, at))}
        candidates = self._joiners if reporting is None else self._joiners | {reporting}
        join = {replica for replica in candidates - self.isr if self.may_join(replica)}
        self._resigns = at >= self._resign_at and self.is_behind(self._me, at) and self._has_successor(stays, join)
        if self._resigns:
            stays.discard(self._me)
        wanted = stays | join
        if wanted == self.isr and not self._joiners:
            return None
        members = tuple(
            (replica, self._views[replica].node_epoch) for replica in sorted(wanted) if replica in self._views
        )
        self._joiners |= wanted - self.isr
        self._in_flight = True
        self._count()
        return ProposedIsr(members, self.partition_epoch)

    def proposal_failed(self, based_on: PartitionEpoch, at: Millis) -> None:
        """The proposal was rejected, or its outcome is unknown: its joiners stay counted, and the leader proposes again
        after a pause. A resignation is retried only after another lag time: no other replica may be able to lead, and
        other changes must not be blocked."""
        if self._in_flight and based_on == self.partition_epoch:
            self._in_flight = False
            self._not_before = self.retry_at = Millis(at + PROPOSAL_PAUSE_MS)
            if self._resigns:
                self._resign_at = Millis(at + self._lag_ms_max)

    def _has_successor(self, stays: set[NodeId], join: set[NodeId]) -> bool:
        """Whether another replica could lead: a member that stays in the set or, if there is none and no replica joins
        now, an eligible leader replica. Such a replica has all committed records. A leader whose disk hangs may never
        get another member into the set; consumers that it cannot serve fetch from the next leader."""
        return len(stays) > 1 or (not join and any(self._is_eligible(node) for node in self._elr if node != self._me))

    def _is_eligible(self, replica: NodeId) -> bool:
        view = self._views.get(replica)
        return view is not None and view.eligible
