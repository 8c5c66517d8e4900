"""A streaming query's connection to the cluster, open between the calls of Spark: offsets, plans, progress.

Not here: decisions (stream_planner.py), what Spark calls (stream_reader.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from tidelog.clock import Clock, MachineClock
from tidelog.errors import InconsistentClusterId, NoCommittedOffset, OffsetOutOfRange, TidelogError
from tidelog.spark.options.query_options import StreamOptions
from tidelog.spark.ranges.cluster_snapshot import ClusterSnapshot, selects
from tidelog.spark.ranges.planning import OffsetRange, TaskRanges
from tidelog.spark.ranges.read_admin import Doubts
from tidelog.spark.ranges.resolving import TO_THE_END, planned_tasks, query_bounds
from tidelog.spark.streaming.data_loss import LogState, Loss, LossKind, absent_log, loss_error
from tidelog.spark.streaming.query_group import QueryGroup
from tidelog.spark.streaming.query_identity import EMPTY_START, began_empty, group_of, start_digest
from tidelog.spark.streaming.rate_sharing import TriggerGate
from tidelog.spark.streaming.read_ahead import ReadAhead
from tidelog.spark.streaming.stream_cluster import StreamAdmin
from tidelog.spark.streaming.stream_offsets import PartitionPosition, StreamOffset, stream_offset
from tidelog.spark.streaming.stream_planner import (
    Backlog,
    BatchPlan,
    changed_partitions,
    chosen_again,
    find_backlog,
    plan_batch,
    split_start,
)
from tidelog.types import (
    EARLIEST,
    LATEST,
    NO_LEADER_EPOCH,
    EpochEnd,
    LeaderEpoch,
    Millis,
    Offset,
    TopicId,
    TopicPartition,
)

_log = logging.getLogger("tidelog.spark")

LINEAGE_CHARACTERS: Final = 12
LOOK_MS: Final = 1_000
"""How long a query that is behind does not look at the logs again, while what it has seen there fills its batches."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The batch that this session has chosen last, none of which was lost then."""

    start: StreamOffset
    end: StreamOffset
    ranges: list[OffsetRange]
    states: Mapping[TopicPartition, LogState]
    """The logs as they were."""
    seen_at: Millis


@dataclass(slots=True)
class _Extra:
    """Offsets that the batch up to `end` skipped when it was planned, and that its end does not count."""

    end: StreamOffset | None = None
    skipped: dict[TopicPartition, int] = field(default_factory=dict)


