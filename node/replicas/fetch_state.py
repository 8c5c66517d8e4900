"""The states of a fetch that is not answered yet, and what moves it from one to another.

Invariant: a fetch moves only as `MOVES` says. A legal cause without effect maps a state to itself.
Not here: the queue of each state (waiting_fetch.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class FetchState(IntEnum):
    """Where a fetch is. States from QUEUED on belong to reads from disk."""

    WAITING = 0  # at the replica, until there is more to read
    READY = 1  # tried in the next message
    SHORT = 2  # fewer than `min_bytes` could be read: tried again after the next tick, not after each append
    ENDED = 3  # answered, replaced, or its session is closed
    QUEUED = 4  # for one of the disk places of its stream
    CALLED = 5  # as READY, with a disk place
    READING = 6  # from disk, in a disk place
    READ = 7  # into memory that is charged; keeps the disk place until the next message


class FetchCause(IntEnum):
    """What happens to a fetch."""

    RECORDS = 0  # there may be more to read
    DUE = 1  # it must be answered, with or without records
    TICK = 2
    NOTHING = 3  # tried: nothing can be read yet
    FEW = 4  # tried: fewer than `min_bytes` can be read
    NO_PLACE = 5  # tried: it must be read from disk, and no disk place is free
    READ_BEGUN = 6  # tried: the disk reads it
    PLACE_FREE = 7
    READ_ENDED = 8
    READ_FAILED = 9  # it is tried again, without the executor of the disk
    END = 10


WAITING, READY, SHORT, ENDED, QUEUED, CALLED, READING, READ = FetchState
_OPEN: Final = {state: state for state in FetchState if state is not ENDED}

TRIED_NEXT: Final = frozenset((READY, CALLED, READ))

MOVES: Final[Mapping[FetchCause, Mapping[FetchState, FetchState]]] = {
    FetchCause.RECORDS: {**_OPEN, WAITING: READY},
    FetchCause.DUE: {**_OPEN, WAITING: READY, SHORT: READY},
    FetchCause.TICK: {SHORT: READY},
    FetchCause.NOTHING: dict.fromkeys(TRIED_NEXT, WAITING),
    FetchCause.FEW: dict.fromkeys(TRIED_NEXT, SHORT),
    FetchCause.NO_PLACE: {READY: QUEUED},
    FetchCause.READ_BEGUN: dict.fromkeys(TRIED_NEXT, READING),
    FetchCause.PLACE_FREE: {QUEUED: CALLED},
    FetchCause.READ_ENDED: {READING: READ},
    FetchCause.READ_FAILED: {READING: READY},
    FetchCause.END: dict.fromkeys(_OPEN, ENDED),
}
