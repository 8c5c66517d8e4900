"""How far the v2 batches of a buffer follow each other as in a sound log, by their headers alone: the pure-Python
reference of a leader's read.

Kept true: a batch is stepped over only where it is whole, its header can be true, and offset and leader epoch go on
from the batch before it. Whatever else comes, an older message or damage, ends the walk before it, and nothing is
raised: the caller looks at that one more closely.
Left to others: what to make of where it ends (storage), checksums and records (batch.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.records.v2.header import HEADER, HEADER_BYTES, LENGTH_MIN, LOG_OVERHEAD, ByteBuffer
from tidelog.records.v2.varint import INT64_MAX

_DELTA_MAX: Final = 2**31 - 1


class Place(NamedTuple):
    """Between two batches: byte `position` of the buffer; offset and leader epoch that the next batch must at least
    have."""

    position: int
    next_offset: int
    epoch: int


def follow_chain(data: ByteBuffer, size_max: int, next_offset: int, up_to: int) -> tuple[Place, Place]:
    """Walk from the beginning of `data` over batches at or above `next_offset` and below `up_to` that lie within the
    first `size_max` bytes. Returns the places before and behind the last of them, equal where there is none.

    The numbers are not negative, and not above 2**63 - 1.
    """
    before = place = Place(0, next_offset, -1)
    limit = min(size_max, len(data))
    while limit - place.position >= HEADER_BYTES:
        position, next_offset, epoch = place
        base, length, batch_epoch, magic, _, _, delta, *_ = HEADER.unpack_from(data, position)
        end = position + LOG_OVERHEAD + length
        if magic != 2 or length < LENGTH_MIN or end > limit:
            break
        if base < next_offset or batch_epoch < epoch or delta < 0 or base > INT64_MAX - _DELTA_MAX - 1:
            break
        if base + delta >= up_to:
            break
        before, place = place, Place(end, base + delta + 1, batch_epoch)
    return before, place
