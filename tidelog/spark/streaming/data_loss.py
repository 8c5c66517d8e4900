"""Data loss of a stream, decided for each partition from the cluster's answers. Pure.

  aged out    the next offset lies below the log's start: retention or compaction removed the records between
  recreated   the topic has another id: it was deleted, and created again
  gone        the topic, or the partition, was deleted
  truncated   the log ends the leader epoch of the position below it, or ends itself there: an unclean election replaced
              records that were read

Source: KIP-320 for truncation; Spark's Kafka source only compares offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelog.errors import InconsistentTopicId, LogTruncated, OffsetOutOfRange, TidelogError, UnknownTopicOrPartition
from tidelog.spark.streaming.stream_offsets import PartitionPosition
from tidelog.types import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, Offset, TopicId, TopicPartition

LISTED_MAX: Final = 10
"""Losses that one error names."""


class LossKind(Enum):
    """How records were lost."""

    AGED_OUT = "aged out"
    RECREATED = "topic recreated"
    GONE = "topic or partition deleted"
    TRUNCATED = "truncated"


_ERRORS: Final[dict[LossKind, type[TidelogError]]] = {
    LossKind.AGED_OUT: OffsetOutOfRange,
    LossKind.RECREATED: InconsistentTopicId,
    LossKind.GONE: UnknownTopicOrPartition,
    LossKind.TRUNCATED: LogTruncated,
}


@dataclass(frozen=True, slots=True)
class LogState:
    """A partition as the cluster describes it now."""

    topic_id: TopicId
    log_start: Offset
    end: Offset
    """Where reading ends: the last stable offset, or the high watermark."""
    end_epoch: LeaderEpoch
    """Leader epoch of the record before `end`."""
    high_watermark: Offset
    """The end of the committed records."""
    epoch_end: EpochEnd | None = None
    """The leader's answer for the epoch of the position; None: not asked."""


def absent_log(topic_id: TopicId) -> LogState:
    """The state of a topic that was created again, as far as its former incarnation is concerned: only the id
    counts."""
    return LogState(topic_id, Offset(0), Offset(0), NO_LEADER_EPOCH, Offset(0))


@dataclass(frozen=True, slots=True)
class Loss:
    """What is missing in a partition: the offsets `first` to `last` - 1, at most as many records."""

    kind: LossKind
    topic_partition: TopicPartition
    first: Offset
    last: Offset | None
    """None: up to an end that is unknown."""
    resume: Offset | None = None
    """Where reading continues with `failOnDataLoss=false`; None: the partition is left out."""
    detail: str = ""

    @property
    def skipped(self) -> int:
        """Offsets that are known to be skipped and not read."""
        if self.kind is LossKind.TRUNCATED or self.last is None:
            return 0  # truncated offsets were read
        return self.last - self.first

    def __str__(self) -> str:
        if self.last is None:
            missing = f"offsets from {self.first} on, an unknown number"
        else:
            missing = f"offsets {self.first} to {self.last - 1}, at most {self.last - self.first} records"
        return f"{self.topic_partition}: {self.kind.value}: {missing}{f' ({self.detail})' if self.detail else ''}"


def find_loss(
    key: TopicPartition, topic_id: TopicId | None, position: PartitionPosition | None, state: LogState | None
) -> Loss | None:
    """What is missing between the position and the log; None if nothing is.

    topic_id: of the position. position: None: a partition that is new to the query, which is read from offset 0.
    state: None: there is no such partition.
    """
    first = Offset(0) if position is None else position.next_offset
    if state is None:
        return Loss(LossKind.GONE, key, first, None)
    if topic_id is not None and topic_id != state.topic_id:
        detail = f"it was read as topic id {topic_id}, now it is {state.topic_id}"
        return Loss(LossKind.RECREATED, key, first, None, state.log_start, detail)
    cut = None if position is None else truncated_at(position, state)
    if cut is not None:
        detail = f"an unclean election; what is there from {cut} on now was written later"
        return Loss(LossKind.TRUNCATED, key, cut, first, cut, detail)
    if state.log_start > first:
        detail = "removed by retention; keep records longer with retention.ms, retention.bytes of the topic"
        return Loss(LossKind.AGED_OUT, key, first, state.log_start, state.log_start, detail)
    return None


def truncated_at(position: PartitionPosition, state: LogState) -> Offset | None:
    """From which offset on the log contains other records than those below the position; None if it does not.

    A position at or below the log's start shows nothing, and nothing is missing there.
    """
    if position.next_offset <= state.log_start:
        return None
    answer = state.epoch_end
    if answer is not None and position.epoch != NO_LEADER_EPOCH:
        end = answer.end_offset if answer.epoch != NO_LEADER_EPOCH else state.log_start
        if end < position.next_offset:
            return Offset(max(end, state.log_start))
    if state.high_watermark < position.next_offset:
        return Offset(max(state.high_watermark, state.log_start))
    return None


def loss_error(losses: Sequence[Loss]) -> TidelogError:
    """The error for a query that fails on data loss: its type is that of the first loss."""
    named = "; ".join(map(str, losses[:LISTED_MAX]))
    more = f"; and {len(losses) - LISTED_MAX} more" if len(losses) > LISTED_MAX else ""
    count = len({loss.topic_partition for loss in losses})
    return _ERRORS[losses[0].kind](
        f"data loss in {count} partitions of the query: {named}{more}. To continue without these records, set "
        '"failOnDataLoss" to "false"; to begin again, use a new checkpoint'
    )
