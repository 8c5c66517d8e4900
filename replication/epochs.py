"""Where leader epochs begin and end, and which of two histories is right: arithmetic over epoch entries.

A history is the sequence of `EpochStart` of one log, epochs and start offsets growing; with the log's end it says for
each offset in which epoch it was written. Two logs of one partition agree up to an offset where the epoch of the
record before it is the same in both and begins at or before it (Raft's log matching property; KIP-101, KIP-279).

Left to others: keeping the entries (storage/), who asks whom (leader.py, follower.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from tidelog.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from tidelog.types import NO_LEADER_EPOCH, EpochEnd, EpochStart, LeaderEpoch, Offset, TopicPartition


def end_of_epoch(history: Sequence[EpochStart], epoch: LeaderEpoch, log_end: Offset) -> EpochEnd | None:
    """The largest epoch of the history not above `epoch`, and one past its last record; None where there is none."""
    above = bisect_right(history, epoch, key=lambda entry: entry.epoch)
    if above == 0:
        return None
    end = history[above].start_offset if above < len(history) else log_end
    return EpochEnd(history[above - 1].epoch, end)


def epoch_before(history: Sequence[EpochStart], offset: Offset) -> LeaderEpoch:
    """The epoch of the record before `offset`; NO_LEADER_EPOCH where the history does not reach as far back."""
    later = bisect_left(history, offset, key=lambda entry: entry.start_offset)
    return history[later - 1].epoch if later > 0 else NO_LEADER_EPOCH


def divergence(
    history: Sequence[EpochStart], log_start: Offset, log_end: Offset, next_offset: Offset, last_epoch: LeaderEpoch
) -> EpochEnd | None:
    """Does another log that ends at `next_offset`, its last record of `last_epoch`, disagree with this one?

    last_epoch: -1 where the other log is empty, or where its reader does not check.
    Returns None where it agrees; else this log's largest epoch not above `last_epoch` and its end; epoch -1, with the
    log start for an end, where the two have none in common.
    """
    if history and history[-1].epoch == last_epoch and history[-1].start_offset <= next_offset <= log_end:
        return None  # as nearly always
    if last_epoch == NO_LEADER_EPOCH:
        return None if next_offset <= log_end else EpochEnd(NO_LEADER_EPOCH, log_start)
    end = end_of_epoch(history, last_epoch, log_end)
    if end is None:
        return EpochEnd(NO_LEADER_EPOCH, log_start)
    return end if end.epoch < last_epoch or end.end_offset < next_offset else None


def common_end(history: Sequence[EpochStart], log_end: Offset, answer: EpochEnd) -> Offset | None:
    """Where a log must be cut that was told of a divergence: the smaller of the answer's end and this log's own end of
    the largest epoch it has not above the answer's. None where the two logs have no epoch in common.

    The answer's end alone would not do: epochs that only this log has may lie below it, and the same question would be
    asked for ever (KIP-279).
    """
    if answer.epoch == NO_LEADER_EPOCH:
        return None
    own = end_of_epoch(history, answer.epoch, log_end)
    return None if own is None else min(own.end_offset, answer.end_offset)


def ensure_epoch(name: TopicPartition, known: LeaderEpoch, asked: LeaderEpoch) -> None:
    """Refuse what was sent in another leadership than the present one.

    Raises FencedLeaderEpoch where `asked` is over, UnknownLeaderEpoch where this node has not heard of it yet
    (KIP-320).
    """
    if asked < known:
        raise FencedLeaderEpoch(
            f"partition {name} is in leader epoch {known}, the request speaks of epoch {asked}, which is over; "
            "look the leader up again"
        )
    if asked > known:
        raise UnknownLeaderEpoch(
            f"partition {name} is in leader epoch {known} as far as this node has heard, the request speaks of epoch "
            f"{asked}; ask again after a pause"
        )
