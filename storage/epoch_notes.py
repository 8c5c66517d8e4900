"""What an append tells the leader epoch cache.

Left to others: the cache (epoch_cache.py), when its file must be written (log.py, flush.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from storage.epoch_cache import LeaderEpochCache
from storage.validation import Prepared
from tidelog.errors import CorruptRecord
from tidelog.records.header import BatchHeader
from tidelog.types import EpochStart, LeaderEpoch, Offset


def note_epochs(
    cache: LeaderEpochCache,
    log_end: Offset,
    prepared: Prepared,
    epochs: Sequence[EpochStart],
    leader_epoch: LeaderEpoch | None,
) -> tuple[EpochStart, ...] | None:
    """Enter the epochs of an append at `log_end` into the cache. leader_epoch: None for a follower; epochs: what its
    leader says. Returns the entries before, None where nothing changes.

    A follower believes its leader, or the batches, which agree (`ensure_agreed`): an epoch that it once began itself
    and that has no records goes.
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


def ensure_agreed(headers: Iterable[BatchHeader], epochs: Sequence[EpochStart]) -> None:
    """Raise CorruptRecord for a batch whose leader epoch is not the one that these entries, ascending, have for its
    offset. No checksum covers it: flipped bits would go on into the next replica's cache."""
    for header in headers:
        found = bisect_right(epochs, header.base_offset, key=_start_of) if header.magic == 2 else 0
        if found and epochs[found - 1].epoch != header.leader_epoch:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, but epoch "
                f"{epochs[found - 1].epoch} is in force there: no checksum covers it, it was damaged on the way "
                "or on disk; fetch it again"
            )


def _start_of(entry: EpochStart) -> Offset:
    return entry.start_offset
