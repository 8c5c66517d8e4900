"""What an append must know of a buffer of batches before it looks at any record: headers and checksums, no more.

Kept true: nothing is decompressed and no record is read; a tail that the buffer cuts short is not counted, so the
caller trims it to `valid_bytes`; anything that no more bytes could make valid raises.
Left to others: the records themselves (record_check.py), offsets against the log's (storage), limits of a segment.
Source: Kafka's UnifiedLog.analyzeAndValidateRecords; the seed documents on appending as leader and on message format.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import RecordTooLarge
from tidelog.records.batches import view
from tidelog.records.v2.batch import CODEC_BITS, CODECS, RecordBatch
from tidelog.records.v2.header import LOG_OVERHEAD, UNKNOWN_COUNT, BatchHeader, ByteBuffer, walk_headers
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, Codec, LeaderEpoch, Millis, Offset


class Analysis(NamedTuple):
    """The facts, over all batches of the buffer.

    first_offset: None where the buffer begins with a v0 or v1 wrapper, whose first offset takes decompression, and
    where there is no batch; first_batch_last_offset is known then too. last_offset: -1 without a batch.
    batch_count: v2 batches, and outer messages of v0 and v1. record_count: None where a wrapper hides it.
    max_timestamp, offset_of_max_timestamp: the largest of the batches, and the last offset of the first batch that has
    it; -1 without. codec: of the last compressed batch, NONE without one. offsets_grow: each batch begins behind the
    end of the one before. magic: of all batches, None where they differ or are none. leader_epoch: of the last batch.
    headers: of all of them, in order.
    """

    first_offset: Offset | None
    first_batch_last_offset: Offset
    last_offset: Offset
    batch_count: int
    record_count: int | None
    max_timestamp: Millis
    offset_of_max_timestamp: Offset
    codec: Codec
    offsets_grow: bool
    valid_bytes: int
    magic: int | None
    leader_epoch: LeaderEpoch
    headers: tuple[BatchHeader, ...] = ()


_NOTHING = Analysis(
    first_offset=None,
    first_batch_last_offset=Offset(-1),
    last_offset=Offset(-1),
    batch_count=0,
    record_count=0,
    max_timestamp=NO_TIMESTAMP,
    offset_of_max_timestamp=Offset(-1),
    codec=Codec.NONE,
    offsets_grow=True,
    valid_bytes=0,
    magic=None,
    leader_epoch=NO_LEADER_EPOCH,
)


def analyze(buffer: ByteBuffer, *, batch_bytes_max: int | None = None) -> Analysis:
    """Check and describe the batches of any format in `buffer`.

    batch_bytes_max: the topic's `max.message.bytes`, against the size of each batch or outer message with its 12 bytes
    of offset and length; None for no limit (a follower takes what its leader took).
    Raises CorruptRecord (checksum, size, structure), RecordTooLarge, UnsupportedCompressionType.
    """
    headers: list[BatchHeader] = []
    codec, records, grow, last_offset = 0, 0, True, -1
    max_timestamp, offset_of_max = NO_TIMESTAMP, -1
    mixed, hidden = False, False
    for header in walk_headers(buffer):
        if batch_bytes_max is not None and header.length > batch_bytes_max - LOG_OVERHEAD:
            raise RecordTooLarge(
                f"the batch at offset {header.base_offset} takes {header.size} bytes, {batch_bytes_max} are allowed "
                "(max.message.bytes): send smaller batches, or raise the topic's limit"
            )
        batch = RecordBatch(buffer, header=header) if header.magic == 2 else view(buffer, header)
        batch.ensure_valid()
        base_offset, count = header.base_offset, header.record_count
        if base_offset <= last_offset:
            grow = False
        last_offset = base_offset + header.last_offset_delta
        if header.max_timestamp > max_timestamp:
            max_timestamp, offset_of_max = header.max_timestamp, last_offset
        codec = header.attributes & CODEC_BITS or codec
        if count == UNKNOWN_COUNT:
            hidden = True
        records += count
        if headers and header.magic != headers[-1].magic:
            mixed = True
        headers.append(header)
    if not headers:
        return _NOTHING
    first, last = headers[0], headers[-1]
    return Analysis(
        None if first.record_count == UNKNOWN_COUNT else first.base_offset,
        first.last_offset,
        Offset(last_offset),
        len(headers),
        None if hidden else records,
        max_timestamp,
        Offset(offset_of_max),
        CODECS[codec],
        grow,
        last.end,
        None if mixed else first.magic,
        last.leader_epoch,
        tuple(headers),
    )
