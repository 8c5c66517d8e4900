"""Consumer core: decides what to fetch next. Pure: one cursor per partition, events in, effects out.

Invariants:
  1. Each partition has at most one open fetch, and one answer is accepted for it. An answer from before a seek is
     dropped.
  2. `position` is the next offset that the program gets. It moves only over records returned to the program and over
     offset gaps. `ahead` is the next offset to fetch. The buffered bytes lie between the two.
  3. Buffered bytes plus the reservations of open fetches stay within `buffer_bytes`, plus at most one batch per
     partition (a node answers with at least one whole batch, of any size).
  4. In a new leader epoch nothing is fetched before the leader has confirmed that its log contains the records read so
     far. Each fetch names the epoch of the record before it, and the node compares it (KIP-320). A mismatch raises
     LogTruncated. The position never changes silently, unless the user has configured it.
  5. Answers of a deposed leader have no effect: no request is sent while the metadata are older than an epoch that was
     read, committed or planned, and an answer of an older epoch counts as a failure. "Out of range" is accepted once
     another node names the same leader and epoch: a leader may be deposed without knowing it.
  6. A batch with impossible offsets (at or above the high watermark, or out of order) has corrupt bytes: it moves
     nothing and is fetched again.
  7. A cursor of a fixed range fetches nothing in a leader epoch before its leader has confirmed that the log has the
     planned epoch up to the end of the range, and nothing once `ahead` has reached that end. An answer without batches
     ends the range only if this reader may see everything below that end.
Not here: decoding (consumer.py, spark/ranges/reading.py), effects (fetch_client.py), connections (fetch_stream.py),
metadata (cluster.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from tidelog.client.core_events import FindLeader, LeaderKnown, TimePassed
from tidelog.client.cursor import Cursor, CursorState, FixedRange, Where
from tidelog.client.fetch_events import (
    Answer,
    BatchesFetched,
    CheckEpoch,
    Effect,
    EpochChecked,
    Event,
    Failed,
    FetchBatches,
    FetchPolicy,
    FindPlace,
    LeaderVerified,
    PlaceFound,
    Ready,
    ReportDoubt,
    ReportStall,
    Sought,
    Taken,
    VerifyLeader,
)
from tidelog.client.plausible import plausible_epoch, possible_batches
from tidelog.client.retries import backoff_ms
from tidelog.errors import (
    CorruptLog,
    CorruptRecord,
    FencedLeaderEpoch,
    InconsistentTopicId,
    LogTruncated,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    Retry,
    TidelogError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from tidelog.records import RecordBatch
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    EpochEnd,
    EpochStart,
    LeaderEpoch,
    Millis,
    NodeId,
    TopicId,
    TopicPartition,
)

SILENT_MS: Final = 1_000
"""If an answer is later than `max_wait_ms` plus this time, the leader is looked up although nothing failed."""
MISSING_TOPIC_MS: Final = 30_000
"""How long the answer "no such topic" is ignored for an assigned topic: the metadata of a new topic take a moment to
reach all nodes, and longer if the controller has just failed."""
MISSING_PARTITION_MS: Final = 3_000
"""The same for a partition that a known topic does not have: it may just have been added."""
OUTDATED_MS: Final = 30_000
"""How long the metadata may be older than the epoch of the position; then the cursor fails."""
UNCONFIRMED_MS: Final = 30_000
"""If no other node confirms for this long a leader that answers "out of range", that is logged."""
REPORT_MS: Final = 60_000
"""Interval of further log lines about it."""
STALLED_MS: Final = 5_000
"""If the fetches of a partition have failed for this long, that is logged: a failover is over by then."""
STALLED_AGAIN_MS: Final = 30_000
"""Interval of further log lines about it, for all partitions: an object store that is away stops many at once."""
REFUSED_CLIENT_MS: Final = 3_000
"""How long a missing permission is ignored while nothing was read yet: a node may not have applied a new user or
permission yet."""
PREFERRED_MS: Final = 60_000
"""How long a preferred read replica is used before the leader is queried again."""
NO_HINT_MS: Final = 10_000
"""How long only the leader is read after a preferred read replica failed."""
PREFERRED_SILENT_MS: Final = 3_000
"""Timeout of a preferred read replica past `max_wait_ms`; the leader has all records anyway."""
REFUSED_MS: Final = 5_000
"""How long corrupt bytes are fetched again before the error is raised. The node that sent them verifies its log; if
that is corrupt, another replica becomes leader within one or two heartbeats."""
LOOKUP_MS: Final = 1_000
"""Interval of leader lookups while a partition has failed on corrupt bytes: a new leader may have sound ones."""


class FetchCore:
    """The cursors of one consumer."""

    def __init__(self, policy: FetchPolicy, rng: Random) -> None:
        self.policy = policy
        self.cursors: dict[TopicPartition, Cursor] = {}
        self.patient_until: dict[NodeId, Millis] = {}
        """Nodes that throttle this client, with the time until which their answers may be late."""
        self._rng = rng
        self._numbers = 0
        self._report_stalls_ms = Millis(0)
        """Until then no further stalled partition is logged."""

    def assign(self, partitions: Iterable[TopicPartition], start: Where) -> None:
        """Replace the assignment; must be followed by TimePassed. Partitions that stay assigned keep their cursor."""
        keys = dict.fromkeys(partitions)
        kept = {key: cursor for key, cursor in self.cursors.items() if key in keys and cursor.error is None}
        for key, cursor in self.cursors.items():
            if key not in kept:
                cursor.drop()
        self.cursors = {key: kept.get(key) or Cursor(key, start) for key in keys}

    def add(self, cursors: Iterable[Cursor]) -> None:
        """Add partitions to the assignment; must be followed by TimePassed."""
        self.cursors.update((cursor.topic_partition, cursor) for cursor in cursors)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        for key in partitions:
            cursor = self.cursors.pop(key, None)
            if cursor is not None:
                cursor.drop()

    def add_range(self, topic_partition: TopicPartition, planned: FixedRange) -> Cursor:
        """Add a range of a partition that is not assigned; must be followed by TimePassed. Returns its cursor, at the
        start."""
        cursor = Cursor(topic_partition, "earliest", planned, planned.topic_id)
        cursor.place(planned.start, NO_LEADER_EPOCH)
        self.add((cursor,))
        return cursor

    @property
    def share(self) -> int:
        """Maximum size of one fetch: every partition may have one fetch open and one buffered."""
        return max(1, min(self.policy.fetch_bytes, self.policy.buffer_bytes // (2 * max(1, len(self.cursors)))))

    def handle(self, event: Event) -> list[Effect]:
        """Apply an event and return the effects."""
        effects: list[Effect] = []
        if isinstance(event, TimePassed):
            for cursor in self.cursors.values():
                self._advance(cursor, event.at, effects)
            return effects
        cursor_or_none = self.cursors.get(event.topic_partition)
        if cursor_or_none is None:
            return effects
        cursor = cursor_or_none
        match event:
            case LeaderKnown():
                self._note_leader(cursor, event, effects)
            case Sought(_, offset, leader_epoch, at):
                self._stop(cursor)
                cursor.error, cursor.retry_ms, cursor.refused_until = None, at, None
                cursor.outdated_since = cursor.report_ms = cursor.failing_since = None
                cursor.place(offset, leader_epoch)
                cursor.checked_epoch = NO_LEADER_EPOCH
            case Taken():
                pass
            case _ if event.number != cursor.number:
                return effects  # stale
            case _:
                self._note_answer(cursor, event, effects)
        self._advance(cursor, event.at, effects)
        return effects

    # --- what happened ------------------------------------------------------------------------------------------

    def _note_answer(self, cursor: Cursor, answer: Answer, effects: list[Effect]) -> None:
        match answer:
            case PlaceFound(_, _, offset, _):
                self._done(cursor)
                cursor.place(max(offset, cursor.read_to), NO_LEADER_EPOCH)
                effects.append(Ready())
            case EpochChecked(_, _, end, _):
                self._done(cursor)
                self._note_checked(cursor, end, effects)
            case LeaderVerified():
                self._stop(cursor)
                self._out_of_range(cursor, effects)
            case BatchesFetched():
                self._note_batches(cursor, answer, effects)
            case Failed(_, _, error, at):
                self._note_failure(cursor, error, at, effects)

    def _note_leader(self, cursor: Cursor, event: LeaderKnown, effects: list[Effect]) -> None:
        cursor.lookup_pending = False
        if event.topic_id is None:
            self._note_missing(cursor, event, effects)
            return
        if cursor.topic_id is None:
            cursor.topic_id = event.topic_id
        elif cursor.topic_id != event.topic_id and cursor.is_certain:
            # The group will revoke the partition, or the node lags behind: neither is an error of the program.
            self._back_off(cursor, event.at)
            return
        elif cursor.topic_id != event.topic_id:
            self._fail(
                cursor,
                InconsistentTopicId(
                    f"topic {cursor.topic_partition.topic!r} was deleted and created again: the records read up to "
                    f"offset {cursor.position} of {cursor.topic_partition} belong to the old topic; assign it again to "
                    "read the new one"
                ),
                effects,
            )
            return
        if event.node == NO_NODE:
            if cursor.state is not CursorState.FETCHING:
                cursor.leader = NO_NODE
            self._note_missing(cursor, event, effects)
            return
        cursor.unknown_since = None
        if event.leader_epoch < cursor.leader_epoch:
            return  # stale metadata
        if event.leader_epoch > cursor.leader_epoch:
            cursor.retry_ms = min(cursor.retry_ms, event.at)  # a new leader: retry at once
            if cursor.state in (CursorState.FETCHING, CursorState.CHECKING, CursorState.CONFIRMING):
                self._stop(cursor)
            elif _is_curable(cursor):
                self._read_again(cursor)
            cursor.preferred = NO_NODE
        cursor.leader, cursor.leader_epoch = event.node, event.leader_epoch
        self._note_age(cursor, event, effects)

    def _note_age(self, cursor: Cursor, event: LeaderKnown, effects: list[Effect]) -> None:
        """Wait for newer metadata while they are older than an epoch that was read or committed; fail if no node knows
        that epoch within `OUTDATED_MS`."""
        if event.leader_epoch >= cursor.known_epoch or cursor.state is CursorState.FAILED:
            cursor.outdated_since = None
            return
        self._back_off(cursor, event.at)
        if event.cause is not None:  # no node answered
            return
        if cursor.outdated_since is None:
            cursor.outdated_since = event.at
        elif event.at - cursor.outdated_since >= OUTDATED_MS:
            error = UnknownLeaderEpoch(
                f"{cursor.topic_partition}: the record before offset {cursor.position} is of leader epoch "
                f"{cursor.known_epoch}, but the nodes asked know only epoch {event.leader_epoch}. They may be cut off "
                "from the cluster; if the epoch is wrong, seek to the offset without it."
            )
            self._fail(cursor, error, effects)

    def _note_missing(self, cursor: Cursor, event: LeaderKnown, effects: list[Effect]) -> None:
        """Handle an unknown topic or partition, or a missing permission. It is an error after `MISSING_TOPIC_MS`,
        `MISSING_PARTITION_MS` or `REFUSED_CLIENT_MS` of such answers. The time begins again if no node answers."""
        self._back_off(cursor, event.at)
        cursor.failure = cause = event.cause
        is_missing = isinstance(cause, UnknownTopicOrPartition)
        missing_ms = MISSING_TOPIC_MS if event.topic_id is None else MISSING_PARTITION_MS
        if cause is None or not (is_missing or cause.retry is Retry.NEVER) or (is_missing and cursor.is_certain):
            cursor.unknown_since = None
        elif cursor.unknown_since is None:
            cursor.unknown_since = event.at
        elif event.at - cursor.unknown_since >= (missing_ms if is_missing else REFUSED_CLIENT_MS):
            self._fail(cursor, cause, effects)

    def _note_epoch_end(self, cursor: Cursor, end: EpochEnd, effects: list[Effect]) -> None:
        """Compare the log with the fetched records. They agree if the log has the same epoch up to the same offset."""
        assert cursor.position is not None
        # NO_LEADER_EPOCH: the log has no epoch that old, because retention deleted the records; they were not
        # truncated.
        if end.end_offset >= cursor.ahead and end.epoch in (cursor.ahead_epoch, NO_LEADER_EPOCH):
            cursor.checked_epoch, cursor.ahead_epoch = cursor.leader_epoch, end.epoch
        elif cursor.ahead > cursor.position:  # only buffered records may be lost: check the position
            cursor.place(cursor.position, cursor.position_epoch)
        else:
            agreed = EpochEnd(end.epoch, cursor.agreed(end))
            error = LogTruncated(
                f"{cursor.topic_partition}: records up to offset {cursor.position} were read in leader epoch "
                f"{cursor.position_epoch}, but the log of leader epoch {cursor.leader_epoch} agrees only below offset "
                f"{agreed.end_offset} (epoch {end.epoch}): the other records were truncated. Seek to continue."
            )
            error.diverging = agreed
            self._fail(cursor, error, effects)

    def _note_checked(self, cursor: Cursor, end: EpochEnd, effects: list[Effect]) -> None:
        """Handle the answer to CheckEpoch. The log has the records that a range was planned on if it has the planned
        epoch up to the end of the range."""
        planned = cursor.planned
        if planned is None or planned.epoch == NO_LEADER_EPOCH:
            self._note_epoch_end(cursor, end, effects)
            return
        # NO_LEADER_EPOCH: retention deleted the records; the fetch then reports that they are out of range.
        if end.end_offset >= planned.end and end.epoch in (planned.epoch, NO_LEADER_EPOCH):
            cursor.checked_epoch = cursor.leader_epoch
            return
        error = LogTruncated(
            f"{cursor.topic_partition}: offsets {planned.start} to {planned.end - 1} were planned on records of leader "
            f"epoch {planned.epoch}, but the log of leader epoch {cursor.leader_epoch} holds epoch {end.epoch} up to "
            f"offset {end.end_offset}"
        )
        error.diverging = end
        self._fail(cursor, error, effects)

    def _note_batches(self, cursor: Cursor, event: BatchesFetched, effects: list[Effect]) -> None:
        """Accept the batches up to the first one with impossible offsets. If that is the first one of the answer, the
        bytes are corrupt and are fetched again."""
        newest = max(cursor.leader_epoch, cursor.known_epoch)
        if event.leader_epoch < newest:
            stale = FencedLeaderEpoch(
                f"{cursor.topic_partition}: the answer is of leader epoch {event.leader_epoch}, older than epoch "
                f"{newest}, which is known"
            )
            self._note_failure(cursor, stale, event.at, effects)
            return
        batches = possible_batches(event.batches, cursor.ahead, event.high_watermark)
        if event.batches and not batches:
            first = event.batches[0]
            error = CorruptRecord(
                f"{cursor.topic_partition}: a batch with offsets {first.base_offset} to {first.last_offset} was sent "
                f"for offset {cursor.ahead}, where offsets below {event.high_watermark} are committed: the bytes are "
                "corrupt"
            )
            self._note_failure(cursor, error, event.at, effects)
            return
        self._done(cursor)
        self._take_in(cursor, event, batches, effects)

    def _take_in(
        self, cursor: Cursor, event: BatchesFetched, batches: Sequence[RecordBatch], effects: list[Effect]
    ) -> None:
        if event.preferred != NO_NODE:
            cursor.preferred, cursor.preferred_until = event.preferred, Millis(event.at + PREFERRED_MS)
            return
        if event.diverging is not None:
            if cursor.preferred != NO_NODE:  # a follower's log may not be truncated yet: ask the leader
                cursor.preferred, cursor.hints_from = NO_NODE, Millis(event.at + NO_HINT_MS)
            else:
                self._note_epoch_end(cursor, event.diverging, effects)
            return
        cursor.checked_epoch = max(cursor.checked_epoch, event.leader_epoch)
        cursor.high_watermark, cursor.log_start = event.high_watermark, event.log_start
        cursor.readable_end = event.readable_end
        for batch in batches:
            next_offset = batch.next_offset
            if next_offset <= cursor.ahead:
                continue
            cursor.batches.append(batch)
            cursor.buffered += batch.size
            epoch = plausible_epoch(batch, cursor.ahead_epoch, event.leader_epoch)
            if epoch not in (cursor.ahead_epoch, NO_LEADER_EPOCH):
                cursor.epochs.append(EpochStart(epoch, max(batch.base_offset, cursor.ahead)))
            cursor.ahead, cursor.ahead_epoch = next_offset, epoch
        if not event.batches and cursor.planned is not None and event.readable_end >= cursor.planned.end:
            cursor.ahead = cursor.planned.end  # the rest of the range is an offset gap: there is no record in it
        if batches or cursor.ahead >= event.readable_end:
            # An answer without records that are there is no progress: the node did not get them from the object store.
            cursor.failing_since = None
        if cursor.has_data or cursor.reached_end:
            effects.append(Ready())

    def _note_failure(self, cursor: Cursor, error: TidelogError, at: Millis, effects: list[Effect]) -> None:
        request = cursor.state
        self._stop(cursor)
        cursor.failure = error
        if request is CursorState.FETCHING and cursor.preferred != NO_NODE:  # fetch from the leader at once
            cursor.preferred, cursor.hints_from = NO_NODE, Millis(at + NO_HINT_MS)
            return
        if request is CursorState.CONFIRMING:
            self._report_doubt(cursor, error, at, effects)
        if isinstance(error, CorruptRecord) and cursor.refused_until is None:
            cursor.refused_until = Millis(at + REFUSED_MS)
        if isinstance(error, OffsetOutOfRange):
            self._doubt(cursor, error, at, effects)
        elif error.retry is Retry.NEVER and (cursor.refused_until is None or at >= cursor.refused_until):
            self._fail(cursor, error, effects)
        else:
            self._back_off(cursor, at)
            if request is CursorState.FETCHING:
                self._report_stall(cursor, error, at, effects)
            hint = error.leader
            if hint is not None and hint.leader_epoch > cursor.leader_epoch:
                cursor.leader, cursor.leader_epoch = hint.node_id, hint.leader_epoch
                cursor.retry_ms = at
            elif request is CursorState.SEEKING or not isinstance(error, OffsetNotAvailable):
                self._look_up_leader(cursor, effects)

    def _report_stall(self, cursor: Cursor, cause: TidelogError, at: Millis, effects: list[Effect]) -> None:
        """Log, at intervals, why nothing is read. The fetch is repeated, and the program sees no error."""
        if cursor.failing_since is None:
            cursor.failing_since = at
        stalled_ms = at - cursor.failing_since
        if stalled_ms < STALLED_MS or at < self._report_stalls_ms:
            return
        self._report_stalls_ms = Millis(at + STALLED_AGAIN_MS)
        others = sum(each.failing_since is not None for each in self.cursors.values()) - 1
        effects.append(ReportStall(cursor.topic_partition, cursor.ahead, stalled_ms, others, cause))

    def _doubt(self, cursor: Cursor, error: OffsetOutOfRange, at: Millis, effects: list[Effect]) -> None:
        """The leader has answered "out of range". It may be deposed and lack committed records, so query another node
        for the leader."""
        assert cursor.topic_id is not None, "a fetch was sent"
        if cursor.has_data:
            # The buffered records come first, and may be fetched again: until their checksums are verified, a flipped
            # bit of a header may have moved `ahead`.
            self._back_off(cursor, at)
            return
        self._begin(cursor, CursorState.CONFIRMING)
        cursor.denial = error
        if cursor.report_ms is None:
            cursor.report_ms = Millis(at + UNCONFIRMED_MS)
        key, number = cursor.topic_partition, cursor.number
        effects.append(VerifyLeader(key, number, cursor.topic_id, cursor.leader, cursor.leader_epoch))

    def _report_doubt(self, cursor: Cursor, cause: TidelogError, at: Millis, effects: list[Effect]) -> None:
        """Log, at intervals, that no node confirms the leader. The fetch is repeated meanwhile, and the program sees no
        error."""
        assert cursor.denial is not None, "set when the leader was doubted"
        if cursor.report_ms is not None and at >= cursor.report_ms:
            cursor.report_ms = Millis(at + REPORT_MS)
            key, node, epoch = cursor.topic_partition, cursor.leader, cursor.leader_epoch
            effects.append(ReportDoubt(key, cursor.ahead, node, epoch, cursor.denial, cause))

    def _out_of_range(self, cursor: Cursor, effects: list[Effect]) -> None:
        error, where = cursor.denial, self.policy.on_out_of_range
        assert error is not None, "set when the leader was doubted"
        if where != "raise":
            _jump(cursor, error, where)
            return
        refusal = OffsetOutOfRange(
            f"{cursor.topic_partition}: {error.message.rstrip('.')}. Seek to an existing offset, or set "
            'on_out_of_range="earliest" or "latest".'
        )
        refusal.__cause__ = error
        self._fail(cursor, refusal, effects)

    # --- what to do next ----------------------------------------------------------------------------------------

    def _advance(self, cursor: Cursor, at: Millis, effects: list[Effect]) -> None:
        if cursor.state in (CursorState.FETCHING, CursorState.CHECKING):
            self._watch(cursor, at, effects)
        elif _is_curable(cursor) and at >= cursor.retry_ms:
            cursor.retry_ms = Millis(at + LOOKUP_MS)
            self._look_up_leader(cursor, effects)
        if cursor.state is not CursorState.IDLE or at < cursor.retry_ms:
            return
        if cursor.leader == NO_NODE or cursor.topic_id is None or cursor.leader_epoch < cursor.known_epoch:
            # A leader of an older epoch than that of the records read may be deposed and lack them (KIP-320).
            self._look_up_leader(cursor, effects)
        elif cursor.position is None:
            self._begin(cursor, CursorState.SEEKING)
            effects.append(FindPlace(cursor.topic_partition, cursor.number, cursor.start))
        elif cursor.reached_end:
            return
        elif cursor.checked_epoch != cursor.leader_epoch and (epoch := _epoch_to_check(cursor)) != NO_LEADER_EPOCH:
            self._begin(cursor, CursorState.CHECKING)
            cursor.silent_ms, cursor.give_up_ms = Millis(at + SILENT_MS), Millis(at + self.policy.request_timeout_ms)
            effects.append(
                CheckEpoch(
                    cursor.topic_partition,
                    cursor.number,
                    cursor.topic_id,
                    cursor.leader,
                    cursor.leader_epoch,
                    epoch,
                )
            )
        elif not cursor.is_stopped and cursor.buffered <= self.share:
            self._fetch(cursor, cursor.topic_id, at, effects)

    def _fetch(self, cursor: Cursor, topic_id: TopicId, at: Millis, effects: list[Effect]) -> None:
        self._begin(cursor, CursorState.FETCHING)
        cursor.reserved = self.share
        if at >= cursor.preferred_until:
            cursor.preferred = NO_NODE
        wait = self.policy.max_wait_ms
        patience = self.policy.request_timeout_ms if cursor.preferred == NO_NODE else PREFERRED_SILENT_MS
        cursor.silent_ms, cursor.give_up_ms = Millis(at + wait + SILENT_MS), Millis(at + wait + patience)
        effects.append(
            FetchBatches(
                cursor.topic_partition,
                cursor.number,
                topic_id,
                cursor.leader if cursor.preferred == NO_NODE else cursor.preferred,
                cursor.leader_epoch,
                cursor.ahead,
                cursor.ahead_epoch,
                cursor.reserved,
                at >= cursor.hints_from,
                cursor.refused_until is not None,
            )
        )

    def _watch(self, cursor: Cursor, at: Millis, effects: list[Effect]) -> None:
        """Check the timeouts of the open request."""
        node = cursor.leader if cursor.preferred == NO_NODE else cursor.preferred
        if at >= max(cursor.give_up_ms, self.patient_until.get(node, at)):
            error = RequestTimedOut(f"node {cursor.leader} does not answer about {cursor.topic_partition}")
            self._note_failure(cursor, error, at, effects)
        elif at >= cursor.silent_ms:
            cursor.silent_ms = Millis(at + SILENT_MS)
            cursor.lookup_pending = False
            self._look_up_leader(cursor, effects)

    def _begin(self, cursor: Cursor, state: CursorState) -> None:
        self._numbers += 1
        cursor.state, cursor.number = state, self._numbers

    def _stop(self, cursor: Cursor) -> None:
        """Abandon the open request: its answer is stale from now on."""
        self._numbers += 1
        cursor.state, cursor.number, cursor.reserved = CursorState.IDLE, self._numbers, 0

    def _done(self, cursor: Cursor) -> None:
        """End the open request after its answer."""
        self._stop(cursor)
        cursor.failures, cursor.retry_ms, cursor.failure, cursor.report_ms = 0, Millis(0), None, None

    def _fail(self, cursor: Cursor, error: TidelogError, effects: list[Effect]) -> None:
        self._stop(cursor)
        cursor.state, cursor.error = CursorState.FAILED, error
        effects.append(Ready())

    def refuse(self, cursor: Cursor, error: TidelogError, at: Millis) -> None:
        """Reject the buffered bytes, which cannot be decoded. Corrupt bytes are fetched again for `REFUSED_MS`; the
        fetch tells the node to verify its log."""
        assert cursor.position is not None
        if cursor.refused_until is None:
            cursor.refused_until = Millis(at + REFUSED_MS)
        if not isinstance(error, CorruptRecord) or at >= cursor.refused_until:
            cursor.refused_until = None
            cursor.drop()
            self._fail(cursor, error, [])
            return
        self._stop(cursor)
        cursor.place(cursor.position, cursor.position_epoch)
        cursor.failure = error
        self._back_off(cursor, at)

    def _read_again(self, cursor: Cursor) -> None:
        """Clear the error and fetch again from the position, in a new leader epoch."""
        self._stop(cursor)
        cursor.error = cursor.refused_until = None
        if cursor.position is not None:
            cursor.place(cursor.position, cursor.position_epoch)

    def read(self, cursor: Cursor) -> None:
        """Note that the buffered bytes were decoded: they are not corrupt."""
        cursor.refused_until = None

    def _back_off(self, cursor: Cursor, at: Millis) -> None:
        cursor.failures += 1
        cursor.retry_ms = Millis(at + backoff_ms(cursor.failures, self._rng))

    def _look_up_leader(self, cursor: Cursor, effects: list[Effect]) -> None:
        if not cursor.lookup_pending:
            cursor.lookup_pending = True
            effects.append(FindLeader(cursor.topic_partition, cursor.outdated_since is not None))


def _is_curable(cursor: Cursor) -> bool:
    """Whether a new leader epoch may end the failure: another leader may have sound bytes, or the epoch was awaited."""
    causes = CorruptRecord | CorruptLog | UnknownLeaderEpoch
    return cursor.state is CursorState.FAILED and isinstance(cursor.error, causes)


def _epoch_to_check(cursor: Cursor) -> LeaderEpoch:
    """The epoch that the log of a new leader epoch must still have; NO_LEADER_EPOCH if none has to be checked."""
    if cursor.planned is not None and cursor.planned.epoch != NO_LEADER_EPOCH:
        return cursor.planned.epoch
    return cursor.ahead_epoch if cursor.ahead_epoch < cursor.leader_epoch else NO_LEADER_EPOCH


def _jump(cursor: Cursor, error: OffsetOutOfRange, where: Where) -> None:
    """Look up the offset to continue at."""
    assert cursor.position is not None
    # The log start of the leader may be below that of the node that answered: no record must be read twice.
    if error.log_start is not None and cursor.position < error.log_start:
        cursor.read_to = cursor.position
    cursor.start, cursor.position = where, None
