"""Changes the producer fields of an encoded batch: an idempotent producer continues in another epoch.

Source: KIP-98, KIP-360.
"""

from __future__ import annotations

import struct

from tidelog.errors import UnsupportedForMessageFormat
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.header import ATTRIBUTES_AT, CRC_AT, MAGIC_AT, PRODUCER_AT, read_header


def set_producer(
    buffer: bytearray | memoryview, position: int, *, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Set the producer fields of the v2 batch at `position`, in place, and recompute its checksum.

    Raises UnsupportedForMessageFormat, with nothing changed, for a v0 or v1 message, which has no such fields.
    """
    magic = buffer[position + MAGIC_AT]
    if magic != 2:
        raise UnsupportedForMessageFormat(
            f"the message at byte {position} has format v{magic}, which has no producer fields: send it without "
            "idempotence"
        )
    end = read_header(buffer, position).end
    struct.pack_into(">qhi", buffer, position + PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    struct.pack_into(">I", buffer, position + CRC_AT, crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end]))
