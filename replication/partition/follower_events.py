"""Events and effects of a partition's follower (follower.py).

The driver executes effects in order and reports the outcome of each log change (`LogChanged`, `LogFailed`) before any
other event. Times are monotonic milliseconds, stamped by node/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tidelog.errors import TidelogError
from tidelog.types import INT64_MAX, EpochEnd, EpochStart, LeaderEpoch, Millis, Offset

NOTHING_HELD: Final = Offset(INT64_MAX)
"""In place of an offset from which on the leader has held markers: it holds none for this follower now."""

# --- events -----------------------------------------------------------------------------------------------------


class LogView(NamedTuple):
    """The follower's log as it is now. `last_epoch`: epoch of its last record, -1 for an empty log."""

    log_start: Offset
    log_end: Offset
    durable_offset: Offset
    last_epoch: LeaderEpoch


class StreamReady(NamedTuple):
    """The stream to the leader accepts a fetch, to be sent with this number, which is new on the stream."""

    fetch_id: int


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """The stream to the leader broke; its open fetch is lost."""


class Answered(NamedTuple):
    """The leader's answer to a fetch.

    error: why the leader rejected the fetch, else None. Without an error: `diverging`, or records (possibly none) with
    the leader's high watermark.
    history: the epoch entries of the follower's own log, set together with `diverging`.
    waits: the answer reports only the high watermark and log start; the fetch stays open.
    many: the answer is so large that the leader may already have more records.
    unended: first offset of a transaction of the follower's log, below what the leader has held, whose marker may be
    among the batches that compaction has removed from the range of the records; None if there is none.
    is_held: the leader keeps markers for this follower, as it does for every one whose node is in service.
    is_counted: the follower's node has an in-sync or eligible replica, as far as it knows.
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
    unended: Offset | None = None
    is_held: bool = True
    is_counted: bool = True


class LogChanged(NamedTuple):
    """An append, a truncation or a restart of the log is complete."""

    log: LogView


@dataclass(frozen=True, slots=True)
class LogFailed:
    """A log change failed. The log is unchanged, unless the log directory went offline."""

    log: LogView
    error: TidelogError
    at: Millis


class DurableOffsetMoved(NamedTuple):
    """The durable offset advanced: all below is as durable as the topic requires."""

    durable_offset: Offset


@dataclass(frozen=True, slots=True)
class Waited:
    """The time is now `at`."""

    at: Millis


FollowerEvent: TypeAlias = StreamReady | Answered | LogChanged | DurableOffsetMoved | Waited | StreamBroken | LogFailed

# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantFetch:
    """A fetch is ready. The driver sends `StreamReady` as soon as the stream can take it."""


class SendFetch(NamedTuple):
    """Send this fetch. refused: the records of the last answer failed their checksum."""

    fetch_id: int
    next_offset: Offset
    last_epoch: LeaderEpoch
    durable_offset: Offset
    log_start: Offset
    refused: bool = False


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append the records of the current answer with their offsets and epochs unchanged."""


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the log: remove every record at or above `offset`."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class FetchAgainFrom:
    """Truncate the log at `offset` to fetch what follows again: the leader has everything that it still needs."""

    offset: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class RestartAt:
    """Empty the log and restart it at `offset`."""

    offset: Offset
    reason: str


class AdvanceWatermark(NamedTuple):
    """Every record below `offset` is committed and in this log."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Advance the log start to `offset`, the leader's log start. Everything below it is committed."""

    offset: Offset


class ReportDurable(NamedTuple):
    """Report the durable offset to the leader at once; the fetch stays open."""

    durable_offset: Offset


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Send nothing before `until`. The driver sends `Waited` then."""

    until: Millis
    error: TidelogError


FollowerEffect: TypeAlias = (
    WantFetch
    | SendFetch
    | AppendRecords
    | TruncateTo
    | FetchAgainFrom
    | RestartAt
    | AdvanceWatermark
    | AdvanceLogStart
    | ReportDurable
    | RetryLater
)
