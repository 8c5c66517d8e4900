"""The bytes of a whole segment, each batch judged as the verifier does: for copies.

A batch takes some 1 us beside its checksum, 7 us in the verifier.

Invariants:
  1. A batch is taken here only if the verifier would take it. Whatever is in doubt is left to the verifier: it decides,
     and it alone says what is wrong. So both agree on what is damaged.
  2. No byte is copied: a piece is what was read.
Not here: what a batch must be (verifier.py), messages of older formats (likewise).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from storage.files.file_system import File
from storage.segment.batch_walk import Link
from storage.segment.epoch_cache import epoch_due
from storage.segment.verifier import SegmentRules, sound_batches
from tidelog.epochs import start_of
from tidelog.records.v2.batch import CODEC_BITS
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.header import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LENGTH_MIN, LOG_OVERHEAD
from tidelog.types import INT32_MAX, INT64_MAX, Buffer, Codec, EpochStart, Millis, Offset

PIECE_BYTES: Final = 1 << 20


class NoteBatch(Protocol):
    """Takes each batch, in their order."""

    def __call__(self, position: int, size: int, last_offset: Offset, max_timestamp: Millis, /) -> None: ...


def sound_pieces(
    file: File, size: int, base_offset: Offset, end_offset: Offset, epochs: Sequence[EpochStart], note: NoteBatch
) -> Iterator[Buffer]:
    """All batches of a closed segment, in pieces that do not change later. size: of its file. epochs: of the log, below
    end_offset. Raises Fault, OSError."""
    position, next_offset = 0, base_offset
    rules = SegmentRules(base_offset, end_offset, partial(epoch_due, epochs))
    while position < size:
        piece = memoryview(file.pread(min(PIECE_BYTES, size - position), position))
        taken, behind = _take(piece, position, next_offset, rules, epochs, note)
        if taken:
            yield piece[:taken]
            position, next_offset = position + taken, behind
            continue
        judged = bytearray()
        for batch in sound_batches(file, Link(position, size, next_offset), rules):
            header = batch.header
            note(position, header.size, header.last_offset, header.max_timestamp)
            judged += batch.buffer
            position, next_offset = position + header.size, Offset(header.last_offset + 1)
            if len(judged) >= PIECE_BYTES:
                break
        yield judged


def _take(
    piece: memoryview,
    position: int,
    next_offset: Offset,
    rules: SegmentRules,
    epochs: Sequence[EpochStart],
    note: NoteBatch,
) -> tuple[int, Offset]:
    """How many bytes from the start of the piece are sound batches of the present format, and the offset behind them.
    position: of the piece in the file."""
    at, expected, size = 0, next_offset, len(piece)
    behind = min(rules.behind, rules.base_offset + INT32_MAX + 1)
    due, epoch_end = -1, next_offset
    while size - at >= HEADER_BYTES:
        base, length, epoch, magic, crc, attributes, delta, _, timestamp, _, _, _, count = HEADER.unpack_from(piece, at)
        last, end = base + delta, at + LOG_OVERHEAD + length
        if magic != 2 or length < LENGTH_MIN or end > size or not expected <= base <= last < behind:
            break
        if base >= epoch_end:
            entry = bisect_right(epochs, base, key=start_of)
            if entry == 0:  # the log starts in this batch
                break
            due = epochs[entry - 1].epoch
            epoch_end = epochs[entry].start_offset if entry < len(epochs) else Offset(INT64_MAX)
        if epoch != due or attributes & CODEC_BITS > Codec.ZSTD or not 0 < count <= delta + 1:
            break
        if crc32c(piece[at + ATTRIBUTES_AT : end]) != crc:
            break
        note(position + at, end - at, last, timestamp)
        at, expected = end, Offset(last + 1)
    return at, expected
