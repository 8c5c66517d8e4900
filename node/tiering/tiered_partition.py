"""One replica of a partition with a remote tier, in its present role: what is in the tier, and what to do next.

A leader registers its epoch with the coordinator, lists the segments, keeps those of lost epochs for a while,
and copies closed segments in order (`step`). A follower lists the segments now and then (`follow`): its local segments
may leave once they are copied.

Invariants:
  1. Nothing is done for a role that has ended: after each wait the role is looked at, before anything is changed.
  2. `Log.copied_end` follows only what the coordinator has as finished and this replica believes.
  3. A copy counts only after its object was read back, and if the log was not truncated meanwhile.
  4. Remote segments are deleted once the log start is behind them, durably.
  5. Segments of a lost epoch are never read, and are deleted only after a hold: an unclean election of an empty replica
     may be a mistake, and the objects may be the last copy of all records.
  6. Segments that are missing never move the log start, but for a log start with which a leader has deleted: what the
     coordinator has lost, or not yet restored, stays a gap that readers are told of, until an operator decides.
Not here: when a step is made and what follows its errors (remote_tier.py), the copy (storage/log/segment_copy.py), the
decisions (replication/coordination/tiering/).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from itertools import islice
from typing import Final
from uuid import UUID

from node.replicas.leader_replica import LeaderReplica
from node.replicas.replica import Replica
from node.runtime.work import run_in
from node.tiering.remote_log_client import RemoteLogClient
from replication.coordination.coordinator_machine import Instant
from replication.coordination.encoded_segment import segment_head
from replication.coordination.remote_log_requests import (
    BeginCopy,
    BeginRemoteLog,
    DeleteRemoteSegments,
    FinishCopy,
    ListRemoteSegments,
    RemoteLogLeader,
    RemoteSegmentsPage,
)
from replication.coordination.tiering.lost_segments import LostSegment, LostSegments
from replication.coordination.tiering.remote_log import OffsetGap, RemoteLog, believed, refuted
from storage.files.disk_executor import Executor
from storage.log.log import Log
from storage.log.remote_retention import age_limit, remote_expiry
from storage.log.segment_copy import ClosedSegment, SegmentCopy, copy_limit, copyable_segments
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain
from tidelog.clock import Clock
from tidelog.epochs import epoch_before
from tidelog.errors import CorruptLog, TidelogError, UnsupportedForMessageFormat
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState
from tidelog.tiering.segment_manifest import encode_manifest, manifest_key, segment_key
from tidelog.tiering.segment_object import SegmentObjectBuilder, verify_object
from tidelog.types import REMOTE_LOG_METADATA_TOPIC, Buffer, EpochStart, Millis, NodeId, Offset
from tidelog.values import dataclass

_log = logging.getLogger("node.tiering")

FOLLOW_MS: Final = 10_000
"""How often a follower asks what was copied."""

RETENTION_MS: Final = 5_000
"""How often a leader looks for expired remote segments."""

EXPIRED_MAX: Final = 100
"""Remote segments that expire at a time."""

DELETED_MAX: Final = 1_000
"""Segments in one request to delete."""


class Superseded(Exception):
    """The role of the replica has ended, or its log was truncated or replaced."""


@dataclass(slots=True)
class CopyMeter:
    """What a node has copied since its start."""

    segments: int = 0
    size: int = 0
    """Bytes of records."""
    errors: int = 0
    """Steps that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierServices:
    """One object for all partitions of a node."""

    me: NodeId
    client: RemoteLogClient
    store: ObjectStore
    executor: Executor
    """Where the store is called and segments are read."""
    clock: Clock
    new_id: Callable[[], UUID]
    pace: Callable[[Iterable[Buffer]], Iterator[Buffer]]
    """Limits how fast the parts of an object are taken; called on the executor."""
    log_start_moved: Callable[[Log], None]
    """The log start of a log has moved, durably."""
    meter: CopyMeter = field(default_factory=CopyMeter)


