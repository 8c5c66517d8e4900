"""Base of the two indexes of a segment: sorted fixed-size entries, first in memory, then in a preallocated mapped file.

Invariants:
  1. Entries only grow. They start at the beginning of the file and are followed by zeros or nothing.
  2. An index is a hint: it can be rebuilt from the log, and is rebuilt if it is invalid (segment.py).
  3. The file is opened read-only. The first entries that are added are held in memory: the file is missing, or has only
     the entries of an earlier start. With more than `held_max` entries the file is created, extended to its full size
     and mapped. It contains exactly the entries when the segment is rolled or closed. A recovery after an unclean stop
     rebuilds both indexes of the active segment, so nothing is lost with the memory.
  4. Disk space is allocated before mapped memory is written, and that is accessed only through the mapping's methods: a
     full disk and an unreadable page raise OSError, not a signal.
Not here: the meaning of an entry (offset_index.py, time_index.py), when an entry is added (segment.py), when an index
is opened (lazy_index.py).
Source: Kafka's AbstractIndex, including the search that tries the warm end of the file first. Kafka creates and maps
both files with the segment; with many partitions, creating files is most of the cost of a partition's first batches.
"""

from __future__ import annotations

from contextlib import closing
from enum import IntEnum
from struct import Struct
from typing import ClassVar, Final
from zlib import crc32

from storage.files import guard
from storage.files.file_system import Files, Mapping
from tidelog.errors import KafkaStorageError
from tidelog.types import INT32_MAX, Offset

_WARM_BYTES: Final = 8192
"""Most lookups are near the end of the file: searching the last two pages first keeps the other pages out of memory."""


MEMORY_ENTRIES_MIN: Final = 512
MEMORY_ENTRIES_MAX: Final = 1_024
"""Entries of one index in memory: with the default `index.interval.bytes` for 2 to 4 MiB of the log, 20 KiB for both
indexes of a segment."""


def memory_entries_max(path: str) -> int:
    """The entries of this index in memory. The value depends on the path: thousands of partitions that are written at
    the same rate do not create their files in the same moment."""
    return MEMORY_ENTRIES_MIN + crc32(path.encode()) % (MEMORY_ENTRIES_MAX - MEMORY_ENTRIES_MIN)


class IndexFailure(Exception):
    """Base of the index errors, none of which reaches a client: an invalid index is rebuilt from the log."""


class IndexFull(IndexFailure):
    """No slot is free: the segment must be rolled."""


class IndexOffsetOverflow(IndexFailure):
    """The offset does not fit into 31 bits relative to the base offset."""


class InvalidIndexOffset(IndexFailure):
    """The entry's offset is not larger than the last one."""


class InvalidIndexTimestamp(IndexFailure):
    """The entry's timestamp is smaller than the last one."""


class CorruptIndex(IndexFailure):
    """The file is not a valid index and must be rebuilt."""


class MemoryEntries:
    """The entries of an active segment that has few, with the methods of `Mapping` (storage/files/file_system.py). They
    grow as they are written.

    Creating a file costs the loop up to milliseconds on a busy disk, and mapping one costs two pages: with thousands of
    partitions that write little this is most of what a partition costs.
    """

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


class By(IntEnum):
    """The field of an entry to search by. Both fields grow from entry to entry."""

    KEY = 0
    VALUE = 1


