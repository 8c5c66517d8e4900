"""The header of one stored batch, for the receipt of a duplicate."""

from __future__ import annotations

from storage.append_info import LogAppendInfo
from storage.files.file_system import WouldBlock
from storage.log.log import Log
from tidelog.errors import TidelogError
from tidelog.records.v2.header import walk_headers


def stored_checksum(log: Log, info: LogAppendInfo) -> int | None:
    """The checksum of the batch of these offsets as the log has it now. None if the batch was removed, was rewritten by
    compaction, is not of format v2, cannot be read, or is not in the page cache: nothing here waits for the disk.

    A sender's duplicate has another checksum than the stored batch if the log recompressed the batch or set its time.
    """
    try:
        read = log.read(info.first_offset, 1, up_to=log.log_end_offset, wait=False)
    except (TidelogError, WouldBlock):
        return None
    header = next(walk_headers(read.records), None)
    if header is None or header.magic != 2:
        return None
    records = info.last_offset - info.first_offset + 1
    as_appended = (info.first_offset, records - 1, records)
    if (header.base_offset, header.last_offset_delta, header.record_count) != as_appended:
        return None
    return header.crc
