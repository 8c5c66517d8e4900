"""`.index`: where in a segment's file to start looking for an offset.

    relative offset   int32   last offset of a batch, less the segment's base offset
    position          int32   where that batch starts in the .log file

The first batch of a segment never has an entry: every search may start at 0. Source: Kafka's OffsetIndex, rule of 4.1.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from storage.segment.abstract_index import AbstractIndex, By
from storage.segment.index_errors import CorruptIndex, InvalidIndexOffset
from tidelog.types import Offset


class OffsetPosition(NamedTuple):
    """A batch's offset and where it starts in the file (bytes)."""

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
        """Raise CorruptIndex where the file cannot be this index: a position of 0 is what the zeros of a file that was
        open when its process died have."""
        super().sanity_check()
        if self.entries and (self.last.offset < self.base_offset or self.last.position <= 0):
            raise CorruptIndex(f"{self.path} ends with the entry {tuple(self.last)}, which no append writes")

    def stored(self, target: int, by: By) -> int:
        return target - self.base_offset if by is By.KEY else target

    def entry(self, slot: int) -> OffsetPosition:
        """The entry in a slot, its offset absolute."""
        relative, position = self.unpack(slot)
        return OffsetPosition(Offset(self.base_offset + relative), position)

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises IndexFull, InvalidIndexOffset where the offset does not grow, IndexOffsetOverflow, and
        KafkaStorageError where the index is closed."""
        if self.entries and offset <= self.last.offset:
            raise InvalidIndexOffset(
                f"offset {offset} does not grow over {self.last.offset}, the last one in {self.path}"
            )
        self.push(self.relative(offset), position)
        self.last = OffsetPosition(Offset(offset), position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry that is not above `offset`; (base offset, 0) where there is none."""
        slot = self.slot(offset, By.KEY)
        return self.entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Forget entries at and above `offset`."""
        slot = self.slot(offset - 1, By.KEY)
        self.truncate_entries(slot + 1)
