"""The next offset of a stream, and the ranges of a batch. Pure: positions and the state of the logs in, decisions out.

Invariants: a batch reads exactly the offsets between its two positions, less what is lost; a partition or topic that is
new to the query is read from its start; the same positions and states give the same text of the offset.
Holes need no care: ranges count offsets, and the last stable offset lies behind the last marker.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from tidelog.spark.options.offset_bounds import Bound
from tidelog.spark.ranges.planning import OffsetRange
from tidelog.spark.streaming.data_loss import LogState, Loss, LossKind, find_loss, truncated_at
from tidelog.spark.streaming.rate_sharing import share_rate
from tidelog.spark.streaming.stream_offsets import PartitionPosition, StreamOffset, stream_offset
from tidelog.types import EARLIEST, NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition

Target = Mapping[TopicPartition, tuple[TopicId, Offset]]
"""Where a query with the trigger availableNow ends."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a query can read now."""

    start: StreamOffset
    states: Mapping[TopicPartition, LogState]
    begins: Mapping[TopicPartition, PartitionPosition]
    """Where each partition continues, with what it has skipped."""
    ends: Mapping[TopicPartition, Offset]
    """Where each partition ends."""
    losses: tuple[Loss, ...]
    """What is missing before `begins`."""
    skipped: int
    """Offsets skipped in partitions that are gone."""

    @property
    def start_losses(self) -> tuple[Loss, ...]:
        """Losses in the partitions of `start`; the others are in partitions that are new to the query."""
        known = {key for key, _, _ in self.start}
        return tuple(loss for loss in self.losses if loss.topic_partition in known)

    @property
    def available(self) -> int:
        """Offsets that are not read yet."""
        return sum(self.ends[key] - begin.next_offset for key, begin in self.begins.items())

    def take(self, offsets_max: int | None) -> StreamOffset:
        """The end of the next batch. offsets_max: None: read all."""
        backlogs = {key: (begin.next_offset, self.ends[key]) for key, begin in self.begins.items()}
        positions = {}
        for key, end in share_rate(backlogs, offsets_max).items():
            begin, state = self.begins[key], self.states[key]
            if end > begin.next_offset:
                begin = PartitionPosition(end, state.end_epoch, begin.skipped)
            positions[key] = (state.topic_id, begin)
        return stream_offset(self.start.cluster_id, self.start.lineage, positions, self.skipped)


def find_backlog(
    start: StreamOffset,
    states: Mapping[TopicPartition, LogState],
    *,
    deselected: frozenset[TopicPartition] = frozenset(),
    target: Target | None = None,
    extra_skipped: Mapping[TopicPartition, int] | None = None,
) -> Backlog:
    """What the query can read from `start` on.

    states: of all partitions of the query; a partition of `start` without one is gone. deselected: partitions of
    `start` that the options do not select any more, which is no loss. target: of the trigger availableNow; partitions
    that it does not have are not read. extra_skipped: offsets that the batch before `start` skipped when it was
    planned."""
    extra = extra_skipped or {}
    known = {key: (topic_id, position) for key, topic_id, position in start}
    begins: dict[TopicPartition, PartitionPosition] = {}
    ends: dict[TopicPartition, Offset] = {}
    losses: list[Loss] = []
    skipped = start.skipped
    for key in sorted({*known, *states} - deselected):
        topic_id, position = known.get(key, (None, None))
        state = states.get(key)
        if target is not None and key not in target and position is None:
            continue  # it is newer than the trigger: the query would never end if it read each new partition
        loss = find_loss(key, topic_id, position, state)
        if loss is not None:
            losses.append(loss)
        before = position.skipped + extra.get(key, 0) if position is not None else 0
        if loss is not None and loss.kind is LossKind.RECREATED and state is not None:
            skipped += before  # of the incarnation that is gone; the new one is a partition that is new to the query
            position, before, loss = None, 0, find_loss(key, None, None, state)
            losses += [loss] if loss is not None else []
        if state is None:
            skipped += before
            continue
        begin = _begin(position, loss, state, before)
        begins[key] = begin
        ends[key] = max(begin.next_offset, _end(key, state, target))
    skipped += sum(position.skipped for key, (_, position) in known.items() if key in deselected)
    return Backlog(start, states, begins, ends, tuple(losses), skipped)


def _begin(position: PartitionPosition | None, loss: Loss | None, state: LogState, skipped: int) -> PartitionPosition:
    if loss is None:
        return PartitionPosition(Offset(0)) if position is None else replace(position, skipped=skipped)
    assert loss.resume is not None, "the partition exists"
    epoch = NO_LEADER_EPOCH
    if loss.kind is LossKind.TRUNCATED and state.epoch_end is not None:
        epoch = state.epoch_end.epoch
    return PartitionPosition(loss.resume, LeaderEpoch(epoch), skipped + loss.skipped)


def _end(key: TopicPartition, state: LogState, target: Target | None) -> Offset:
    if target is None:
        return state.end
    topic_id, end = target.get(key, (None, Offset(0)))
    return min(state.end, end) if topic_id == state.topic_id else Offset(0)


