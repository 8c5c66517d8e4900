"""Who is in sync, and how far one partition is committed: the leader's books for one epoch.

Kept true:
  1. The high watermark moves to N only when every counted replica holds all offsets below N, and never moves back.
  2. Counted are the members of the set, leavers until their removal is known to be committed, and joiners from their
     proposal until a higher partition epoch without them is known: the maximal in-sync set (KIP-497). Neither silence
     nor a refusal ends it, since a copy of the proposal may still be under way.
  3. The watermark stands still while the set is smaller than `min.insync.replicas`, whatever `acks` was (KIP-966).
  4. The books start empty. A follower's positions count only after a fetch of its present incarnation has agreed with
     the leader's log in this epoch, and only from the stream on which that fetch came; one that is overtaken by a later
     one, on another stream, counts for nothing.
  5. News of the set counts only with a higher partition epoch than the one known.

A member is behind when what it *holds* has not reached, for `lag_ms_max`, where the leader's end was; a replica may
join when what it *holds* has reached the high watermark and the start of the leader's epoch.

Left to others: whether a fetch agrees (leader.py), the decision on a proposal (the controller).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from replication.partition.leader_events import FollowerDurable, FollowerFetched, ReplicaView, Session, StateKnown
from tidelog.types import Incarnation, Millis, NodeEpoch, NodeId, Offset, PartitionEpoch

MARKS_PER_LAG: Final = 16
"""How finely the leader remembers where its end was: a member is found behind at most 1/16 of the lag too late."""

PROPOSAL_PAUSE_MS: Final = 200
"""After a refusal or silence: long enough for the metadata to arrive that explains it, short against a session."""


@dataclass(slots=True)
class Positions:
    """One follower's page in the books."""

    incarnation: Incarnation
    session: Session
    log_end: Offset
    durable_offset: Offset
    log_start: Offset


@dataclass(frozen=True, slots=True)
class Proposal:
    """The set wanted, by registrations, and the partition epoch that it is based on."""

    members: tuple[tuple[NodeId, NodeEpoch], ...]
    based_on: PartitionEpoch


