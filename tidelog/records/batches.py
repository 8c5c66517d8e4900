"""Iterators over batches of all formats: a log may contain v0, v1 and v2, and one walk reads them.

`iter_batches` is the shallow iteration: v2 batches, and outer messages of v0 and v1 (bare or wrapper). `iter_records`
is the deep iteration.
Invariants: a partial batch at the end, which more bytes could complete, is distinguished from invalid bytes.
Source: Kafka's ByteBufferLogInputStream (fewer than 12 bytes, or fewer than the size field, end the iteration; a size
below the minimum raises).
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.records.legacy.message_set import LegacyRecordBatch
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.compression import DECOMPRESSED_BYTES_MAX
from tidelog.records.v2.header import BatchHeader, ByteBuffer, PartialTail, read_header, walk_headers
from tidelog.records.v2.record import Record


def view(buffer: ByteBuffer, header: BatchHeader) -> RecordBatch:
    """Return the view of a batch whose header was already read: a `LegacyRecordBatch` for v0 and v1."""
    if header.magic == 2:
        return RecordBatch(buffer, header=header)
    return LegacyRecordBatch(buffer, header=header)


def batch_at(buffer: ByteBuffer, position: int = 0) -> RecordBatch:
    """Return the batch of any format at `position`. Raises CorruptRecord if it is not complete."""
    return view(buffer, read_header(buffer, position))


def iter_batches(buffer: ByteBuffer, *, position: int = 0, partial_tail: PartialTail = "stop") -> Iterator[RecordBatch]:
    """Yield views of the consecutive batches of any format from `position` on; only headers are read.

    Raises as `walk_headers`.
    """
    for header in walk_headers(buffer, position, partial_tail=partial_tail):
        if header.magic == 2:
            yield RecordBatch(buffer, header=header)
        else:
            yield LegacyRecordBatch(buffer, header=header)


def iter_records(
    buffer: ByteBuffer,
    *,
    position: int = 0,
    partial_tail: PartialTail = "stop",
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """Yield every record of every batch from `position` on, including control records. Does not verify checksums.

    max_bytes: limit of one batch's decompressed size. Raises as `walk_headers` and `RecordBatch.records`.
    """
    for batch in iter_batches(buffer, position=position, partial_tail=partial_tail):
        yield from batch.records(max_bytes=max_bytes)
