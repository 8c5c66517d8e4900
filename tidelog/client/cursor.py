"""The state of one assigned partition of a reader: position, open request, buffered records.

Not here: its changes (fetch_core.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

from tidelog.client.consumer_record import ConsumerRecord
from tidelog.errors import OffsetOutOfRange, TidelogError
from tidelog.records import RecordBatch
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    EpochEnd,
    EpochStart,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    TopicId,
    TopicPartition,
)

Where: TypeAlias = Literal["earliest", "latest"] | int
"""A place in a log: one of its ends, or the first record at or after a time (milliseconds since 1970)."""


class CursorState(Enum):
    """What a cursor is waiting for."""

    IDLE = "idle"
    SEEKING = "looking up the offset of a place"
    CHECKING = "asking the leader whether the log still contains the records read"
    FETCHING = "a fetch is open"
    CONFIRMING = "the leader answered out of range; another node is asked whether it still leads"
    FAILED = "waiting for the user to seek or assign; after corrupt bytes, also for a new leader epoch"


@dataclass(frozen=True, slots=True)
class FixedRange:
    """The offsets `start` to `end` - 1 of one topic id, as a query planned to read them."""

    topic_id: TopicId
    start: Offset
    end: Offset
    epoch: LeaderEpoch
    """Leader epoch of the last committed record when the range was planned, NO_LEADER_EPOCH if there was none. A log
    that does not have this epoch up to `end` was truncated since."""


@dataclass(slots=True, eq=False)
class Cursor:
    """State of one assigned partition."""

    topic_partition: TopicPartition
    start: Where
    planned: FixedRange | None = None
    """The range to read; None for a reader without an end."""
    topic_id: TopicId | None = None
    """Id of the topic being read, set by the first metadata after the assignment."""
    position: Offset | None = None
    read_to: Offset = Offset(0)
    """Lower bound while the start position is looked up: everything below was read or skipped before."""
    position_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Epoch of the record before `position`; unknown after a seek."""
    ahead: Offset = Offset(0)
    ahead_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """Epoch of the record before `ahead`; unknown after a seek."""
    epochs: list[EpochStart] = field(default_factory=list)
    """Start of each epoch among the records fetched since the last seek."""
    leader: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    checked_epoch: LeaderEpoch = NO_LEADER_EPOCH
    lookup_pending: bool = False
    preferred: NodeId = NO_NODE
    """Preferred read replica named by the leader (KIP-392), valid until `preferred_until`."""
    preferred_until: Millis = Millis(0)
    hints_from: Millis = Millis(0)
    """From this time on the leader may name a preferred read replica again."""
    state: CursorState = CursorState.IDLE
    number: int = 0
    """Number of the open request; an answer to another number is stale."""
    reserved: int = 0
    """Buffer bytes that are kept free for the answer to the open fetch."""
    silent_ms: Millis = Millis(0)
    """If the open request is not answered by then, the leader is looked up although nothing failed."""
    give_up_ms: Millis = Millis(0)
    """If the open request is not answered by then, it has failed."""
    retry_ms: Millis = Millis(0)
    """No request is sent before this time."""
    failures: int = 0
    """Failures since the last answer; they decide the backoff."""
    unknown_since: Millis | None = None
    """Since when nodes answer that there is no such topic or partition, or that the client has no permission."""
    outdated_since: Millis | None = None
    """Since when the nodes' metadata have been older than `known_epoch`."""
    error: TidelogError | None = None
    failure: TidelogError | None = None
    """Why the last request failed; None after an answer."""
    denial: OffsetOutOfRange | None = None
    """The "out of range" of the leader that another node is to confirm, in the state CONFIRMING."""
    report_ms: Millis | None = None
    """When to log that no other node confirms `denial`; None without a denial."""
    failing_since: Millis | None = None
    """Since when fetches have failed, without records or the end of the log between them."""
    batches: deque[RecordBatch] = field(default_factory=deque)
    buffered: int = 0
    refused_until: Millis | None = None
    """The bytes at `position` were corrupt; they are fetched again until this time."""
    records: list[ConsumerRecord] = field(default_factory=list)
    """The records of `loaded`, the batch being returned; `at` is the next one, `records_end` the end of the batch."""
    loaded: RecordBatch | None = None
    at: int = 0
    records_end: Offset = Offset(0)
    records_epoch: LeaderEpoch = NO_LEADER_EPOCH
    is_paused: bool = False
    """The user paused the partition: nothing is fetched, and nothing is returned."""
    is_held: bool = False
    """The group does not permit to read the partition yet, or any more."""
    is_certain: bool = False
    """The group assigned the partition: it exists, also if the metadata do not show it yet, or show another incarnation
    of the topic."""
    high_watermark: Offset = Offset(-1)
    readable_end: Offset = Offset(-1)
    """As in the last answer: the last stable offset under read_committed, or else the high watermark."""
    log_start: Offset = Offset(-1)

    def place(self, offset: Offset, epoch: LeaderEpoch) -> None:
        """Continue at this offset and drop the buffered bytes."""
        self.position, self.position_epoch, self.read_to = offset, epoch, Offset(0)
        self.ahead, self.ahead_epoch = offset, epoch
        self.epochs = [begun for begun in self.epochs if begun.start_offset < offset and begun.epoch <= epoch]
        self.drop()

    def agreed(self, end: EpochEnd) -> Offset:
        """Return the highest offset up to which the fetched records may agree with a log in which `end` is the largest
        epoch not above that of the record before `ahead`."""
        own = next((begun.start_offset for begun in self.epochs if begun.epoch > end.epoch), self.ahead)
        return min(own, end.end_offset)

    def drop(self) -> None:
        """Drop the buffered bytes."""
        self.batches.clear()
        self.buffered = 0
        self.records, self.loaded, self.at = [], None, 0

    def unload(self) -> None:
        """Put the batch being returned back: its records from `position` on are read again."""
        if self.at < len(self.records) and self.loaded is not None:
            self.batches.appendleft(self.loaded)
            self.buffered += self.loaded.size
        self.records, self.loaded, self.at = [], None, 0

    @property
    def known_epoch(self) -> LeaderEpoch:
        """The newest leader epoch of records that were read or planned on: the partition is in this epoch or later."""
        planned = NO_LEADER_EPOCH if self.planned is None else self.planned.epoch
        return max(self.position_epoch, self.ahead_epoch, planned)

    @property
    def is_stopped(self) -> bool:
        """Whether nothing may be fetched and returned now."""
        return self.is_paused or self.is_held

    @property
    def has_data(self) -> bool:
        """Whether records are available for the user."""
        return self.at < len(self.records) or bool(self.batches)

    @property
    def reached_end(self) -> bool:
        """Whether everything below the end of the range was fetched. False for a reader without an end."""
        return self.planned is not None and self.ahead >= self.planned.end
