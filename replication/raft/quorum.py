"""The metadata quorum: Raft in Kafka's pull form. Decides who leads, which votes are granted and what is committed.

Invariants:
  1. A node votes once per epoch, and nothing that depends on a vote is sent before the vote is on disk.
  2. An epoch has one leader, elected by a majority. Its log contains everything that was committed before.
  3. The high watermark advances only with a record of the leader's own epoch, and only over what a majority has made
     durable.
  4. A leader from which no majority fetches resigns. A node that cannot win does not start an epoch (pre-vote).
  5. A voter is a node and its directory. A vote request for another directory of this node is refused.
  6. A request alone does not establish a leader: a node that is named as leader is queried first (`ConfirmLeader`) and
     accepted when it confirms this itself. A vote needs no such confirmation, because this node may not know the newest
     voters. No message raises the epoch by more than `EPOCH_JUMP`, and none beyond `EPOCH_LAST`.
  7. An event whose processing fails leaves the state unchanged.
  8. A voter whose connections the leader's address refuses stands for election soon. It wins only if a majority of the
     voters does not hear from the leader either (pre-vote).

Not here: disk, network and time (node/quorum/driver.py), the meaning of the records
(replication/controller/controller.py).
Source: KIP-595; KIP-996 (pre-vote); KIP-853 (voters); KIP-630 (snapshots); Raft's chapters 3 and 6.4.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import assert_never

from replication.common_events import ClockTicked, Report
from replication.raft import quorum_events as events
from replication.raft.ballot import Ballot
from replication.raft.epoch_limits import EPOCH_LAST, step_towards
from replication.raft.log_view import MetadataLogView
from replication.raft.progress import QuorumProgress
from replication.raft.roles import TRANSITIONS, Cause, QuorumState, Role, Transition
from replication.raft.timeouts import CALM_MS, DOUBLINGS_MAX, PATIENCE, SUCCESSION_BEGINS_MS, QuorumTimes
from replication.raft.voters import NEVER, Position, ReplicaKey
from tidelog.epochs import common_end, divergence
from tidelog.errors import FencedLeaderEpoch, NotLeaderOrFollower, TidelogError, UnknownLeaderEpoch
from tidelog.types import NO_LEADER_EPOCH, NO_NODE, LeaderEpoch, Millis, NodeId


class Quorum:
    """The quorum state machine of one node. The driver executes the effects of each event in order."""

    def __init__(
        self,
        me: ReplicaKey,
        state: QuorumState,
        log: MetadataLogView,
        *,
        times: QuorumTimes,
        rng: random.Random,
        at: Millis,
    ) -> None:
        """state: as last persisted. log: open and recovered. at: the present time."""
        self.me = me
        self.log = log
        self.epoch = state.leader_epoch
        self.leader_id = NO_NODE
        self.voted: ReplicaKey | None = None
        if state.voted_id != NO_NODE and state.voted_directory is not None:
            self.voted = ReplicaKey(state.voted_id, state.voted_directory)
        self._times, self._rng = times, rng
        self._persisted = state
        self._now = at
        self._leader_seen_at = Millis(NEVER)
        """When the leader last answered a fetch; pre-votes are refused for a fetch timeout after it."""
        self._in_touch_at = at
        """When any leader last answered, or this replica last led."""
        self._rounds = 0
        """Candidacies since a leader was last known."""
        self._lost_at = Millis(NEVER)
        """When this replica last led and lost its majority."""
        self._patience = times.check_quorum
        """How long this replica leads without a majority that fetches."""
        self._sent_at = Millis(NEVER)
        """When the messages that are repeated were last sent."""
        self._ballot: Ballot | None = None
        self._progress: QuorumProgress | None = None
        """Positions of the other replicas while this replica leads, else None."""
        self._doubted = range(0)
        """Times, right after a pause of this process, at which messages may have been sent before the pause: they do
        not prove that a majority follows this leader still."""
        self._retired = False
        """The node is stopping: this replica does not stand again."""
        self._effects: list[events.Effect] = []
        self.role = self._first_role(state)
        self._successors = self.log.voters.others(me) if self.role is Role.RESIGNED else ()
        """The voters to which a resigned leader announces its resignation, in the order in which they should stand."""
        self._over: LeaderEpoch | None = None
        """The last epoch whose leader has resigned, according to a message."""
        self._resigned, self._over_at = NO_NODE, at
        """The leader of the epoch `_over`, and when the message arrived."""
        self._deadline = self._later(times.fetch_timeout, times.jitter)
        """When the role ends without further events: the follower stands, the round of votes is lost."""

    def _first_role(self, state: QuorumState) -> Role:
        """The role after a start. A replica that led before its process ended starts as resigned: others may have
        received records that its disk has lost."""
        if self.is_voter and state.leader_id == self.me.node_id and self.voted == self.me:
            return Role.RESIGNED
        known = state.leader_id not in (NO_NODE, self.me.node_id)
        self.leader_id = state.leader_id if known else NO_NODE
        if not self.is_voter:
            return Role.OBSERVER
        if known:
            return Role.FOLLOWER
        return Role.UNATTACHED if self.voted is None else Role.VOTED

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def is_voter(self) -> bool:
        """Whether this replica votes, according to its own log. A removed voter counts until its removal is
        committed."""
        return self.log.may_stand(self.me)

    @property
    def leads(self) -> bool:
        """True if this replica was elected in the present epoch and has not resigned."""
        return self.role is Role.LEADER

    @property
    def active(self) -> bool:
        """True if this replica leads and has committed a record of its own epoch."""
        return self._progress is not None and self._progress.active

    def silence_ms(self, at: Millis) -> int:
        """Milliseconds since a leader was last heard from; 0 while this replica leads and can commit."""
        return 0 if self.active else at - self._in_touch_at

    def unconfirmed_ms(self, at: Millis) -> int | None:
        """Milliseconds since a majority of the voters, this one included, last fetched in the epoch that this replica
        leads; None while it does not lead. Any other leader was elected within that time. What is received right after
        a pause of this process does not count: it may have been sent before another leader was elected."""
        return None if self._progress is None else self._progress.silence_ms(self.log, at, self._doubted)

    def caught_up(self, at: Millis, within_ms: int) -> tuple[ReplicaKey, ...]:
        """While this replica leads: replicas that fetched within `within_ms` before `at` and have all committed
        records."""
        return () if self._progress is None else self._progress.caught_up(self.log, at, within_ms)

    @property
    def positions(self) -> Mapping[ReplicaKey, Position]:
        """While this replica leads: the positions of the others that have fetched in its epoch."""
        return {} if self._progress is None else self._progress.positions

    @property
    def due(self) -> Millis | None:
        """Ticks before this time have no effect unless another event arrives first. None: ticks have no effect."""
        match self.role:
            case Role.LEADER:
                assert self._progress is not None
                silent = self._progress.silence_ms(self.log, self._now)
                due = Millis(self._now + self._patience - silent)
                others = self.log.voters.others(self.me)
                return due if all(map(self._progress.has_fetched, others)) else min(due, self._resend_at)
            case Role.PROSPECTIVE | Role.CANDIDATE | Role.RESIGNED:
                return min(self._deadline, self._resend_at)
            case Role.OBSERVER:
                return None
        return self._deadline

    def handle(self, event: events.Event) -> list[events.Effect]:
        """Process one event. The driver executes the returned effects in order. An exception is a defect and leaves the
        state unchanged."""
        before = self.saved()
        try:
            return self._take(event)
        except Exception:
            self.restore(before)
            raise

    def saved(self) -> dict[str, object]:
        """Return the state, for `restore`."""
        kept = dict(vars(self))
        kept["_progress"] = None if self._progress is None else self._progress.copy()
        kept["_ballot"] = None if self._ballot is None else self._ballot.copy()
        return kept

    def restore(self, saved: dict[str, object]) -> None:
        """Restore a saved state."""
        vars(self).update(saved)

    def _take(self, event: events.Event) -> list[events.Effect]:
        self._effects = []
        # A leader has events more often than this, unless its process was paused.
        if event.at - self._now >= self._times.fetch_timeout:
            self._doubted = range(event.at, event.at + 2 * self._times.resend)
        self._now = max(self._now, event.at)
        match event:
            case events.Requested(request_id, _, request):
                self._handle_request(request_id, request)
            case events.FetchAnswered() | events.VoteAnswered() | events.MetadataLogChanged() | ClockTicked():
                self._handle_often(event)
            case events.LeaderReported(_, epoch, leader_id, source):
                self._leader_reported(epoch, leader_id, source)
            case events.LeaderRefused(_, epoch, leader_id):
                self._leader_refused(epoch, leader_id)
            case events.SnapshotRequested(_, replica, epoch):
                if self._progress is not None and epoch == self.epoch and self._progress.may_track(replica, self.log):
                    self._progress.note_contact(replica, self._now)
            case events.Called():
                if self.role in (Role.UNATTACHED, Role.VOTED, Role.RESIGNED):
                    self._stand(Cause.CALLED)
            case events.ResignRequested() | events.AppendRefused():
                self._retired |= isinstance(event, events.ResignRequested)
                if self.leads:
                    self._resign(Cause.RESIGN_REQUESTED if self._retired else Cause.APPEND_REFUSED)
            case _:
                assert_never(event)
        return self._effects

    def _handle_often(
        self, event: events.FetchAnswered | events.VoteAnswered | events.MetadataLogChanged | ClockTicked
    ) -> None:
        match event:
            case events.FetchAnswered():
                self._fetch_answered(event)
            case events.VoteAnswered():
                self._vote_answered(event)
            case events.MetadataLogChanged():
                self._log_changed(event)
            case ClockTicked():
                self._ticked()
            case _:
                assert_never(event)

    def _handle_request(
        self, request_id: int, request: events.VoteRequest | events.BeginEpoch | events.EndEpoch | events.Fetch
    ) -> None:
        match request:
            case events.Fetch():
                self._fetched(request_id, request)
            case events.VoteRequest():
                granted = self._vote_requested(request)
                answer = events.VoteAnswer(self.epoch, self.leader_id, granted)
                self._effects.append(events.Answer(request_id, answer))
            case events.BeginEpoch() | events.EndEpoch():
                if isinstance(request, events.BeginEpoch):
                    self._epoch_begun(request)
                else:
                    self._epoch_ended(request)
                self._effects.append(events.Answer(request_id, events.LeaderAndEpoch(self.epoch, self.leader_id)))
            case _:
                assert_never(request)

    # --- roles and epochs -----------------------------------------------------------------------------------------

    def _move(self, cause: Cause, target: Role) -> None:
        transition = Transition(self.role, cause, target)
        assert transition in TRANSITIONS, f"no transition from {self.role.name} to {target.name} by {cause.name}"
        if self.leads and target is not Role.LEADER:
            self._progress, self._in_touch_at = None, self._now
            self._effects.append(events.StopLeading())
        self._ballot = None
        self.role = target

    def _persist(self) -> None:
        """Persist the state if it changed. The driver executes effects in order: what is sent after this effect is sent
        once the vote is on disk (invariant 1)."""
        voted = self.voted
        state = QuorumState(
            self.epoch,
            self.leader_id,
            NO_NODE if voted is None else voted.node_id,
            None if voted is None else voted.directory_id,
            self._persisted.lost_end,
        )
        known = self._persisted
        only_leader = (state.leader_epoch, state.voted_id) == (known.leader_epoch, known.voted_id)
        # No promise depends on which other node leads: learning it needs no fsync.
        if state != known and not (only_leader and self.leader_id != self.me.node_id):
            self._persisted = state
            self._effects.append(events.Persist(state))

    def _enter_epoch(self, epoch: LeaderEpoch, leader_id: NodeId = NO_NODE) -> None:
        """Enter an epoch newer than the known one."""
        assert epoch > self.epoch
        self.epoch, self.leader_id, self.voted = epoch, NO_NODE, None
        if leader_id not in (NO_NODE, self.me.node_id):
            self._follow(leader_id)
            return
        self._move(Cause.HIGHER_EPOCH, Role.UNATTACHED if self.is_voter else Role.OBSERVER)
        self._deadline = self._later(self._times.fetch_timeout, self._times.jitter)
        self._persist()

    def _follow(self, leader_id: NodeId) -> None:
        """The leader of the present epoch is known: follow it."""
        self.leader_id = leader_id
        self._leader_seen_at = self._now
        self._move(Cause.LEADER_FOUND, Role.FOLLOWER if self.is_voter else Role.OBSERVER)
        self._deadline = self._later(self._times.fetch_timeout, self._times.jitter)
        self._persist()

    def _leader_reported(self, epoch: LeaderEpoch, leader_id: NodeId, source: NodeId) -> None:
        """`source` answered this node with an epoch and its leader. A leadership is accepted only if `source` names
        itself."""
        confirmed = leader_id == source and self._is_another(leader_id)
        if epoch > self.epoch:
            reached = step_towards(self.epoch, epoch)
            if reached > self.epoch:
                self._enter_epoch(reached, leader_id if confirmed and reached == epoch else NO_NODE)
        elif epoch == self.epoch != self._over and confirmed:
            if self.leads:
                self._report(f"node {leader_id} claims to lead this epoch, in which this node was elected; ignored")
            elif self.leader_id == NO_NODE:
                self._follow(leader_id)
        if epoch == self.epoch:
            self._confirm_leader(epoch, leader_id)

    def _leader_refused(self, epoch: LeaderEpoch, leader_id: NodeId) -> None:
        """The leader's process has ended, and its next one resigns this epoch. Until the leader answers again, this
        node grants pre-votes."""
        if (epoch, leader_id) != (self.epoch, self.leader_id) or self.leads:
            return
        self._leader_seen_at = Millis(NEVER)
        least, jitter = self._times.refused, self._times.refused_jitter
        if self.role is Role.FOLLOWER and self._deadline > self._now + least + jitter:
            self._deadline = self._later(least, jitter)

    def _confirm_leader(self, epoch: LeaderEpoch, leader_id: NodeId) -> None:
        """A message named a leader, or a former leader, of an epoch: query that node if the information would be
        new."""
        known = epoch < self.epoch or (epoch == self.epoch and (self.leader_id != NO_NODE or epoch == self._over))
        if not known and epoch <= EPOCH_LAST and self._is_another(leader_id):
            self._effects.append(events.ConfirmLeader(leader_id))

    def _is_another(self, node_id: NodeId) -> bool:
        """True for the id of another node. False for this node and for NO_NODE (unknown leader)."""
        return NO_NODE < node_id != self.me.node_id

    def _later(self, least: int, jitter: int) -> Millis:
        return Millis(self._now + least + self._rng.randrange(jitter))

    # --- time -----------------------------------------------------------------------------------------------------

    def _ticked(self) -> None:
        overdue = self._now >= self._deadline
        match self.role:
            case Role.LEADER:
                self._tick_leader()
            case Role.PROSPECTIVE | Role.CANDIDATE:
                if overdue:
                    self._lose()
                elif self._resend_due():
                    self._send_votes()
            case Role.FOLLOWER:
                if overdue:
                    self._stand(Cause.FETCH_TIMEOUT)
            case Role.UNATTACHED | Role.VOTED | Role.RESIGNED:
                if self.role is Role.RESIGNED and self._resend_due():
                    self._send_end_epoch()
                if overdue:
                    self._stand(Cause.ELECTION_TIMEOUT)
            case Role.OBSERVER:
                pass
            case _:
                assert_never(self.role)

    def _tick_leader(self) -> None:
        """Resign if no majority fetches: another leader may exist, and this one cannot commit anything."""
        assert self._progress is not None
        silence = self._progress.silence_ms(self.log, self._now)
        if silence >= self._patience:
            self._report(f"no majority of the voters has fetched for {silence} ms: this node resigns as leader")
            self._lost_at = self._now
            self._resign(Cause.QUORUM_LOST)
        elif self._resend_due():
            self._send_begin_epoch()

    @property
    def _resend_at(self) -> Millis:
        return Millis(self._sent_at + self._times.resend)

    def _resend_due(self) -> bool:
        return self._now >= self._resend_at

    # --- standing for election ------------------------------------------------------------------------------------

    def _stand(self, cause: Cause) -> None:
        """Start a pre-vote among all voters. It does not change the epoch."""
        if self.epoch >= EPOCH_LAST:
            self._report("no election is possible, the last epoch is reached; run `tidelog quorum reset-epoch`")
        if not self.is_voter or self._retired or not self._is_whole or self.epoch >= EPOCH_LAST:
            self._deadline = self._later(self._times.fetch_timeout, self._times.jitter)
            return
        self._move(cause, Role.PROSPECTIVE)
        self._begin_round()
        self._count()

    def _begin_round(self) -> None:
        length = self._times.vote_timeout << min(self._rounds, DOUBLINGS_MAX)
        self._deadline = self._later(length, length)
        self._ballot = Ballot(self.log.voters, self.me)
        self._send_votes()

    def _send_votes(self) -> None:
        assert self._ballot is not None
        self._sent_at = self._now
        last_epoch, log_end = self.log.position
        pre_vote = self.role is Role.PROSPECTIVE
        for voter in self._ballot.ungranted:
            request = events.VoteRequest(self.epoch, self.me, voter, last_epoch, log_end, pre_vote)
            self._effects.append(events.SendVote(request))

    def _count(self) -> None:
        assert self._ballot is not None
        if self._ballot.won:
            if self.role is Role.PROSPECTIVE:
                self._begin_candidacy()
            else:
                self._lead(self._ballot.granting)
        elif self._ballot.lost:
            self._lose()

    def _begin_candidacy(self) -> None:
        self._move(Cause.PRE_VOTES_WON, Role.CANDIDATE)
        self.epoch, self.leader_id, self.voted = LeaderEpoch(self.epoch + 1), NO_NODE, self.me
        self._persist()
        self._begin_round()
        self._rounds += 1
        self._count()

    def _lose(self) -> None:
        """Return to the role before the round; the next round follows after a random delay."""
        if self.role is Role.CANDIDATE:
            self._move(Cause.VOTES_LOST, Role.VOTED)
        elif self.leader_id != NO_NODE:
            self._move(Cause.PRE_VOTES_LOST, Role.FOLLOWER)
        else:
            self._move(Cause.PRE_VOTES_LOST, Role.UNATTACHED if self.voted is None else Role.VOTED)
        self._deadline = self._later(0, self._times.vote_timeout)

    def _vote_answered(self, event: events.VoteAnswered) -> None:
        request, answer = event.request, event.answer
        asking = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
        if answer.epoch <= self.epoch and request.epoch == self.epoch and self.role is asking:
            assert self._ballot is not None
            self._ballot.record(request.voter, answer.granted)
            self._count()
        self._leader_reported(answer.epoch, answer.leader_id, request.voter.node_id)

    # --- voting ---------------------------------------------------------------------------------------------------

    def _vote_requested(self, request: events.VoteRequest) -> bool:
        granted = False
        if request.voter == self.me and request.epoch >= self.epoch:
            reached = step_towards(self.epoch, request.epoch) if request.epoch > self.epoch else self.epoch
            if reached > self.epoch:
                self._enter_epoch(reached)
            if request.epoch == self.epoch:
                granted = self._would_vote(request) if request.pre_vote else self._votes(request)
        return granted

    def _would_vote(self, request: events.VoteRequest) -> bool:
        """Whether to grant a pre-vote. A node that hears from its leader refuses: the election would depose a leader
        that serves, because one voter is disconnected or has a short timeout (invariant 4)."""
        if self.leads:
            return False
        hears_leader = self.leader_id != NO_NODE and self._now - self._leader_seen_at < self._times.fetch_timeout
        return not hears_leader and self._is_complete(request)

    def _votes(self, request: events.VoteRequest) -> bool:
        """Grant the vote if this node has not voted for another replica in this epoch and the candidate's log is at
        least as up to date as its own (Raft 5.4.1)."""
        if self.leader_id != NO_NODE or self.role is Role.RESIGNED:
            return False  # the epoch has, or had, a leader: there must not be a second one (invariant 2)
        if self.voted is not None:
            return self.voted == request.candidate  # invariant 1; the same candidate may have missed the answer
        if not self._is_complete(request):
            return False  # the candidate may lack committed records (invariant 2)
        self._move(Cause.VOTE_GRANTED, Role.VOTED)
        self.voted = request.candidate
        self._deadline = self._later(self._times.fetch_timeout, self._times.jitter)
        self._persist()
        return True

    @property
    def _is_whole(self) -> bool:
        """False after damage, until the log has reached its former end again: before that it may lack committed records
        for which this replica counted, so that it must neither vote nor stand."""
        return self.log.log_end >= self._persisted.lost_end

    def _is_complete(self, request: events.VoteRequest) -> bool:
        return self._is_whole and (request.last_epoch, request.log_end) >= self.log.position

    # --- leading --------------------------------------------------------------------------------------------------

    def _lead(self, granting: tuple[ReplicaKey, ...]) -> None:
        self._move(Cause.VOTES_WON, Role.LEADER)
        self.leader_id = self.me.node_id
        self._rounds = 0
        has_lost = self._now - self._lost_at < CALM_MS
        self._patience = self._times.check_quorum * (PATIENCE if has_lost else 1)
        self._progress = QuorumProgress(self.me, self.epoch, self._now, self.log.log_end)
        self._persist()
        self._effects.append(events.OpenEpoch(self.epoch, granting))
        self._send_begin_epoch()

    def _send_begin_epoch(self) -> None:
        """Announce the epoch to the voters that have not fetched in it: they may not know it."""
        assert self._progress is not None
        self._sent_at = self._now
        for voter in self.log.voters.others(self.me):
            if not self._progress.has_fetched(voter):
                self._effects.append(events.Announce(voter, events.BeginEpoch(self.epoch, self.leader_id)))

    def _resign(self, cause: Cause) -> None:
        assert self._progress is not None
        self._successors = self._progress.successors(self.log)
        self._move(cause, Role.RESIGNED)
        self.leader_id = NO_NODE
        self._deadline = self._later(self._times.fetch_timeout, self._times.jitter)
        self._send_end_epoch()

    def _send_end_epoch(self) -> None:
        """Announce the resignation. It is repeated until this node stands itself: a voter that starts only now would
        otherwise wait for this leader."""
        self._sent_at = self._now
        message = events.EndEpoch(self.epoch, self.me.node_id, self._successors)
        self._effects.extend(events.Announce(voter, message) for voter in self._successors)

    def _maybe_commit(self) -> None:
        progress = self._progress
        if progress is None:
            return
        reached = progress.committed(self.log)
        if reached is None:
            return
        if reached > self.log.high_watermark:
            self._effects.append(events.Commit(reached))
        if not progress.active:
            progress.active = True
            self._effects.append(events.Activate(self.epoch))

    def _fetched(self, request_id: int, fetch: events.Fetch) -> None:
        refusal = self._refusal(fetch.epoch)
        if refusal is not None:
            self._effects.append(events.Answer(request_id, refusal))
            return
        assert self._progress is not None
        # A fetch without an epoch does not acknowledge this leader: its replica may follow another one (invariant 3).
        counts = fetch.epoch == self.epoch and self._progress.may_track(fetch.replica, self.log)
        if counts:
            self._progress.note_contact(fetch.replica, self._now)
        log = self.log
        snapshot = log.snapshot
        # A log that ends at the snapshot agrees, although the records by which that could be seen may be deleted.
        ends_at_snapshot = snapshot is not None and (fetch.offset, fetch.last_epoch) == (
            snapshot.end_offset,
            snapshot.epoch,
        )
        if fetch.offset < log.log_start and snapshot is not None:
            self._effects.append(events.Answer(request_id, events.BelowLogStart(snapshot)))
            return
        end = divergence(log.epochs, log.log_start, log.log_end, fetch.offset, fetch.last_epoch)
        if end is not None and not ends_at_snapshot:
            # No common epoch is left in this log: truncation cannot find where the logs agree, a snapshot replaces it.
            below = end.epoch == NO_LEADER_EPOCH and snapshot is not None
            verdict = events.BelowLogStart(snapshot) if below and snapshot is not None else events.LogsDiverge(end)
            self._effects.append(events.Answer(request_id, verdict))
            return
        if counts:  # only now: positions of a diverging log are not positions of this leader's records
            self._progress.enter(fetch.replica, min(fetch.durable_offset, fetch.offset), self._now)
        self._effects.append(events.Answer(request_id, events.LogsAgree(fetch.replica in log.voters)))
        self._maybe_commit()

    def _refusal(self, epoch: LeaderEpoch) -> TidelogError | None:
        if not self.leads:
            return NotLeaderOrFollower(f"node {self.me.node_id} does not lead the metadata quorum")
        if epoch > self.epoch:
            return UnknownLeaderEpoch(
                f"node {self.me.node_id} leads the metadata quorum in epoch {self.epoch}, the request names the newer "
                f"epoch {epoch}"
            )
        if epoch < self.epoch and epoch != NO_LEADER_EPOCH:
            return FencedLeaderEpoch(
                f"node {self.me.node_id} leads the metadata quorum in epoch {self.epoch}, the request names the older "
                f"epoch {epoch}"
            )
        return None

    # --- following ------------------------------------------------------------------------------------------------

    def _epoch_begun(self, request: events.BeginEpoch) -> None:
        self._confirm_leader(request.epoch, request.leader_id)

    def _epoch_ended(self, request: events.EndEpoch) -> None:
        """The leader resigned: its successors stand one after the other, until one is elected."""
        if request.epoch > self.epoch:
            # The message alone must not raise the epoch (invariant 6). It is repeated, and counts once the epoch is
            # known.
            self._confirm_leader(request.epoch, request.leader_id)
        elif not self._is_another(request.leader_id):
            pass  # a message that names this node, or none, as the leader that resigned is forged or faulty
        elif request.epoch == self.epoch and self.leader_id == request.leader_id:
            self._move(Cause.LEADER_RESIGNED, Role.UNATTACHED if self.role is not Role.OBSERVER else Role.OBSERVER)
            self.leader_id = NO_NODE
            self._await_succession(request)
        elif request.epoch == self.epoch != self._over and self.role in (Role.UNATTACHED, Role.VOTED):
            self._await_succession(request)  # this node voted in that epoch but does not know its leader

    def _await_succession(self, request: events.EndEpoch) -> None:
        """Wait for this node's turn to stand."""
        # Nodes that do not know of the resignation still name the old leader: it is not followed again in this epoch
        # unless it answers a later fetch itself.
        self._over, self._resigned, self._over_at = request.epoch, request.leader_id, self._now
        self._leader_seen_at = Millis(NEVER)
        if self.me in request.successors:
            rank = request.successors.index(self.me)
            self._deadline = Millis(self._now + SUCCESSION_BEGINS_MS + rank * self._times.succession)

    def _fetch_answered(self, event: events.FetchAnswered) -> None:
        if not self._is_another(event.leader_id):
            return
        if (event.epoch, event.leader_id) == (self._over, self._resigned) and event.asked_at > self._over_at:
            self._over = None  # the leader leads: it did not send the message of its resignation
        self._leader_reported(event.epoch, event.leader_id, event.leader_id)
        if event.epoch != self.epoch or event.leader_id != self.leader_id:
            return
        self._leader_seen_at = self._in_touch_at = self._now
        self._rounds = 0
        if self.role is Role.PROSPECTIVE:
            self._move(Cause.LEADER_FOUND, Role.FOLLOWER)
        self._deadline = self._later(self._times.fetch_timeout, self._times.jitter)
        if event.offset != self.log.log_end:
            return  # the log was truncated or has grown since the fetch was sent
        match event.result:
            case events.NewRecords(high_watermark):
                self._effects.append(events.TakeRecords(high_watermark))
            case events.LogsDiverge(end):
                truncate_to = common_end(self.log.epochs, self.log.log_end, end)
                self._effects.append(
                    events.TruncateMetadataLog(self.log.log_start if truncate_to is None else truncate_to)
                )
            case events.BelowLogStart(snapshot):
                self._effects.append(events.TakeSnapshot(snapshot))
            case _:
                assert_never(event.result)

    # --- this node's log ------------------------------------------------------------------------------------------

    def _log_changed(self, event: events.MetadataLogChanged) -> None:
        self.log = event.log
        if self.is_voter and self.role is Role.OBSERVER:
            self._move(Cause.JOINED_VOTERS, Role.UNATTACHED if self.leader_id == NO_NODE else Role.FOLLOWER)
            self._deadline = self._later(self._times.fetch_timeout, self._times.jitter)
        elif not self.is_voter:
            self._leave_voters()
        self._maybe_commit()

    def _leave_voters(self) -> None:
        if self.role in (Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.CANDIDATE):
            self._move(Cause.LEFT_VOTERS, Role.OBSERVER)
        elif self.leads:
            self._report("this node was removed from the voters: it resigns as leader")
            self._resign(Cause.LEFT_VOTERS)

    def _report(self, text: str) -> None:
        self._effects.append(Report(f"metadata quorum, epoch {self.epoch}: {text}"))
