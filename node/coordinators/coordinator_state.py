"""The states of the coordinator of one partition, as a table.

A coordinator exists while its node leads the partition, in one leader epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class CoordinatorState(Enum):
    """States of a coordinator."""

    LOADING = "loading"
    """The coordinator's partition is being read, or waits until other partitions are read."""
    ACTIVE = "active"
    """The coordinator serves requests."""
    SUSPENDED = "suspended"
    """An append failed, or too few replicas are in sync. The state in memory may contain what is not in the log, so the
    partition is read again once appends are possible."""
    UNREADABLE = "unreadable"
    """A record of the partition cannot be read: the coordinator refuses all requests in this leader epoch. That lasts
    long enough, because a log is replaced or repaired only while its partition has no leader."""
    ENDED = "ended"
    """The node no longer leads the partition in this leader epoch."""


class CoordinatorCause(Enum):
    """Cause of a transition."""

    LOADED = "the partition was read up to its end"
    APPEND_FAILED = "an append failed, or could not be attempted"
    APPENDS_POSSIBLE = "enough replicas are in sync again"
    RECORD_UNREADABLE = "a record is malformed or unknown, or the log is damaged"
    LEADERSHIP_ENDED = "the leadership ended"


_S, _C = CoordinatorState, CoordinatorCause

TRANSITIONS: Final[Mapping[tuple[CoordinatorState, CoordinatorCause], CoordinatorState]] = {
    (_S.LOADING, _C.LOADED): _S.ACTIVE,
    (_S.LOADING, _C.APPEND_FAILED): _S.SUSPENDED,
    (_S.LOADING, _C.RECORD_UNREADABLE): _S.UNREADABLE,
    (_S.ACTIVE, _C.APPEND_FAILED): _S.SUSPENDED,
    (_S.SUSPENDED, _C.APPENDS_POSSIBLE): _S.LOADING,
    **{(state, _C.LEADERSHIP_ENDED): _S.ENDED for state in _S if state is not _S.ENDED},
}
"""Next state by state and cause. Any other transition is a defect and fails the lookup."""
