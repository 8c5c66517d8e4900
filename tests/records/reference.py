"""Functions that only tests need: deep iteration over a buffer, and timestamps of a batch set in place."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tidelog.records.batches import iter_batches
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.header import ATTRIBUTES_AT, CRC_AT, MAX_TIMESTAMP_AT
from tidelog.records.v2.record import Record
from tidelog.types import Buffer, TimestampType


def iter_records(buffer: Buffer) -> Iterator[Record]:
    """Yield every record of every batch of any format, including control records."""
    for batch in iter_batches(buffer):
        yield from batch.records()


def set_max_timestamp(buffer: bytearray, timestamp_type: TimestampType, timestamp: int) -> None:
    """Set type and largest timestamp of the v2 batch in `buffer`, and its checksum (KIP-32)."""
    attributes = RecordBatch(buffer).attributes & ~0x08 | timestamp_type << 3
    struct.pack_into(">h", buffer, ATTRIBUTES_AT, attributes)
    struct.pack_into(">q", buffer, MAX_TIMESTAMP_AT, timestamp)
    struct.pack_into(">I", buffer, CRC_AT, crc32c(memoryview(buffer)[ATTRIBUTES_AT:]))