def chosen_again(
    pin: StreamOffset, chosen: StreamOffset, lost: Container[TopicPartition]
) -> dict[TopicPartition, tuple[TopicId, PartitionPosition]]:
    """A pin whose partitions in `lost` have the position that was chosen now; all others keep theirs. Partitions that
    are not in the pin are new to the query and get none.

    chosen: a partition that it does not have is gone, and left out if it is lost. A topic that it has with another id
    was created again in between: all its partitions are lost."""
    positions = {}
    for key, topic_id, position in pin:
        topic = chosen.topics.get(key.topic)
        if key not in lost and (topic is None or topic.topic_id == topic_id):
            positions[key] = (topic_id, position)
        elif topic is not None and key.partition in topic.partitions:
            positions[key] = (topic.topic_id, topic.partitions[key.partition])
    return positions


def split_start(start: StreamOffset, end: StreamOffset, starting: Bound) -> tuple[StreamOffset, set[TopicPartition]]:
    """Where the first batch of a checkpoint began, if its pin is gone and `start` was chosen again after it; and the
    partitions for which that is not known, at the end of which it is then.

    starting: the options. An offset that they give is the same again, as is the earliest one while it is 0."""
    positions: dict[TopicPartition, tuple[TopicId, PartitionPosition]] = {}
    unknown = set()
    for key, topic_id, to in end:
        again = start.find(key, topic_id)
        place = starting.everywhere if starting.offsets is None else starting.offsets.get(key)
        if again is not None and again.next_offset == (Offset(0) if place == EARLIEST else place):
            positions[key] = (topic_id, again)
        else:
            positions[key] = (topic_id, to)
            unknown.add(key)
    return stream_offset(end.cluster_id, end.lineage, positions), unknown


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The ranges of a batch before they are split."""

    ranges: list[OffsetRange] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    """What is missing in the ranges."""
    extra_skipped: dict[TopicPartition, int] = field(default_factory=dict)
    """Offsets of it that the end of the batch does not count as skipped yet."""


def changed_partitions(
    start: StreamOffset, end: StreamOffset
) -> list[tuple[TopicPartition, TopicId, PartitionPosition]]:
    """The partitions that the batch between two positions reads, with their end."""
    return [(key, topic_id, to) for key, topic_id, to in end if start.find(key, topic_id) != to]


def plan_batch(
    start: StreamOffset,
    end: StreamOffset,
    states: Mapping[TopicPartition, LogState],
    end_states: Mapping[TopicPartition, LogState],
) -> BatchPlan:
    """The ranges of the batch between two positions.

    states: of the changed partitions, with the answer for the epoch of `start`; end_states: with that for `end`.
    """
    plan = BatchPlan()
    for key, topic_id, to in changed_partitions(start, end):
        known = start.topics.get(key.topic)
        before = None if known is None else known.partitions.get(key.partition)
        if known is not None and known.topic_id != topic_id and before is not None:
            detail = f"it was read as topic id {known.topic_id}, this batch is of {topic_id}"
            plan.losses.append(Loss(LossKind.RECREATED, key, before.next_offset, None, detail=detail))
            before = None
        _plan_partition(plan, key, topic_id, before, to, states.get(key), end_states.get(key))
    return plan


def _plan_partition(
    plan: BatchPlan,
    key: TopicPartition,
    topic_id: TopicId,
    before: PartitionPosition | None,
    to: PartitionPosition,
    state: LogState | None,
    end_state: LogState | None,
) -> None:
    first = Offset(0) if before is None else before.next_offset
    counted = to.skipped - (0 if before is None else before.skipped)
    loss = find_loss(key, topic_id, before, state)
    if state is None or end_state is None or state.topic_id != topic_id:
        assert loss is not None, "the log of this batch is gone"
        if to.next_offset > first:
            plan.losses.append(replace(loss, last=to.next_offset))
            plan.extra_skipped[key] = to.next_offset - first
        return
    begin = first
    if loss is not None:
        assert loss.resume is not None, "the partition exists"
        begin = min(loss.resume, to.next_offset) if loss.kind is LossKind.AGED_OUT else loss.resume
        plan.losses.append(replace(loss, last=begin) if loss.kind is LossKind.AGED_OUT else loss)
        extra = (begin - first if loss.kind is LossKind.AGED_OUT else 0) - counted
        if extra > 0:
            plan.extra_skipped[key] = extra
    last, epoch = to.next_offset, to.epoch
    cut = truncated_at(to, end_state)
    if cut is not None and cut < last:
        if loss is None or loss.kind is not LossKind.TRUNCATED:
            detail = "an unclean election after the batch was chosen"
            plan.losses.append(Loss(LossKind.TRUNCATED, key, max(cut, begin), last, cut, detail))
        last = cut
        epoch = NO_LEADER_EPOCH if end_state.epoch_end is None else end_state.epoch_end.epoch
    if last > begin:
        plan.ranges.append(OffsetRange(key, topic_id, epoch, begin, last))
