"""Batches of all formats in one buffer: a log may hold v0, v1 and v2 one behind the other, and is read by one walk.

The shallow iteration is `iter_batches`: v2 batches, and of v0 and v1 each outer message, plain or wrapper. The deep one
is `iter_records`.
Kept true: a tail that more bytes could complete is told apart from bytes that none could.
Source: Kafka's ByteBufferLogInputStream; the seed document on message format and validation (shallow and deep
iterator: fewer than 12 bytes, or fewer than the size says, end it; a size below the smallest raises).
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.records.legacy.message_set import LegacyRecordBatch
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.compression import DECOMPRESSED_BYTES_MAX
from tidelog.records.v2.header import BatchHeader, ByteBuffer, PartialTail, read_header, walk_headers
from tidelog.records.v2.record import Record


def view(buffer: ByteBuffer, header: BatchHeader) -> RecordBatch:
    """The view of a batch of any format whose header was read already: a `LegacyRecordBatch` for v0 and v1."""
    if header.magic == 2:
        return RecordBatch(buffer, header=header)
    return LegacyRecordBatch(buffer, header=header)


def batch_at(buffer: ByteBuffer, position: int = 0) -> RecordBatch:
    """The batch of any format at `position`. Raises CorruptRecord where there is no whole one."""
    return view(buffer, read_header(buffer, position))


def iter_batches(buffer: ByteBuffer, *, position: int = 0, partial_tail: PartialTail = "stop") -> Iterator[RecordBatch]:
    """Views of the batches of any format that lie one behind the other from `position` on; headers only are read.

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
    """Every record of every batch from `position` on, those of control batches too. Checks no CRC.

    max_bytes: most bytes that one batch may take when decompressed. Raises as `walk_headers` and `RecordBatch.records`.
    """
    for batch in iter_batches(buffer, position=position, partial_tail=partial_tail):
        yield from batch.records(max_bytes=max_bytes)
