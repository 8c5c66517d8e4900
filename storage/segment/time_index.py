"""`.timeindex`: the largest timestamp so far, and its batch.

    timestamp         int64   larger than in every earlier entry
    relative offset   int32   last offset of the batch with this timestamp, minus the segment's base offset

Batches after an entry's batch, up to that of the next entry, have no timestamp above that of the next entry.
Source: Kafka's TimeIndex.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from storage.segment.abstract_index import (
    AbstractIndex,
    By,
    CorruptIndex,
    IndexFull,
    InvalidIndexOffset,
    InvalidIndexTimestamp,
)
from tidelog.types import NO_TIMESTAMP, Millis, Offset


class TimestampOffset(NamedTuple):
    """A timestamp (milliseconds since 1970) and the last offset of its batch."""

    timestamp: Millis
    offset: Offset


class TimeIndex(AbstractIndex):
    """Entries of (largest timestamp so far, offset)."""

    ENTRY = Struct(">qi")
    FIELDS = ((0, 8), (8, 4))

    last: TimestampOffset

    @property
    def is_full(self) -> bool:
        """True if only the slot reserved for rolling and closing is free."""
        return self.entries >= self.max_entries - 1

    def remember_last(self) -> None:
        self.last = self.entry(self.entries - 1) if self.entries else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def sanity_check(self) -> None:
        """Raise CorruptIndex if the file is not a valid index. Only the first entry, for a segment's first record, may
        point at the base offset. A later entry that does is part of the zeros after the entries: the process died
        before it trimmed the file."""
        super().sanity_check()
        if self.entries and (
            self.last.offset < self.base_offset
            or self.last.timestamp < self.unpack(0)[0]
            or (self.entries > 1 and self.last.offset == self.base_offset)
        ):
            raise CorruptIndex(f"{self.path} ends with the invalid entry {tuple(self.last)}")

    def stored(self, target: int, by: By) -> int:
        return target if by is By.KEY else target - self.base_offset

    def entry(self, slot: int) -> TimestampOffset:
        """The entry in a slot, with an absolute offset."""
        timestamp, relative = self.unpack(slot)
        return TimestampOffset(Millis(timestamp), Offset(self.base_offset + relative))

    def takes(self, timestamp: int, offset: int) -> bool:
        """True if neither value is below that of the last entry."""
        return not self.entries or (timestamp >= self.last.timestamp and offset >= self.last.offset)

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if the timestamp is larger than the last one; an equal one is ignored.

        skip_full_check: use the slot reserved for rolling and closing. Raises IndexFull, InvalidIndexOffset and
        InvalidIndexTimestamp if offset or timestamp are smaller than the last ones, IndexOffsetOverflow,
        KafkaStorageError if the index is closed.
        """
        if not skip_full_check and self.is_full:
            raise IndexFull(f"{self.path} is full with {self.max_entries} entries, one of them reserved for rolling")
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
        """The last entry with a timestamp at or below `timestamp`; (-1, base offset) if there is none."""
        slot = self.slot(timestamp, By.KEY)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def before(self, offset: int) -> TimestampOffset:
        """The last entry that points below `offset`; (-1, base offset) if there is none."""
        slot = self.slot(offset - 1, By.VALUE)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove entries that point at or above `offset`."""
        slot = self.slot(offset - 1, By.VALUE)
        self.truncate_entries(slot + 1)
