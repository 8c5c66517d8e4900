"""Checks a buffer of batches before an append: headers and checksums only.

Invariants: nothing is decompressed and no record is read. A partial batch at the end is not counted, so the caller
trims the buffer to `valid_bytes`. Bytes that more input could not make valid raise an error.
Not here: records (record_check.py), the log's offsets and segment limits (storage/log).
Source: Kafka's UnifiedLog.analyzeAndValidateRecords.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import RecordTooLarge
from tidelog.records.batches import view
from tidelog.records.v2.batch import CODEC_BITS, CODECS, RecordBatch
from tidelog.records.v2.header import LOG_OVERHEAD, UNKNOWN_COUNT, BatchHeader, walk_headers
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, Buffer, Codec, LeaderEpoch, Millis, Offset


class Analysis(NamedTuple):
    """Properties of all batches in the buffer."""

    first_offset: Offset | None
    """None without a batch, and if the buffer starts with a v0 or v1 wrapper, whose first
    offset needs decompression."""
    first_batch_last_offset: Offset
    last_offset: Offset
    """-1 without a batch."""
    batch_count: int
    """Number of v2 batches and outer messages of v0 and v1."""
    record_count: int | None
    """None if there is a wrapper."""
    max_timestamp: Millis
    """The largest timestamp of the batches and the last offset of the first batch that has it; -1 without a batch."""
    offset_of_max_timestamp: Offset
    codec: Codec
    """Codec of the last compressed batch; NONE without one."""
    offsets_grow: bool
    """Each batch starts after the end of the previous one."""
    valid_bytes: int
    magic: int | None
    """Magic of all batches; None if they differ or there is none."""
    leader_epoch: LeaderEpoch
    """Leader epoch of the last batch."""
    headers: tuple[BatchHeader, ...] = ()
    """The headers of all batches, in order."""


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


def analyze(buffer: Buffer, *, batch_bytes_max: int | None = None) -> Analysis:
    """Check and describe the batches of any format in `buffer`.

    batch_bytes_max: the topic's `max.message.bytes`, compared with the size of each batch or outer message including
    its 12 bytes of offset and length; None for no limit (a follower accepts what its leader accepted). Raises
    CorruptRecord (checksum, size, structure), RecordTooLarge, UnsupportedCompressionType.
    """
    headers: list[BatchHeader] = []
    codec, records, grow, last_offset = 0, 0, True, -1
    max_timestamp, offset_of_max = NO_TIMESTAMP, -1
    mixed, hidden = False, False
    for header in walk_headers(buffer):
        if batch_bytes_max is not None and header.length > batch_bytes_max - LOG_OVERHEAD:
            raise RecordTooLarge(
                f"the batch at offset {header.base_offset} takes {header.size} bytes, but max.message.bytes allows "
                f"{batch_bytes_max}: send smaller batches, or raise the topic's limit"
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
