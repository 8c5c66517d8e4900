"""One partition on this node: its log joined with the core that says what may happen to it.

The core (`PartitionLeader` or `PartitionFollower`, a new one for each leader epoch) decides, this module acts: appends,
cuts, asks for fsyncs, wakes the fetches that wait, answers producers.

Kept true:
  1. What the core decided is carried out at once and in order, on the loop, before anything else can happen; a cut of
     the log, whose fsyncs run elsewhere, is a barrier: until its end nothing is appended, flushed, read or reported.
  2. A leadership that ends answers all that waits, fetches and produce requests alike.
  3. The log's high watermark moves only by the core's word.

A disk error takes the whole log directory offline: the node calls `go_offline`, even in the middle of an append.

Left to others: which role in which epoch, and who talks to whom (replica_manager.py); streams (data_handlers.py,
replica_fetcher.py).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from node.observability.meters.topic_meter import TopicMeter
from node.replicas.fetch_answers import committed_divergence, diverging_answer, read_answer
from node.replicas.fetch_session import FollowerIdentity, OpenFetch
from node.replicas.follower_log import append_answer, begin_truncation, view_of
from node.replicas.own_log_check import check_own, read_again
from node.replicas.partition_host import PartitionHost
from node.requests.types.fetch import DurablePosition, FetchedPartition, PartitionFetch
from replication.common_events import ClockTicked
from replication.controller.image import PartitionState
from replication.epochs import ensure_epoch
from replication.partition.follower import PartitionFollower
from replication.partition.follower_events import (
    AdvanceLogStart,
    AdvanceWatermark,
    Answered,
    AppendRecords,
    DurableOffsetMoved,
    FollowerEffect,
    LogChanged,
    LogFailed,
    ReportDurable,
    RestartAt,
    RetryLater,
    SendFetch,
    StreamBroken,
    StreamReady,
    TruncateTo,
    Waited,
    WantFetch,
)
from replication.partition.leader import PartitionLeader
from replication.partition.leader_events import (
    AckAwaited,
    Acknowledge,
    Appended,
    CommitUpTo,
    Fail,
    FetchAgreed,
    FetchDiverged,
    FetchRefused,
    FollowerDurable,
    FollowerFetched,
    LeaderEffect,
    LeadershipEnded,
    LocalDurable,
    LogStartMoved,
    ProposalAccepted,
    ProposalFailed,
    ProposeIsr,
    ReplicaView,
    Session,
    StateKnown,
    Ticket,
)
from storage.append_info import LogAppendInfo, Origin
from storage.directory.log_directory import LogDirectory
from storage.files.file_system import Buffer
from storage.log.log import Log
from storage.log.log_reader import LogRead
from storage.recovery.loaded import Damage
from tidelog.errors import (
    CorruptLog,
    InvalidRequest,
    LeadershipLost,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TidelogError,
)
from tidelog.records import Inspected
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    Acks,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionKey,
    TopicPartition,
)

_log = logging.getLogger("node.partition")

ProduceDone: TypeAlias = Callable[[LogAppendInfo | None, TidelogError | None], None]
"""Called once with the outcome of a produce request: the append, or why it failed (then with the append, if any)."""


SMALL_BYTES: Final = 4 << 10
"""Answers up to this size are held before the next fetch is sent. Behind larger ones waiting for the disk costs more
than messages: with 64 KiB three nodes took 76,000 to 108,000 records of 100 B a second, not 233,000 to 312,000."""


@dataclass(slots=True)
class _Told:
    """What a follower has heard last, on which stream."""

    session: Session
    watermark: Offset
    log_start: Offset


class Partition:
    """See the module's words."""

    def __init__(
        self,
        key: PartitionKey,
        name: TopicPartition,
        log: Log,
        directory: LogDirectory,
        *,
        me: NodeId,
        host: PartitionHost,
        rng: random.Random,
        topic_meter: TopicMeter,
    ) -> None:
        self.key = key
        self.topic_meter = topic_meter
        self.topic_id = key.topic_id.bytes
        """As it is on the wire."""
        self.name = name
        self.log = log
        self.directory = directory
        self._me = me
        self._host = host
        self._rng = rng
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.leader_node = NO_NODE
        self.leader_epoch = NO_LEADER_EPOCH
        self.offline: TidelogError | None = None
        self.used_in = NO_LEADER_EPOCH
        """The last epoch in which it led or followed."""
        self.proposed_on = PartitionEpoch(-1)
        """Proposals of this node for the in-sync set may count as long as this is the partition epoch."""
        self.configs: Mapping[str, str] = {}
        """The topic settings that its log has."""
        self.moves_here = False
        """A reassignment brings this replica here, and it is not in sync yet: what it fetches is throttled."""
        self._tickets = 0
        self._pending: dict[Ticket, tuple[ProduceDone, LogAppendInfo]] = {}
        self._followers_waiting: dict[OpenFetch, None] = {}
        self._readers_waiting: dict[OpenFetch, None] = {}
        self._told: dict[NodeId, _Told] = {}
        self._watermark_ticked = Offset(0)

    def __str__(self) -> str:
        return str(self.name)

    @property
    def log_start(self) -> Offset:
        """Where the log starts."""
        return self.log.log_start_offset

    # --- roles ---

    def lead(
        self, state: PartitionState, min_insync: int, views: Mapping[NodeId, ReplicaView], *, lag_ms_max: int
    ) -> None:
        """Lead from here on, in the epoch that `state` names."""
        self.stop("the node leads in a new epoch", leader=self._me, leader_epoch=state.leader_epoch)
        self.used_in = state.leader_epoch
        log = self.log
        try:
            log.begin_epoch(state.leader_epoch)
        except TidelogError as error:
            self.go_offline(error)
            return
        if log.config.magic < 2:
            self.directory.commit.request(log)  # the epoch must be durable before the first append
        self.leader = PartitionLeader(
            name=self.name,
            me=self._me,
            leader_epoch=state.leader_epoch,
            history=log.epoch_entries(),
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            durable_offset=log.durable_offset,
            high_watermark=log.high_watermark,
            known=self._known(state, min_insync, views),
            lag_ms_max=lag_ms_max,
        )
        at = state.leader_epoch, log.log_end_offset, log.high_watermark
        _log.info("%s: leads in epoch %d from offset %d, watermark %d", self, *at)
        self.durable_moved()  # where nobody else counts, all that it holds is committed
        self._tick_leader(self.leader)

    def follow(self, state: PartitionState) -> None:
        """Follow the leader that `state` names."""
        reason = f"node {state.leader} leads in epoch {state.leader_epoch}"
        self.stop(reason, leader=state.leader, leader_epoch=state.leader_epoch)
        self.used_in = state.leader_epoch
        self.follower = PartitionFollower(
            name=self.name, leader_epoch=state.leader_epoch, log=view_of(self.log), rng=self._rng
        )
        at = state.leader, state.leader_epoch, self.log.log_end_offset
        _log.info("%s: follows node %d in epoch %d from offset %d", self, *at)
        self._follow(self.follower.start(), None)

    def stop(self, reason: str, *, leader: NodeId, leader_epoch: LeaderEpoch) -> None:
        """Neither lead nor follow from here on; everything that waits is answered."""
        core, self.leader, self.follower = self.leader, None, None
        self.leader_node, self.leader_epoch = leader, leader_epoch
        if core is not None:
            _log.info("%s: leads no more in epoch %d: %s", self, core.leader_epoch, reason)
            self._lead(core.handle(LeadershipEnded(reason)))
        self._told.clear()
        self._watermark_ticked = Offset(0)
        for fetch in (*self._followers_waiting, *self._readers_waiting):
            fetch.refuse(self._not_leading())
        self._followers_waiting.clear()
        self._readers_waiting.clear()

    def go_offline(self, error: TidelogError) -> None:
        """The log cannot be used any more in this life of the process."""
        self.offline = error
        self._host.watch(self)
        self.stop(error.message, leader=self.leader_node, leader_epoch=self.leader_epoch)

    def learn(self, state: PartitionState, min_insync: int, views: Mapping[NodeId, ReplicaView]) -> None:
        """News of the partition within the epoch, or of its replicas' nodes."""
        if self.leader is not None:
            self._lead(self.leader.handle(self._known(state, min_insync, views)))
            self._host.attend(self)

    def _known(self, state: PartitionState, min_insync: int, views: Mapping[NodeId, ReplicaView]) -> StateKnown:
        return StateKnown(
            state.replicas, state.isr, state.partition_epoch, min_insync, views, self._host.monotonic_ms(), state.elr
        )

    # --- leading: produce ---

    def produce(
        self,
        records: Buffer,
        *,
        acks: Acks,
        leader_epoch: LeaderEpoch,
        deadline: Millis,
        done: ProduceDone,
        inspected: Inspected | None = None,
    ) -> None:
        """Append a batch. inspected: what `storage.log.validation.inspect_sent` has found out of its records. `done` is
        called once, maybe before this returns. Raises what refuses the batch unwritten, LeadershipLost where the
        disk failed right behind it.

        A duplicate waits for the same acks as its first copy, whatever the in-sync set has become: it is written."""
        leader = self.leading_in(leader_epoch)
        log = self.log
        try:
            leader.ensure_enough(acks)
        except NotEnoughReplicas:
            if not log.is_duplicate(records):
                raise
        info = log.append(
            records,
            assign_offsets=True,
            leader_epoch=leader.leader_epoch,
            origin=Origin.CLIENT,
            inspected=inspected,
        )
        if info.last_offset < 0:
            raise InvalidRequest(f"the entry for partition {self} carries no record batch; send one whole batch")
        if self.leader is not leader:
            raise LeadershipLost(f"partition {self}: its log directory failed behind the append; it may stay or not")
        self._tickets += 1
        ticket = Ticket(self._tickets)
        self._pending[ticket] = (done, info)
        awaited = AckAwaited(ticket, acks, Offset(info.last_offset + 1), deadline)
        effects = leader.handle(Appended(log.log_end_offset, log.durable_offset))
        effects += leader.handle(awaited)
        if self._followers_waiting:
            self._wake(self._followers_waiting)
        self._lead(effects)
        self.sync()
        if leader.waiting:
            self._host.attend(self)

    def leading_in(self, leader_epoch: LeaderEpoch) -> PartitionLeader:
        """The core, where this node leads in that epoch (-1: whichever). Raises why not."""
        if self.offline is not None:
            raise NotLeaderOrFollower(f"this node cannot lead partition {self}: {self.offline.message}")
        if leader_epoch != NO_LEADER_EPOCH:
            ensure_epoch(self.name, self.leader_epoch, leader_epoch)
        if self.leader is None:
            raise self._not_leading()
        return self.leader

    def _not_leading(self) -> NotLeaderOrFollower:
        who = "nobody does" if self.leader_node == NO_NODE else f"node {self.leader_node} does"
        return NotLeaderOrFollower(
            f"this node does not lead partition {self}: {who}, in epoch {self.leader_epoch}, as far as it has heard"
        )

    def sync(self) -> None:
        """Have everything appended made durable, where the topic asks for that."""
        if self.log.durable_offset < self.log.log_end_offset:
            self.directory.commit.request(self.log)
            self._host.watch(self)

    def durable_moved(self) -> None:
        """The log holds more than before."""
        if self.leader is not None:
            self._lead(self.leader.handle(LocalDurable(self.log.durable_offset)))
        elif self.follower is not None:
            self._follow(self.follower.handle(DurableOffsetMoved(self.log.durable_offset)), None)

    # --- leading: fetches ---

    def follower_fetched(
        self, fetch: OpenFetch, follower: FollowerIdentity, item: PartitionFetch, now: Millis
    ) -> FetchedPartition | None:
        """A follower's fetch came: its positions count from here on. Returns an answer that is due at once, or None.
        Raises why it is refused."""
        if self.offline is None and self.leader is None:
            ensure_epoch(self.name, self.leader_epoch, fetch.leader_epoch)
        leader = self.leading_in(NO_LEADER_EPOCH)
        event = FollowerFetched(
            follower.node_id,
            follower.incarnation,
            follower.session,
            fetch.fetch_id,
            fetch.leader_epoch,
            fetch.next_offset,
            fetch.last_epoch,
            item.durable_offset,
            item.log_start_offset,
            now,
        )
        verdict, *effects = leader.handle(event)
        self._lead(effects)
        self._host.attend(self)
        match verdict:
            case FetchAgreed():
                self._speak_on(follower)
                if item.refused:
                    check_own(self.log, fetch.next_offset, fetch.max_bytes, self._damage_found)
                return None
            case FetchDiverged(end):
                return diverging_answer(fetch, self.log, self.leader_epoch, end)
            case FetchRefused(error):
                raise error
            case _:
                raise AssertionError(f"a fetch was answered by {verdict}")

    def _speak_on(self, follower: FollowerIdentity) -> None:
        """What a follower is told goes to its latest stream; one of an earlier life may stay open long after that."""
        told = self._told.get(follower.node_id)
        if told is not None and told.session == follower.session:
            return
        self._told[follower.node_id] = _Told(follower.session, Offset(-1), Offset(-1))
        for fetch in filter(self._is_deaf, list(self._followers_waiting)):
            fetch.refuse(self._out_of_date())

    def _is_deaf(self, fetch: OpenFetch) -> bool:
        """Is it of a stream that is not its follower's latest, or of before this leadership?"""
        assert fetch.follower is not None, "consumers wait elsewhere"
        told = self._told.get(fetch.follower.node_id)
        return told is None or told.session != fetch.follower.session

    def _out_of_date(self) -> InvalidRequest:
        return InvalidRequest(f"partition {self}: this fetch is out of date, a later one takes its place")

    def _damage_found(self, damage: Damage) -> None:
        self._host.damage_found(self.log, damage)

    def follower_durable(self, follower: FollowerIdentity, report: DurablePosition, now: Millis) -> None:
        """A follower holds more while its fetch waits. What does not count is dropped: its next fetch says it."""
        if self.leader is None:
            return
        event = FollowerDurable(
            follower.node_id,
            follower.incarnation,
            follower.session,
            report.leader_epoch,
            report.durable_offset,
            now,
        )
        self._lead(self.leader.handle(event))

    def reader_fetched(self, fetch: OpenFetch) -> FetchedPartition | None:
        """A consumer's fetch came. Returns an answer that is due at once, or None. Raises why it is refused."""
        leader = self._readable_in(fetch.leader_epoch)
        end = None
        if leader is None:
            end = committed_divergence(self.name, self.log, fetch)
        elif fetch.last_epoch != NO_LEADER_EPOCH:
            end = leader.diverging(fetch.next_offset, fetch.last_epoch)
        if end is not None:
            return diverging_answer(fetch, self.log, self.leader_epoch, end)
        nearest = None if leader is None else leader.in_sync.nearest(fetch.rack, fetch.next_offset)
        if nearest is None:
            return None
        nothing = LogRead(b"", fetch.next_offset, ())
        return read_answer(fetch, self.log, self.leader_epoch, nothing, preferred=nearest)

    def _readable_in(self, leader_epoch: LeaderEpoch) -> PartitionLeader | None:
        """The core, or None where this node follows in that epoch: it too can be read, as far as it knows records to be
        committed (KIP-392). Raises why neither."""
        if self.follower is None or self.offline is not None:
            return self.leading_in(leader_epoch)
        if leader_epoch == NO_LEADER_EPOCH:
            raise self._not_leading()
        ensure_epoch(self.name, self.leader_epoch, leader_epoch)
        return None

    def read_for(self, fetch: OpenFetch, now: Millis) -> FetchedPartition | None:
        """Answer the fetch, or let it wait here: None. Raises why it is refused."""
        if fetch.follower is None:
            self._readable_in(fetch.leader_epoch)
        else:
            self.leading_in(fetch.leader_epoch)
            if self._is_deaf(fetch):
                raise self._out_of_date()
        log, offset = self.log, fetch.next_offset
        up_to = log.end_for(fetch.isolation)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            has = f"offsets from {log.log_start_offset} to {log.log_end_offset}"
            raise OffsetOutOfRange(f"partition {self} has {has}, {offset} was asked for")
        waiting = self._waiting_with(fetch)
        if log.cut is not None or (fetch.cold_tries and fetch in fetch.session.cold):
            waiting[fetch] = None
            return None
        due = fetch.is_due(now)
        try:
            read = (
                fetch.session.cold.fetch(fetch, log) if offset < up_to and fetch.max_bytes else LogRead(b"", offset, ())
            )
            if fetch.refused and read is not None:
                read = read_again(log, read, offset, fetch.last_epoch, is_follower=fetch.follower is not None)
        except CorruptLog as error:
            self._host.log_damaged(self, error)
            self.leading_in(NO_LEADER_EPOCH)  # where others lead now, they are to be asked
            raise
        if read is None or (offset >= up_to and not due):
            waiting[fetch] = None
            return None
        if not (due or fetch.is_filled_by(read, up_to)):
            fetch.short = True
            return None
        return self._answer(fetch, read)

    def waits_at_end(self, fetch: OpenFetch, now: Millis) -> bool:
        """Let a fetch that has just come wait here, where it asks for what comes next. Returns whether it does."""
        log = self.log
        waits = log.log_start_offset <= fetch.next_offset == log.end_for(fetch.isolation) and not fetch.is_due(now)
        if waits:
            self._waiting_with(fetch)[fetch] = None
        return waits

    def stop_waiting(self, fetch: OpenFetch) -> None:
        """The fetch is answered, or its stream is gone."""
        self._waiting_with(fetch).pop(fetch, None)

    def _waiting_with(self, fetch: OpenFetch) -> dict[OpenFetch, None]:
        return self._readers_waiting if fetch.follower is None else self._followers_waiting

    def _wake(self, waiting: dict[OpenFetch, None]) -> None:
        fetches = list(waiting)
        waiting.clear()
        for fetch in fetches:
            fetch.wake()

    def _answer(self, fetch: OpenFetch, read: LogRead, *, waits: bool = False) -> FetchedPartition:
        if fetch.follower is not None:
            told = self._told[fetch.follower.node_id]
            told.watermark, told.log_start = self.log.high_watermark, self.log.log_start_offset
        return read_answer(fetch, self.log, self.leader_epoch, read, waits=waits)

    # --- leading: what the core wants ---

    def _lead(self, effects: list[LeaderEffect]) -> None:
        self._host.watch(self)
        for effect in effects:
            match effect:
                case CommitUpTo(offset):
                    self.log.advance_high_watermark(offset)
                    if self._readers_waiting:
                        self._wake(self._readers_waiting)
                    self._host.attend(self)
                case Acknowledge(tickets):
                    for ticket in tickets:
                        done, info = self._pending.pop(ticket)
                        done(info, None)
                case Fail(tickets, error):
                    for ticket in tickets:
                        done, info = self._pending.pop(ticket)
                        done(info, error)
                case ProposeIsr():
                    self._host.propose(self, effect)
                case _:
                    raise AssertionError(f"{effect} is the answer to a fetch, which nobody waits for here")

    def proposed(self, proposal: ProposeIsr) -> None:
        """This is on its way to the controller."""
        self.proposed_on = max(self.proposed_on, proposal.partition_epoch)

    def proposal_accepted(self, proposal: ProposeIsr, answer: ProposalAccepted) -> None:
        """The controller committed the proposal."""
        if self.leader is not None and self.leader.leader_epoch == proposal.leader_epoch:
            self._lead(self.leader.handle(answer))
            self._host.attend(self)

    def proposal_failed(self, proposal: ProposeIsr) -> None:
        """The controller refused, or did not answer."""
        if self.leader is not None and self.leader.leader_epoch == proposal.leader_epoch:
            event = ProposalFailed(proposal.partition_epoch, self._host.monotonic_ms())
            self._lead(self.leader.handle(event))

    # --- time ---

    def tick(self) -> None:
        """Time goes by."""
        if self.leader is not None:
            self._tick_leader(self.leader)
        elif (follower := self.follower) is not None:
            self._follow(follower.handle(Waited(self._host.monotonic_ms())), None)
            if follower.pauses:
                self._host.attend(self)  # its pause is not over yet

    def review(self) -> bool:
        """A longer time goes by: the in-sync set is looked at, and what a full disk refused is tried again. Returns
        whether that is worth doing once more, or nothing is left that time could change."""
        unsynced = self.log.durable_offset < self.log.log_end_offset
        if unsynced:
            self.sync()
        now = self._host.monotonic_ms()
        if self.follower is not None:
            self._follow(self.follower.handle(Waited(now)), None)
        leader = self.leader
        if leader is None:
            return unsynced
        self._lead(leader.handle(ClockTicked(now)))
        return not leader.in_sync.is_settled(now)

    def _tick_leader(self, leader: PartitionLeader) -> None:
        now = self._host.monotonic_ms()
        self._lead(leader.handle(ClockTicked(now)))
        if self._spread_news(leader, now) or leader.waiting:
            self._host.attend(self)

    def _spread_news(self, leader: PartitionLeader, now: Millis) -> bool:
        """Tell the followers that wait and have not heard of the watermark of one tick ago, or of where the log starts:
        the next records would have brought it. Answer those outside the in-sync set whose time is up: they are to be
        heard again. Returns whether some have not heard everything, or time matters to them."""
        watermark, log_start, isr = leader.high_watermark, self.log.log_start_offset, leader.in_sync.isr
        overdue, self._watermark_ticked = self._watermark_ticked, watermark
        unfinished = False
        for fetch in list(self._followers_waiting):
            assert fetch.follower is not None, "consumers wait elsewhere"
            node = fetch.follower.node_id
            told = self._told[node]
            if node not in isr:
                unfinished = True
                if now >= fetch.deadline:
                    fetch.answer_anyway()
                    continue
            if told.watermark < overdue or told.log_start < log_start:
                fetch.tell(self._answer(fetch, LogRead(b"", fetch.next_offset, ()), waits=True))
            unfinished |= told.watermark < watermark
        return unfinished

    # --- following ---

    def next_fetch(self, fetch_id: int, max_bytes: int) -> PartitionFetch | None:
        """The fetch to send now under this number, or None where there is none any more."""
        if self.follower is None:
            return None
        for effect in self.follower.handle(StreamReady(fetch_id)):
            assert isinstance(effect, SendFetch), "a ready stream is answered by a fetch"
            return PartitionFetch(
                effect.fetch_id,
                self.topic_id,
                self.key.partition,
                self.leader_epoch,
                effect.next_offset,
                effect.last_epoch,
                effect.durable_offset,
                effect.log_start,
                max_bytes,
                effect.refused,
            )
        return None

    def answered(self, answer: FetchedPartition) -> None:
        """The leader's answer to a fetch."""
        if self.follower is None:
            return
        event = Answered(
            answer.fetch_id,
            answer.leader_epoch,
            answer.error,
            answer.diverging,
            len(answer.records) > 0,
            answer.high_watermark,
            answer.log_start_offset,
            self._host.monotonic_ms(),
            () if answer.diverging is None else self.log.epoch_entries(),
            answer.waits,
            len(answer.records) > SMALL_BYTES,
        )
        self._follow(self.follower.handle(event), answer)

    def stream_broken(self) -> None:
        """The stream to the leader is gone; a fetch is wanted again."""
        if self.follower is not None:
            self._follow(self.follower.handle(StreamBroken()), None)

    def _follow(self, effects: list[FollowerEffect], answer: FetchedPartition | None) -> None:
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            match effect:
                case WantFetch():
                    self._host.want_fetch(self)
                case AdvanceWatermark(offset):
                    if self.log.advance_high_watermark(offset) and self._readers_waiting:
                        self._wake(self._readers_waiting)
                case AdvanceLogStart(offset):
                    self.directory.move_log_start(self.log, offset)
                case ReportDurable(durable_offset):
                    self._host.report_durable(self, durable_offset)
                case RetryLater(_, error):
                    _log.info("%s: node %d refused a fetch: %s", self, self.leader_node, error.message)
                    self._host.attend(self)
                case AppendRecords() | TruncateTo() | RestartAt():
                    queue += self._change_log(effect, answer)
                case _:
                    raise AssertionError(f"{effect} comes only to a ready stream")

    def log_start_moved(self) -> None:
        """Records at the log's beginning are gone."""
        if self.leader is not None:
            self._lead(self.leader.handle(LogStartMoved(self.log.log_start_offset)))
            self._host.attend(self)

    def _change_log(
        self, effect: AppendRecords | TruncateTo | RestartAt, answer: FetchedPartition | None
    ) -> list[FollowerEffect]:
        follower = self.follower
        assert follower is not None
        try:
            if isinstance(effect, AppendRecords):
                assert answer is not None, "records come with an answer"
                append_answer(self.log, answer, follower.leader_epoch)
            elif (ticket := begin_truncation(self.log, self.directory, effect)) is not None:
                self.directory.commit.cut(self.log, ticket, lambda error: self._cut_ended(follower, error))
                return []
        except TidelogError as error:
            return self._change_failed(follower, error)
        self.sync()
        return follower.handle(LogChanged(view_of(self.log)))

    def _cut_ended(self, follower: PartitionFollower, error: TidelogError | None) -> None:
        """What `follower` wanted cut is cut, or was not."""
        if self.offline is None:
            self.sync()
        self._wake(self._readers_waiting)
        if error is not None:
            self._follow(self._change_failed(follower, error), None)
        elif self.follower is follower:
            self._follow(follower.handle(LogChanged(view_of(self.log))), None)
        self._host.truncation_ended(self)

    def _change_failed(self, follower: PartitionFollower, error: TidelogError) -> list[FollowerEffect]:
        if isinstance(error, CorruptLog):
            self._host.log_damaged(self, error)
        if self.follower is not follower:
            return []
        return follower.handle(LogFailed(view_of(self.log), error, self._host.monotonic_ms()))
