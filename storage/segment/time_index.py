"""`.timeindex`: the largest timestamp so far, and the batch that brought it.

    timestamp         int64   larger than in every entry before
    relative offset   int32   last offset of the batch that brought it, less the segment's base offset

Everything behind that batch, up to the next entry's, is no younger than the next entry says. Source: Kafka's TimeIndex.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from storage.segment.abstract_index import AbstractIndex, By
from storage.segment.index_errors import CorruptIndex, IndexFull, InvalidIndexOffset, InvalidIndexTimestamp
from tidelog.types import NO_TIMESTAMP, Millis, Offset


class TimestampOffset(NamedTuple):
    """A timestamp (milliseconds since 1970) and the last offset of the batch that brought it."""

    timestamp: Millis
    offset: Offset


class TimeIndex(AbstractIndex):
    """Entries of (largest timestamp so far, offset)."""

    ENTRY = Struct(">qi")
    FIELDS = ((0, 8), (8, 4))

    last: TimestampOffset

    @property
    def is_full(self) -> bool:
        """One slot is kept free for the entry that rolling or closing adds."""
        return self.entries >= self.max_entries - 1

    def remember_last(self) -> None:
        self.last = self.entry(self.entries - 1) if self.entries else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def sanity_check(self) -> None:
        """Raise CorruptIndex where the file cannot be this index: no entry but the first, of a segment's first record,
        points at the base offset; the zeros of a file that was open when its process died do."""
        super().sanity_check()
        if self.entries and (
            self.last.offset < self.base_offset
            or self.last.timestamp < self.unpack(0)[0]
            or (self.entries > 1 and self.last.offset == self.base_offset)
        ):
            raise CorruptIndex(f"{self.path} ends with the entry {tuple(self.last)}, which no append writes")

    def stored(self, target: int, by: By) -> int:
        return target if by is By.KEY else target - self.base_offset

    def entry(self, slot: int) -> TimestampOffset:
        """The entry in a slot, its offset absolute."""
        timestamp, relative = self.unpack(slot)
        return TimestampOffset(Millis(timestamp), Offset(self.base_offset + relative))

    def takes(self, timestamp: int, offset: int) -> bool:
        """Is neither below the last entry's?"""
        return not self.entries or (timestamp >= self.last.timestamp and offset >= self.last.offset)

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if the timestamp is larger than the last one's; an equal one is ignored.

        skip_full_check: take the slot that is kept free for rolling and closing. Raises IndexFull, InvalidIndexOffset
        and InvalidIndexTimestamp where offset or timestamp are smaller than the last ones, IndexOffsetOverflow, and
        KafkaStorageError where the index is closed.
        """
        if not skip_full_check and self.is_full:
            raise IndexFull(
                f"{self.path} has no room for more than {self.max_entries} entries, one of them kept for rolling"
            )
        if self.entries:
            if offset < self.last.offset:
                raise InvalidIndexOffset(f"offset {offset} is below {self.last.offset}, the last one in {self.path}")
            if timestamp < self.last.timestamp:
                raise InvalidIndexTimestamp(
                    f"timestamp {timestamp} is below {self.last.timestamp}, the last in {self.path}"
                )
        if timestamp > self.last.timestamp:
            self.push(timestamp, self.relative(offset))
            self.last = TimestampOffset(Millis(timestamp), Offset(offset))

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry whose timestamp is not above `timestamp`; (-1, base offset) where there is none."""
        slot = self.slot(timestamp, By.KEY)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def before(self, offset: int) -> TimestampOffset:
        """The last entry that points below `offset`; (-1, base offset) where there is none."""
        slot = self.slot(offset - 1, By.VALUE)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Forget entries that point at or above `offset`."""
        slot = self.slot(offset - 1, By.VALUE)
        self.truncate_entries(slot + 1)
