"""A partition's follower in one leader epoch: what to fetch, which answers to accept, where to truncate its log.

Invariants:
  1. At most one fetch is open. An answer is accepted only for that fetch, and only while leader epoch and log end are
     those it was sent with; any other answer is discarded.
  2. The high watermark of an answer is applied after its records are appended, bounded by the log end. That of a
     diverging answer is ignored.
  3. The log is truncated by epochs, never by a high watermark (KIP-101, KIP-279): at the smaller of the leader's end
     and the follower's own end of its largest epoch that is at most the leader's. With no epoch in common the log is
     emptied and restarts at its log start, but not above the leader's end nor below the leader's log start.
  4. A log that ends below the leader's log start restarts there. A log that ends above the leader's end is not reset:
     the leader's epochs show where it diverges. A log that ends below the leader's local log start, where the records
     are in the remote tier only, restarts behind these (KIP-405), and starts where the leader's log does.
  5. The log start follows the leader's, as far as records are known to be committed. It never decreases. It is
     reported once it is durable: the leader then tells that the records are deleted here.
  6. The next fetch waits for the append. After a small append it also waits for the fsync, or until the next tick, and
     reports both in one message. After a large append it does not wait, and a later advance of the durable offset is
     reported at once.
  7. A transaction never stays open, or is ended by another's marker, because compaction removed its own marker before
     the follower fetched it. The leader keeps the markers that a follower in service is still to fetch, and says from
     which offset on it has done so. What the follower fetched below that offset it does not believe: it appends no gap
     behind such a transaction, but truncates to it and fetches it again. If others that overlapped it are open then, it
     fetches its whole log again. A member of the in-sync set has no such gap before it, since compaction stops below
     the high watermark; a log that may be one of a member is never truncated for this.
  8. Records that fail their checksum are not appended, and the next fetch reports this: the leader's copy may be
     corrupt.

Not here: bytes (storage/), the stream and its fetch numbers (node/replicas/replica_fetcher.py), the choice of the epoch
(replication/controller/).
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple, assert_never

from replication.partition import follower_events as events
from replication.partition.follower_states import TRANSITIONS, FollowerCause, FollowerState
from tidelog.epochs import common_end
from tidelog.errors import (
    CorruptRecord,
    OffsetMovedToTieredStorage,
    OffsetNotAvailable,
    OffsetOutOfRange,
    TidelogError,
)
from tidelog.types import EpochEnd, LeaderEpoch, Millis, Offset, TopicPartition

PAUSE_MS_MIN: Final = 50
"""First pause after an error, half of it random: about the time the metadata of an election takes to reach the
leader."""

PAUSE_MS_MAX: Final = 1_000
"""Longest pause: half a session, so that a repaired follower fetches again before its session ends."""

REMOTE_PAUSE_MS_MAX: Final = 30_000
"""Longest pause while the remote tier does not answer: this follower does not catch up by more calls."""


class _Committed(NamedTuple):
    """Positions of an answer, applied after its records are appended."""

    watermark: Offset
    log_start: Offset


class _OpenFetch(NamedTuple):
    fetch_id: int
    next_offset: Offset


class PartitionFollower:
    """State machine of one follower. Each leader epoch has a new object, even under the same leader."""

    def __init__(
        self, *, name: TopicPartition, leader_epoch: LeaderEpoch, log: events.LogView, rng: random.Random
    ) -> None:
        """rng: spreads the retries of many followers that were rejected at the same time."""
        self.name: Final = name
        self.leader_epoch: Final = leader_epoch
        self.state = FollowerState.READY
        self._log = log
        self._open: _OpenFetch | None = None
        self._committed: _Committed | None = None
        self._syncs = False
        """True if the next fetch waits until the current append is durable."""
        self._reported_durable, self._reported_start = log.durable_offset, log.log_start
        self._began_again = False
        """True once a transaction was fetched again."""
        self._rng = rng
        self._failures = 0
        self._refused_bytes = False
        self._resume_at = Millis(0)

    def start(self) -> list[events.FollowerEffect]:
        """Return the first effects, before any event."""
        return [events.WantFetch()]

    @property
    def pauses(self) -> bool:
        """True while the follower waits after an error."""
        return self.state is FollowerState.PAUSED

    def handle(self, event: events.FollowerEvent) -> list[events.FollowerEffect]:
        """Process one event. The driver executes the returned effects in order."""
        match event:
            case events.StreamReady(fetch_id):
                return self._send(fetch_id)
            case events.Answered():
                return self._answered(event)
            case events.LogChanged(log):
                return self._changed(log)
            case events.DurableOffsetMoved(durable_offset):
                return self._durable_offset(durable_offset)
            case events.StartMoved(log_start):
                log = self._log
                self._log = events.LogView(log_start, log.log_end, log.durable_offset, log.last_epoch)
                return self._report()
            case events.Waited(at):
                return self._waited(at)
            case events.StreamBroken():
                return self._broken()
            case events.LogFailed(log, error, at):
                self._log, self._committed, self._syncs = log, None, False
                self._refused_bytes = isinstance(error, CorruptRecord)
                return self._pause(FollowerCause.LOG_FAILED, error, at)
            case events.RemoteStartFailed(error, at):
                return self._pause(FollowerCause.REMOTE_TIER_FAILED, error, at, REMOTE_PAUSE_MS_MAX)
            case _:
                assert_never(event)

    def _move(self, cause: FollowerCause) -> None:
        state = TRANSITIONS.get((self.state, cause))
        assert state is not None, f"no transition of a follower from {self.state.name} by {cause.name}"
        self.state = state

    # --- fetching ---

    def _send(self, fetch_id: int) -> list[events.FollowerEffect]:
        if self.state is not FollowerState.READY:
            return []
        log = self._log
        self._move(FollowerCause.SENT)
        self._open = _OpenFetch(fetch_id, log.log_end)
        self._reported_durable, self._reported_start = log.durable_offset, log.log_start
        return [
            events.SendFetch(
                fetch_id, log.log_end, log.last_epoch, log.durable_offset, log.log_start, self._refused_bytes
            )
        ]

    def _durable_offset(self, durable_offset: Offset) -> list[events.FollowerEffect]:
        log = self._log
        self._log = events.LogView(log.log_start, log.log_end, durable_offset, log.last_epoch)
        if self.state is FollowerState.SYNCING and durable_offset > self._reported_durable:
            self._move(FollowerCause.DURABLE)
            return [events.WantFetch()]
        return self._report()

    def _report(self) -> list[events.FollowerEffect]:
        """Report what is durable if the leader does not know it, and will not learn it with the next fetch."""
        log = self._log
        is_known = log.durable_offset <= self._reported_durable and log.log_start <= self._reported_start
        if self.state is not FollowerState.OPEN or is_known:
            return []
        self._reported_durable, self._reported_start = log.durable_offset, log.log_start
        return [events.ReportDurable(log.durable_offset, log.log_start)]

    def _broken(self) -> list[events.FollowerEffect]:
        self._open = None
        if self.state not in (FollowerState.READY, FollowerState.OPEN, FollowerState.SYNCING):
            return []  # the change of the log, or the pause, continues, and requests the next fetch when it ends
        self._move(FollowerCause.BROKEN)
        return [events.WantFetch()]

    # --- answers ---

    def _answered(self, answer: events.Answered) -> list[events.FollowerEffect]:
        fetch = self._open
        if fetch is None or answer.fetch_id != fetch.fetch_id:
            return []  # of an earlier fetch: its records may be in the log already, or truncated
        if answer.waits:
            if answer.leader_epoch != self.leader_epoch or self._log.log_end != fetch.next_offset:
                return []  # the watermark is that of another epoch, or of a log that has changed since
            self._move(FollowerCause.OFFSETS_MOVED)
            return self._advance(_Committed(answer.high_watermark, answer.log_start))
        self._open = None
        if answer.error is not None:
            return self._rejected(answer, fetch)
        if answer.leader_epoch != self.leader_epoch or self._log.log_end != fetch.next_offset:
            self._move(FollowerCause.OUTDATED)
            return [events.WantFetch()]
        if answer.diverging is not None:
            self._move(FollowerCause.DIVERGED)
            return self._diverged(answer.diverging, answer)
        committed = _Committed(answer.high_watermark, answer.log_start)
        if answer.has_records:
            # A member of the in-sync set at the watermark has no gap, and what it has may be committed nowhere else.
            is_behind = not answer.is_counted or self._log.log_end < answer.high_watermark
            if answer.unended is not None and is_behind:
                return self._fetch_again(answer.unended, answer)
            self._move(FollowerCause.RECORDS)
            self._committed, self._syncs = committed, not answer.many
            return [events.AppendRecords()]
        self._move(FollowerCause.NOTHING_NEW)
        self._failures = 0
        return [*self._advance(committed), events.WantFetch()]

    def _advance(self, committed: _Committed) -> list[events.FollowerEffect]:
        log = self._log
        watermark = min(committed.watermark, log.log_end)  # the rest is committed, but not in this log yet
        start = min(committed.log_start, watermark)
        if start <= log.log_start:
            return [events.AdvanceWatermark(watermark)]
        return [events.AdvanceWatermark(watermark), events.AdvanceLogStart(start)]

    def _changed(self, log: events.LogView) -> list[events.FollowerEffect]:
        syncs = self._syncs and log.durable_offset < log.log_end
        self._move(FollowerCause.NOT_DURABLE_YET if syncs else FollowerCause.LOG_CHANGED)
        self._log, self._refused_bytes, self._syncs = log, False, False
        committed, self._committed = self._committed, None
        self._failures = 0
        effects = [] if committed is None else self._advance(committed)
        return effects if syncs else [*effects, events.WantFetch()]

    # --- truncation ---

    def _diverged(self, end: EpochEnd, answer: events.Answered) -> list[events.FollowerEffect]:
        log = self._log
        truncate_to = common_end(answer.history, log.log_end, end)
        if truncate_to is None:  # records below the own log start were committed and deleted: do not fetch them again
            offset = max(min(end.end_offset, log.log_start), answer.log_start)
            return self._restart(offset, "it has no epoch in common with the leader's log")
        if truncate_to <= log.log_start:
            return self._restart(
                max(truncate_to, answer.log_start),
                f"all of it lies above offset {truncate_to}, where it diverges from the leader's log",
            )
        return [events.TruncateTo(truncate_to)]

    def _fetch_again(self, unended: Offset, answer: events.Answered) -> list[events.FollowerEffect]:
        if not answer.is_held:  # markers may be missing from a repeated fetch as well
            later = OffsetNotAvailable(
                f"the leader keeps no markers for this node yet: partition {self.name} is fetched on from offset "
                f"{self._log.log_end} once the node is unfenced"
            )
            return self._pause(FollowerCause.REFUSED, later, answer.at)
        self._move(FollowerCause.MARKER_GONE)
        offset = self._log.log_start if self._began_again else max(unended, self._log.log_start)
        self._began_again = True
        why = f"compaction may have removed the marker of its transaction that began at offset {unended}"
        return [events.FetchAgainFrom(offset, f"partition {self.name} is fetched again from offset {offset}: {why}")]

    def _restart(self, offset: Offset, why: str) -> list[events.FollowerEffect]:
        return [
            events.RestartAt(offset, f"partition {self.name}: the follower's log restarts at offset {offset}: {why}")
        ]

    # --- errors ---

    def _rejected(self, answer: events.Answered, fetch: _OpenFetch) -> list[events.FollowerEffect]:
        assert answer.error is not None
        is_current = answer.leader_epoch == self.leader_epoch and self._log.log_end == fetch.next_offset
        is_remote = isinstance(answer.error, OffsetMovedToTieredStorage) and answer.local_start > fetch.next_offset
        if is_current and is_remote:
            self._move(FollowerCause.IN_REMOTE_TIER)
            return [events.RestartBehindRemote(answer.local_start, answer.log_start, answer.leader_history)]
        below = isinstance(answer.error, OffsetOutOfRange) and answer.log_start > fetch.next_offset
        if is_current and below:
            self._move(FollowerCause.BELOW_START)
            return self._restart(
                answer.log_start, f"it ends at offset {fetch.next_offset}, below the leader's log start"
            )
        return self._pause(FollowerCause.REFUSED, answer.error, answer.at)

    def _pause(
        self, cause: FollowerCause, error: TidelogError, at: Millis, longest: int = PAUSE_MS_MAX
    ) -> list[events.FollowerEffect]:
        bound = min(PAUSE_MS_MIN << min(self._failures, 10), longest)
        pause = bound // 2 + self._rng.randrange(bound // 2 + 1)
        self._failures += 1
        self._move(cause)
        self._resume_at = Millis(at + pause)
        return [events.RetryLater(self._resume_at, error, cause is FollowerCause.REMOTE_TIER_FAILED)]

    def _waited(self, at: Millis) -> list[events.FollowerEffect]:
        if self.state is not FollowerState.SYNCING and (self.state is not FollowerState.PAUSED or at < self._resume_at):
            return []
        self._move(FollowerCause.PAUSE_OVER)
        return [events.WantFetch()]
