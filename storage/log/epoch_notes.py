"""Updates of the leader epoch cache by an append.

Not here: the cache (epoch_cache.py), when its file must be written (log.py, flush.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.log.validation import Prepared
from storage.segment.epoch_cache import LeaderEpochCache
from tidelog.types import EpochStart, LeaderEpoch, Offset


def note_epochs(
    cache: LeaderEpochCache,
    log_end: Offset,
    prepared: Prepared,
    epochs: Sequence[EpochStart],
    leader_epoch: LeaderEpoch | None,
) -> tuple[EpochStart, ...] | None:
    """Add the epochs of an append at `log_end` to the cache. leader_epoch: None on a follower. epochs: the entries that
    the follower's leader sent. Returns the previous entries, or None if nothing changed.

    A follower takes the epochs of its leader, or of the batches, which agree (`ensure_agreed`). An epoch that it
    started as leader itself and that has no records is removed.
    """
    if leader_epoch is not None:
        if leader_epoch == cache.latest:
            return None
        before = cache.entries
        cache.assign(leader_epoch, log_end)
        return before
    end = prepared.info.last_offset
    starts = [(entry.epoch, max(entry.start_offset, log_end)) for entry in epochs if entry.start_offset <= end]
    if not starts:
        starts = [(header.leader_epoch, header.base_offset) for header in prepared.headers if header.magic == 2]
    in_force = cache.last_with_data(log_end)
    if in_force == cache.latest == (starts[-1][0] if starts else in_force):
        return None
    before = cache.entries
    cache.truncate_from_end(log_end)
    for epoch, start in starts:
        if epoch > cache.latest:
            cache.assign(epoch, start)
    return before
