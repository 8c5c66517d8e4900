"""The indexes of one segment compared with its batches, in one pass along both: every entry must be valid.

Entries are read as they are; zeros after the last one are preallocated space.
Invariants: indexes are kept in memory as bytes, not as objects, also for a segment of a gigabyte.
Not here: reading batches (log_file.py), the epoch cache and offsets (chain.py).
Source: the index rules of 4.1 and 2.8 in the vectors' README: an entry holds the last offset of a batch, and the byte
where that batch begins, or the append that ended with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from storage.dump.events import AbortedFound, BatchFound, Finding, OffsetEntryFound, TimeEntryFound, damage, note
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex

REBUILT: Final = "delete the file while the node is stopped: it is rebuilt from the log"


class IndexBytes(NamedTuple):
    """The content of an index file, its path, and the base offset in its name."""

    path: str
    base: int
    data: bytes


def used(data: bytes, entry: Struct) -> int:
    """Number of bytes, in whole entries, before the zeros that fill a preallocated index."""
    end = len(data.rstrip(b"\0"))
    size = entry.size
    return min(-(-end // size) * size, len(data) - len(data) % size) or (size if len(data) == size else 0)


def offset_entries(index: IndexBytes) -> Iterator[OffsetEntryFound]:
    """The entries of an .index."""
    end = used(index.data, OffsetIndex.ENTRY)
    for relative, position in OffsetIndex.ENTRY.iter_unpack(memoryview(index.data)[:end]):
        yield OffsetEntryFound(index.path, index.base + relative, position)


def time_entries(index: IndexBytes) -> Iterator[TimeEntryFound]:
    """The entries of a .timeindex."""
    end = used(index.data, TimeIndex.ENTRY)
    for timestamp, relative in TimeIndex.ENTRY.iter_unpack(memoryview(index.data)[:end]):
        yield TimeEntryFound(index.path, timestamp, index.base + relative)


def check_shape(index: IndexBytes, entry: Struct) -> Iterator[Finding]:
    """Check that the file is a whole number of entries."""
    if len(index.data) % entry.size:
        yield damage(
            index.path,
            f"{len(index.data)} bytes are no whole number of entries of {entry.size} bytes: it was truncated or "
            "extended",
            REBUILT,
            position=len(index.data) - len(index.data) % entry.size,
        )


class OffsetIndexCheck:
    """Compares an .index with the batches of its segment."""

    def __init__(self, index: IndexBytes) -> None:
        self._index = index
        self._entries = enumerate(offset_entries(index))
        self._slot = -1
        self._entry: OffsetEntryFound | None = None
        self._waiting: list[tuple[int, OffsetEntryFound]] = []
        self._last: OffsetEntryFound | None = None
        self._previous_end = index.base
        self._advance()

    def batch(self, batch: BatchFound) -> Iterator[Finding]:
        """Add the next batch of the segment."""
        end = batch.position + batch.size
        while self._entry is not None and self._entry.position < end:
            yield from self._meets(self._entry, batch)
            self._advance()
        while self._waiting and self._waiting[0][1].offset <= batch.last_offset:
            slot, entry = self._waiting.pop(0)
            if entry.offset != batch.last_offset:
                yield self._wrong(slot, entry, "no batch ends with that offset")
        self._previous_end = batch.last_offset + 1

    def _meets(self, entry: OffsetEntryFound, batch: BatchFound) -> Iterator[Finding]:
        last, self._last = self._last, entry
        if last is not None and (entry.offset <= last.offset or entry.position <= last.position):
            yield self._wrong(self._slot, entry, f"it is not above the previous entry, offset {last.offset}")
        elif entry.position != batch.position:
            yield self._wrong(
                self._slot, entry, f"no batch begins there: it is inside the one at byte {batch.position}"
            )
        elif entry.offset < self._previous_end:
            yield self._wrong(self._slot, entry, f"offset {entry.offset} is before that batch")
        else:
            self._waiting.append((self._slot, entry))

    def end(self, size: int) -> Iterator[Finding]:
        """End the segment, which has `size` bytes."""
        while self._entry is not None:
            yield self._wrong(self._slot, self._entry, f"the log file has only {size} bytes of batches")
            self._advance()
        for slot, entry in self._waiting:
            yield self._wrong(slot, entry, "the segment ends before that offset")

    def _wrong(self, slot: int, entry: OffsetEntryFound, why: str) -> Finding:
        cause = f"entry {slot} has offset {entry.offset} at byte {entry.position} of the log: {why}"
        return damage(self._index.path, cause, REBUILT, position=slot * 8, first=entry.offset, last=entry.offset)

    def _advance(self) -> None:
        self._slot, self._entry = next(self._entries, (self._slot, None))


class TimeIndexCheck:
    """Compares a .timeindex with the batches of its segment."""

    def __init__(self, index: IndexBytes) -> None:
        self._index = index
        self._entries = enumerate(time_entries(index))
        self._slot = -1
        self._entry: TimeEntryFound | None = None
        self._last: TimeEntryFound | None = None
        self._largest = -1
        self._advance()

    def batch(self, batch: BatchFound) -> Iterator[Finding]:
        """Add the next batch of the segment."""
        self._largest = max(self._largest, batch.max_timestamp)
        while self._entry is not None and self._entry.offset <= batch.last_offset:
            entry, last = self._entry, self._last
            if last is not None and (entry.timestamp <= last.timestamp or entry.offset < last.offset):
                yield self._wrong(f"it is not above the previous entry, ({last.timestamp}, {last.offset})")
            elif entry.timestamp != self._largest:
                yield self._wrong(f"the largest timestamp up to there is {self._largest}")
            self._last = entry
            self._advance()

    def end(self) -> Iterator[Finding]:
        """End the segment."""
        while self._entry is not None:
            yield self._wrong("the segment ends before that offset")
            self._advance()

    def _wrong(self, why: str) -> Finding:
        entry = self._entry
        assert entry is not None
        cause = f"entry {self._slot} has timestamp {entry.timestamp} for offset {entry.offset}: {why}"
        return damage(
            self._index.path,
            cause,
            REBUILT,
            position=self._slot * TimeIndex.ENTRY.size,
            first=entry.offset,
            last=entry.offset,
        )

    def _advance(self) -> None:
        self._slot, self._entry = next(self._entries, (self._slot, None))


class TransactionIndexCheck:
    """Compares a .txnindex with the markers of its segment."""

    def __init__(self, path: str, entries: tuple[AbortedFound, ...], *, present: bool) -> None:
        """present: True if the file exists."""
        self._path = path
        self._present = present
        self._entries = {entry.last_offset: entry for entry in entries}
        self._told = False

    def batch(self, batch: BatchFound, aborts_from: int | None) -> Iterator[Finding]:
        """Add the next batch of the segment. aborts_from: first offset of the transaction that it certainly aborts."""
        aborts = batch.control == ("ABORT",)
        entry = self._entries.pop(batch.last_offset, None) if aborts else None
        if entry is not None and entry.producer_id != batch.producer_id:
            yield self._wrong(entry, f"the marker there belongs to producer {batch.producer_id}")
        elif entry is not None and aborts_from is not None and entry.first_offset > aborts_from:
            yield self._wrong(entry, f"the transaction began at offset {aborts_from} already")
        elif entry is None and aborts_from is not None and not self._told:
            self._told = not self._present
            lost = "the file is missing" if not self._present else "it has no entry for it"
            yield damage(
                self._path,
                f"the transaction of producer {batch.producer_id} from offset {aborts_from} on was aborted at offset "
                f"{batch.last_offset}, but {lost}: a Kafka broker would return aborted records to read_committed "
                "consumers",
                "nothing for Tidelog: the file is rebuilt from the log before it is used; before a Kafka broker opens "
                "the directory, "
                "start and stop a node with it",
                first=aborts_from,
                last=batch.last_offset,
            )

    def end(self) -> Iterator[Finding]:
        """End the segment."""
        for entry in self._entries.values():
            yield self._wrong(entry, "there is no abort marker at the last offset")

    def _wrong(self, entry: AbortedFound, why: str) -> Finding:
        cause = (
            f"an entry has an aborted transaction of producer {entry.producer_id}, offsets {entry.first_offset} to "
            f"{entry.last_offset}: {why}"
        )
        return damage(self._path, cause, REBUILT, first=entry.first_offset, last=entry.last_offset)


def missing(path: str) -> Finding:
    """The finding that a segment lacks this index."""
    return note(path, "the file is missing", "nothing: it is rebuilt from the log when the log is next opened")
