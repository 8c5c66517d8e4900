"""Durable offset of each log of a log directory: one small file, updated in place after every group commit.

    32 bytes per log:  topic id 16 | partition int32 | durable offset int64 | CRC-32 of the 28 bytes before, uint32

Recovery compares the log with its mark: a log that ends below the mark is damaged, not torn. Rising marks are not
fsynced, which would cost a second fsync per commit: after a power loss a mark may be older, that is, lower. They are
fsynced before the recovery points are recorded, so no mark is below its log's recovery point. Before a truncation the
mark is lowered and fsynced, so that it is never too high.
Source: design section 4, rule 6.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final
from uuid import UUID

from storage.files.file_system import File, Files, sync_all
from tidelog.types import Offset, PartitionIndex, PartitionKey, TopicId

DURABLE_MARKS: Final = "held-offset-marks"
_SLOT: Final = Struct(">16siqI")
_BODY: Final = Struct(">16siq")


def parse_marks(data: bytes) -> list[tuple[PartitionKey, Offset] | None]:
    """The marks in the file's bytes, slot by slot; None for a slot that is free or fails its checksum."""
    marks: list[tuple[PartitionKey, Offset] | None] = []
    for topic_id, partition, durable_offset, crc in _SLOT.iter_unpack(data[: len(data) - len(data) % _SLOT.size]):
        whole = crc == zlib.crc32(_BODY.pack(topic_id, partition, durable_offset)) and durable_offset > 0
        key = PartitionKey(TopicId(UUID(bytes=topic_id)), PartitionIndex(partition))
        marks.append((key, Offset(durable_offset)) if whole else None)
    return marks


class DurableOffsets:
    def __init__(self, files: Files, directory: str) -> None:
        """Read the existing marks. Slots that fail their checksum are free. Raises OSError."""
        self._file: File = files.open(f"{directory}/{DURABLE_MARKS}", create=True)
        self._slots: dict[PartitionKey, int] = {}
        self._durable_offset: dict[PartitionKey, Offset] = {}
        self._free: list[int] = []
        for slot, mark in enumerate(parse_marks(self._file.pread(self._file.size(), 0))):
            if mark is None:
                self._free.append(slot)
            else:
                key, durable_offset = mark
                self._slots[key], self._durable_offset[key] = slot, durable_offset

    def get(self, key: PartitionKey) -> Offset:
        """The durable offset recorded for the log, 0 for none."""
        return self._durable_offset.get(key, Offset(0))

    def all(self) -> dict[PartitionKey, Offset]:
        return dict(self._durable_offset)

    def put(self, key: PartitionKey, durable_offset: Offset) -> None:
        """Write a mark without syncing it. Raises OSError."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._free.pop() if self._free else len(self._slots)
            self._slots[key] = slot
        body = _BODY.pack(key.topic_id.bytes, key.partition, durable_offset)
        self._file.pwritev([body, zlib.crc32(body).to_bytes(4)], slot * _SLOT.size)
        self._durable_offset[key] = durable_offset

    def lowering(self, key: PartitionKey, offset: Offset) -> Callable[[], None]:
        """Lower the mark to at most `offset`. Returns a function that makes this durable, for any thread. If that
        function raises OSError, the directory must not be used further. Raises OSError."""
        if self.get(key) <= offset:
            return lambda: None
        self.put(key, offset)
        file = self._file
        return lambda: sync_all([file])

    def dropping(self, keys: Iterable[PartitionKey]) -> Callable[[], None]:
        """Remove the marks of these logs. Returns a function that makes this durable, as `lowering`; one sync for all.
        Raises OSError."""
        dropped = False
        for key in keys:
            if self.get(key) > 0:
                self.put(key, Offset(0))
                dropped = True
            slot = self._slots.pop(key, None)
            self._durable_offset.pop(key, None)
            if slot is not None:
                self._free.append(slot)
        file = self._file
        return (lambda: sync_all([file])) if dropped else (lambda: None)

    def sync(self) -> None:
        """Make the marks durable. Raises OSError."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()
