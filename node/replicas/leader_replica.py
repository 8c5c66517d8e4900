"""A replica that leads its partition in one epoch: appends, followers' fetches, acknowledgements.

The core (`PartitionLeader`) decides. This module carries out: it appends, requests fsyncs, wakes waiting fetches and
answers producers.

Invariants:
  1. Effects of the core are carried out on the loop, at once and in order.
  2. Each entry is checked and appended at once. What follows from the appends of one turn of the loop is done once, at
     its end, or before anything else that reads or changes the core (`settle`).
  3. When the leadership ends, all waiting fetches and produce requests are answered.
  4. Only the core advances the high watermark of the log.

Not here: the choice of the leader (replica_manager.py), reads (replica.py), streams (data_handlers.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from node.api.fetch import DurablePosition, PartitionFetch
from node.replicas.leadership_watch import LeaderObserver
from node.replicas.own_log_check import check_own
from node.replicas.replica_services import ReplicaParts
from node.replicas.role_log import RoleChange
from node.replicas.waiting_fetch import (
    FollowerIdentity,
    WaitingFetch,
    diverging_answer,
    read_answer,
    refuse_all,
    wake_all,
)
from replication.common_events import ClockTicked
from replication.controller.image import PartitionState
from replication.partition import leader_events as events
from replication.partition.leader import PartitionLeader
from storage.append_info import LogAppendInfo, Origin
from storage.directory.log_directory import LogDirectory
from storage.files.file_system import WouldBlock
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.producers.verification import UNVERIFIED, TransactionCheck
from tidelog.errors import (
    CorruptLog,
    InvalidRequest,
    LeadershipLost,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    TidelogError,
)
from tidelog.record_exchange import FetchedPartition
from tidelog.records import Inspected, walk_headers
from tidelog.types import (
    NO_LEADER_EPOCH,
    Acks,
    BatchReceipt,
    Buffer,
    EpochEnd,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionEpoch,
)
from tidelog.values import dataclass

_log = logging.getLogger("node.partition")

ProduceDone: TypeAlias = Callable[[LogAppendInfo | None, TidelogError | None], None]
"""Called once with the outcome of a produce request: the append (None if there was none), and the error, if any."""

DeletionDone: TypeAlias = Callable[[Offset, TidelogError | None], None]
"""Called once with the outcome of a deletion: the low watermark (-1 if it is unknown), and the error, if any."""


@dataclass(slots=True)
class _LastSent:
    """The stream of a follower, and the high watermark and log start offset that were last sent on it."""

    session: events.Session
    watermark: Offset
    log_start: Offset


class LeaderReplica:
    """One leadership of this node."""

    def __init__(
        self,
        parts: ReplicaParts,
        state: PartitionState,
        min_insync: int,
        views: Mapping[NodeId, events.ReplicaView],
    ) -> None:
        """parts: the epoch has begun in the log."""
        self.key, self._name, self._log = parts.key, parts.name, parts.log
        self._directory, self._services, self._readers = parts.directory, parts.services, parts.readers
        log, services = parts.log, parts.services
        self.proposed_on = PartitionEpoch(-1)
        """The newest partition epoch in which this leader proposed an in-sync set."""
        self.waiting: dict[WaitingFetch, None] = {}
        """Followers' fetches."""
        self.observer: LeaderObserver | None = None
        """The coordinator of the partition, if it has one."""
        self.core = PartitionLeader(
            name=parts.name,
            me=services.me,
            leader_epoch=state.leader_epoch,
            history=log.epochs.entries,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            durable_offset=log.durable_offset,
            high_watermark=log.high_watermark,
            known=self._known(state, min_insync, views),
            lag_ms_max=services.lag_ms_max,
        )
        self._ended = False
        self._held: list[Callable[[TidelogError | None], None]] | None = None
        """Produce requests to append later, or to refuse with an error; None: appends are not held."""
        self._tickets = 0
        self._pending: dict[events.Ticket, tuple[ProduceDone, LogAppendInfo]] = {}
        self._deletions: dict[events.Ticket, DeletionDone] = {}
        self._appended: list[events.AckAwaited] = []
        """Entries that were appended in this turn, unknown to the core."""
        self._appended_to = log.log_end_offset
        self._last_sent: dict[NodeId, _LastSent] = {}
        self._watermark_ticked = Offset(0)

    def __str__(self) -> str:
        return str(self._name)

    def start(self) -> None:
        """Begin to lead."""
        log = self._log
        log.keep_recent_appends(keep=len(self.core.in_sync.replicas) > 1)
        log.first_unfetched = self.core.in_sync.first_unfetched
        at = self.core.leader_epoch, log.log_end_offset, log.high_watermark
        text = "leads in epoch %d, log end offset %d, high watermark %d"
        self._services.role_log.changed(RoleChange.LEADS, self, text, *at)
        self.durable_moved()  # without other counted replicas, durable records are committed
        self._handle(ClockTicked(self._services.clock.monotonic_ms()))
        self.tick()

    def end(self, reason: str, refusal: TidelogError) -> None:
        """The leadership has ended. refusal: the answer to the waiting fetches."""
        self.settle()
        self._ended = True
        self._release(refusal)
        self._log.keep_recent_appends(keep=False)
        self._log.first_unfetched = None
        text = "no longer leads in epoch %d: %s"
        self._services.role_log.changed(RoleChange.ENDED, self, text, self.core.leader_epoch, reason)
        self._carry_out(self.core.handle(events.LeadershipEnded(reason)))
        refuse_all(self.waiting, refusal)

    def learn(self, state: PartitionState, min_insync: int, views: Mapping[NodeId, events.ReplicaView]) -> None:
        """Apply a change of the partition within the leader epoch, or of the nodes of its replicas."""
        self._handle(self._known(state, min_insync, views))
        self._log.keep_recent_appends(keep=len(self.core.in_sync.replicas) > 1)
        self._services.schedule.attend(self)

    def _known(
        self, state: PartitionState, min_insync: int, views: Mapping[NodeId, events.ReplicaView]
    ) -> events.StateKnown:
        now = self._services.clock.monotonic_ms()
        return events.StateKnown(state.replicas, state.isr, state.partition_epoch, min_insync, views, now, state.elr)

    # --- moves between log directories ---

    @property
    def is_held(self) -> bool:
        """True while appends are held."""
        return self._held is not None

    def hold(self) -> None:
        """Hold what producers send until `release`."""
        self.settle()
        self._held = []

    def use(self, log: Log, directory: LogDirectory) -> None:
        """Use a log with the same records in another directory; appends are held."""
        self._log.keep_recent_appends(keep=False)
        self._log, self._directory = log, directory
        log.keep_recent_appends(keep=len(self.core.in_sync.replicas) > 1)
        log.first_unfetched = self.core.in_sync.first_unfetched
        self.durable_moved()

    def release(self) -> None:
        """Append what was held, in its order."""
        self._release(None)
        if self.observer is not None and not self._ended:
            self.observer.committed(self._log.high_watermark)  # it has waited too

    def _release(self, refusal: TidelogError | None) -> None:
        held, self._held = self._held or [], None
        for entry in held:
            entry(refusal)

    # --- produce ---

    def produce(
        self,
        records: Buffer,
        *,
        origin: Origin,
        acks: Acks,
        deadline: Millis,
        done: ProduceDone,
        inspected: Inspected | None = None,
        check: TransactionCheck = UNVERIFIED,
        for_receipt: bool = False,
    ) -> None:
        """Append a batch. `done` is called once, at the end of this turn of the loop or later. origin: only the node
        itself may append to an internal topic. inspected: the result of `inspect_sent` (storage/log/validation.py) for
        the records. check: as for `Log.append`. for_receipt: look up the checksum of a duplicate's first copy. While
        appends are held, the batch waits, and `done` gets the error that is raised otherwise. Raises
        the reason if the batch is rejected and not written, NotLeaderOrFollower if damage of the log ended the
        leadership, LeadershipLost if the disk failed during the append."""
        append = partial(
            self._append,
            records,
            origin=origin,
            acks=acks,
            deadline=deadline,
            done=done,
            inspected=inspected,
            check=check,
            for_receipt=for_receipt,
        )
        if self._held is None:
            append()
        else:
            self._held.append(partial(_append_late, append, done))

    def _append(
        self,
        records: Buffer,
        *,
        origin: Origin,
        acks: Acks,
        deadline: Millis,
        done: ProduceDone,
        inspected: Inspected | None,
        check: TransactionCheck,
        for_receipt: bool,
    ) -> None:
        core, log = self.core, self._log
        try:
            core.ensure_enough(acks)
        except NotEnoughReplicas:
            # A duplicate waits for its acks even if the in-sync set is too small by now: its first copy is in the log,
            # and a refusal would tell the producer that it was not written.
            if not log.producers.is_duplicate(records):
                raise
        began_ns = self._services.meters.now_ns()
        try:
            info = log.append(
                records,
                assign_offsets=True,
                leader_epoch=core.leader_epoch,
                origin=origin,
                inspected=inspected,
                check=check,
            )
        except CorruptLog as error:
            self._services.log_damaged(log, error)  # may end the leadership
            if self._ended:
                raise NotLeaderOrFollower(f"nothing was written, this node no longer leads: {error.message}") from error
            raise
        self._services.meters.appended_since(self._directory.path, began_ns)
        if for_receipt and info.duplicate:
            info = info._replace(checksum=_stored_checksum(log, info))
        if info.last_offset < 0:
            raise InvalidRequest(f"the entry for partition {self} contains no record batch; send one whole batch")
        if self._ended:
            raise LeadershipLost(f"partition {self}: the log directory failed during the append; outcome unknown")
        if self.observer is not None:
            self.observer.appended(records, info)
        self._tickets += 1
        ticket = events.Ticket(self._tickets)
        self._pending[ticket] = (done, info)
        if not self._appended:
            self._services.turn_end.add(self._turn_ended)
        self._appended.append(events.AckAwaited(ticket, acks, Offset(info.last_offset + 1), deadline))
        self._appended_to = log.log_end_offset

    def receipt(self, info: LogAppendInfo) -> BatchReceipt | None:
        """What this leader states now about a batch that it has just acknowledged. None if its checksum is not known:
        its format is not v2, or it is a duplicate without one (`produce`)."""
        if info.checksum is None:
            return None
        replicas, durable = self.core.in_sync.holders(Offset(info.last_offset + 1))
        durability = self._log.config.durability
        return BatchReceipt(self.key.topic_id, info.last_offset, info.checksum, replicas, durable, durability)

    def settle(self) -> None:
        """Do what follows from the appends of this turn."""
        if not self._appended:
            return
        awaited, self._appended = self._appended, []
        core, end = self.core, self._appended_to
        effects = core.handle(events.Appended(end, min(self._log.durable_offset, end)))
        for entry in awaited:
            effects += core.handle(entry)
        if self.waiting:
            wake_all(self.waiting)
        self._carry_out(effects)
        if core.waiting:
            self._services.schedule.attend(self)

    def _turn_ended(self) -> None:
        """Settle, and request an fsync of the appends of this turn. If the fsync cannot begin, the directory fails,
        which ends the leadership at once; hence it is requested here, where nothing else uses the core."""
        self.settle()
        if self._directory.offline is None and not self._log.closed:
            self._services.sync(self._log, self._directory, self)

    # --- deletions ---

    def delete_records(self, offset: Offset, *, deadline: Millis, done: DeletionDone) -> None:
        """Delete the records below `offset`, or with HIGH_WATERMARK all committed ones. `done` is called once: when
        every replica that counts has deleted them, or with an error. Raises as `PartitionLeader.deletable`, and
        NotLeaderOrFollower if the disk has just failed."""
        self.settle()
        if self._ended:
            raise NotLeaderOrFollower(f"partition {self}: the log directory failed; no records were deleted")
        below = self.core.deletable(offset)
        self._tickets += 1
        ticket = events.Ticket(self._tickets)
        self._deletions[ticket] = done
        self._handle(events.DeletionAwaited(ticket, below, deadline))
        if self.core.waiting:
            self._services.schedule.attend(self)

    def _carry_out_deletion(self, effect: events.MoveLogStart | events.RecordsDeleted | events.DeletionFailed) -> None:
        if isinstance(effect, events.MoveLogStart):
            self._move_log_start(effect.offset)
            return
        error = effect.error if isinstance(effect, events.DeletionFailed) else None
        for ticket in effect.tickets:
            self._deletions.pop(ticket)(effect.low_watermark, error)

    def _move_log_start(self, offset: Offset) -> None:
        def failed(error: TidelogError) -> None:
            if not self._ended:
                self._handle(events.LogStartKept(error))

        _log.info("%s: deletes its records below offset %d", self, offset)
        self._services.move_log_start(self._log, self._directory, offset, failed)

    # --- positions of the log ---

    def durable_moved(self) -> None:
        """Apply a new durable offset of the log."""
        self.settle()
        self._carry_out(self.core.handle(events.LocalDurable(self._log.durable_offset)))

    def log_start_moved(self) -> None:
        """Apply a new log start offset of the log."""
        self._handle(events.LogStartMoved(self._log.log_start_offset))
        self._services.schedule.attend(self)

    def committed_end(self) -> Offset:
        """As `PartitionLeader.committed_end`."""
        self.settle()
        return self.core.committed_end()

    def epoch_end(self, epoch: LeaderEpoch) -> EpochEnd:
        """As `PartitionLeader.epoch_end`."""
        self.settle()
        return self.core.epoch_end(epoch)

    # --- fetches ---

    def fetched(
        self, fetch: WaitingFetch, follower: FollowerIdentity, item: PartitionFetch, now: Millis
    ) -> FetchedPartition | None:
        """Apply the positions in a follower's fetch. Returns the answer if it is due at once, else None. Raises the
        reason if the fetch is rejected."""
        self.settle()
        event = events.FollowerFetched(
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
        verdict, *effects = self.core.handle(event)
        self._carry_out(effects)
        self._services.schedule.attend(self)
        match verdict:
            case events.FetchAgreed():
                self._use_stream(follower)
                if item.refused:
                    check_own(
                        self._log, fetch.next_offset, fetch.max_bytes, partial(self._services.damage_found, self._log)
                    )
                return None
            case events.FetchDiverged(end):
                return diverging_answer(fetch, self._log, self.core.leader_epoch, end)
            case events.FetchRefused(error):
                raise error
            case _:
                raise AssertionError(f"unexpected answer to a fetch: {verdict}")

    def _use_stream(self, follower: FollowerIdentity) -> None:
        """Send updates on the latest stream of a follower only: one of an earlier incarnation may stay open."""
        last = self._last_sent.get(follower.node_id)
        if last is not None and last.session == follower.session:
            return
        self._last_sent[follower.node_id] = _LastSent(follower.session, Offset(-1), Offset(-1))
        for fetch in filter(self._is_outdated, list(self.waiting)):
            fetch.refuse(self._outdated())

    def ensure_latest(self, fetch: WaitingFetch) -> None:
        """Raises InvalidRequest if the fetch is not from the latest stream of its follower in this leadership."""
        if self._is_outdated(fetch):
            raise self._outdated()

    def _is_outdated(self, fetch: WaitingFetch) -> bool:
        assert fetch.follower is not None, "consumers wait elsewhere"
        last = self._last_sent.get(fetch.follower.node_id)
        return last is None or last.session != fetch.follower.session

    def _outdated(self) -> InvalidRequest:
        return InvalidRequest(f"partition {self}: this fetch is from an earlier stream or leadership; fetch again")

    def follower_durable(self, follower: FollowerIdentity, report: DurablePosition, now: Millis) -> None:
        """Apply a follower's report of its durable offset. Outdated reports are ignored: the next fetch repeats it."""
        event = events.FollowerDurable(
            follower.node_id,
            follower.incarnation,
            follower.session,
            report.leader_epoch,
            report.durable_offset,
            report.log_start_offset,
            now,
        )
        self._handle(event)

    def note_sent(self, follower: NodeId) -> Offset:
        """An answer to this follower is made now. Returns its `InSyncSet.held_from`."""
        last = self._last_sent[follower]
        last.watermark, last.log_start = self._log.high_watermark, self._log.log_start_offset
        return self.core.in_sync.held_from(follower)

    def reader_fetched(self, fetch: WaitingFetch) -> FetchedPartition | None:
        """The answer to a consumer if it is due at once: the logs diverge, or another replica is nearer. Else None."""
        self.settle()
        if fetch.last_epoch != NO_LEADER_EPOCH:
            end = self.core.diverging_from_reader(fetch.next_offset, fetch.last_epoch)
            if end is not None:
                return diverging_answer(fetch, self._log, self.core.leader_epoch, end)
        nearest = self.core.in_sync.nearest(fetch.rack, fetch.next_offset)
        if nearest is None:
            return None
        nothing = LogRead(b"", fetch.next_offset, ())
        return read_answer(fetch, self._log, self.core.leader_epoch, nothing, preferred=nearest)

    # --- effects of the core ---

    def _handle(self, event: events.LeaderEvent) -> None:
        self.settle()
        self._carry_out(self.core.handle(event))

    def _carry_out(self, effects: list[events.LeaderEffect]) -> None:
        schedule = self._services.schedule
        schedule.watch(self)
        for effect in effects:
            match effect:
                case events.CommitUpTo(offset):
                    self._log.advance_high_watermark(offset)
                    if self.observer is not None:
                        self.observer.committed(self._log.high_watermark)
                    if self._readers:
                        wake_all(self._readers)
                    schedule.attend(self)
                case events.Acknowledge(tickets):
                    for ticket in tickets:
                        done, info = self._pending.pop(ticket)
                        done(info, None)
                case events.Fail(tickets, error):
                    for ticket in tickets:
                        done, info = self._pending.pop(ticket)
                        done(info, error)
                case events.MoveLogStart() | events.RecordsDeleted() | events.DeletionFailed():
                    self._carry_out_deletion(effect)
                case events.ProposeIsr():
                    self.proposed_on = max(self.proposed_on, effect.partition_epoch)
                    self._services.proposer.propose(self.key, self, effect, partial(self._proposal_ended, effect))
                case _:
                    raise AssertionError(f"{effect} answers a fetch; it must come from FollowerFetched only")

    def _proposal_ended(self, proposal: events.ProposeIsr, accepted: events.ProposalAccepted | None) -> None:
        if self._ended:
            return
        if accepted is None:
            self._handle(events.ProposalFailed(proposal.partition_epoch, self._services.clock.monotonic_ms()))
        else:
            self._handle(accepted)
            self._services.schedule.attend(self)

    # --- time ---

    def tick(self) -> None:
        """Act on the clock: deadlines of produce requests, and updates of followers. Reviews check the set: with
        thousands of busy partitions, at each tick that would cost more than their batches."""
        if self._ended:
            return
        now = self._services.clock.monotonic_ms()
        self.settle()
        if now >= self.core.deadline:
            self._handle(ClockTicked(now))
        if self._send_updates(now) or self.core.waiting:
            self._services.schedule.attend(self)

    def review(self) -> bool:
        """Check the in-sync set. Returns True if another review is needed, False if nothing depends on time."""
        if self._ended:
            return False
        now = self._services.clock.monotonic_ms()
        self._handle(ClockTicked(now))
        is_settled = self.core.in_sync.is_settled(now)
        self._services.sync(self._log, self._directory, self)  # may end the leadership
        return not is_settled

    def _send_updates(self, now: Millis) -> bool:
        """Send waiting followers the high watermark if they lack that of one tick ago, or the log start offset: no
        records have carried them. Answer fetches from outside the in-sync set that are past their deadline, so that
        those followers fetch again. Returns True if a follower lacks an update or has a deadline."""
        watermark, log_start, isr = self.core.high_watermark, self._log.log_start_offset, self.core.in_sync.isr
        overdue, self._watermark_ticked = self._watermark_ticked, watermark
        unfinished = False
        for fetch in list(self.waiting):
            assert fetch.follower is not None, "consumers wait elsewhere"
            node = fetch.follower.node_id
            last = self._last_sent[node]
            if node not in isr:
                unfinished = True
                if now >= fetch.deadline:
                    fetch.answer_anyway()
                    continue
            if last.watermark < overdue or last.log_start < log_start:
                nothing, held_from = LogRead(b"", fetch.next_offset, ()), self.note_sent(node)
                epoch = self.core.leader_epoch
                fetch.send_update(read_answer(fetch, self._log, epoch, nothing, waits=True, held_from=held_from))
            unfinished |= last.watermark < watermark
        return unfinished


def _append_late(append: Callable[[], None], done: ProduceDone, refusal: TidelogError | None) -> None:
    """Append a batch that was held, or refuse it."""
    try:
        if refusal is not None:
            raise refusal
        append()
    except TidelogError as error:
        done(None, error)


def _stored_checksum(log: Log, info: LogAppendInfo) -> int | None:
    """The checksum of the batch of these offsets as the log has it now. None if the batch was removed, was rewritten by
    compaction, is not of format v2, cannot be read, or is not in the page cache: nothing here waits for the disk.

    A sender's duplicate has another checksum than the stored batch if the log recompressed the batch or set its time.
    """
    try:
        read = log.read(info.first_offset, 1, up_to=log.log_end_offset, wait=False)
    except (TidelogError, WouldBlock):
        return None
    header = next(walk_headers(read.records), None)
    if header is None or header.magic != 2:
        return None
    records = info.last_offset - info.first_offset + 1
    as_appended = (info.first_offset, records - 1, records)
    if (header.base_offset, header.last_offset_delta, header.record_count) != as_appended:
        return None
    return header.crc
