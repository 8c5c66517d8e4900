"""Events and effects of a partition's follower (follower.py).

The driver executes effects in order and reports the outcome of each log change (`LogChanged`, `LogFailed`) before any
other event. Times are monotonic milliseconds, stamped by node/.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from tidelog.errors import TidelogError
from tidelog.types import INT64_MAX, EpochEnd, EpochStart, LeaderEpoch, Millis, Offset
from tidelog.values import dataclass

NOTHING_HELD: Final = Offset(INT64_MAX)
"""Stands for "no offset" where an offset is expected from which on the leader keeps the markers of transactions for a
follower: compaction on the leader may remove them all (docs/replication.md)."""

# --- events -----------------------------------------------------------------------------------------------------


class LogView(NamedTuple):
    """The present state of the follower's log."""

    log_start: Offset
    log_end: Offset
    durable_offset: Offset
    last_epoch: LeaderEpoch
    """Epoch of the last record, -1 for an empty log."""


class StreamReady(NamedTuple):
    """The stream to the leader accepts a fetch."""

    fetch_id: int
    """The number of that fetch, new on the stream."""


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """The stream to the leader broke; its open fetch is lost."""


class Answered(NamedTuple):
    """The leader's answer to a fetch: an error, the place from which on the logs diverge, or records (possibly
    none)."""

    fetch_id: int
    leader_epoch: LeaderEpoch
    error: TidelogError | None
    """Why the leader rejected the fetch."""
    diverging: EpochEnd | None
    has_records: bool
    high_watermark: Offset
    log_start: Offset
    at: Millis
    history: tuple[EpochStart, ...] = ()
    """The epoch entries of the follower's own log, set together with `diverging`."""
    waits: bool = False
    """The answer reports only the high watermark and log start; the fetch stays open."""
    many: bool = False
    """The answer is so large that the leader may already have more records."""
    unended: Offset | None = None
    """First offset of a transaction in the follower's log whose marker compaction may have removed from the range of
    the answer before the leader began to keep markers for this follower; None if there is none."""
    is_held: bool = True
    """The leader keeps markers for this follower, as for every follower whose node is in service."""
    is_counted: bool = True
    """The follower's node has an in-sync or eligible replica, according to its own metadata."""
    local_start: Offset = Offset(0)
    """With OffsetMovedToTieredStorage: the leader's local log start."""
    leader_history: tuple[EpochStart, ...] = ()
    """With it: the epoch entries of the leader's log, from its log start on."""


class LogChanged(NamedTuple):
    """An append, a truncation or a restart of the log is complete."""

    log: LogView


@dataclass(frozen=True, slots=True)
class LogFailed:
    """A log change failed. The log is unchanged, unless the log directory went offline."""

    log: LogView
    error: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class RemoteStartFailed:
    """`RestartBehindRemote` failed before the log was changed."""

    error: TidelogError
    at: Millis


class DurableOffsetMoved(NamedTuple):
    """The durable offset advanced: all below is as durable as the topic requires."""

    durable_offset: Offset


class StartMoved(NamedTuple):
    """The log start advanced, durably."""

    log_start: Offset


@dataclass(frozen=True, slots=True)
class Waited:
    """The time is now `at`."""

    at: Millis


FollowerEvent: TypeAlias = (
    StreamReady
    | Answered
    | LogChanged
    | DurableOffsetMoved
    | StartMoved
    | Waited
    | StreamBroken
    | LogFailed
    | RemoteStartFailed
)

# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WantFetch:
    """A fetch is ready. The driver sends `StreamReady` as soon as the stream can take it."""


class SendFetch(NamedTuple):
    """Send this fetch."""

    fetch_id: int
    next_offset: Offset
    last_epoch: LeaderEpoch
    durable_offset: Offset
    log_start: Offset
    refused: bool = False
    """The records of the last answer failed their checksum: the leader should check its log."""


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append the records of the current answer with their offsets and epochs unchanged."""


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the log: remove every record at or above `offset`."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class FetchAgainFrom:
    """Truncate the log to `offset` and fetch the rest again: the leader has all records that are needed from there
    on."""

    offset: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class RestartAt:
    """Empty the log and restart it at `offset`."""

    offset: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class RestartBehindRemote:
    """Empty the log and restart it at the end of a remote segment that contains `local_start`, or ends there, with
    the epochs and producers as of that end and this log start. Only a segment that agrees with the leader's epochs
    counts. The driver sends `RemoteStartFailed` if the coordinator or the store does not answer, or there is none."""

    local_start: Offset
    log_start: Offset
    history: tuple[EpochStart, ...]


class AdvanceWatermark(NamedTuple):
    """Every record below `offset` is committed and in this log."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Advance the log start to `offset`, the leader's log start, and report `StartMoved` once that is durable.
    Everything below it is committed."""

    offset: Offset


class ReportDurable(NamedTuple):
    """Report the durable offset and the log start to the leader at once; the fetch stays open."""

    durable_offset: Offset
    log_start: Offset


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Send nothing before `until`. The driver sends `Waited` then."""

    until: Millis
    error: TidelogError
    in_remote_tier: bool = False
    """The error is not the leader's: the remote tier or its coordinator caused it."""


FollowerEffect: TypeAlias = (
    WantFetch
    | SendFetch
    | AppendRecords
    | TruncateTo
    | FetchAgainFrom
    | RestartAt
    | RestartBehindRemote
    | AdvanceWatermark
    | AdvanceLogStart
    | ReportDurable
    | RetryLater
)
