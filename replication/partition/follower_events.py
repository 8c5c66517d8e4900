"""What happens to a partition's follower, and what it wants done: the events and effects of `follower.py`.

Effects are carried out in order, and node/ reports the outcome of each that touches the log (`LogChanged`, `LogFailed`)
before it hands over anything else. Times are monotonic milliseconds, stamped by node/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tidelog.errors import TidelogError
from tidelog.types import EpochEnd, EpochStart, LeaderEpoch, Millis, Offset

# --- events -----------------------------------------------------------------------------------------------------


class LogView(NamedTuple):
    """The follower's log as it is now; `last_epoch` is that of its last record, -1 where it is empty."""

    log_start: Offset
    log_end: Offset
    durable_offset: Offset
    last_epoch: LeaderEpoch


class StreamReady(NamedTuple):
    """The stream to the leader can take a fetch now; it is to bear this number, never used before on the stream."""

    fetch_id: int


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """The stream to the leader is gone, and with it whatever was open on it."""


class Answered(NamedTuple):
    """The leader answered a fetch.

    error: why not; else `diverging`, or records (maybe none) together with the leader's watermark.
    history: the epoch entries of the follower's own log, given where `diverging` is.
    waits: it is news of the watermark and the log start alone, and the fetch goes on waiting.
    many: there are so many records that the leader may have more of them already.
    """

    fetch_id: int
    leader_epoch: LeaderEpoch
    error: TidelogError | None
    diverging: EpochEnd | None
    has_records: bool
    high_watermark: Offset
    log_start: Offset
    at: Millis
    history: tuple[EpochStart, ...] = ()
    waits: bool = False
    many: bool = False


class LogChanged(NamedTuple):
    """An append, a truncation or a restart was carried out."""

    log: LogView


@dataclass(frozen=True, slots=True)
class LogFailed:
    """What was asked of the log was refused: nothing of it was done, except where the log directory is offline."""

    log: LogView
    error: TidelogError
    at: Millis


class DurableOffsetMoved(NamedTuple):
    """More of the log is as durable as the topic asks."""

    durable_offset: Offset


@dataclass(frozen=True, slots=True)
class Waited:
    """Time goes by."""

    at: Millis


FollowerEvent: TypeAlias = StreamReady | Answered | LogChanged | DurableOffsetMoved | Waited | StreamBroken | LogFailed

# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantFetch:
    """There is a fetch to send: say `StreamReady` as soon as the stream can take it."""


class SendFetch(NamedTuple):
    """Send this fetch. refused: what came for the last one was damaged."""

    fetch_id: int
    next_offset: Offset
    last_epoch: LeaderEpoch
    durable_offset: Offset
    log_start: Offset
    refused: bool = False


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append the records of the answer just handed over, offsets as they are, and its epoch entries."""


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log: nothing at or above `offset` stays."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class RestartAt:
    """Empty the log; it begins anew at `offset`."""

    offset: Offset
    reason: str


class AdvanceWatermark(NamedTuple):
    """Everything below `offset` is committed, and in this log."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """The leader's log starts at `offset`, which is committed: so does this one."""

    offset: Offset


class ReportDurable(NamedTuple):
    """Tell the leader at once what is held; the fetch goes on waiting."""

    durable_offset: Offset


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Nothing is sent before `until`: say `Waited` then."""

    until: Millis
    error: TidelogError


FollowerEffect: TypeAlias = (
    WantFetch
    | SendFetch
    | AppendRecords
    | TruncateTo
    | RestartAt
    | AdvanceWatermark
    | AdvanceLogStart
    | ReportDurable
    | RetryLater
)
