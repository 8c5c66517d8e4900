"""One replica of a partition on this node: its log, its state, and its role in the current leader epoch.

Each leader epoch gets a new role (`LeaderReplica` or `FollowerReplica`). Both roles serve reads of consumers (KIP-392).

Invariants:
  1. The state changes only as `TRANSITIONS` says (replication/partition/replica_lifecycle.py). There is a role exactly
     while the state is FOLLOWING, TRUNCATING or LEADING.
  2. When a role ends, all waiting fetches and produce requests are answered.
  3. A log that is being truncated is not read: fetches wait until the truncation has ended.

A disk error takes the whole log directory offline: the node calls `go_offline`, possibly during an append.
Not here: roles and epochs (replica_manager.py), streams (data_handlers.py, replica_fetcher.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from node.api.fetch import DurablePosition, PartitionFetch
from node.replicas.cold_reads import TRIES_MAX, wait_for_disk, wait_for_store
from node.replicas.follower_replica import FollowerReplica
from node.replicas.leader_replica import LeaderReplica
from node.replicas.own_log_check import read_again
from node.replicas.remote_reads import RemoteRange, RemoteTicket
from node.replicas.replica_fetcher import ReplicaFetcher
from node.replicas.replica_services import ReplicaParts, ReplicaServices
from node.replicas.waiting_fetch import (
    FollowerIdentity,
    WaitingFetch,
    committed_divergence,
    diverging_answer,
    moved_answer,
    read_answer,
    refuse_all,
    wake_all,
)
from node.runtime.topic_meter import TopicMeter
from replication.controller.image import PartitionState
from replication.coordination.coordinator_machine import Instant
from replication.coordination.tiering.remote_log import RemoteLog
from replication.partition.leader_events import ReplicaView
from replication.partition.replica_lifecycle import ReplicaCause, ReplicaState, state_after
from storage.directory.log_directory import LogDirectory
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.log.remote_retention import age_limit
from storage.log.segment_copy import copy_limit, copyable_segments
from tidelog.epochs import ensure_epoch, ensure_known, epoch_before
from tidelog.errors import CorruptLog, NotLeaderOrFollower, OffsetNotAvailable, OffsetOutOfRange, TidelogError
from tidelog.record_exchange import FetchedPartition
from tidelog.tiering.remote_errors import ObjectStoreRefused
from tidelog.tiering.remote_segment import CopyProgress
from tidelog.types import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_NODE,
    NO_TIMESTAMP,
    EpochEnd,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionKey,
    TopicPartition,
)


class CopyFailure(NamedTuple):
    """Why the remote tier of a partition does not go on; CopyProgress documents the fields."""

    failure: str
    since_ms: Millis


class Replica:
    """The replica of one partition, as leader, follower or neither."""

    def __init__(
        self,
        key: PartitionKey,
        name: TopicPartition,
        log: Log,
        directory: LogDirectory,
        services: ReplicaServices,
        topic_meter: TopicMeter,
    ) -> None:
        self.key = key
        self.name = name
        self.log = log
        self.directory = directory
        self.topic_meter = topic_meter
        self._services = services
        self.state = ReplicaState.CREATED
        self.role: LeaderReplica | FollowerReplica | None = None
        self.leader_node = NO_NODE
        self.leader_epoch = NO_LEADER_EPOCH
        self.offline: TidelogError | None = None
        """Why the state is OFFLINE; None in all other states."""
        self.used_in = NO_LEADER_EPOCH
        """The last leader epoch in which this replica led or followed."""
        self.proposed_on = PartitionEpoch(-1)
        """The newest partition epoch in which an earlier role, or the node for it, proposed an in-sync set: a proposal
        may take effect in it."""
        self.configs: Mapping[str, str] = {}
        """The topic settings that the log uses."""
        self._readers: dict[WaitingFetch, None] = {}
        """The waiting fetches of consumers."""
        self.remote: RemoteLog | None = None
        """The remote segments that this replica believes; None: not known yet, or it has none. A new leader reads from
        those that it knew as a follower, until it has listed all of them."""
        self._remote_of: tuple[Log, int] | None = None
        """The log that `remote` was compared with, and how often it had been truncated."""
        self.copy_failure: CopyFailure | None = None
        """Of a leader; None: the last attempt has succeeded."""
        self._isr: tuple[NodeId, ...] | None = None
        """The in-sync set that was last known; None: none was."""

    def __str__(self) -> str:
        return str(self.name)

    @property
    def log_start(self) -> Offset:
        """The log start offset."""
        return self.log.log_start_offset

    @property
    def leader(self) -> LeaderReplica | None:
        """The role, if this replica leads."""
        return self.role if isinstance(self.role, LeaderReplica) else None

    @property
    def follower(self) -> FollowerReplica | None:
        """The role, if this replica follows."""
        return self.role if isinstance(self.role, FollowerReplica) else None

    # --- roles ---

    def lead(self, state: PartitionState, min_insync: int, views: Mapping[NodeId, ReplicaView]) -> None:
        """Become the leader in the epoch of `state`."""
        me, log = self._services.me, self.log
        known = self._remote_still_believed()
        self._end_role("this node became the leader in a newer epoch", me, state.leader_epoch)
        self.remote = known
        self._count_isr_change(state, leads=True)
        self.used_in = state.leader_epoch
        try:
            log.begin_epoch(state.leader_epoch)
        except TidelogError as error:
            self.go_offline(error)
            return
        if log.config.magic < 2:
            self.directory.commit.request(log)  # the epoch must be durable before the first append
        if self.offline is not None:
            return  # the flush could not begin
        self._move(ReplicaCause.ELECTED)
        self.role = leader = LeaderReplica(self._parts(), state, min_insync, views)
        leader.start()
        if self.role is leader:  # it may have failed at once
            self._services.leaderships.began(self.name, self.key)

    def follow(self, state: PartitionState, fetcher: ReplicaFetcher) -> None:
        """Become a follower of the leader of `state`. fetcher: of the stream to this leader."""
        self._end_role(f"node {state.leader} leads in epoch {state.leader_epoch}", state.leader, state.leader_epoch)
        self.used_in = state.leader_epoch
        self._count_isr_change(state, leads=False)
        self._move(ReplicaCause.LEADER_KNOWN)
        self.role = follower = FollowerReplica(
            self._parts(),
            state,
            want_fetch=fetcher.want,
            report_durable=fetcher.report,
            leave=fetcher.forget,
            moved=self._move,
        )
        follower.start()

    def _parts(self) -> ReplicaParts:
        return ReplicaParts(
            self.key, self.name, self.log, self.directory, self._services, self._readers, self.topic_meter
        )

    def stop(self, reason: str, *, leader: NodeId, leader_epoch: LeaderEpoch) -> None:
        """Stop leading or following, and answer all waiting requests with the reason."""
        self._end_role(reason, leader, leader_epoch)
        self._move(ReplicaCause.ROLE_ENDED)

    def dismiss(self, cause: ReplicaCause, reason: str) -> None:
        """Stop for good: another log takes the place of this one, or it is deleted."""
        self._end_role(reason, NO_NODE, self.leader_epoch)
        self._move(cause)

    def go_offline(self, error: TidelogError) -> None:
        """Stop using the log: it failed or is damaged."""
        self.offline = error
        self._end_role(error.message, self.leader_node, self.leader_epoch)
        self._move(ReplicaCause.FAILED)
        self._services.schedule.watch(self)

    def accept_loss(self) -> None:
        """Use the log without its damaged records."""
        self.offline = None
        self._move(ReplicaCause.LOSS_ACCEPTED)

    # --- moves between log directories (directory_moves.py) ---

    def hold(self) -> None:
        """Append nothing until `release`: another log is to take the place of this one."""
        if self.role is not None:
            self.role.hold()

    def use(self, log: Log, directory: LogDirectory) -> None:
        """Use a log with the same records in another directory. Between `hold` and `release`."""
        log.pinned = self.log.pinned  # without this, retention would remove what a topic snapshot needs
        self.log, self.directory = log, directory
        if self.role is not None:
            self.role.use(log, directory)
        wake_all(self._readers)

    def release(self) -> None:
        """Append what was held."""
        if self.role is not None:
            self.role.release()

    def _move(self, cause: ReplicaCause) -> None:
        self.state = state_after(self.state, cause)

    def _end_role(self, reason: str, leader: NodeId, leader_epoch: LeaderEpoch) -> None:
        role, self.role = self.role, None
        # Another leader may believe other segments: until they are known, no local one leaves.
        self.remote, self.copy_failure, self.log.copied_end = None, None, Offset(0)
        self.leader_node, self.leader_epoch = leader, leader_epoch
        refusal = self._not_leading()
        match role:
            case LeaderReplica():
                self._services.leaderships.ending(self.name)
                role.end(reason, refusal)
                self.proposed_on = max(self.proposed_on, role.proposed_on)
            case FollowerReplica():
                role.end()
        refuse_all(self._readers, refusal)
        if role is not None:
            self._services.schedule.watch(self)

    def read_from(self, remote: RemoteLog) -> None:
        """Read the remote part of the log, as it is now, from these segments."""
        self.remote, self._remote_of = remote, (self.log, self.log.truncations)

    def _remote_still_believed(self) -> RemoteLog | None:
        """The remote segments that a new leader reads from until it has listed all: its own log decides which ones have
        its records. After a truncation it would read those of a lost epoch."""
        log, known = self.log, self.remote
        if known is None or log.truncation is not None or self._remote_of != (log, log.truncations):
            return None
        known.is_whole = False  # others may have been added and deleted
        return known

    def learn(self, state: PartitionState, min_insync: int, views: Mapping[NodeId, ReplicaView]) -> None:
        """Apply a change of the partition within the leader epoch, or of the nodes of its replicas."""
        self._count_isr_change(state, leads=isinstance(self.role, LeaderReplica))
        match self.role:
            case LeaderReplica() as leader:
                leader.learn(state, min_insync, views)
            case FollowerReplica() as follower:
                follower.learn(state)

    def _count_isr_change(self, state: PartitionState, *, leads: bool) -> None:
        """Count a change of the in-sync set if this node leads after it. leads: whether it does."""
        before, self._isr = self._isr, state.isr
        if leads and before is not None:
            self._services.meters.isr_changes.changed(before, state.isr)

    def leading_in(self, leader_epoch: LeaderEpoch) -> LeaderReplica:
        """The leader in that epoch (-1: in any). Raises NotLeaderOrFollower, or as `ensure_epoch`."""
        if self.offline is not None:
            raise NotLeaderOrFollower(f"this node cannot lead partition {self}: {self.offline.message}")
        if leader_epoch != NO_LEADER_EPOCH:
            ensure_epoch(self.name, self.leader_epoch, leader_epoch)
        if isinstance(self.role, LeaderReplica):
            return self.role
        raise self._not_leading()

    def _readable_in(self, leader_epoch: LeaderEpoch) -> LeaderReplica | None:
        """The leader in that epoch; None if this node follows in it and serves reads below its high watermark
        (KIP-392). Raises as `leading_in`."""
        if not isinstance(self.role, FollowerReplica):
            return self.leading_in(leader_epoch)
        if leader_epoch == NO_LEADER_EPOCH:
            raise self._not_leading()
        ensure_epoch(self.name, self.leader_epoch, leader_epoch)
        return None

    def _not_leading(self) -> NotLeaderOrFollower:
        who = "no node does" if self.leader_node == NO_NODE else f"node {self.leader_node} does"
        return NotLeaderOrFollower(
            f"this node does not lead partition {self}: {who} in epoch {self.leader_epoch}, as far as this node knows"
        )

    def epoch_end(self, leader_epoch: LeaderEpoch, asked: LeaderEpoch) -> EpochEnd:
        """As `PartitionLeader.epoch_end`, for a request in that leader epoch. Raises as `leading_in`, and
        UnknownLeaderEpoch for an epoch newer than the leader's."""
        leader = self.leading_in(leader_epoch)
        ensure_known(self.name, self.leader_epoch, asked)
        return leader.epoch_end(asked)

    def offset_at(
        self, timestamp: int, isolation: FetchIsolation, leader_epoch: LeaderEpoch
    ) -> tuple[Offset, Millis, LeaderEpoch]:
        """The offset for a timestamp, with the timestamp and epoch of its record; for the end of the log, the epoch of
        the record before it. Offset -1 if no record is that recent. Raises as `leading_in`, OffsetNotAvailable,
        CorruptLog, and as `Log.fetch_offset_by_timestamp`."""
        leader, log = self.leading_in(leader_epoch), self.log
        # The log start is valid even before a new leader knows what is committed.
        end = log.log_start_offset if timestamp == EARLIEST else min(leader.committed_end(), log.end_for(isolation))
        if timestamp == LATEST:
            return end, NO_TIMESTAMP, epoch_before(log.epochs.entries, end)
        if timestamp in (EARLIEST_LOCAL, LATEST_TIERED):
            return self._end_of_tier(timestamp)
        try:
            found = log.fetch_offset_by_timestamp(timestamp, up_to=end)
        except CorruptLog as error:
            self._report(error)
            raise
        return found if found is not None else (Offset(-1), NO_TIMESTAMP, NO_LEADER_EPOCH)

    def _end_of_tier(self, place: int) -> tuple[Offset, Millis, LeaderEpoch]:
        log = self.log
        offset = log.local_log_start_offset
        if place == LATEST_TIERED:
            if log.config.remote_storage and (self.remote is None or not self.remote.is_whole):
                raise self._tier_unknown(log.log_start_offset)
            if log.copied_end <= log.log_start_offset:
                return Offset(-1), NO_TIMESTAMP, NO_LEADER_EPOCH
            offset = Offset(log.copied_end - 1)
        return offset, NO_TIMESTAMP, epoch_before(log.epochs.entries, offset + 1)

    async def offset_in_tier(
        self, timestamp: int, isolation: FetchIsolation, leader_epoch: LeaderEpoch
    ) -> tuple[Offset, Millis, LeaderEpoch] | None:
        """As `offset_at`, if the record is in the remote tier only; None if it is not. Raises as `offset_at`, and as
        `RemoteReads.find_time`."""
        leader, log, reads = self.leading_in(leader_epoch), self.log, self._services.remote_reads
        if log.local_log_start_offset <= log.log_start_offset or (timestamp < 0 and timestamp != MAX_TIMESTAMP):
            return None
        if reads is None or self.remote is None or not self.remote.is_whole:
            raise self._tier_unknown(log.log_start_offset)
        up_to = min(log.local_log_start_offset, leader.committed_end(), log.end_for(isolation))
        if timestamp == MAX_TIMESTAMP:
            local = log.largest_timestamp(up_to=min(leader.committed_end(), log.end_for(isolation)))
            at_least = NO_TIMESTAMP if local is None else local.timestamp
            found = await reads.find_largest(log, self.remote, at_least, up_to)
        else:
            found = await reads.find_time(log, self.remote, timestamp, up_to)
        self.leading_in(leader_epoch)
        return None if found is None else (found.offset, found.timestamp, found.leader_epoch)

    def remote_range(
        self, start: Offset, end: Offset, most: int, leader_epoch: LeaderEpoch, *, lost_at: Instant | None = None
    ) -> RemoteRange:
        """The remote segments of a range, at most `most`; `lost_at`, now: about as many lost ones that begin in it,
        instead. Raises NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, OffsetNotAvailable while a new
        leader does not know them, ObjectStoreRefused without a store."""
        self.leading_in(leader_epoch)
        reads = self._services.remote_reads
        if not self.log.config.remote_storage:
            return RemoteRange((), end, "")
        if reads is None or self.remote is None or not self.remote.is_whole:
            raise self._tier_unknown(start)
        if lost_at is not None:
            retention_ms = age_limit(self.log.config, is_pinned=self.log.pinned)
            lost, next_offset = self.remote.lost.page(start, end, most, lost_at, retention_ms)
            return RemoteRange((), next_offset, reads.url, lost, self._copy_progress(self.remote.copied_end))
        return RemoteRange(*self.remote.covering(start, end, most), reads.url)

    def _copy_progress(self, copied_end: Offset) -> CopyProgress:
        log, (failure, since_ms) = self.log, self.copy_failure or ("", Millis(-1))
        waiting = copyable_segments(
            log.segments, copied_end=copied_end, log_start=log.log_start_offset, limit=copy_limit(log)
        )
        return CopyProgress(len(waiting), sum(each.segment.size for each in waiting), failure, since_ms)

    def _report(self, damage: CorruptLog) -> None:
        """A read has found damage: end the leadership if another replica can lead. Raises NotLeaderOrFollower if this
        one does not lead then: the reader must ask the next leader."""
        self._services.log_damaged(self.log, damage)
        self.leading_in(NO_LEADER_EPOCH)

    # --- positions of the log ---

    def durable_moved(self) -> None:
        """Apply a new durable offset of the log."""
        if self.role is not None:
            self.role.durable_moved()

    def log_start_moved(self) -> None:
        """Apply a new log start offset of the log. Consumers that waited at the end of an open transaction may be below
        it now."""
        if self.role is not None:
            self.role.log_start_moved()
        wake_all(self._readers)

    def review(self) -> bool:
        """Without a role: ask for another leader if the log failed, and repeat an fsync that a full disk rejected.
        Returns True if another review is needed."""
        if self.state is ReplicaState.OFFLINE:
            self._services.resign(self.key)
            return True
        return self.state is ReplicaState.IDLE and self._services.sync(self.log, self.directory, self)

    # --- fetches ---

    def follower_fetched(
        self, fetch: WaitingFetch, follower: FollowerIdentity, item: PartitionFetch, now: Millis
    ) -> FetchedPartition | None:
        """As `LeaderReplica.fetched`. Raises the reason if this replica does not lead."""
        if self.offline is None and not isinstance(self.role, LeaderReplica):
            ensure_epoch(self.name, self.leader_epoch, fetch.leader_epoch)
        answer = self.leading_in(NO_LEADER_EPOCH).fetched(fetch, follower, item, now)
        if item.refused:
            self.leading_in(NO_LEADER_EPOCH)  # damage found by the leader's check of its log ends the leadership
        return answer

    def follower_durable(self, follower: FollowerIdentity, report: DurablePosition, now: Millis) -> None:
        """As `LeaderReplica.follower_durable`; no effect if this replica does not lead."""
        if isinstance(self.role, LeaderReplica):
            self.role.follower_durable(follower, report, now)

    def reader_fetched(self, fetch: WaitingFetch) -> FetchedPartition | None:
        """Check a consumer's fetch. Returns the answer if it is due at once: the logs diverge, or another replica is
        nearer. Else None. Raises the reason if the fetch is rejected."""
        leader = self._readable_in(fetch.leader_epoch)
        ensure_known(self.name, self.leader_epoch, fetch.last_epoch)
        if leader is not None:
            return leader.reader_fetched(fetch)
        end = committed_divergence(self.log, fetch)
        return None if end is None else diverging_answer(fetch, self.log, self.leader_epoch, end)

    def read_for(self, fetch: WaitingFetch, now: Millis) -> FetchedPartition | None:
        """The answer to the fetch; None if the fetch waits. Raises the reason if the fetch is rejected."""
        if fetch.follower is None:
            leader = self._readable_in(fetch.leader_epoch)
        else:
            leader = self.leading_in(fetch.leader_epoch)
            leader.ensure_latest(fetch)
        if leader is not None:
            leader.settle()
        log, offset = self.log, fetch.next_offset
        up_to = log.end_for(fetch.isolation)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            if leader is None and offset > log.log_end_offset:
                raise OffsetNotAvailable(  # not OffsetOutOfRange, which would reset the reader: the leader may have it
                    f"this follower of partition {self} has offsets below {log.log_end_offset}, not {offset}; fetch "
                    "from the leader, or retry after a pause"
                )
            has = f"offsets from {log.log_start_offset} to {log.log_end_offset}"
            raise OffsetOutOfRange(f"partition {self} has {has}; offset {offset} is outside")
        if fetch.follower is not None and offset < log.local_log_start_offset:
            return moved_answer(fetch, log, self.leader_epoch)
        due = fetch.is_due(now)
        if self.state is ReplicaState.TRUNCATING or (offset >= up_to and not due):
            fetch.wait()
            self._wait(fetch)
            return None
        try:
            read = LogRead(b"", offset, ())
            if offset < up_to and fetch.max_bytes:
                found = self._try_read(fetch, now)
                if found is None:
                    self._wait(fetch)
                    return None
                read = found
            if fetch.refused and offset >= log.local_log_start_offset:  # what the store gives was verified
                read = read_again(log, read, offset, fetch.last_epoch, is_follower=fetch.follower is not None)
        except CorruptLog as error:
            self._report(error)
            raise
        if not (due or fetch.is_filled_by(read, up_to)):
            fetch.fall_short(len(read.records))
            return None
        follower = fetch.follower
        held_from = Offset(0) if follower is None or leader is None else leader.note_sent(follower.node_id)
        return read_answer(fetch, log, self.leader_epoch, read, held_from=held_from)

    def _try_read(self, fetch: WaitingFetch, now: Millis) -> LogRead | None:
        """The records of a fetch; None if it waits for a disk or the object store. Raises as `Log.try_fetch` and
        `RemoteReads.try_read` do."""
        log, offset, remote = self.log, fetch.next_offset, self._services.remote_reads
        ready = None if fetch.result is None else fetch.result.ticket
        if offset >= log.local_log_start_offset:
            local = None if isinstance(ready, RemoteTicket) else ready
            wait = fetch.cold_tries > TRIES_MAX
            found = log.try_fetch(offset, fetch.max_bytes, fetch.isolation, local, wait=wait)
            if isinstance(found, LogRead):
                return found
            fetch.store_until = None
            wait_for_disk(fetch, log.directory.reader, found)
            return None
        if remote is None or self.remote is None:
            raise self._tier_unknown(offset)
        ticket = ready if isinstance(ready, RemoteTicket) else None
        in_store = remote.try_read(log, self.remote, offset, fetch.max_bytes, fetch.isolation, ticket)
        if isinstance(in_store, LogRead):
            return in_store
        wait_for_store(fetch, remote, in_store, now)
        return None

    def _tier_unknown(self, offset: Offset) -> TidelogError:
        where = f"offset {offset} of partition {self} is in the remote tier, and this node"
        if self._services.remote_reads is None:  # OffsetNotAvailable would let readers wait for ever
            return ObjectStoreRefused(
                f"{where} has no remote.log.storage.url: set it as on the other nodes and restart this node"
            )
        return OffsetNotAvailable(f"{where} does not know its remote segments yet: try again after a pause")

    def waits_at_end(self, fetch: WaitingFetch, now: Millis) -> bool:
        """Let a new fetch wait if it asks for the next record and is not due. Returns True if it waits."""
        log = self.log
        waits = log.log_start_offset <= fetch.next_offset == log.end_for(fetch.isolation) and not fetch.is_due(now)
        if waits:
            self._wait(fetch)
        return waits

    def _wait(self, fetch: WaitingFetch) -> None:
        waiting = self._waiting_with(fetch)
        assert waiting is not None, "only the leader is asked by followers"
        waiting[fetch] = None

    def stop_waiting(self, fetch: WaitingFetch) -> None:
        """Forget a fetch that is answered or whose stream is closed."""
        waiting = self._waiting_with(fetch)
        if waiting is not None:
            waiting.pop(fetch, None)

    def _waiting_with(self, fetch: WaitingFetch) -> dict[WaitingFetch, None] | None:
        if fetch.follower is None:
            return self._readers
        return self.role.waiting if isinstance(self.role, LeaderReplica) else None
