"""`.index`: positions in a segment's file where the search for an offset starts.

    relative offset   int32   last offset of a batch, minus the segment's base offset
    position          int32   start of that batch in the .log file

The first batch of a segment has no entry: every search may start at 0. Source: Kafka's OffsetIndex, rule of 4.1.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from storage.segment.abstract_index import AbstractIndex, By, CorruptIndex, InvalidIndexOffset
from tidelog.types import Offset


class OffsetPosition(NamedTuple):
    offset: Offset
    position: int


class OffsetIndex(AbstractIndex):
    """Entries of (last offset of a batch, its position)."""

    ENTRY = Struct(">ii")
    FIELDS = ((0, 4), (4, 4))

    last: OffsetPosition

    def remember_last(self) -> None:
        self.last = self.entry(self.entries - 1) if self.entries else OffsetPosition(self.base_offset, 0)

    def sanity_check(self) -> None:
        """Raise CorruptIndex if the file is not a valid index. An entry with position 0 is part of the zeros after the
        entries: the process ended before it trimmed the file."""
        super().sanity_check()
        if self.entries and (self.last.offset < self.base_offset or self.last.position <= 0):
            raise CorruptIndex(f"{self.path} ends with the invalid entry {tuple(self.last)}")

    def stored(self, target: int, by: By) -> int:
        return target - self.base_offset if by is By.KEY else target

    def entry(self, slot: int) -> OffsetPosition:
        """The entry in a slot, with an absolute offset."""
        relative, position = self.unpack(slot)
        return OffsetPosition(Offset(self.base_offset + relative), position)

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises IndexFull, InvalidIndexOffset if the offset is not larger than the last one,
        IndexOffsetOverflow, KafkaStorageError if the index is closed."""
        if self.entries and offset <= self.last.offset:
            raise InvalidIndexOffset(
                f"offset {offset} is not larger than {self.last.offset}, the last one in {self.path}"
            )
        self.push(self.relative(offset), position)
        self.last = OffsetPosition(Offset(offset), position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below `offset`; (base offset, 0) if there is none."""
        slot = self.slot(offset, By.KEY)
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Remove entries at and above `offset`."""
        slot = self.slot(offset - 1, By.KEY)
        self.truncate_entries(slot + 1)
