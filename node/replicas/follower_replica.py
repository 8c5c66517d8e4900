"""A replica that follows the leader of one epoch: its fetches, and the changes of its log that the answers require.

The core (`PartitionFollower`) decides. This module carries out: it appends, truncates and requests fsyncs.

Invariants:
  1. Effects of the core are carried out on the loop, at once and in order. A truncation, whose fsyncs run on another
     thread, is a barrier: until it ends, the log is not appended to, flushed or read, and its state is not reported.
  2. Only the core advances the high watermark of the log.

Not here: the stream to the leader (replica_fetcher.py), the changes themselves (follower_log.py), reads (replica.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from node.api.fetch import PartitionFetch
from node.replicas.follower_log import begin_truncation, prepare_append, unended_transaction, view_of
from node.replicas.remote_starts import RemoteStart
from node.replicas.replica_services import ReplicaParts
from node.replicas.role_log import RoleChange
from node.replicas.waiting_fetch import wake_all
from replication.controller.image import PartitionState
from replication.partition import follower_events as events
from replication.partition.follower import PartitionFollower
from replication.partition.follower_events import NOTHING_HELD
from replication.partition.replica_lifecycle import ReplicaCause
from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from tidelog.errors import (
    CorruptLog,
    InvalidConfig,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    TidelogError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.record_exchange import FetchedPartition
from tidelog.types import Millis, Offset

_log = logging.getLogger("node.partition")

SMALL_BYTES: Final = 4 << 10
"""After an answer of up to this size, the next fetch waits for the fsync, which saves a message. After larger ones the
wait costs more: with 64 KiB here, three nodes took 76,000 to 108,000 records/s of 100 B, not 233,000 to 312,000."""

EARLY_MS: Final = 5_000
"""How long, from the start of an epoch, a leader may reject fetches because it has older metadata; that is not logged.
Nodes apply metadata within milliseconds; creating an internal topic made 190 log lines on each node."""
_EARLY: Final = (NotLeaderOrFollower, UnknownLeaderEpoch, UnknownTopicId, UnknownTopicOrPartition)


class FollowerReplica:
    """One epoch in which this node follows."""

    def __init__(
        self,
        parts: ReplicaParts,
        state: PartitionState,
        *,
        want_fetch: Callable[[FollowerReplica], None],
        report_durable: Callable[[FollowerReplica, Offset, Offset], None],
        leave: Callable[[FollowerReplica], None],
        moved: Callable[[ReplicaCause], None],
    ) -> None:
        """want_fetch, report_durable, leave: of the stream to the leader. moved: called when a truncation begins and
        ends."""
        self.key, self._name, self._log = parts.key, parts.name, parts.log
        self._directory, self._services, self._readers = parts.directory, parts.services, parts.readers
        self._topic_meter = parts.topic_meter
        self.topic_id = parts.key.topic_id.bytes
        self.leader_epoch = state.leader_epoch
        self.core = PartitionFollower(
            name=parts.name, leader_epoch=state.leader_epoch, log=view_of(parts.log), rng=parts.services.rng
        )
        self._leader_node = state.leader
        self._want_fetch, self._report_durable, self._leave, self._moved = want_fetch, report_durable, leave, moved
        self._ended = False
        self._held: list[FetchedPartition] | None = None
        """Answers to apply later; None: they are not held."""
        self._rejected_start: Offset | None = None
        """The log start that a full disk has rejected."""
        self._started_at: Millis | None = None
        """When the epoch began; None once the leader has accepted a fetch."""
        self.followed_since = self._services.clock.monotonic_ms()
        """When this node began to follow in the epoch."""
        self.learn(state)

    def __str__(self) -> str:
        return str(self._name)

    def start(self) -> None:
        """Begin to follow."""
        at = self._leader_node, self.leader_epoch, self._log.log_end_offset
        text = "follows node %d in epoch %d, log end offset %d"
        self._services.role_log.changed(RoleChange.FOLLOWS, self, text, *at)
        self._started_at = self._services.clock.monotonic_ms()
        self._carry_out(self.core.start())

    def end(self) -> None:
        """The epoch has ended."""
        self._ended = True
        self._leave(self)

    def learn(self, state: PartitionState) -> None:
        """Apply a change of the partition within the leader epoch."""
        me = self._services.me
        self._is_counted = me in state.counted_on
        self.moves_here = me in state.adding and me not in state.isr
        """True while a reassignment adds this replica and it is not in sync: its fetches are throttled."""

    # --- moves between log directories ---

    def hold(self) -> None:
        """Hold the leader's answers until `release`."""
        self._held = []

    def use(self, log: Log, directory: LogDirectory) -> None:
        """Use a log with the same records in another directory; answers are held."""
        self._log, self._directory = log, directory
        self._handle(events.DurableOffsetMoved(log.durable_offset))

    def release(self) -> None:
        """Apply the answers that were held."""
        held, self._held = self._held or [], None
        for answer in held:
            if not self._ended:
                self.answered(answer)

    # --- fetches ---

    def next_fetch(self, fetch_id: int, max_bytes: int) -> PartitionFetch | None:
        """The fetch to send now with this id; None if the replica needs none any more."""
        for effect in self.core.handle(events.StreamReady(fetch_id)):
            assert isinstance(effect, events.SendFetch), "a ready stream causes only a fetch"
            return PartitionFetch(
                self.topic_id,
                self.key.partition,
                effect.next_offset,
                self.leader_epoch,
                effect.last_epoch,
                effect.durable_offset,
                effect.log_start,
                max_bytes,
                effect.refused,
                effect.fetch_id,
            )
        return None

    def answered(self, answer: FetchedPartition) -> None:
        """Apply the leader's answer to a fetch."""
        if self._held is not None:
            self._held.append(answer)
            return
        if answer.error is None:
            self._started_at = None
        self._topic_meter.replication_bytes_in += len(answer.records)
        event = events.Answered(
            answer.correlation_id,
            answer.leader_epoch,
            answer.error,
            answer.diverging,
            len(answer.records) > 0,
            answer.high_watermark,
            answer.log_start_offset,
            self._services.clock.monotonic_ms(),
            () if answer.diverging is None else self._log.epochs.entries,
            answer.waits,
            len(answer.records) > SMALL_BYTES,
            unended_transaction(self._log, answer.records, answer.held_from) if len(answer.records) else None,
            answer.held_from != NOTHING_HELD,
            self._is_counted,
            answer.local_log_start_offset,
            tuple(answer.epochs) if answer.local_log_start_offset else (),
        )
        self._carry_out(self.core.handle(event), answer)

    def stream_broken(self) -> None:
        """Fetch again after the stream to the leader was closed."""
        self._handle(events.StreamBroken())

    def durable_moved(self) -> None:
        """Apply a new durable offset of the log."""
        self._handle(events.DurableOffsetMoved(self._log.durable_offset))

    def log_start_moved(self) -> None:
        """Apply a new log start offset of the log."""
        self._handle(events.StartMoved(self._log.log_start_offset))

    # --- effects of the core ---

    def _handle(self, event: events.FollowerEvent) -> None:
        self._carry_out(self.core.handle(event))

    def _carry_out(self, effects: list[events.FollowerEffect], answer: FetchedPartition | None = None) -> None:
        queue = list(effects)
        while queue and not self._ended:  # a failure of the directory ends the epoch
            effect = queue.pop(0)
            match effect:
                case events.WantFetch():
                    self._want_fetch(self)
                case events.AdvanceWatermark(offset):
                    if self._log.advance_high_watermark(offset) and self._readers:
                        wake_all(self._readers)
                case events.AdvanceLogStart(offset):
                    self._move_log_start(offset)
                case events.ReportDurable(durable_offset, log_start):
                    self._report_durable(self, durable_offset, log_start)
                case events.RetryLater():
                    self._log_pause(effect)
                    self._services.schedule.attend(self)
                case events.AppendRecords():
                    assert answer is not None, "records are part of an answer"
                    queue += self._append(answer)
                case events.TruncateTo() | events.FetchAgainFrom() | events.RestartAt():
                    queue += self._truncate(effect)
                case events.RestartBehindRemote():
                    queue += self._restart_behind(effect)
                case _:
                    raise AssertionError(f"{effect} must come from StreamReady only")

    def _move_log_start(self, offset: Offset) -> None:
        def failed(_: TidelogError) -> None:  # the directory has reported it
            # The leader tells its log start only when it moves, or with further records: until then nobody would try
            # again, and the deletion would never be acknowledged.
            self._rejected_start = offset
            if not self._ended:
                self._services.schedule.watch(self)

        self._rejected_start = None
        self._services.move_log_start(self._log, self._directory, offset, failed)

    def _append(self, answer: FetchedPartition) -> list[events.FollowerEffect]:
        began_ns = self._services.meters.now_ns()
        try:
            prepare_append(self._log, answer, self.leader_epoch)
            self._log.append(answer.records, assign_offsets=False, leader_epoch=self.leader_epoch, epochs=answer.epochs)
        except TidelogError as error:
            return self._change_failed(error)
        self._services.meters.appended_since(self._directory.path, began_ns)
        return self._log_changed()

    def _log_pause(self, pause: events.RetryLater) -> None:
        error = pause.error
        if pause.in_remote_tier:
            pause_ms = pause.until - self._services.clock.monotonic_ms()
            text = f"{self}: cannot go on behind the remote tier yet, tries again in {pause_ms} ms: {error.message}"
            self._services.remote_start_failures.failed(error, self, lambda: text)
            return
        level = logging.DEBUG if self._is_early(error) else logging.INFO
        _log.log(level, "%s: node %d rejected a fetch, will retry: %s", self, self._leader_node, error.message)

    def _is_early(self, error: TidelogError) -> bool:
        """True if the leader may not have received the metadata of this epoch yet."""
        if self._started_at is None or not isinstance(error, _EARLY):
            return False
        return self._services.clock.monotonic_ms() - self._started_at < EARLY_MS

    def _restart_behind(self, effect: events.RestartBehindRemote) -> list[events.FollowerEffect]:
        starts = self._services.remote_starts
        if starts is None:
            missing = InvalidConfig("this node has no remote.log.storage.url: set it as on the other nodes")
            return self._remote_start_failed(missing)

        def found(result: RemoteStart | TidelogError) -> None:
            if self._ended:
                return
            if self._held is not None:
                result = OffsetNotAvailable(f"the log of {self} is being moved to another log directory")
            if isinstance(result, TidelogError):
                self._carry_out(self._remote_start_failed(result))
            else:
                self._carry_out(self._truncate(result))

        starts.find(self._log, effect, found)
        return []

    def _remote_start_failed(self, error: TidelogError) -> list[events.FollowerEffect]:
        return self.core.handle(events.RemoteStartFailed(error, self._services.clock.monotonic_ms()))

    def _truncate(
        self, effect: events.TruncateTo | events.FetchAgainFrom | events.RestartAt | RemoteStart
    ) -> list[events.FollowerEffect]:
        try:
            if (ticket := begin_truncation(self._log, self._directory, effect)) is not None:
                self._moved(ReplicaCause.TRUNCATION_BEGUN)
                self._directory.commit.truncate(self._log, ticket, self._truncation_ended)
                return []
        except TidelogError as error:
            return self._change_failed(error)
        return self._log_changed()

    def _log_changed(self) -> list[events.FollowerEffect]:
        self._services.sync(self._log, self._directory, self)
        return self.core.handle(events.LogChanged(view_of(self._log)))

    def _truncation_ended(self, error: TidelogError | None) -> None:
        """The truncation has ended, or failed with `error`."""
        if not self._ended:
            self._moved(ReplicaCause.TRUNCATION_ENDED)
            self._services.sync(self._log, self._directory, self)
        wake_all(self._readers)  # they were not tried meanwhile: records under truncation must not be read
        if error is not None:
            self._carry_out(self._change_failed(error))
        elif not self._ended:
            self._handle(events.LogChanged(view_of(self._log)))
        self._services.truncation_ended(self._log)

    def _change_failed(self, error: TidelogError) -> list[events.FollowerEffect]:
        if isinstance(error, CorruptLog):
            self._services.log_damaged(self._log, error)
        if self._ended:
            return []
        return self.core.handle(events.LogFailed(view_of(self._log), error, self._services.clock.monotonic_ms()))

    # --- time ---

    def tick(self) -> None:
        """Act on the clock."""
        if self._ended:
            return
        self._handle(events.Waited(self._services.clock.monotonic_ms()))
        if self.core.pauses:
            self._services.schedule.attend(self)  # its pause is not over

    def review(self) -> bool:
        """Fetch again after a pause, and repeat what a full disk has rejected. Returns True if another review is
        needed."""
        if self._ended:
            return False
        unsynced = self._services.sync(self._log, self._directory, self)
        if self._rejected_start is not None:
            self._move_log_start(self._rejected_start)
        self._handle(events.Waited(self._services.clock.monotonic_ms()))
        return unsynced or self._rejected_start is not None
