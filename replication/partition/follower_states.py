"""States of a partition's follower and the transitions between them: the table that follower.py obeys.

`TRANSITIONS` is complete: any other move is a defect and fails an assertion. The diagram in docs/replication.md is
drawn from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class FollowerState(Enum):
    """State of the follower."""

    READY = "the next fetch is ready, the stream has not taken it yet"
    OPEN = "a fetch is open at the leader"
    WRITING = "the log is being changed according to an answer"
    SYNCING = "a small append is done, and the next fetch waits until it is durable"
    PAUSED = "waiting after an error"


class FollowerCause(Enum):
    """Cause of a transition."""

    SENT = "the stream accepted the fetch"
    BROKEN = "the stream to the leader broke"
    OFFSETS_MOVED = "the leader reported a high watermark or log start, and the fetch stays open"
    NOTHING_NEW = "the fetch was answered without records"
    OUTDATED = "the answer is for another epoch or another log end: it is discarded"
    RECORDS = "the answer contains records"
    DIVERGED = "the logs diverge: this one is truncated or emptied"
    MARKER_GONE = "compaction may have removed a transaction's marker: its records, or the whole log, are fetched again"
    BELOW_START = "the log ends below the leader's log start: it restarts there"
    IN_REMOTE_TIER = "the next records are in the remote tier only: the log restarts behind them"
    REFUSED = "the leader rejected the fetch, or keeps no markers for this follower yet"
    LOG_CHANGED = "the log change is complete"
    NOT_DURABLE_YET = "a small append is complete but not durable yet"
    DURABLE = "the durable offset advanced"
    LOG_FAILED = "the log change failed"
    REMOTE_TIER_FAILED = "the end of the remote part could not be read: the leader is asked again where that is"
    PAUSE_OVER = "the pause ended"


TRANSITIONS: Final[Mapping[tuple[FollowerState, FollowerCause], FollowerState]] = {
    (FollowerState.READY, FollowerCause.SENT): FollowerState.OPEN,
    (FollowerState.READY, FollowerCause.BROKEN): FollowerState.READY,
    (FollowerState.OPEN, FollowerCause.BROKEN): FollowerState.READY,
    (FollowerState.OPEN, FollowerCause.OFFSETS_MOVED): FollowerState.OPEN,
    (FollowerState.OPEN, FollowerCause.NOTHING_NEW): FollowerState.READY,
    (FollowerState.OPEN, FollowerCause.OUTDATED): FollowerState.READY,
    (FollowerState.OPEN, FollowerCause.RECORDS): FollowerState.WRITING,
    (FollowerState.OPEN, FollowerCause.DIVERGED): FollowerState.WRITING,
    (FollowerState.OPEN, FollowerCause.MARKER_GONE): FollowerState.WRITING,
    (FollowerState.OPEN, FollowerCause.BELOW_START): FollowerState.WRITING,
    (FollowerState.OPEN, FollowerCause.IN_REMOTE_TIER): FollowerState.WRITING,
    (FollowerState.OPEN, FollowerCause.REFUSED): FollowerState.PAUSED,
    (FollowerState.WRITING, FollowerCause.LOG_CHANGED): FollowerState.READY,
    (FollowerState.WRITING, FollowerCause.NOT_DURABLE_YET): FollowerState.SYNCING,
    (FollowerState.WRITING, FollowerCause.LOG_FAILED): FollowerState.PAUSED,
    (FollowerState.WRITING, FollowerCause.REMOTE_TIER_FAILED): FollowerState.PAUSED,
    (FollowerState.SYNCING, FollowerCause.DURABLE): FollowerState.READY,
    (FollowerState.SYNCING, FollowerCause.PAUSE_OVER): FollowerState.READY,
    (FollowerState.SYNCING, FollowerCause.BROKEN): FollowerState.READY,
    (FollowerState.PAUSED, FollowerCause.PAUSE_OVER): FollowerState.READY,
}
"""Next state by state and cause."""
