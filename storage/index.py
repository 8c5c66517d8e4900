"""What the two indexes of a segment share: sorted fixed-size entries in a memory-mapped, preallocated file.

Kept true:
  1. Entries only grow; the file holds them from its beginning, zeros or nothing behind them.
  2. An index is a hint: anything in it can be rebuilt from the log, and is where it looks wrong (recovery.py).
  3. The file is opened and mapped at first use, not before (Kafka wraps this in a LazyIndex).
  4. Room on the disk is taken before anything is written to memory, so a full disk is an OSError and not a signal.
Left to others: what an entry means (offset_index.py, time_index.py), when one is due (segment.py).
Source: Kafka's AbstractIndex, including the search that tries the warm end of the file first.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final

from storage.files import Buffer, Files, Mapping
from tidelog.types import Offset

_WARM_BYTES: Final = 8192
"""Lookups are mostly near the end: searching these last two pages first keeps the rest out of memory."""
_RELATIVE_MAX: Final = 2**31 - 1


class IndexFull(Exception):
    """No slot is free: the segment must be rolled."""


class IndexOffsetOverflow(Exception):
    """The offset does not fit into 31 bits above the base offset (Kafka's IndexOffsetOverflowException)."""


class InvalidIndexOffset(Exception):
    """The entry does not grow over the last one (Kafka's InvalidOffsetException, and IllegalStateException for
    times)."""


class CorruptIndex(Exception):
    """The file cannot be this index: rebuild it (Kafka's CorruptIndexException)."""


class AbstractIndex:
    """A sorted array of fixed-size entries, of which subclasses say what they hold.

    base_offset: of the segment; entries keep offsets relative to it. max_bytes: size while it may grow.
    """

    ENTRY: ClassVar[Struct]

    def __init__(self, files: Files, path: str, base_offset: Offset, max_bytes: int, *, fresh: bool = False) -> None:
        """fresh: there is no file yet, or an empty one: nothing is read."""
        if max_bytes < self.ENTRY.size:
            raise ValueError(f"the size of {path} is limited to {max_bytes} bytes, less than one entry")
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY.size
        self._files = files
        self._mapping: Mapping | None = None
        self._buffer: Buffer = b""
        self._writable = False
        self._entries = 0
        self._loaded = False
        if fresh:
            self._map_writable()
            self._loaded = True
            self.loaded()

    # --- state ----------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """How many slots are in use."""
        if not self._loaded:
            self._load()
        return self._entries

    @property
    def is_full(self) -> bool:
        """Must the segment be rolled before the next entry?"""
        return self.entries >= self.max_entries

    def fits(self, offset: int) -> bool:
        """Can this offset be told relative to the base offset?"""
        return 0 <= offset - self.base_offset <= _RELATIVE_MAX

    def relative(self, offset: int) -> int:
        """The offset as an entry holds it. Raises IndexOffsetOverflow."""
        if not 0 <= offset - self.base_offset <= _RELATIVE_MAX:
            raise IndexOffsetOverflow(
                f"offset {offset} is too far from the base offset {self.base_offset} of {self.path}"
            )
        return offset - self.base_offset

    # --- for subclasses -------------------------------------------------------------------------------------------

    def key(self, slot: int) -> int:
        """What the index is sorted and searched by: the first field of the slot's entry."""
        raise NotImplementedError

    def loaded(self) -> None:
        """The number of entries is known, or has changed: remember the last one. Raises CorruptIndex."""
        raise NotImplementedError

    def unpack(self, slot: int) -> tuple[int, ...]:
        """The raw fields of an entry."""
        return self.ENTRY.unpack_from(self._buffer, slot * self.ENTRY.size)

    def push(self, *fields: int) -> None:
        """Write an entry behind the last one, which the caller has compared it with."""
        if not self._writable:
            self.make_writable()
        if self._entries >= self.max_entries:
            raise IndexFull(f"{self.path} has no room for more than {self.max_entries} entries")
        mapping = self._mapping
        assert mapping is not None
        position = self._entries * self.ENTRY.size
        mapping.reserve(position + self.ENTRY.size)
        mapping.write(position, self.ENTRY.pack(*fields))
        self._entries += 1

    # --- search ---------------------------------------------------------------------------------------------------

    def lower_slot(self, target: int) -> int:
        """The last slot whose key is not above `target`, -1 where there is none."""
        entries = self.entries
        if entries == 0:
            return -1
        warm = max(0, entries - 1 - _WARM_BYTES // self.ENTRY.size)
        if self.key(warm) <= target:
            return self._search(target, warm, entries - 1)
        if self.key(0) > target:
            return -1
        return self._search(target, 0, warm)

    def upper_slot(self, target: int) -> int:
        """The first slot whose key is not below `target`, -1 where there is none."""
        slot = self.lower_slot(target - 1) + 1
        return slot if slot < self.entries else -1

    def _search(self, target: int, low: int, high: int) -> int:
        """Binary search; key(low) is not above the target."""
        while low < high:
            middle = (low + high + 1) // 2
            if self.key(middle) > target:
                high = middle - 1
            else:
                low = middle
        return low

    # --- the file -------------------------------------------------------------------------------------------------

    def make_room(self, count: int) -> None:
        """Take room on the disk for the next `count` entries, so that writing them cannot fail. Raises OSError."""
        if not self._writable:
            self.make_writable()
        assert self._mapping is not None
        self._mapping.reserve(min(self._entries + count, self.max_entries) * self.ENTRY.size)

    def make_writable(self) -> None:
        """Lengthen the file to its full size and map it for writing."""
        entries = self.entries
        self._unmap()
        self._map_writable()
        self._entries = entries

    def truncate_entries(self, entries: int) -> None:
        """Keep only the first `entries`."""
        if entries < self.entries:
            self._cut(entries)

    def trim(self) -> None:
        """Cut the file to the entries in use: the segment will not grow any more, or the log is closed."""
        if self._writable or not self._loaded:
            self._cut(self.entries)

    def recreate(self) -> None:
        """Forget all entries, whatever the file holds, to write them anew."""
        self._unmap()
        file = self._files.open(self.path, create=True)
        try:
            file.truncate(0)
        finally:
            file.close()
        self._entries = 0
        self._map_writable()
        self._loaded = True
        self.loaded()

    def close(self) -> None:
        """Unmap; it opens again when it is used again."""
        self._unmap()
        self._loaded = False

    def _cut(self, entries: int) -> None:
        """Cut the file behind so many entries. It is loaded anew at the next use."""
        size = entries * self.ENTRY.size
        self.close()
        file = self._files.open(self.path, create=True)
        try:
            if file.size() != size:
                file.truncate(size)
        finally:
            file.close()

    def _load(self) -> None:
        """Count the entries of the file. One that was open for writing when its process died ends in zeros."""
        size = self._files.size(self.path) or 0
        if size % self.ENTRY.size:
            raise CorruptIndex(f"{self.path} has {size} bytes, no multiple of {self.ENTRY.size}")
        self._entries = size // self.ENTRY.size
        if size:
            self._mapping = self._files.map(self.path, size, writable=False)
            self._buffer = self._mapping.buffer
        self._loaded = True
        self.loaded()

    def _map_writable(self) -> None:
        self._mapping = self._files.map(self.path, self.max_entries * self.ENTRY.size, writable=True)
        self._buffer = self._mapping.buffer
        self._writable = True

    def _unmap(self) -> None:
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None
            self._buffer = b""
        self._writable = False