class InSyncSet:
    """See the module's words. One object lives for one leader epoch."""

    def __init__(
        self,
        *,
        me: NodeId,
        log_end: Offset,
        durable_offset: Offset,
        high_watermark: Offset,
        known: StateKnown,
        lag_ms_max: int,
    ) -> None:
        """log_end: where the epoch starts. high_watermark: as far as this node knows; it may lie below the truth."""
        self._me = me
        self.epoch_start: Final = log_end
        self.log_end = log_end
        self.durable_offset = durable_offset
        self.high_watermark = high_watermark
        self._lag_ms_max = lag_ms_max
        self._mark_ms = lag_ms_max // MARKS_PER_LAG
        self._marks: deque[tuple[Millis, Offset]] = deque([(known.at, log_end)])
        self._progress: dict[NodeId, Positions] = {}
        self._latest: dict[NodeId, tuple[Incarnation, int]] = {}
        self._since: dict[NodeId, Millis] = {}
        self.replicas: tuple[NodeId, ...] = ()
        self.isr: frozenset[NodeId] = frozenset()
        self._elr: tuple[NodeId, ...] = ()
        self.partition_epoch = PartitionEpoch(-1)
        self.min_insync = 0
        self._views: Mapping[NodeId, ReplicaView] = {}
        self._joiners: frozenset[NodeId] = frozenset()
        self._in_flight = False
        self._not_before = known.at
        self._resigns = False
        self._resign_at = known.at
        self._others_counted: tuple[NodeId, ...] = ()
        self.learn(known)

    # --- what is known of the set ---

    def learn(self, known: StateKnown) -> bool:
        """Take in the metadata's word. Returns whether the set is news (a higher partition epoch)."""
        self._views = known.views
        for replica in [r for r, book in self._progress.items() if not self._is_present(r, book.incarnation)]:
            self.forget(replica, known.at)
        if known.partition_epoch >= self.partition_epoch:
            self._elr = known.elr  # the answer to a proposal did not say it
        if known.partition_epoch <= self.partition_epoch:
            return False
        self.replicas, self.min_insync = known.replicas, known.min_insync
        self._take(frozenset(known.isr), known.partition_epoch, known.at)
        return True

    def accepted(self, isr: frozenset[NodeId], partition_epoch: PartitionEpoch, at: Millis) -> bool:
        """The controller's answer to the proposal based on the partition epoch known: the next one, or else the
        metadata has more to tell than the set (a new minimum, for example) and must be waited for. Returns whether it
        was news."""
        if partition_epoch != self.partition_epoch + 1:
            return False
        self._take(isr, partition_epoch, at)
        return True

    def _take(self, isr: frozenset[NodeId], partition_epoch: PartitionEpoch, at: Millis) -> None:
        for replica in isr - self.isr:
            self._since[replica] = at
        self.isr, self.partition_epoch = isr, partition_epoch
        self._joiners, self._in_flight, self._not_before, self._resign_at = frozenset(), False, at, at
        self._count()

    def _count(self) -> None:
        self._others_counted = tuple(sorted((self.isr | self._joiners) - {self._me}))

    @property
    def counted(self) -> tuple[NodeId, ...]:
        """The maximal in-sync set: whose positions bound the high watermark."""
        return tuple(sorted({self._me, *self._others_counted}))

    @property
    def is_enough(self) -> bool:
        """Is the set, as committed, as large as `min.insync.replicas` asks for?"""
        return len(self.isr) >= self.min_insync

    def is_present(self, replica: NodeId, incarnation: Incarnation) -> bool:
        """Is this the replica's incarnation as the metadata has it?"""
        return replica in self.replicas and self._is_present(replica, incarnation)

    def _is_present(self, replica: NodeId, incarnation: Incarnation) -> bool:
        view = self._views.get(replica)
        return view is not None and view.incarnation == incarnation

    # --- positions ---

    def append(self, log_end: Offset, durable_offset: Offset) -> None:
        """The leader's own log grew."""
        assert log_end >= self.log_end, "a leader never truncates itself"
        self.log_end = log_end
        self.hold(durable_offset)

    def hold(self, durable_offset: Offset) -> None:
        """The leader itself holds everything below `held`."""
        assert self.durable_offset <= durable_offset <= self.log_end, "what the leader holds grows, up to its end"
        self.durable_offset = durable_offset

    def is_latest(self, fetch: FollowerFetched) -> bool:
        """Has no later fetch of the same process come before this one?"""
        incarnation, fetch_id = self._latest.get(fetch.replica, (None, 0))
        if fetch.incarnation == incarnation and fetch.fetch_id < fetch_id:
            return False
        self._latest[fetch.replica] = fetch.incarnation, fetch.fetch_id
        return True

    def agree(self, fetch: FollowerFetched) -> None:
        """A fetch agreed with the leader's log: from now on the follower's positions count, as it says them."""
        book = self._progress.get(fetch.replica)
        if book is None:
            self._progress[fetch.replica] = Positions(
                fetch.incarnation, fetch.session, fetch.next_offset, fetch.durable_offset, fetch.log_start
            )
        else:
            book.incarnation, book.session = fetch.incarnation, fetch.session
            book.log_end, book.durable_offset, book.log_start = fetch.next_offset, fetch.durable_offset, fetch.log_start

    def hear(self, report: FollowerDurable) -> bool:
        """A follower says what it holds, between fetches. Returns whether that counts."""
        book = self._progress.get(report.replica)
        if book is None or book.incarnation != report.incarnation or book.session != report.session:
            return False
        if report.durable_offset > book.log_end:  # its log end cannot have moved: its fetch is open
            return False
        book.durable_offset = report.durable_offset
        return True

    def forget(self, replica: NodeId, at: Millis) -> None:
        """Nothing that this follower said counts any more, until a fetch of it agrees again."""
        if self._progress.pop(replica, None) is not None:
            self._since[replica] = at

    def positions(self, replica: NodeId) -> Positions | None:
        """What the books say of a follower."""
        return self._progress.get(replica)

    def nearest(self, rack: str, offset: Offset) -> NodeId | None:
        """The member in that rack whom a reader at `offset` should ask (KIP-392): the one whose log reaches furthest,
        of those that have the offset. None: the leader itself is as near, or nobody is."""
        mine = self._views.get(self._me)
        if not rack or (mine is not None and mine.rack == rack):
            return None
        found = [
            (-book.log_end, replica)
            for replica, book in self._progress.items()
            if replica in self.isr
            and self._is_eligible(replica)
            and self._views[replica].rack == rack
            and book.log_start <= offset <= book.log_end
        ]
        return min(found)[1] if found else None

    def commit(self) -> Offset | None:
        """Move the high watermark as far as the books allow. Returns its new value, None where it stays."""
        if len(self.isr) < self.min_insync:
            return None
        reached = self.durable_offset
        for replica in self._others_counted:
            book = self._progress.get(replica)
            if book is None:
                return None
            if book.durable_offset < reached:
                reached = book.durable_offset
        if reached <= self.high_watermark:
            return None
        self.high_watermark = reached
        return reached

    # --- who should be in the set ---

    def tick(self, at: Millis) -> None:
        """Remember where the end is now."""
        if at - self._marks[-1][0] >= self._mark_ms and self._marks[-1][1] != self.log_end:
            self._marks.append((at, self.log_end))

    def may_join(self, replica: NodeId) -> bool:
        """Has a replica outside the set caught up, and does the metadata see its node as fit?"""
        book, view = self._progress.get(replica), self._views.get(replica)
        if book is None or view is None or not view.eligible or replica not in self.replicas:
            return False
        return view.incarnation == book.incarnation and book.durable_offset >= max(
            self.high_watermark, self.epoch_start
        )

    def is_behind(self, replica: NodeId, at: Millis) -> bool:
        """Has what a member holds not reached, for the whole lag time, where the leader's end was?"""
        if at - self._since.get(replica, at) < self._lag_ms_max:
            return False
        durable_offset = self.durable_offset
        if replica != self._me:
            book = self._progress.get(replica)
            if book is None:
                return True
            durable_offset = book.durable_offset
        then = self._end_before(Millis(at - self._lag_ms_max))
        return then is not None and durable_offset < then

    def _end_before(self, at: Millis) -> Offset | None:
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= at:
            marks.popleft()
        return marks[0][1] if marks[0][0] <= at else None

    def is_settled(self, at: Millis) -> bool:
        """Is there nothing that time alone could change: every member holds everything, and no change is on its way?"""
        if self._in_flight or self._joiners or at < self._not_before or self.durable_offset < self.log_end:
            return False
        for replica in self.isr:
            if replica == self._me:
                continue
            book = self._progress.get(replica)
            if book is None or book.durable_offset < self.log_end or not self._is_eligible(replica):
                return False
        return True

    def propose(self, at: Millis, *, heard: NodeId | None = None) -> Proposal | None:
        """The change of the set to ask for now; None where the set is right, or an answer is outstanding.

        heard: a replica that has just told its positions. Only such a one is newly admitted: a page in the books may be
        that of a dead node.
        An unchanged set is proposed where a joiner was proposed before and is not wanted any more: it raises the
        partition epoch, and so ends every copy of the earlier proposal. From here on joiners are counted.
        """
        if self._in_flight or at < self._not_before:
            return None
        stays = {r for r in self.isr if r == self._me or (self._is_eligible(r) and not self.is_behind(r, at))}
        asking = self._joiners if heard is None else self._joiners | {heard}
        join = {replica for replica in asking - self.isr if self.may_join(replica)}
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
        return Proposal(members, self.partition_epoch)

    def proposal_failed(self, based_on: PartitionEpoch, at: Millis) -> None:
        """Refused, or nobody knows: whom it named stays counted, and it is asked again after a pause; a resignation
        only after another lag time, since nobody else may be able to lead, and other changes must have their turn."""
        if self._in_flight and based_on == self.partition_epoch:
            self._in_flight, self._not_before = False, Millis(at + PROPOSAL_PAUSE_MS)
            if self._resigns:
                self._resign_at = Millis(at + self._lag_ms_max)

    def _has_successor(self, stays: set[NodeId], join: set[NodeId]) -> bool:
        """Could somebody else lead: another member that stays in the set, or, where there is none and nobody joins it
        now, an eligible leader replica? It has all that is committed, and the set may never grow around a leader whose
        disk hangs; those who have to read what it cannot read any more fetch from the next one."""
        return len(stays) > 1 or (not join and any(self._is_eligible(node) for node in self._elr if node != self._me))

    def _is_eligible(self, replica: NodeId) -> bool:
        view = self._views.get(replica)
        return view is not None and view.eligible
