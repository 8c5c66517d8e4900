"""Index entries in memory, with the interface of a mapped file: for an active segment that has few.

Creating a file costs the loop up to milliseconds on a busy disk, and mapping one costs two pages: with thousands of
partitions that write little this is most of what a partition costs.
Not here: when the entries are written to a file (abstract_index.py).
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from storage.files import guard

MEMORY_ENTRIES_MIN: Final = 512
MEMORY_ENTRIES_MAX: Final = 1_024
"""Entries of one index in memory: with the default `index.interval.bytes` for 2 to 4 MiB of the log, 20 KiB for both
indexes of a segment."""


def memory_entries_max(path: str) -> int:
    """The entries of this index in memory. The value depends on the path: thousands of partitions that are written at
    the same rate do not create their files in the same moment."""
    return MEMORY_ENTRIES_MIN + crc32(path.encode()) % (MEMORY_ENTRIES_MAX - MEMORY_ENTRIES_MIN)


class MemoryEntries:
    """Bytes with the methods of `Mapping` (storage/files/file_system.py). They grow as they are written."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = bytearray(data)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._data[position : position + size])

    def search(self, entries: int, warm: int, size: int, at: int, wide: int, target: int) -> int:
        return guard.search(self._data, entries, warm, size, at, wide, target)

    def reserve(self, end: int) -> None:
        """Memory needs no reservation."""

    def write(self, position: int, data: bytes) -> None:
        assert position <= len(self._data), "entries are written one after the other"
        self._data[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def close(self) -> None:
        self._data.clear()
