"""The fields of a batch that its checksum does not cover: magic, leader epoch, base offset.

A batch of format v2 keeps base offset, length, leader epoch and magic outside its checksum, so that a leader can stamp
them. Where one of them rots, the rest of the batch still proves itself. The magic is right again where the batch, read
as v2, agrees with its checksum. An epoch is wrong where it goes back, where the batch behind goes back from it (and is
not what the epoch file has wrong), or where the epoch file is known to be complete and does not know it; it is put back
to the one in force. A base offset is wrong where it contradicts the batches on both sides, which meet when it is put
between them.

Kept true: a byte is changed only in a batch whose checksum agrees, and where several epochs could have been meant the
smallest is taken: a replica that claims too little is only truncated and fetches again.
Left to others: the length, without which no batch is found (recovery.py); whether to look (recovery.py).
Source: KIP-98 for what the checksum covers; the vectors' README ("What to notice") for what Kafka makes of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from storage.batch_walk import BrokenChain, Link
from storage.config import INT64_MAX
from storage.files import File
from storage.segment import LogSegment
from tidelog.errors import TidelogError
from tidelog.records.batch import RecordBatch
from tidelog.records.header import CRC_AT, HEADER, HEADER_BYTES, LEADER_EPOCH_AT, BatchHeader
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


def right_header(
    file: File, header: BatchHeader, link: Link, witness: EpochWitness, behind: Offset | None
) -> BatchHeader:
    """The header that a whole v2 batch should have, which leaves a hole before it or begins a new epoch; its own,
    unless that is wrong.

    link: the chain before the batch, `link.epoch` being the epoch before it. behind: where the next segment begins.
    Raises OSError.
    """
    if header.base_offset > link.next_offset:
        header = header._replace(base_offset=_right_offset(file, header, link, behind))
    return header._replace(leader_epoch=_right_epoch(file, header, link, witness))


def _right_offset(file: File, header: BatchHeader, link: Link, behind: Offset | None) -> Offset:
    """Its own, unless the batch behind contradicts it, and would follow closely if there were no hole."""
    meant = Offset(link.next_offset)
    following = _offset_behind(file, link.behind(header)._replace(next_offset=0), behind)
    if following is not None and header.last_offset >= following == meant + header.last_offset_delta + 1:
        return meant
    return header.base_offset


def _offset_behind(file: File, link: Link, behind: Offset | None) -> Offset | None:
    """The base offset of the next v2 batch, be it in the next segment."""
    if link.position >= link.end:
        return behind
    following = next(_headers_behind(file, link), None)
    return None if following is None else following.base_offset


def _right_epoch(file: File, header: BatchHeader, link: Link, witness: EpochWitness) -> LeaderEpoch:
    epoch = header.leader_epoch
    if not witness.knows(epoch, header.base_offset):
        return LeaderEpoch(witness.meant(header.base_offset, link.epoch))
    following = [behind.leader_epoch for behind in _headers_behind(file, link.behind(header))]
    known = witness.meant(header.base_offset, int(NO_LEADER_EPOCH))
    if known != NO_LEADER_EPOCH and following and link.epoch <= known <= following[0] < epoch:
        return LeaderEpoch(known)
    if witness.names(epoch):
        return epoch
    if following and link.epoch <= following[0] < epoch and following[-1] < epoch:
        return LeaderEpoch(link.epoch) if link.epoch >= 0 else following[0]
    return epoch


def _headers_behind(file: File, link: Link) -> Iterator[BatchHeader]:
    """The next few v2 batches, as far as they can be read, whatever their epochs."""
    for _ in range(_PEEKED):
        link = link._replace(epoch=int(NO_LEADER_EPOCH))
        if link.position >= link.end:
            return
        try:
            header = link.read(file.pread(HEADER_BYTES, link.position), 0)
        except BrokenChain:
            return
        if header is None or header.magic != _V2:
            return
        yield header
        link = link.behind(header)


def put_right(file: File, link: Link, witness: EpochWitness, behind: Offset | None = None) -> str | None:
    """Where the chain breaks at `link` because of the magic, epoch or offset of a batch that is sound otherwise, write
    what it must be. behind: where the next segment begins. Returns what was wrong, None where nothing was done. Raises
    OSError."""
    found = file.pread(HEADER_BYTES, link.position)
    if len(found) < HEADER_BYTES:
        return None
    header = BatchHeader(0, *HEADER.unpack(found))
    meant = header._replace(base_offset=Offset(max(header.base_offset, link.next_offset)), magic=_V2)
    if header.leader_epoch < link.epoch:
        meant = meant._replace(leader_epoch=LeaderEpoch(witness.meant(meant.base_offset, link.epoch)))
    if meant == header:
        return None
    raw = HEADER.pack(*meant[1:])
    try:
        link.read(raw, 0)
        RecordBatch(raw + file.pread(meant.size - HEADER_BYTES, link.position + HEADER_BYTES)).ensure_valid()
    except (BrokenChain, TidelogError):
        return None
    following = next(_headers_behind(file, link.behind(meant)), None)
    if meant.leader_epoch != header.leader_epoch and following and following.leader_epoch < meant.leader_epoch:
        return None  # not one odd batch: the log is not what it should be
    next_offset = _offset_behind(file, link.behind(meant), behind)
    if meant.base_offset != header.base_offset and next_offset != meant.last_offset + 1:
        return None  # nothing but the batch behind can say where this one belongs
    return write_header(file, link.position, header, meant)


def write_header(file: File, position: int, found: BatchHeader, meant: BatchHeader) -> str:
    """Write what the checksum does not cover of the batch at `position`. Returns what was wrong. Raises OSError."""
    file.pwritev([HEADER.pack(*meant[1:])[:CRC_AT]], position)
    names = ("base_offset", "leader_epoch", "magic")
    wrong = [name for name in names if getattr(found, name) != getattr(meant, name)]
    return ", ".join(
        f"had {name.replace('_', ' ')} {getattr(found, name)} for {getattr(meant, name)}" for name in wrong
    )


def mend_epoch(segments: Sequence[LogSegment], offset: Offset, entries: Sequence[EpochStart]) -> bool:
    """Put the leader epoch of the batch at `offset`, whose checksum agrees, back to what the epoch cache of this leader
    says. Only where it is wrong whatever the cache says: it goes back from the batch before, the batch behind goes back
    from it, or, of the last one, it is above the leader's own. And only where the batches beside it, one at least,
    agree with the cache.
    No flush is asked for: a power loss may bring back what was there, until a follower refuses it again. Returns
    whether it is right now. Raises BrokenChain, OSError."""
    witness = EpochWitness(entries, INT64_MAX)
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    before, found, behind = _around(segments, at, offset)
    beside = [each for each in (before, behind) if each is not None]
    meant = witness.meant(offset, int(NO_LEADER_EPOCH))
    if found is None or not beside or meant == NO_LEADER_EPOCH:
        return False
    if any(each.leader_epoch != witness.meant(each.base_offset, int(NO_LEADER_EPOCH)) for each in beside):
        return False
    least = NO_LEADER_EPOCH if before is None else before.leader_epoch
    most = entries[-1].epoch if behind is None else behind.leader_epoch
    if least <= found.leader_epoch <= most:
        return False  # it may be the cache that is wrong
    set_epoch(segments[at].file, found.position, meant)
    return True


def _around(
    segments: Sequence[LogSegment], at: int, offset: Offset
) -> tuple[BatchHeader | None, BatchHeader | None, BatchHeader | None]:
    """The batch that begins at `offset` in `segments[at]`, between those before and behind it, be they in the segments
    beside; None for what is not there. Raises BrokenChain, OSError."""
    before: BatchHeader | None = None
    found: BatchHeader | None = None
    for segment in segments[max(at - 1, 0) : at + 2]:
        for header in _headers_from(segment, Offset(max(offset - 1, segment.base_offset))):
            if found is not None:
                return before, found, header
            if header.base_offset < offset:
                before = header
            elif header.base_offset == offset and segment is segments[at]:
                found = header
            else:
                return before, None, None
    return before, found, None


def _headers_from(segment: LogSegment, offset: Offset) -> Iterator[BatchHeader]:
    """The v2 batches of a segment, from the one with `offset` or one before it on, whatever their epochs. Raises
    BrokenChain, OSError."""
    link = Link(segment.start_for(offset), segment.size, segment.base_offset)
    while link.position < link.end:
        header = link.read(segment.file.pread(HEADER_BYTES, link.position), 0)
        if header is None or header.magic != _V2:
            return
        yield header
        link = link.behind(header)._replace(epoch=int(NO_LEADER_EPOCH))


def set_epoch(file: File, position: int, epoch: int) -> None:
    """Write the leader epoch of the batch at `position`. Raises OSError."""
    file.pwritev([epoch.to_bytes(4, "big", signed=True)], position + LEADER_EPOCH_AT)
