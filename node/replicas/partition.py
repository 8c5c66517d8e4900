"""One replica of a partition on this node: its log, and the core that decides what happens to it.

The core (`PartitionLeader` or `PartitionFollower`, a new one for each leader epoch) decides. This module carries out:
it appends, truncates, requests fsyncs, wakes waiting fetches and answers producers.

Invariants:
  1. Effects of the core are carried out on the loop, at once and in order. A truncation, whose fsyncs run on another
     thread, is a barrier: until it ends, the log is not appended to, flushed or read, and its state is not reported.
  2. When a leadership ends, all waiting fetches and produce requests are answered.
  3. Only the core advances the high watermark of the log.

A disk error takes the whole log directory offline: the node calls `go_offline`, possibly during an append.
Not here: roles and epochs (replica_manager.py), streams (data_handlers.py, replica_fetcher.py).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from node.observability.meters.topic_meter import TopicMeter
from node.replicas.cold_reads import fetch_records
from node.replicas.fetch_answers import committed_divergence, diverging_answer, read_answer
from node.replicas.follower_log import append_answer, begin_truncation, view_of
from node.replicas.own_log_check import check_own, read_again
from node.replicas.partition_host import PartitionHost
from node.replicas.waiting_fetch import FollowerIdentity, WaitingFetch
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
"""Called once with the outcome of a produce request: the append (None if there was none), and the error, if any."""


SMALL_BYTES: Final = 4 << 10
"""After an answer of up to this size, the next fetch waits for the fsync, which saves a message. After larger ones the
wait costs more: with 64 KiB here, three nodes took 76,000 to 108,000 records/s of 100 B, not 233,000 to 312,000."""


@dataclass(slots=True)
class _Told:
    """The stream of a follower, and the high watermark and log start offset that were last sent on it."""

    session: Session
    watermark: Offset
    log_start: Offset


class Partition:
    """The replica of one partition, as leader, follower or neither."""

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
        """The 16 bytes of requests."""
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
        """The last leader epoch in which this replica led or followed."""
        self.proposed_on = PartitionEpoch(-1)
        """The newest partition epoch in which this node proposed an in-sync set: a proposal may take effect in it."""
        self.configs: Mapping[str, str] = {}
        """The topic settings that the log uses."""
        self.moves_here = False
        """True while a reassignment adds this replica and it is not in sync: its fetches are throttled."""
        self._tickets = 0
        self._pending: dict[Ticket, tuple[ProduceDone, LogAppendInfo]] = {}
        self._followers_waiting: dict[WaitingFetch, None] = {}
        self._readers_waiting: dict[WaitingFetch, None] = {}
        self._told: dict[NodeId, _Told] = {}
        self._watermark_ticked = Offset(0)

    def __str__(self) -> str:
        return str(self.name)

    @property
    def log_start(self) -> Offset:
        """The log start offset."""
        return self.log.log_start_offset

    # --- roles ---

    def lead(
        self, state: PartitionState, min_insync: int, views: Mapping[NodeId, ReplicaView], *, lag_ms_max: int
    ) -> None:
        """Become the leader in the epoch of `state`."""
        self.stop("this node became the leader in a newer epoch", leader=self._me, leader_epoch=state.leader_epoch)
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
        _log.info("%s: leads in epoch %d, log end offset %d, high watermark %d", self, *at)
        self.durable_moved()  # without other counted replicas, durable records are committed
        self._tick_leader(self.leader)

    def follow(self, state: PartitionState) -> None:
        """Become a follower of the leader of `state`."""
        reason = f"node {state.leader} leads in epoch {state.leader_epoch}"
        self.stop(reason, leader=state.leader, leader_epoch=state.leader_epoch)
        self.used_in = state.leader_epoch
        self.follower = PartitionFollower(
            name=self.name, leader_epoch=state.leader_epoch, log=view_of(self.log), rng=self._rng
        )
        at = state.leader, state.leader_epoch, self.log.log_end_offset
        _log.info("%s: follows node %d in epoch %d, log end offset %d", self, *at)
        self._follow(self.follower.start(), None)

    def stop(self, reason: str, *, leader: NodeId, leader_epoch: LeaderEpoch) -> None:
        """Stop leading or following, and answer all waiting requests with the reason."""
        core, self.leader, self.follower = self.leader, None, None
        self.leader_node, self.leader_epoch = leader, leader_epoch
        if core is not None:
            _log.info("%s: no longer leads in epoch %d: %s", self, core.leader_epoch, reason)
            self._lead(core.handle(LeadershipEnded(reason)))
        self._told.clear()
        self._watermark_ticked = Offset(0)
        for fetch in (*self._followers_waiting, *self._readers_waiting):
            fetch.refuse(self._not_leading())
        self._followers_waiting.clear()
        self._readers_waiting.clear()

    def go_offline(self, error: TidelogError) -> None:
        """Stop using the log: it failed or is damaged."""
        self.offline = error
        self._host.watch(self)
        self.stop(error.message, leader=self.leader_node, leader_epoch=self.leader_epoch)

    def learn(self, state: PartitionState, min_insync: int, views: Mapping[NodeId, ReplicaView]) -> None:
        """Apply a change of the partition within the leader epoch, or of the nodes of its replicas."""
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
        origin: Origin,
        acks: Acks,
        leader_epoch: LeaderEpoch,
        deadline: Millis,
        done: ProduceDone,
        inspected: Inspected | None = None,
    ) -> None:
        """Append a batch. `done` is called once, possibly before this returns. origin: only the node itself may append
        to an internal topic. inspected: the result of `inspect_sent` (storage/log/validation.py) for the records.
        Raises the reason if the batch is rejected and not written, LeadershipLost if the disk failed during the append.

        A duplicate waits for its acks even if the in-sync set is too small by now: its first copy is in the log."""
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
            origin=origin,
            inspected=inspected,
        )
        if info.last_offset < 0:
            raise InvalidRequest(f"the entry for partition {self} contains no record batch; send one whole batch")
        if self.leader is not leader:
            raise LeadershipLost(f"partition {self}: the log directory failed during the append; outcome unknown")
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
        """The core of the leader in that epoch (-1: in any). Raises NotLeaderOrFollower, or as `ensure_epoch`."""
        if self.offline is not None:
            raise NotLeaderOrFollower(f"this node cannot lead partition {self}: {self.offline.message}")
        if leader_epoch != NO_LEADER_EPOCH:
            ensure_epoch(self.name, self.leader_epoch, leader_epoch)
        if self.leader is None:
            raise self._not_leading()
        return self.leader

    def _not_leading(self) -> NotLeaderOrFollower:
        who = "no node does" if self.leader_node == NO_NODE else f"node {self.leader_node} does"
        return NotLeaderOrFollower(
            f"this node does not lead partition {self}: {who} in epoch {self.leader_epoch}, as far as this node knows"
        )

    def sync(self) -> None:
        """Request an fsync of what was appended, if the topic requires one."""
        if self.log.durable_offset < self.log.log_end_offset:
            self.directory.commit.request(self.log)
            self._host.watch(self)

    def durable_moved(self) -> None:
        """Apply a new durable offset of the log."""
        if self.leader is not None:
            self._lead(self.leader.handle(LocalDurable(self.log.durable_offset)))
        elif self.follower is not None:
            self._follow(self.follower.handle(DurableOffsetMoved(self.log.durable_offset)), None)

    # --- leading: fetches ---

    def follower_fetched(
        self, fetch: WaitingFetch, follower: FollowerIdentity, item: PartitionFetch, now: Millis
    ) -> FetchedPartition | None:
        """Apply the positions in a follower's fetch. Returns the answer if it is due at once, else None. Raises the
        reason if the fetch is rejected."""
        if self.offline is None and self.leader is None:
            ensure_epoch(self.name, self.leader_epoch, fetch.leader_epoch)
        leader = self.leading_in(NO_LEADER_EPOCH)
        event = FollowerFetched(
            follower.node_id,
            follower.incarnation,
            follower.session,
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
                raise AssertionError(f"unexpected answer to a fetch: {verdict}")

    def _speak_on(self, follower: FollowerIdentity) -> None:
        """Send updates on the latest stream of a follower only: one of an earlier incarnation may stay open."""
        told = self._told.get(follower.node_id)
        if told is not None and told.session == follower.session:
            return
        self._told[follower.node_id] = _Told(follower.session, Offset(-1), Offset(-1))
        for fetch in filter(self._is_deaf, list(self._followers_waiting)):
            fetch.refuse(self._out_of_date())

    def _is_deaf(self, fetch: WaitingFetch) -> bool:
        """True if the fetch is not from the latest stream of its follower in this leadership."""
        assert fetch.follower is not None, "consumers wait elsewhere"
        told = self._told.get(fetch.follower.node_id)
        return told is None or told.session != fetch.follower.session

    def _out_of_date(self) -> InvalidRequest:
        return InvalidRequest(f"partition {self}: this fetch is from an earlier stream or leadership; fetch again")

    def _damage_found(self, damage: Damage) -> None:
        self._host.damage_found(self.log, damage)

    def follower_durable(self, follower: FollowerIdentity, report: DurablePosition, now: Millis) -> None:
        """Apply a follower's report of its durable offset. Outdated reports are ignored: the next fetch repeats it."""
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

    def reader_fetched(self, fetch: WaitingFetch) -> FetchedPartition | None:
        """Check a consumer's fetch. Returns the answer if it is due at once: the logs diverge, or another replica is
        nearer. Else None. Raises the reason if the fetch is rejected."""
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
        """The core of the leader in that epoch; None if this node follows in it and serves reads below its high
        watermark (KIP-392). Raises as `leading_in`."""
        if self.follower is None or self.offline is not None:
            return self.leading_in(leader_epoch)
        if leader_epoch == NO_LEADER_EPOCH:
            raise self._not_leading()
        ensure_epoch(self.name, self.leader_epoch, leader_epoch)
        return None

    def read_for(self, fetch: WaitingFetch, now: Millis) -> FetchedPartition | None:
        """The answer to the fetch; None if the fetch waits. Raises the reason if the fetch is rejected."""
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
            raise OffsetOutOfRange(f"partition {self} has {has}; offset {offset} is outside")
        due = fetch.is_due(now)
        if log.truncation is not None or (offset >= up_to and not due):
            fetch.wait()
            self._waiting_with(fetch)[fetch] = None
            return None
        try:
            read = fetch_records(fetch, log) if offset < up_to and fetch.max_bytes else LogRead(b"", offset, ())
            if fetch.refused and read is not None:
                read = read_again(log, read, offset, fetch.last_epoch, is_follower=fetch.follower is not None)
        except CorruptLog as error:
            self._host.log_damaged(self, error)
            self.leading_in(NO_LEADER_EPOCH)  # raises if another node leads by now: the reader must ask that one
            raise
        if read is None:
            self._waiting_with(fetch)[fetch] = None
            return None
        if not (due or fetch.is_filled_by(read, up_to)):
            fetch.fall_short()
            return None
        return self._answer(fetch, read)

    def waits_at_end(self, fetch: WaitingFetch, now: Millis) -> bool:
        """Let a new fetch wait if it asks for the next record and is not due. Returns True if it waits."""
        log = self.log
        waits = log.log_start_offset <= fetch.next_offset == log.end_for(fetch.isolation) and not fetch.is_due(now)
        if waits:
            self._waiting_with(fetch)[fetch] = None
        return waits

    def stop_waiting(self, fetch: WaitingFetch) -> None:
        """Forget a fetch that is answered or whose stream is closed."""
        self._waiting_with(fetch).pop(fetch, None)

    def _waiting_with(self, fetch: WaitingFetch) -> dict[WaitingFetch, None]:
        return self._readers_waiting if fetch.follower is None else self._followers_waiting

    def _wake(self, waiting: dict[WaitingFetch, None]) -> None:
        fetches = list(waiting)
        waiting.clear()
        for fetch in fetches:
            if not fetch.wake():
                waiting[fetch] = None

    def _answer(self, fetch: WaitingFetch, read: LogRead, *, waits: bool = False) -> FetchedPartition:
        if fetch.follower is not None:
            told = self._told[fetch.follower.node_id]
            told.watermark, told.log_start = self.log.high_watermark, self.log.log_start_offset
        return read_answer(fetch, self.log, self.leader_epoch, read, waits=waits)

    # --- leading: effects of the core ---

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
                    raise AssertionError(f"{effect} answers a fetch; it must come from FollowerFetched only")

    def proposed(self, proposal: ProposeIsr) -> None:
        """Note that the proposal is being sent to the controller."""
        self.proposed_on = max(self.proposed_on, proposal.partition_epoch)

    def proposal_accepted(self, proposal: ProposeIsr, answer: ProposalAccepted) -> None:
        """Apply the state that the controller committed for the proposal."""
        if self.leader is not None and self.leader.leader_epoch == proposal.leader_epoch:
            self._lead(self.leader.handle(answer))
            self._host.attend(self)

    def proposal_failed(self, proposal: ProposeIsr) -> None:
        """Note that the controller rejected the proposal, or did not answer."""
        if self.leader is not None and self.leader.leader_epoch == proposal.leader_epoch:
            event = ProposalFailed(proposal.partition_epoch, self._host.monotonic_ms())
            self._lead(self.leader.handle(event))

    # --- time ---

    def tick(self) -> None:
        """Act on the clock: called with each tick that `attend` requested."""
        if self.leader is not None:
            self._tick_leader(self.leader)
        elif (follower := self.follower) is not None:
            self._follow(follower.handle(Waited(self._host.monotonic_ms())), None)
            if follower.pauses:
                self._host.attend(self)  # its pause is not over

    def review(self) -> bool:
        """Check the in-sync set, and repeat an fsync that a full disk rejected. Returns True if another review is
        needed, False if nothing depends on time."""
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
        """Send waiting followers the high watermark if they lack that of one tick ago, or the log start offset: no
        records have carried them. Answer fetches from outside the in-sync set that are past their deadline, so that
        those followers fetch again. Returns True if a follower lacks an update or has a deadline."""
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
        """The fetch to send now with this id; None if the replica needs none any more."""
        if self.follower is None:
            return None
        for effect in self.follower.handle(StreamReady(fetch_id)):
            assert isinstance(effect, SendFetch), "a ready stream causes only a fetch"
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
        """Apply the leader's answer to a fetch."""
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
        """Fetch again after the stream to the leader was closed."""
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
                    _log.info("%s: node %d rejected a fetch, will retry: %s", self, self.leader_node, error.message)
                    self._host.attend(self)
                case AppendRecords() | TruncateTo() | RestartAt():
                    queue += self._change_log(effect, answer)
                case _:
                    raise AssertionError(f"{effect} must come from StreamReady only")

    def log_start_moved(self) -> None:
        """Apply a new log start offset."""
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
                assert answer is not None, "records are part of an answer"
                append_answer(self.log, answer, follower.leader_epoch)
            elif (ticket := begin_truncation(self.log, self.directory, effect)) is not None:
                self.directory.commit.truncate(self.log, ticket, lambda error: self._cut_ended(follower, error))
                return []
        except TidelogError as error:
            return self._change_failed(follower, error)
        self.sync()
        return follower.handle(LogChanged(view_of(self.log)))

    def _cut_ended(self, follower: PartitionFollower, error: TidelogError | None) -> None:
        """The truncation that `follower` requested has ended, or failed with `error`."""
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
