"""Where a partition's follower stands, and every way from one state to another: the table that follower.py obeys.

`TRANSITIONS` is the whole truth: a move that is not in it is a broken belief, and docs/replication.md is drawn from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class FollowerState(Enum):
    """Where the follower stands."""

    READY = "a fetch is wanted, the stream has not taken it yet"
    OPEN = "a fetch waits at the leader"
    WRITING = "the log is being changed as an answer said"
    SYNCING = "a little was appended, and the next fetch waits until it is held"
    PAUSED = "a refusal is being waited out"


class FollowerCause(Enum):
    """Why it moves."""

    SENT = "the stream took the fetch"
    BROKEN = "the stream is gone"
    NEWS = "the leader told of a watermark or log start, and the fetch goes on waiting"
    NOTHING_NEW = "the fetch was answered, without records"
    OUTDATED = "the answer is of another epoch, or for another log end: dropped whole"
    RECORDS = "records came"
    DIVERGED = "the logs disagree: this one is cut, or emptied"
    BELOW_START = "the log ends below the leader's start: it begins anew there"
    REFUSED = "the leader refused the fetch"
    LOG_CHANGED = "the log is as the answer wanted it"
    NOT_HELD_YET = "so it is, by a few records that the disk does not have yet"
    HELD = "more of the log is held"
    LOG_FAILED = "the log could not be changed"
    PAUSE_OVER = "time went by"


TRANSITIONS: Final[Mapping[tuple[FollowerState, FollowerCause], FollowerState]] = {
    (FollowerState.READY, FollowerCause.SENT): FollowerState.OPEN,
    (FollowerState.READY, FollowerCause.BROKEN): FollowerState.READY,
    (FollowerState.OPEN, FollowerCause.BROKEN): FollowerState.READY,
    (FollowerState.OPEN, FollowerCause.NEWS): FollowerState.OPEN,
    (FollowerState.OPEN, FollowerCause.NOTHING_NEW): FollowerState.READY,
    (FollowerState.OPEN, FollowerCause.OUTDATED): FollowerState.READY,
    (FollowerState.OPEN, FollowerCause.RECORDS): FollowerState.WRITING,
    (FollowerState.OPEN, FollowerCause.DIVERGED): FollowerState.WRITING,
    (FollowerState.OPEN, FollowerCause.BELOW_START): FollowerState.WRITING,
    (FollowerState.OPEN, FollowerCause.REFUSED): FollowerState.PAUSED,
    (FollowerState.WRITING, FollowerCause.LOG_CHANGED): FollowerState.READY,
    (FollowerState.WRITING, FollowerCause.NOT_HELD_YET): FollowerState.SYNCING,
    (FollowerState.WRITING, FollowerCause.LOG_FAILED): FollowerState.PAUSED,
    (FollowerState.SYNCING, FollowerCause.HELD): FollowerState.READY,
    (FollowerState.SYNCING, FollowerCause.PAUSE_OVER): FollowerState.READY,
    (FollowerState.SYNCING, FollowerCause.BROKEN): FollowerState.READY,
    (FollowerState.PAUSED, FollowerCause.PAUSE_OVER): FollowerState.READY,
}
"""Every way that there is."""