class StreamSession:
    """One running query. Use it on one event loop; `start` first, `close` last."""

    def __init__(
        self, options: StreamOptions, clock: Clock | None = None, *, read_ahead: ReadAhead | None = None
    ) -> None:
        """read_ahead: is told of each batch that is chosen."""
        connection = options.query.connection
        self._options, self._query, self._selection = options, options.query, options.query.selection
        self._clock: Clock = clock or MachineClock()
        self._admin = StreamAdmin(connection.bootstrap, **connection.of_client)
        self._gate = TriggerGate(options.limits)
        self._read_ahead = read_ahead
        self._group: QueryGroup | None = None
        self._cluster_id = ""
        self._initial: StreamOffset | None = None
        self._no_start: TidelogError | None = None
        """Why no start could be chosen; it does not matter to a query whose first batch is logged."""
        self._is_open = False
        """Whether the initial offset is a pin that was found, and no batch has begun at it in this session."""
        self._target: dict[TopicPartition, tuple[TopicId, Offset]] | None = None
        self._extra = _Extra()
        self._chosen: _Chosen | None = None
        self._checked: dict[TopicPartition, tuple[TopicId, LeaderEpoch]] = {}
        """The leader epoch in which the position of a partition was last compared with the log."""
        self.latest: StreamOffset | None = None
        """The ends of the partitions when they were last read."""

    async def start(self) -> None:
        """Connect, and take over the identity of the query if an option names it."""
        await self._admin.start()
        snapshot = await self._admin.snapshot(self._selection)
        self._cluster_id = snapshot.cluster_id
        if self._options.group_id is not None:
            await self._join("")

    async def _join(self, lineage: str) -> None:
        """Take over the identity of the query, at the first call that says which it is."""
        if self._group is not None:
            return
        group_id = group_of(self._options, lineage)
        _log.info("a streaming query begins; its progress is that of the group %r", group_id)
        self._group = QueryGroup(
            self._admin, self._query.connection, self._cluster_id, group_id, start_digest(self._options), self._clock
        )
        await self._group.start()

    async def close(self) -> None:
        """Close the connections."""
        if self._read_ahead is not None:
            await self._read_ahead.close()
        if self._group is not None:
            await self._group.close()
        await self._admin.close()

    @property
    def _progress(self) -> QueryGroup:
        assert self._group is not None, "the session is started"
        return self._group

    # --- where the query begins and ends ------------------------------------------------------------------------

    async def initial(self) -> StreamOffset:
        """Where a query without progress begins. The same answer until the session ends. If an option names the
        identity, it is pinned on the cluster, and the next session gets it too until there is progress. Else the pin
        is found when the logged first batch says its lineage: `advance` pins the start before it chooses that batch.

        Raises UnknownTopicOrPartition, OffsetOutOfRange, InvalidConfig as a batch query, without a named identity at
        the call of `advance`; ProducerFenced.
        """
        if self._initial is None and self._group is not None:
            self._initial = await self._progress.find_pin()
            self._is_open = self._initial is not None
        if self._initial is not None:
            return self._initial
        if self._group is not None:
            return await self._pin(await self._choose_start())
        try:
            self._initial = await self._choose_start()
        except TidelogError as error:
            self._no_start, self._initial = error, self._start_at({})
        return self._initial

    async def _pin(self, chosen: StreamOffset) -> StreamOffset:
        await self._progress.pin(chosen)
        self._initial, self._is_open = chosen, False
        return chosen

    async def _pin_again(self, pin: StreamOffset, losses: Sequence[Loss]) -> StreamOffset:
        """Choose the start again in the partitions whose pinned position is lost, and only there. It has a lineage of
        its own: a batch that another checkpoint began at the former pin does not begin at this one."""
        positions = chosen_again(pin, await self._choose_start(), {loss.topic_partition for loss in losses})
        moved = [
            f"{key} from offset {before.next_offset} "
            + (f"to offset {positions[key][1].next_offset}" if key in positions else "to none, it is left out")
            for key, topic_id, before in pin
            if positions.get(key) != (topic_id, before)
        ]
        chosen = await self._pin(self._start_at(positions))
        _log.warning(
            "the start of the query, which was pinned in the group %r before, is chosen again in the partitions where "
            "it is not in the log any more: %s. Moved: %s",
            self._progress.group_id,
            "; ".join(map(str, losses)),
            "; ".join(moved),
        )
        return chosen

    async def freeze(self) -> None:
        """Record the present ends: nothing above them is read by this session, and no other partition that is not in
        the offset from which it continues."""
        snapshot = await self._admin.newest_snapshot(self._selection)
        ends = await self._ends_of_newest(snapshot, snapshot.partitions(self._selection))
        ids = {key: snapshot.topic_id(key) for key in ends}
        self._target = {
            key: (topic_id, end.end_offset) for key, end in ends.items() if (topic_id := ids[key]) is not None
        }

    async def advance(self, start: StreamOffset, offsets_max: int | None, *, may_wait: bool) -> StreamOffset:
        """The end of the batch that begins at `start`; `start` itself if there is nothing to read.

        offsets_max: None: all that is there. may_wait: whether `minOffsetsPerTrigger` applies.
        Raises OffsetOutOfRange, LogTruncated, InconsistentTopicId, UnknownTopicOrPartition on data loss,
        InconsistentClusterId for the checkpoint of another cluster, ProducerFenced.
        """
        self._ensure_cluster(start)
        if self._group is None:
            begins = start == self._initial
            if begins and self._no_start is not None:
                raise self._no_start  # before a lineage that no checkpoint will have leaves traces on the cluster
            await self._join(start.lineage)
            if begins:
                await self._pin(start)
        seen_at = self._clock.monotonic_ms()
        known = self._known_backlog(start, offsets_max, seen_at)
        if known is not None:
            backlog, seen_at = known
        else:
            backlog, _ = await asyncio.gather(self._backlog(start), self._progress.check_owner())
        if start != self._initial:
            self._progress.note_progress(start)
        elif self._is_open and backlog.start_losses:
            start = await self._pin_again(start, backlog.start_losses)
            backlog = await self._backlog(start)
        else:
            self._progress.keep_pin(start)
        self._report(backlog.losses)
        end = backlog.take(offsets_max)
        self.latest = backlog.take(None)
        now = self._clock.monotonic_ms()
        if may_wait and self._target is None and not backlog.losses and not self._gate.is_open(backlog.available, now):
            return start
        if end != start:
            self._gate.note_batch(now)
            self._chosen = None
            if not backlog.losses:
                await self._note_chosen(start, end, backlog.states, seen_at)
        elif self._target is not None:
            await self._progress.flush()  # the query ends now
        return end

    def _known_backlog(
        self, start: StreamOffset, offsets_max: int | None, now: Millis
    ) -> tuple[Backlog, Millis] | None:
        """What the last look at the logs has left for this batch and when that was; None to look again: too little is
        left, or it was too long ago. Tasks notice what is lost meanwhile."""
        chosen = self._chosen
        if chosen is None or chosen.end != start or offsets_max is None or now - chosen.seen_at >= LOOK_MS:
            return None
        backlog = find_backlog(start, chosen.states, target=self._target)
        return None if backlog.losses or backlog.available < offsets_max else (backlog, chosen.seen_at)

    async def _note_chosen(
        self, start: StreamOffset, end: StreamOffset, states: Mapping[TopicPartition, LogState], seen_at: Millis
    ) -> None:
        asked = {key: replace(state, epoch_end=None) for key, state in states.items()}
        self._chosen = _Chosen(start, end, plan_batch(start, end, asked, asked).ranges, asked, seen_at)
        if self._read_ahead is not None and self._query.remote_storage is None:
            await self._read_ahead.begin(await self._tasks(self._chosen.ranges))

    async def plan(self, start: StreamOffset, end: StreamOffset) -> list[TaskRanges]:
        """What each task of a batch reads. A batch that was chosen a moment ago, without a loss, is not compared with
        the logs again: its tasks notice what happens after that. Raises as `advance` on data loss, NoCommittedOffset if
        the start of the checkpoint's first batch is not known any more."""
        self._is_open = False
        if start == end:
            return []
        chosen = self._chosen
        if chosen is not None and (chosen.start, chosen.end) == (start, end):
            return await self._tasks(chosen.ranges)
        self._ensure_cluster(start)
        self._ensure_cluster(end)
        await self._join(end.lineage)
        start = await self._of_lineage(start, end)
        changed = changed_partitions(start, end)
        if not changed:
            return []
        known = {key: (topic_id, to.epoch) for key, topic_id, to in changed}

        async def look() -> tuple[BatchPlan, Doubts]:
            planned = await self._planned(start, end, changed)
            return planned, _doubts(planned.losses, known)

        planned = await self._admin.until_confirmed(look)
        self._report(planned.losses)
        self._extra = _Extra(end, planned.extra_skipped)
        return await self._tasks(planned.ranges)

    async def _planned(
        self,
        start: StreamOffset,
        end: StreamOffset,
        changed: Sequence[tuple[TopicPartition, TopicId, PartitionPosition]],
    ) -> BatchPlan:
        """A batch compared with the logs."""
        names = sorted({key.topic for key, _, _ in changed})
        snapshot = await self._admin.snapshot(self._selection, also=names)
        if any(snapshot.topic_id(key) != topic_id for key, topic_id, _ in changed):
            snapshot = await self._admin.newest_snapshot(self._selection, also=names)
        begins = {key: (topic_id, each) for key, topic_id, _ in changed if (each := start.find(key, topic_id))}
        ends = {key: (topic_id, to) for key, topic_id, to in changed}
        present = {key for key, topic_id, _ in changed if snapshot.topic_id(key) == topic_id}
        others = {key: absent_log(other) for key in ends if key not in present and (other := snapshot.topic_id(key))}
        reach = {key: max(ends[key][1].next_offset, begins.get(key, ends[key])[1].next_offset) for key in present}
        states, end_epochs = await asyncio.gather(
            self._log_states(snapshot, sorted(present), begins, reach, checks=present),
            self._epoch_ends(snapshot, ends, present),
        )
        end_states = {key: replace(state, epoch_end=end_epochs.get(key)) for key, state in states.items()}
        return plan_batch(start, end, {**states, **others}, end_states)

    async def _tasks(self, ranges: list[OffsetRange]) -> list[TaskRanges]:
        return await planned_tasks(self._admin, self._query, ranges)

    async def processed(self, end: StreamOffset) -> None:
        """Spark has processed everything below `end`: commit it beside the query. Raises ProducerFenced."""
        self._progress.note_progress(end)

    # --- answers of the cluster ---------------------------------------------------------------------------------

    async def _choose_start(self) -> StreamOffset:
        starting = self._query.starting
        positions = {}
        for one in await query_bounds(self._admin, self._query, TO_THE_END):
            key, place = one.topic_partition, one.query_start
            if place is None:
                place = (starting.offsets or {}).get(key, starting.everywhere)
            if place == LATEST:
                position = PartitionPosition(one.latest, one.last_epoch)
            elif place is None or place == EARLIEST:
                position = PartitionPosition(one.earliest)
            else:
                position = self._given_start(key, place, one.earliest, one.latest)
            positions[key] = (one.topic_id, position)
        return self._start_at(positions)

    def _start_at(self, positions: Mapping[TopicPartition, tuple[TopicId, PartitionPosition]]) -> StreamOffset:
        lineage = ("" if positions else EMPTY_START) + uuid4().hex[:LINEAGE_CHARACTERS]
        return stream_offset(self._cluster_id, lineage, positions)

    def _given_start(self, key: TopicPartition, given: Offset, earliest: Offset, latest: Offset) -> PartitionPosition:
        if earliest <= given <= latest:
            return PartitionPosition(given)
        if self._query.fail_on_data_loss:
            raise OffsetOutOfRange(
                f"{key} holds offsets {earliest} to {latest}, and the query is to start at {given}: start within them, "
                'or set "failOnDataLoss" to "false" to start at the nearest'
            )
        return PartitionPosition(Offset(min(max(given, earliest), latest)))

    async def _backlog(self, start: StreamOffset) -> Backlog:
        """What there is to read. Losses are believed only of leaders that another node names too."""
        positions = {key: (topic_id, position.epoch) for key, topic_id, position in start}

        is_first = True

        async def look() -> tuple[Backlog, Doubts]:
            nonlocal is_first
            if not is_first:
                self._checked = {}  # else this look would compare no position with its log
            is_first = False
            backlog = await self._compared(start)
            ids = {key: (state.topic_id, NO_LEADER_EPOCH) for key, state in backlog.states.items()}
            return backlog, _doubts(backlog.losses, {**ids, **positions})

        return await self._admin.until_confirmed(look)

    async def _compared(self, start: StreamOffset) -> Backlog:
        known = {key: (topic_id, position) for key, topic_id, position in start}
        deselected = frozenset(key for key in known if not selects(self._selection, key))
        if deselected:
            _log.warning("no longer selected, not read from now on: %s", ", ".join(map(str, sorted(deselected))))
        expected = {key: topic_id for key, (topic_id, _) in known.items() if key not in deselected}
        snapshot, ends = await self._seen(expected)
        keys = self._present(snapshot, known)
        if {key: snapshot.topic_id(key) for key in keys} != expected:  # new, gone, or another one
            names = sorted({key.topic for key in expected})
            snapshot = await self._admin.newest_snapshot(self._selection, also=names)
            keys, ends = self._present(snapshot, known), None
        positions = {key: known[key] for key in keys if key in known and snapshot.topic_id(key) == known[key][0]}
        leaders = {key: snapshot.leadership(key) for key in keys}
        checks = {key for key in keys if self._checked.get(key) != leaders[key]}
        if checks:
            ends = None  # they may be older than the leaders
        reach = {key: position.next_offset for key, (_, position) in positions.items()}
        states = await self._log_states(snapshot, keys, positions, reach, checks=checks, ends=ends)
        self._checked = leaders
        if self._target is not None:
            for key, (topic_id, _) in positions.items():  # the nodes that `freeze` asked did not know all of them
                self._target.setdefault(key, (topic_id, states[key].end))
        extra = self._extra.skipped if self._extra.end == start else {}
        return find_backlog(start, states, deselected=deselected, target=self._target, extra_skipped=extra)

    async def _seen(
        self, expected: Mapping[TopicPartition, TopicId]
    ) -> tuple[ClusterSnapshot, dict[TopicPartition, EpochEnd] | None]:
        """What a node knows of the topics and, asked for at the same time, the ends of these partitions; None if one of
        them is gone or another one by then: that is not waited for."""
        asking = asyncio.create_task(self._ends(sorted(expected)))
        try:
            snapshot = await self._admin.snapshot(self._selection)
            differs = any(snapshot.topic_id(key) != topic_id for key, topic_id in expected.items())
            return snapshot, None if differs else await asking
        finally:
            asking.cancel()
            await asyncio.wait([asking])
            if not asking.cancelled():
                asking.exception()  # is raised above, if it matters

    def _present(self, snapshot: ClusterSnapshot, known: Container[TopicPartition]) -> list[TopicPartition]:
        """The partitions that are read: with the trigger availableNow no other ones than there were when it began."""
        keys = snapshot.partitions(self._selection)
        return keys if self._target is None else [key for key in keys if key in self._target or key in known]

    async def _log_states(
        self,
        snapshot: ClusterSnapshot,
        keys: list[TopicPartition],
        positions: Mapping[TopicPartition, tuple[TopicId, PartitionPosition]],
        reach: Mapping[TopicPartition, Offset],
        *,
        checks: set[TopicPartition],
        ends: dict[TopicPartition, EpochEnd] | None = None,
    ) -> dict[TopicPartition, LogState]:
        """The state of each log. Where nothing has moved, the log's start is not asked for. reach: where the log must
        end at least. checks: partitions whose positions are compared with the log by their epoch. ends: of these
        partitions; None to ask for them."""
        ends = await self._ends(keys) if ends is None else ends
        moved = [key for key in keys if key in checks or reach.get(key) != ends[key].end_offset]
        behind = [key for key in moved if ends[key].end_offset < reach.get(key, 0)]
        starts, marks, epoch_ends = await asyncio.gather(
            self._admin.list_offsets(moved, "earliest"),
            self._admin.list_offsets(behind, "latest"),
            self._epoch_ends(snapshot, positions, checks),
        )
        return {
            key: LogState(
                snapshot.leadership(key)[0],
                starts.get(key, Offset(0)),
                end.end_offset,
                end.epoch,
                marks.get(key, end.end_offset),
                epoch_ends.get(key),
            )
            for key, end in ends.items()
        }

    async def _epoch_ends(
        self,
        snapshot: ClusterSnapshot,
        positions: Mapping[TopicPartition, tuple[TopicId, PartitionPosition]],
        keys: set[TopicPartition],
    ) -> dict[TopicPartition, EpochEnd]:
        return await self._admin.epoch_ends(
            {
                key: (topic_id, position.epoch)
                for key, (topic_id, position) in positions.items()
                if key in keys and position.epoch != NO_LEADER_EPOCH and snapshot.topic_id(key) == topic_id
            }
        )

    async def _ends(self, keys: list[TopicPartition]) -> dict[TopicPartition, EpochEnd]:
        return await self._admin.end_positions(keys, isolation=self._query.connection.isolation)

    async def _ends_of_newest(
        self, snapshot: ClusterSnapshot, keys: list[TopicPartition]
    ) -> dict[TopicPartition, EpochEnd]:
        return await self._admin.ends_of_newest(snapshot, keys, self._query.connection.isolation)

    def _ensure_cluster(self, offset: StreamOffset) -> None:
        if offset.cluster_id != self._cluster_id:
            raise InconsistentClusterId(
                f"the checkpoint belongs to cluster {offset.cluster_id}, and {self._query.connection.bootstrap} is "
                f"cluster {self._cluster_id}: use the checkpoint of this cluster, or a new one"
            )

    async def _of_lineage(self, start: StreamOffset, end: StreamOffset) -> StreamOffset:
        """The start of the batch. One that began without partitions: all of its end are new. A `start` of another
        lineage was chosen later than the batch, which began at the pin of its own lineage.

        Raises NoCommittedOffset if the options do not say where the batch began."""
        if start.lineage == end.lineage:
            return start
        if began_empty(end.lineage):
            return replace(start, lineage=end.lineage, topics={})
        pin = await self._progress.find_pin()
        if pin is not None and pin.lineage == end.lineage:
            return pin
        known, unknown = split_start(start, end, self._query.starting)
        if not unknown:
            return known
        said = (
            f"the first batch of this checkpoint began at a start that is not pinned in the group "
            f"{self._progress.group_id!r} any more: a query with another checkpoint has continued from it, or the "
            "group's offsets have expired"
        )
        if self._query.fail_on_data_loss:
            raise NoCommittedOffset(
                f'{said}. Use a new checkpoint with the right startingOffsets, or set "failOnDataLoss" to "false" to '
                "leave this batch out and to continue at its end"
            )
        _log.warning(
            '%s; "failOnDataLoss" is "false", and it is left out: an unknown number of records below %s',
            said,
            ", ".join(f"offset {end_of.next_offset} of {key}" for key, _, end_of in end if key in unknown),
        )
        return known

    def _report(self, losses: Iterable[Loss]) -> None:
        """Fail on data loss, or log the skipped offsets."""
        found = list(losses)
        if found and self._query.fail_on_data_loss:
            raise loss_error(found)
        for loss in found:
            _log.warning('data loss, and "failOnDataLoss" is "false": %s', loss)


def _doubts(losses: Iterable[Loss], known: Doubts) -> Doubts:
    """The partitions that lack records: a deposed leader lacks them too (KIP-320)."""
    keys = [loss.topic_partition for loss in losses if loss.kind in (LossKind.TRUNCATED, LossKind.AGED_OUT)]
    return {key: known[key] for key in keys}