class TieredPartition:
    """A replica in one role. `step` is called again and again, and not while it runs."""

    def __init__(self, replica: Replica, services: TierServices) -> None:
        self.replica, self.log = replica, replica.log
        self._services = services
        self._role, self._truncations = replica.role, replica.log.truncations
        self._leader = RemoteLogLeader(replica.key, replica.leader_epoch, services.me)
        self._remote: RemoteLog | None = None
        self._deleting: list[RemoteSegmentId] = []
        self._lost = LostSegments(replica.key)
        self._log_start_seen = Offset(0)
        self._expired_below = Offset(0)
        """Of a leader: up to here a former leader has deleted the log."""
        self._gaps: tuple[OffsetGap, ...] = ()
        self._next_expiry = Millis(0)

    def __str__(self) -> str:
        return str(self.replica)

    @property
    def is_current(self) -> bool:
        """False if the role has ended, or the log was truncated or replaced: another object takes its place."""
        replica, log = self.replica, self.log
        return (
            replica.role is self._role
            and replica.log is log
            and not log.closed
            and log.truncation is None
            and log.truncations == self._truncations
        )

    @property
    def leads(self) -> bool:
        """True for the leader."""
        return isinstance(self._role, LeaderReplica)

    @property
    def may_copy(self) -> bool:
        """True if this is the leader and it knows what is in the tier."""
        return self.leads and self._remote is not None

    def waiting(self) -> list[ClosedSegment]:
        """The segments of a leader that are to be copied; none before it knows what is in the tier."""
        if self._remote is None or not self.leads or not self.is_current or not self.log.config.remote_storage:
            return []
        log = self.log
        return copyable_segments(
            log.segments, copied_end=self._remote.copied_end, log_start=log.log_start_offset, limit=copy_limit(log)
        )

    @property
    def missing(self) -> int:
        """Of a leader: the offsets that neither a node nor the remote tier has."""
        start = max(self.log.log_start_offset, self._expired_below)
        return sum(max(0, gap.end - max(start, gap.start)) for gap in self._gaps)

    @property
    def lost(self) -> int:
        """Of a leader: the segments of a lost leader epoch that are not deleted yet."""
        return len(self._lost)

    @property
    def is_idle(self) -> bool:
        """True if a leader that knows the tier has nothing to do: cheap, since it is asked twice a second for each
        partition."""
        remote, log = self._remote, self.log
        return (
            remote is not None
            and log.active.base_offset <= remote.copied_end
            and not self._deleting
            and log.log_start_offset == self._log_start_seen
            and self._expired_below <= log.log_start_offset
            and self._services.clock.monotonic_ms() < self._next_expiry
            and self.is_current
        )

    async def step(self) -> bool:
        """Of a leader: do what is next. Returns False if nothing is to be done for now. Raises Superseded, what the
        coordinator, the store and the log raise, OSError, BrokenChain."""
        self._ensure_current()
        if self._remote is None:
            await self._load()
            return True
        self._log_start_seen = self.log.log_start_offset
        self._deleting += self._remote.advance(self._log_start_seen)
        if self._expired_below > self.log.log_start_offset:
            self._move_log_start(self._expired_below)  # again while the high watermark is below that
        self._give_up_lost()
        await self._delete()
        waiting = self.waiting()
        if waiting:
            await self._copy(self._remote, waiting[0])
            return True
        self._expire(self._remote)
        return False

    def _ensure_current(self) -> None:
        if not self.is_current:
            raise Superseded

    # --- what is in the tier --------------------------------------------------------------------------------------

    async def _load(self) -> None:
        """Register as the leader, and list all segments."""
        log, client = self.log, self._services.client
        remote = RemoteLog(self.replica.key, log.local_log_start_offset)
        await client.ensure_topic()
        lost: list[LostSegment] = []
        await client.change(BeginRemoteLog(self._leader))
        self._ensure_current()
        if self.replica.remote is None:
            self.replica.read_from(remote)  # what is listed is read while the rest is listed
        async for page in client.pages(self.replica.key, None):
            self._ensure_current()
            lost += remote.load(page.segments, log.epochs.entries, log.log_start_offset, log.log_end_offset)
            if page.log_start is not None and _has(log, page.log_start):
                self._expired_below = page.log_start.start_offset
        remote.lost, self._lost.segments = self._lost, lost
        if lost and not self._lost.hold_ends:  # else only the list is a new one
            self._hold()
        if remote.unproven:
            _log.error(
                "%s: its leader epochs begin at offset %d, %d remote segments below it are kept and not read: make "
                "a replica the leader that has the earlier epochs, or delete the records below that offset and restart "
                "this node",
                self,
                log.epochs.entries[0].start_offset,
                remote.unproven,
            )
        self._deleting += remote.advance(log.log_start_offset)
        remote.is_whole, remote.expired_below = True, self._expired_below
        self._publish(remote)
        self._look_for_gaps(remote)

    def _hold(self) -> None:
        """Keep what is lost for a while."""
        hold = self._services.client.config.unreferenced_ms
        lost, clock = self._lost, self._services.clock
        lost.since_ms, lost.hold_ends = clock.wall_ms(), Millis(clock.monotonic_ms() + hold)
        _log.error(
            "%s: %d remote segments, up to offset %d, are of a leader epoch that an unclean election has lost; this "
            "log ends at offset %d. They are not read, and are deleted in %d h. If the election was a mistake, make a "
            "replica the leader before that still has their records, or save their objects, which `tidelog tier "
            "describe %s` lists",
            self,
            len(lost),
            max(each.end_offset for each in lost.segments),
            self.log.log_end_offset,
            hold // 3_600_000,
            self.replica.name.topic,
        )

    def _give_up_lost(self) -> None:
        """Delete what is lost once the hold has ended, or retention by age would have deleted it."""
        if not self._lost:
            return
        clock = self._services.clock
        now = Instant(clock.monotonic_ms(), clock.wall_ms())
        # A snapshot has these records again if the election is taken back: retention would not have deleted them.
        given_up = self._lost.give_up(now, age_limit(self.log.config, is_pinned=self.log.pinned))
        if given_up:
            _log.warning("%s: %d remote segments of a lost leader epoch are deleted", self, len(given_up))
            self._deleting += given_up

    def _publish(self, remote: RemoteLog) -> None:
        self._ensure_current()
        self._remote = remote
        self.replica.read_from(remote)
        self.log.copied_end = remote.copied_end

    def next_list(self) -> ListRemoteSegments:
        """Of a follower: what it asks for next, to `follow` the answer. Raises Superseded."""
        self._ensure_current()
        if self._remote is None:
            return ListRemoteSegments(self.replica.key)
        self._remote.advance(self.log.log_start_offset)  # the leader deletes them
        return ListRemoteSegments(self.replica.key, self._remote.next_place, ends_behind=self._remote.copied_end)

    async def follow(self, asked: ListRemoteSegments, page: RemoteSegmentsPage) -> None:
        """Of a follower: take over the segments that were finished since the last time. page: the first of the answer.
        Raises as `step`."""
        self._ensure_current()
        remote = self._remote or RemoteLog(self.replica.key, self.log.local_log_start_offset)
        if self._take(remote, page) and page.has_more:
            async for more in self._services.client.pages(self.replica.key, page.end or asked.after):
                self._ensure_current()
                if not self._take(remote, more):
                    break
        if remote.copied_end < remote.end and self._remote is not None:
            self._remote = None  # what the last ones follow was copied later: list all of them again
        else:
            self._publish(remote)

    def _take(self, remote: RemoteLog, page: RemoteSegmentsPage) -> bool:
        """Up to the high watermark: behind it this log may differ from the leader's. Returns False at the end."""
        log = self.log
        for encoded in page.segments:
            segment = segment_head(encoded)
            is_finished = segment.state is RemoteSegmentState.COPY_SEGMENT_FINISHED
            if segment.state is RemoteSegmentState.COPY_SEGMENT_STARTED:
                return False
            if is_finished and segment.end_offset > log.high_watermark:
                # One that an unclean election has lost may begin before others that this log has.
                if refuted(segment, log.epochs.entries, log.log_start_offset, log.high_watermark):
                    continue
                return False
            if is_finished and believed(segment, log.epochs.entries, log.log_start_offset, log.log_end_offset):
                remote.put(encoded, segment)
        return True

    def _look_for_gaps(self, remote: RemoteLog) -> None:
        log = self.log
        start = max(log.log_start_offset, self._expired_below)
        self._gaps = remote.gaps(start, log.local_log_start_offset)
        for gap in self._gaps:
            _log.error(
                "%s: offsets %d to %d are on no node, and the coordinator of remote segments knows no segment with "
                "them: restore %s, or delete the records below offset %d",
                self,
                gap.start,
                gap.end - 1,
                REMOTE_LOG_METADATA_TOPIC,
                gap.end,
            )

    # --- copying --------------------------------------------------------------------------------------------------

    async def _copy(self, remote: RemoteLog, closed: ClosedSegment) -> None:
        services, log, topic = self._services, self.log, self.replica.name.topic
        copy = SegmentCopy(log, closed)
        segment = self._described(copy)
        await services.client.change(BeginCopy(self._leader, segment))
        self._ensure_current()
        try:
            written = await run_in(services.executor, lambda: self._upload(topic, segment, copy))
        except (CorruptLog, OSError, BrokenChain, CorruptIndex):
            self._ensure_current()
            if copy.is_current(log):
                raise
            return  # its segment left the log while it was read: nothing is wrong
        self._ensure_current()
        if not copy.is_current(log):
            return  # the next copy replaces it
        try:
            await services.client.change(FinishCopy(self._leader, segment.segment_id, written.sections))
        except TidelogError:
            self._remote = None  # it may be finished: ask
            raise
        self._ensure_current()
        finished = replace(written, state=RemoteSegmentState.COPY_SEGMENT_FINISHED, changed_ms=services.clock.wall_ms())
        remote.add(finished)
        log.copied_end = remote.copied_end
        services.meter.segments += 1
        services.meter.size += finished.log_size
        await run_in(services.executor, lambda: self._write_manifest(topic, finished))

    def _described(self, copy: SegmentCopy) -> RemoteSegment:
        """The segment of a copy that is about to begin. Raises UnsupportedForMessageFormat."""
        epochs_from = copy.leader_epochs[0].start_offset if copy.leader_epochs else copy.end_offset
        if epochs_from > max(copy.start_offset, self.log.log_start_offset):
            # With an invented epoch it would count as finished here, and be disbelieved by the next leader, when the
            # local segments are gone.
            raise UnsupportedForMessageFormat(
                f"the segment of {self} at offset {copy.start_offset} has messages without a leader epoch (v0 or "
                f"v1) up to offset {epochs_from}: no later leader could tell whose they are, and it is not copied. "
                f"Delete the records below offset {epochs_from}, or copy the topic to another one"
            )
        first, *others = copy.leader_epochs
        return RemoteSegment(
            RemoteSegmentId(self._services.new_id()),
            self.replica.key.topic_id,
            self.replica.key.partition,
            copy.start_offset,
            copy.end_offset,
            # The first one may begin before the segment. If the log starts in the segment, nothing tells the epochs
            # before that: claimed for the first one, a leader whose log starts earlier would not believe the segment.
            (EpochStart(first.epoch, max(first.start_offset, copy.start_offset)), *others),
            copy.max_timestamp,
            copy.size,
            self._leader.leader_epoch,
            self._services.me,
            self._services.clock.wall_ms(),
            RemoteSegmentState.COPY_SEGMENT_STARTED,
        )

    def _upload(self, topic: str, segment: RemoteSegment, copy: SegmentCopy) -> RemoteSegment:
        """Write the object and read it back. On the executor."""
        services, key = self._services, segment_key(topic, segment)
        builder = SegmentObjectBuilder(segment, copy.contents())
        services.store.put(key, services.pace(builder.parts()))
        written = builder.finished()
        verify_object(services.store, key, written)
        # The page cache is for local segments: a folder as the store would push them out with what nobody reads soon.
        services.store.drop_cached(key)
        return written

    def _write_manifest(self, topic: str, segment: RemoteSegment) -> None:
        """For people and tools: the coordinator's record counts. On the executor."""
        try:
            self._services.store.put(manifest_key(topic, segment), [encode_manifest(topic, segment)])
        except TidelogError as error:
            _log.warning("%s: a remote segment has no manifest: %s", self, error.message)

    # --- deleting -------------------------------------------------------------------------------------------------

    async def _delete(self) -> None:
        while self._deleting:
            ids = tuple(self._deleting[:DELETED_MAX])
            await self._services.client.change(DeleteRemoteSegments(self._leader, ids, self._log_start()))
            self._ensure_current()
            del self._deleting[: len(ids)]

    def _log_start(self) -> EpochStart:
        log = self.log
        start = log.log_start_offset
        is_empty = start == log.log_end_offset
        return EpochStart(self._leader.leader_epoch if is_empty else epoch_before(log.epochs.entries, start + 1), start)

    def _expire(self, remote: RemoteLog) -> None:
        """Move the log start past the remote segments that retention allows to delete. They are deleted after that."""
        log, now = self.log, self._services.clock.monotonic_ms()
        if now < self._next_expiry:
            return
        self._next_expiry = Millis(now + RETENTION_MS)
        if log.pinned or not log.config.delete:
            return
        local_only = sum(each.size for each in log.segments if each.base_offset >= remote.copied_end)
        expiry = remote_expiry(
            islice(remote, EXPIRED_MAX),
            log.config,
            now=self._services.clock.wall_ms(),
            log_start=log.log_start_offset,
            size=local_only + remote.size,
            limit=log.high_watermark,
        )
        if expiry.log_start > log.log_start_offset:
            self._move_log_start(expiry.log_start)

    def _move_log_start(self, offset: Offset) -> None:
        def moved(error: TidelogError | None) -> None:
            if error is None:
                self._services.log_start_moved(self.log)
            else:
                _log.warning("%s: the log start stays: %s", self, error.message)

        self.replica.directory.move_log_start(self.log, offset, moved)


def _has(log: Log, start: EpochStart) -> bool:
    """True if this log continues the one that started there. After an unclean election it may not: then its records
    below that offset are others, and the log start does not concern them."""
    if start.start_offset >= log.log_end_offset:
        last = epoch_before(log.epochs.entries, log.log_end_offset)
        return start.start_offset == log.log_end_offset and last <= start.epoch
    return epoch_before(log.epochs.entries, start.start_offset + 1) == start.epoch
