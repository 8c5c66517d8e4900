"""The two bytes of a batch that its checksum does not cover and that nothing else would notice: magic and leader epoch.

A batch of format v2 keeps base offset, length, leader epoch and magic outside its checksum, so that a leader can stamp
them. Where one of them rots, the rest of the batch still proves itself. The magic is right again where the batch, read
as v2, agrees with its checksum. An epoch is wrong where it goes back, where the batch behind goes back from it, or
where the epoch file is known to be complete and does not know it; it is put back to the one in force.

Kept true: a byte is changed only in a batch whose checksum agrees, and where several epochs could have been meant the
smallest is taken: a replica that claims too little is only truncated and fetches again.
Left to others: base offset and length, which the next batch contradicts (recovery.py); whether to look (recovery.py).
Source: KIP-98 for what the checksum covers; the vectors' README ("What to notice") for what Kafka makes of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from storage.batch_walk import BrokenChain, Link
from storage.files import File
from tidelog.errors import TidelogError
from tidelog.records.batch import RecordBatch
from tidelog.records.header import HEADER, HEADER_BYTES, LEADER_EPOCH_AT, MAGIC_AT, BatchHeader
from tidelog.types import NO_LEADER_EPOCH, EpochStart, LeaderEpoch, Offset

_V2: Final = 2
_PEEKED: Final = 2
"""Batches behind one in doubt that are asked: if the next one is the odd one, the one behind it says so."""


class EpochWitness:
    """What the epoch file says of the epochs that batches may have. complete_below: all epochs of lower offsets are in
    `entries`."""

    def __init__(self, entries: Sequence[EpochStart], complete_below: int) -> None:
        self._epochs = {int(entry.epoch) for entry in entries}
        self._entries = list(entries)
        self._complete_below = complete_below

    def knows(self, epoch: int, offset: Offset) -> bool:
        """May a batch at `offset` have this epoch, after the file alone?"""
        if epoch in self._epochs or offset >= self._complete_below:
            return True
        return bool(self._entries) and offset < self._entries[0].start_offset and epoch < self._entries[0].epoch

    def names(self, epoch: int) -> bool:
        """Is the epoch in the file?"""
        return epoch in self._epochs

    def meant(self, offset: Offset, least: int) -> int:
        """The epoch of a batch at `offset` whose own is wrong, and which may not be below `least`."""
        if offset >= self._complete_below:
            return least
        at = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return max(self._entries[at - 1].epoch, least) if at else least


def right_epoch(file: File, header: BatchHeader, link: Link, witness: EpochWitness) -> int:
    """The epoch that a whole batch has, which begins a new one; its own, unless that is wrong.

    link: the chain before the batch, `link.epoch` being the epoch before it.
    """
    epoch = int(header.leader_epoch)
    if not witness.knows(epoch, header.base_offset):
        return witness.meant(header.base_offset, link.epoch)
    if witness.names(epoch):
        return epoch
    following = _epochs_behind(file, link.behind(header))
    if following and link.epoch <= following[0] < epoch and following[-1] < epoch:
        return link.epoch if link.epoch >= 0 else following[0]
    return epoch


def _epochs_behind(file: File, link: Link) -> list[int]:
    """The epochs of the next few v2 batches, as far as they can be read."""
    found: list[int] = []
    link = link._replace(epoch=int(NO_LEADER_EPOCH))
    while link.position < link.end and len(found) < _PEEKED:
        try:
            header = link.read(file.pread(HEADER_BYTES, link.position), 0)
        except BrokenChain:
            break
        if header is None or header.magic != _V2:
            break
        found.append(header.leader_epoch)
        link = link.behind(header)._replace(epoch=int(NO_LEADER_EPOCH))
    return found


def put_right(file: File, link: Link, witness: EpochWitness) -> str | None:
    """Where the chain breaks at `link` because of the magic or the epoch of a batch that is sound otherwise, write what
    they must be. Returns what was wrong, None where nothing was done. Raises OSError."""
    found = file.pread(HEADER_BYTES, link.position)
    if len(found) < HEADER_BYTES:
        return None
    header = BatchHeader(0, *HEADER.unpack(found))
    epoch = header.leader_epoch
    if epoch < link.epoch:
        epoch = LeaderEpoch(witness.meant(header.base_offset, link.epoch))
    meant = header._replace(magic=_V2, leader_epoch=epoch)
    if meant == header:
        return None
    raw = HEADER.pack(*meant[1:])
    try:
        link.read(raw, 0)
        RecordBatch(raw + file.pread(meant.size - HEADER_BYTES, link.position + HEADER_BYTES)).ensure_valid()
    except (BrokenChain, TidelogError):
        return None
    if meant.leader_epoch != header.leader_epoch:
        following = _epochs_behind(file, link.behind(meant))
        if following and following[0] < meant.leader_epoch:
            return None  # not one odd batch: the log is not what it should be
        set_epoch(file, link.position, int(meant.leader_epoch))
    if meant.magic != header.magic:
        file.pwritev([raw[MAGIC_AT : MAGIC_AT + 1]], link.position + MAGIC_AT)
        return f"had magic {header.magic}: read as format v2 its checksum agrees"
    return f"had leader epoch {header.leader_epoch} between batches of epoch {meant.leader_epoch}"


def set_epoch(file: File, position: int, epoch: int) -> None:
    """Write the leader epoch of the batch at `position`. Raises OSError."""
    file.pwritev([epoch.to_bytes(4, "big", signed=True)], position + LEADER_EPOCH_AT)
