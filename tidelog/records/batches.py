"""Iterators over batches of all formats: a log may contain v0, v1 and v2, and one walk reads them.

`iter_batches` is the shallow iteration: v2 batches, and outer messages of v0 and v1 (bare or wrapper). Each batch
iterates over its records.
Invariants: a partial batch at the end, which more bytes could complete, is distinguished from invalid bytes.
Source: Kafka's ByteBufferLogInputStream (fewer than 12 bytes, or fewer than the size field, end the iteration; a size
below the minimum raises).
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.records.legacy.message_set import LegacyRecordBatch
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.header import BatchHeader, PartialTail, read_header, walk_headers
from tidelog.types import Buffer


def view(buffer: Buffer, header: BatchHeader) -> RecordBatch:
    """Return the view of a batch whose header was already read: a `LegacyRecordBatch` for v0 and v1."""
    if header.magic == 2:
        return RecordBatch(buffer, header=header)
    return LegacyRecordBatch(buffer, header=header)


def batch_at(buffer: Buffer, position: int = 0) -> RecordBatch:
    """Return the batch of any format at `position`. Raises CorruptRecord if it is not complete."""
    return view(buffer, read_header(buffer, position))


def iter_batches(buffer: Buffer, *, position: int = 0, partial_tail: PartialTail = "stop") -> Iterator[RecordBatch]:
    """Yield views of the consecutive batches of any format from `position` on; only headers are read.

    Raises as `walk_headers`.
    """
    for header in walk_headers(buffer, position, partial_tail=partial_tail):
        if header.magic == 2:
            yield RecordBatch(buffer, header=header)
        else:
            yield LegacyRecordBatch(buffer, header=header)
