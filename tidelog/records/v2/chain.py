"""Walks along the v2 headers of a buffer while the batches follow each other correctly: the pure-Python reference of a
leader's read.

Invariants: a batch is accepted only if it is complete, its header is plausible, and offset and leader epoch continue
from the batch before. Anything else, such as an older message or corruption, ends the walk before it without an error;
the caller examines it.
Not here: what the end of the walk means (storage/log), checksums and records (batch.py).
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.records.v2.header import HEADER, HEADER_BYTES, LENGTH_MIN, LOG_OVERHEAD
from tidelog.types import INT32_MAX, INT64_MAX, Buffer


class Place(NamedTuple):
    """A position between two batches: byte `position` of the buffer, and the minimum offset and leader epoch of the
    next batch."""

    position: int
    next_offset: int
    epoch: int


def follow_chain(data: Buffer, size_max: int, next_offset: int, up_to: int) -> tuple[Place, Place]:
    """Walk from the start of `data` over batches at or above `next_offset` and below `up_to` that are within the first
    `size_max` bytes. Returns the places before and after the last of them; equal if there is none.

    The numbers must be 0 to 2**63 - 1.
    """
    before = place = Place(0, next_offset, -1)
    limit = min(size_max, len(data))
    while limit - place.position >= HEADER_BYTES:
        position, next_offset, epoch = place
        base, length, batch_epoch, magic, _, _, delta, *_ = HEADER.unpack_from(data, position)
        end = position + LOG_OVERHEAD + length
        if magic != 2 or length < LENGTH_MIN or end > limit:
            break
        if base < next_offset or batch_epoch < epoch or delta < 0 or base > INT64_MAX - INT32_MAX - 1:
            break
        if base + delta >= up_to:
            break
        before, place = place, Place(end, base + delta + 1, batch_epoch)
    return before, place
