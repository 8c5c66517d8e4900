"""Events and effects of the fetch core. Times are monotonic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidelog.client.core_events import FindLeader, LeaderKnown, TimePassed
from tidelog.client.cursor import Where
from tidelog.errors import TidelogError
from tidelog.records import RecordBatch
from tidelog.types import NO_NODE, EpochEnd, LeaderEpoch, Millis, NodeId, Offset, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Limits, in bytes and milliseconds."""

    buffer_bytes: int
    fetch_bytes: int
    max_wait_ms: int
    request_timeout_ms: int
    on_out_of_range: Literal["raise", "earliest", "latest"] = "raise"


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sought:
    """The user seeks to an offset; `leader_epoch` is the epoch of the record before it, if known."""

    topic_partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch
    at: Millis


@dataclass(frozen=True, slots=True)
class PlaceFound:
    """Answer to FindPlace."""

    topic_partition: TopicPartition
    number: int
    offset: Offset
    at: Millis


@dataclass(frozen=True, slots=True)
class EpochChecked:
    """Answer to CheckEpoch: the largest epoch not above the requested one, and its end offset."""

    topic_partition: TopicPartition
    number: int
    end: EpochEnd
    at: Millis


@dataclass(frozen=True, slots=True)
class LeaderVerified:
    """Answer to VerifyLeader: another node names the same leader and epoch."""

    topic_partition: TopicPartition
    number: int
    at: Millis


@dataclass(frozen=True, slots=True)
class BatchesFetched:
    """Answer to FetchBatches."""

    topic_partition: TopicPartition
    number: int
    batches: tuple[RecordBatch, ...]
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    readable_end: Offset
    """The end of what this reader may see: the node's last stable offset under read_committed, or else its high
    watermark. An answer without batches means that there are none below this offset."""
    log_start: Offset
    at: Millis
    preferred: NodeId = NO_NODE
    """Preferred read replica: nothing was read, fetch from this node."""
    diverging: EpochEnd | None = None
    """Set if the log does not contain `FetchBatches.last_epoch` up to the offset: the largest epoch not above it, and
    its end offset. Nothing was read."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The request with this number was rejected, or no answer will arrive."""

    topic_partition: TopicPartition
    number: int
    error: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class Taken:
    """The program took records of a partition out of the buffer."""

    topic_partition: TopicPartition
    at: Millis


Answer: TypeAlias = PlaceFound | EpochChecked | LeaderVerified | BatchesFetched | Failed
"""Answers to effects, with the number of the effect."""
Event: TypeAlias = LeaderKnown | Sought | Answer | Taken | TimePassed


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindPlace:
    """Look up the offset of a place; answer with PlaceFound or Failed."""

    topic_partition: TopicPartition
    number: int
    where: Where


@dataclass(frozen=True, slots=True)
class CheckEpoch:
    """Ask the leader for the end offset of `epoch`; answer with EpochChecked or Failed."""

    topic_partition: TopicPartition
    number: int
    topic_id: TopicId
    node: NodeId
    leader_epoch: LeaderEpoch
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class VerifyLeader:
    """Ask a node other than `node` whether `node` leads in `leader_epoch`; answer with LeaderVerified, or with Failed
    if it does not, or no other node answers."""

    topic_partition: TopicPartition
    number: int
    topic_id: TopicId
    node: NodeId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class FetchBatches:
    """Fetch from this node; answer with BatchesFetched or Failed."""

    topic_partition: TopicPartition
    number: int
    topic_id: TopicId
    node: NodeId
    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: LeaderEpoch
    """Epoch of the record before `offset`; NO_LEADER_EPOCH if unknown."""
    max_bytes: int
    hint: bool = True
    """Whether the node may name a preferred read replica instead of answering."""
    refused: bool = False
    """Bytes from this node at this offset were corrupt: the node must verify its log."""


@dataclass(frozen=True, slots=True)
class ReportDoubt:
    """Log that the leader has answered "out of range" for a while and no other node confirms that it leads."""

    topic_partition: TopicPartition
    offset: Offset
    node: NodeId
    leader_epoch: LeaderEpoch
    denial: TidelogError
    """The answer of the leader."""
    cause: TidelogError
    """Why no node confirms it."""


@dataclass(frozen=True, slots=True)
class ReportStall:
    """Log that the fetches of a partition have failed for a while, and are repeated."""

    topic_partition: TopicPartition
    offset: Offset
    stalled_ms: int
    others: int
    """How many other partitions stall too, each perhaps with another error."""
    cause: TidelogError
    """Of the last fetch."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Records or an error are available for the user."""


Effect: TypeAlias = (
    FindLeader | FindPlace | CheckEpoch | VerifyLeader | FetchBatches | ReportDoubt | ReportStall | Ready
)
