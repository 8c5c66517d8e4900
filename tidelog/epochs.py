"""Leader epochs of a log: where each begins and ends, and where two logs diverge.

A history is the sequence of `EpochStart` entries of one log, with increasing epochs and start offsets. Together with
the log end it gives the epoch of every offset. Two logs of one partition agree below an offset if the record before it
has the same epoch in both logs and that epoch starts at or before it in both (Raft's log matching property; KIP-101,
KIP-279).

Not here: storing the entries (storage/segment/epoch_cache.py), sending the requests (leader.py, follower.py of
replication/partition/).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tidelog.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from tidelog.types import NO_LEADER_EPOCH, EpochEnd, EpochStart, LeaderEpoch, Offset, TopicPartition


def end_of_epoch(history: Sequence[EpochStart], epoch: LeaderEpoch, log_start: Offset, log_end: Offset) -> EpochEnd:
    """The largest epoch of the history that is at most `epoch`, and one past its last record; epoch -1 and the log
    start if there is none."""
    above = bisect_right(history, epoch, key=lambda entry: entry.epoch)
    if above == 0:
        return EpochEnd(NO_LEADER_EPOCH, log_start)
    end = history[above].start_offset if above < len(history) else log_end
    return EpochEnd(history[above - 1].epoch, end)


def end_for_reader(history: Sequence[EpochStart], epoch: LeaderEpoch, log_start: Offset, log_end: Offset) -> EpochEnd:
    """As `end_of_epoch`, as a reader is told it: an epoch below all of the history ended where the first of these
    begins. Its records were deleted, and not truncated: clients of Kafka's protocol take epoch -1 for a truncation
    (LeaderEpochFileCache.endOffsetFor)."""
    end = end_of_epoch(history, epoch, log_start, log_end)
    if end.epoch != NO_LEADER_EPOCH or epoch == NO_LEADER_EPOCH or not history:
        return end
    return EpochEnd(epoch, history[0].start_offset)


def epoch_before(history: Sequence[EpochStart], offset: int) -> LeaderEpoch:
    """The epoch of the record before `offset`; NO_LEADER_EPOCH if the history does not reach back that far."""
    if history and history[-1].start_offset < offset:
        return history[-1].epoch  # the common case, without a search
    later = bisect_right(history, offset - 1, key=start_of)
    return history[later - 1].epoch if later > 0 else NO_LEADER_EPOCH


def start_of(entry: EpochStart) -> Offset:
    """For a search by offset."""
    return entry.start_offset


def divergence(
    history: Sequence[EpochStart], log_start: Offset, log_end: Offset, next_offset: Offset, last_epoch: LeaderEpoch
) -> EpochEnd | None:
    """Compare this log with another log that ends at `next_offset` and whose last record has `last_epoch`.

    last_epoch: -1 if the other log is empty, or if its reader does not check epochs.
    Returns None if the logs agree; else this log's largest epoch that is at most `last_epoch`, and its end. If the logs
    have no epoch in common: epoch -1, with the log start as the end.
    """
    if history and history[-1].epoch == last_epoch and history[-1].start_offset <= next_offset <= log_end:
        return None  # the common case
    if last_epoch == NO_LEADER_EPOCH:
        return None if next_offset <= log_end else EpochEnd(NO_LEADER_EPOCH, log_start)
    end = end_of_epoch(history, last_epoch, log_start, log_end)
    return end if end.epoch < last_epoch or end.end_offset < next_offset else None


def divergence_for_reader(
    history: Sequence[EpochStart], log_start: Offset, log_end: Offset, next_offset: Offset, last_epoch: LeaderEpoch
) -> EpochEnd | None:
    """As `divergence`, for a reader at `next_offset`. The history may know no record before that, because all are
    deleted: then there is nothing to compare."""
    end = divergence(history, log_start, log_end, next_offset, last_epoch)
    if end is None or end.epoch != NO_LEADER_EPOCH or last_epoch == NO_LEADER_EPOCH:
        return end
    if not history or next_offset <= history[0].start_offset:
        return None
    return end_for_reader(history, last_epoch, log_start, log_end)


def common_end(history: Sequence[EpochStart], log_end: Offset, answer: EpochEnd) -> Offset | None:
    """The offset at which a diverging log is truncated: the smaller of the answer's end and this log's own end of its
    largest epoch that is at most the answer's epoch. None if the logs have no epoch in common.

    The answer's end alone is not enough: epochs that only this log has may lie below it, and the follower would repeat
    the same fetch forever (KIP-279).
    """
    if answer.epoch == NO_LEADER_EPOCH:
        return None
    own = end_of_epoch(history, answer.epoch, Offset(0), log_end)
    return None if own.epoch == NO_LEADER_EPOCH else min(own.end_offset, answer.end_offset)


def ensure_epoch(name: TopicPartition, known: LeaderEpoch, asked: LeaderEpoch) -> None:
    """Reject a request that names a leader epoch other than the current one.

    Raises FencedLeaderEpoch if `asked` is older than `known`, UnknownLeaderEpoch if it is newer than what this node
    knows (KIP-320).
    """
    if asked < known:
        raise FencedLeaderEpoch(
            f"partition {name} is in leader epoch {known}, the request names the older epoch {asked}; "
            "look the leader up again"
        )
    ensure_known(name, known, asked)


def ensure_known(name: TopicPartition, known: LeaderEpoch, asked: LeaderEpoch) -> None:
    """Reject a request that names a leader epoch, its own or that of a record, newer than what this node knows: this
    node may be deposed, and what it says of its log is out of date. Raises UnknownLeaderEpoch (KIP-320)."""
    if asked > known:
        raise UnknownLeaderEpoch(
            f"partition {name} is in leader epoch {known} in this node's metadata, the request names the newer "
            f"epoch {asked}; retry after a pause"
        )