class AbstractIndex:
    """A sorted array of fixed-size entries; subclasses define the fields.

    base_offset: of the segment; entries contain offsets relative to it. entries: number of used slots.
    """

    ENTRY: ClassVar[Struct]
    FIELDS: ClassVar[tuple[tuple[int, int], tuple[int, int]]]
    """Position and length (bytes) of key and value within an entry."""

    def __init__(self, files: Files, path: str, base_offset: Offset, max_bytes: int, *, fresh: bool = False) -> None:
        """Open the file, if it exists.

        max_bytes: size of the file while entries can be added. fresh: the file is missing or empty. Raises OSError,
        ValueError for a size below one entry.
        """
        if max_bytes < self.ENTRY.size:
            raise ValueError(f"the maximum size of {path} is {max_bytes} bytes, less than one entry")
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY.size
        self.entries = 0
        self._files = files
        self._mapping: Mapping | MemoryEntries | None = None
        self._memory_entries_max = memory_entries_max(path)
        self._writable = False
        self._reserved = 0
        """Number of entries for which disk space is known to be allocated."""
        self._closed = False
        self._extra_bytes = 0
        if fresh:
            self._hold(b"")
        else:
            self._map()
        try:
            self.remember_last()
        except OSError:
            self._unmap()
            raise

    @property
    def held(self) -> bytes | None:
        """The entries, if they are only in memory; None if the file has them."""
        return (
            self._mapping.read(0, self.entries * self.ENTRY.size) if isinstance(self._mapping, MemoryEntries) else None
        )

    @property
    def is_full(self) -> bool:
        """True if the segment must be rolled before the next entry."""
        return self.entries >= self.max_entries

    def fits(self, offset: int) -> bool:
        """True if the offset can be stored relative to the base offset."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def relative(self, offset: int) -> int:
        """The offset relative to the base offset, as stored in an entry. Raises IndexOffsetOverflow."""
        if not self.fits(offset):
            raise IndexOffsetOverflow(
                f"offset {offset} is too far from the base offset {self.base_offset} of {self.path}"
            )
        return offset - self.base_offset

    def sanity_check(self) -> None:
        """Raise CorruptIndex if the file's size or its first or last entry is invalid for this index."""
        if self._extra_bytes:
            raise CorruptIndex(
                f"{self.path} has {self.entries * self.ENTRY.size + self._extra_bytes} bytes, not a multiple of "
                f"{self.ENTRY.size}"
            )

    def remember_last(self) -> None:
        """Read the last entry after the number of entries has changed. Raises OSError."""
        raise NotImplementedError

    def stored(self, target: int, by: By) -> int:
        """The stored form of this key or value."""
        raise NotImplementedError

    def unpack(self, slot: int) -> tuple[int, ...]:
        """The raw fields of an entry. Raises OSError, KafkaStorageError if the index is closed."""
        mapping, size = self._mapping, self.ENTRY.size
        if mapping is None:
            raise self._is_closed()
        return self.ENTRY.unpack(mapping.read(slot * size, size))

    def push(self, *fields: int) -> None:
        """Write an entry after the last one; the caller has compared the two. Raises IndexFull, OSError,
        KafkaStorageError if the index is closed."""
        if not self._writable:
            self.make_writable()
        if self.entries >= self.max_entries:
            raise IndexFull(f"{self.path} is full with {self.max_entries} entries")
        if self.entries >= self._memory_entries_max and isinstance(self._mapping, MemoryEntries):
            self._write_out(self._mapping)
        mapping, entries = self._mapping, self.entries
        assert mapping is not None, "a writable index is mapped"
        data = self.ENTRY.pack(*fields)
        position = entries * len(data)
        if entries >= self._reserved:
            mapping.reserve(position + len(data))
        mapping.write(position, data)
        self.entries = entries + 1

    def slot(self, target: int, by: By) -> int:
        """The last slot whose key or value is at most `target`, -1 if there is none. Raises OSError, KafkaStorageError
        if the index is closed."""
        entries, size = self.entries, self.ENTRY.size
        if self._mapping is None or not entries:
            if self._closed:
                raise self._is_closed()
            return -1
        at, wide = self.FIELDS[by]
        return self._mapping.search(entries, _WARM_BYTES // size, size, at, wide, self.stored(target, by))

    def reserve_entries(self, count: int) -> None:
        """Allocate disk space for the next `count` entries, so that writing them cannot fail. Raises OSError,
        KafkaStorageError if the index is closed."""
        if not self._writable:
            self.make_writable()
        entries = min(self.entries + count, self.max_entries)
        if entries > self._reserved:
            if entries > self._memory_entries_max and isinstance(self._mapping, MemoryEntries):
                self._write_out(self._mapping)
            assert self._mapping is not None, "a writable index is mapped"
            self._mapping.reserve(entries * self.ENTRY.size)
            self._reserved = entries

    def make_writable(self) -> None:
        """Prepare for entries: read those of a small file into memory, or extend the file to its full size and map it
        for writing. Raises OSError, KafkaStorageError."""
        if self._closed:
            raise self._is_closed()
        held = None
        if self.entries < self._memory_entries_max:
            held = b"" if self._mapping is None else self._mapping.read(0, self.entries * self.ENTRY.size)
        self._unmap()
        if held is None:
            self._mapping, self._writable = self._map_writable(), True
        else:
            self._hold(held)

    def truncate_entries(self, entries: int) -> None:
        """Keep only the first `entries` entries. Raises OSError, KafkaStorageError."""
        if entries < self.entries and isinstance(self._mapping, MemoryEntries):
            self._mapping.truncate(entries * self.ENTRY.size)
            self.entries = entries
            self.remember_last()
        elif entries < self.entries:
            self._resize(entries)
            self._map()
            self.remember_last()

    def trim(self) -> None:
        """Write held entries, truncate the file to its entries and close the index: no more entries are added. Raises
        OSError; held entries stay in memory then."""
        held = self.held
        if held is not None:
            with closing(self._files.open(self.path, create=True)) as file:
                if held:
                    file.pwritev([held], 0)
                file.truncate(len(held))
            self._unmap()
        else:
            self._resize(self.entries)
        self._closed = True

    def close(self) -> None:
        """Unmap the file permanently, without changing it; held entries are dropped. Later use raises
        KafkaStorageError."""
        self._unmap()
        self._closed = True

    def _resize(self, entries: int) -> None:
        if self._closed:
            raise self._is_closed()
        size = entries * self.ENTRY.size
        self._unmap()
        if self._files.size(self.path) != size:
            with closing(self._files.open(self.path, create=True)) as file:
                file.truncate(size)

    def _map(self) -> None:
        size = self._files.size(self.path) or 0
        self.entries, self._extra_bytes = divmod(size, self.ENTRY.size)
        if self.entries:
            self._mapping = self._files.map(self.path, self.entries * self.ENTRY.size, writable=False)

    def _map_writable(self) -> Mapping:
        return self._files.map(self.path, self.max_entries * self.ENTRY.size, writable=True)

    def _hold(self, data: bytes) -> None:
        self._mapping, self._writable = MemoryEntries(data), True

    def _write_out(self, held: MemoryEntries) -> None:
        """Move held entries to the file. Raises OSError; they stay in memory then."""
        data = held.read(0, self.entries * self.ENTRY.size)
        mapping = self._map_writable()
        try:
            mapping.reserve(len(data) + self.ENTRY.size)
            mapping.write(0, data)
        except OSError:
            mapping.close()
            raise
        self._mapping, self._reserved = mapping, self.entries + 1

    def _unmap(self) -> None:
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None
        self._writable = False
        self._reserved = 0

    def _is_closed(self) -> KafkaStorageError:
        return KafkaStorageError(f"{self.path} is closed: open its log again")
