"""The indexes of one segment compared with its batches, in one pass along both: every entry must be valid.

An entry of `.index` holds the last offset of a batch, and the byte where that batch begins, or (older Kafka versions)
the append that ended with it. An entry of `.timeindex` holds the largest timestamp so far. An entry of `.txnindex`
names an abort marker of its producer.

Invariants: indexes are kept in memory as bytes, not as objects, also for a segment of a gigabyte.
Not here: reading the batches (verifier.py), the consequences (scrub_segment.py, dump/segment_files.py), which markers
must have an entry (aborted_transactions.py).
Source: the index rules of 4.1 and 2.8 in the vectors' README.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import ClassVar, NamedTuple

from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex
from storage.segment.transaction_index import AbortedTransaction
from tidelog.records.v2.header import BatchHeader


class EntryFault(NamedTuple):
    """A wrong entry: its byte in the index file (None: unknown), the offsets that it concerns (None: unknown; the last
    one is inclusive), and what is wrong. missing: the index lacks the entry."""

    position: int | None
    first_offset: int | None
    last_offset: int | None
    reason: str
    missing: bool = False


class _EntryCheck:
    """The entries of one index, in order, and the next one to compare. closed: the index was trimmed to its entries;
    otherwise zeros after the last one are preallocated space."""

    ENTRY: ClassVar[Struct]

    def __init__(self, data: bytes, base: int, *, closed: bool = False) -> None:
        self._data, self._base, self._closed = data, base, closed
        self._entries = enumerate(self.entries())
        self._last: tuple[int, int] | None = None
        self._slot, self._entry = -1, (0, 0)
        self._left = self._advance()

    def entries(self) -> Iterator[tuple[int, int]]:
        """The entries, with absolute offsets."""
        end = len(self._data) - len(self._data) % self.ENTRY.size
        if not self._closed:
            end = min(-(-len(self._data.rstrip(b"\0")) // self.ENTRY.size) * self.ENTRY.size, end)
            end = end or (self.ENTRY.size if len(self._data) == self.ENTRY.size else 0)
        for first, second in self.ENTRY.iter_unpack(memoryview(self._data)[:end]):
            yield self._absolute(first, second)

    def _absolute(self, first: int, second: int) -> tuple[int, int]:
        raise NotImplementedError

    @property
    def size(self) -> int:
        return len(self._data)

    def shape(self) -> Iterator[EntryFault]:
        """Check that the file is a whole number of entries."""
        size, each = len(self._data), self.ENTRY.size
        if size % each:
            reason = f"{size} bytes are no whole number of entries of {each} bytes: it was truncated or extended"
            yield EntryFault(size - size % each, None, None, reason)

    def _advance(self) -> bool:
        """Proceed to the next entry. Returns False after the last one."""
        if self._slot >= 0:
            self._last = self._entry
        self._slot, entry = next(self._entries, (self._slot + 1, None))
        self._entry = entry or (0, 0)
        return entry is not None


class OffsetIndexCheck(_EntryCheck):
    ENTRY = OffsetIndex.ENTRY

    def __init__(self, data: bytes, base: int, *, closed: bool = False) -> None:
        self._waiting: list[tuple[int, tuple[int, int]]] = []
        """Entries of the current append, whose last batch has not been reached."""
        self._next_offset = base
        super().__init__(data, base, closed=closed)

    def _absolute(self, first: int, second: int) -> tuple[int, int]:
        return self._base + first, second

    def batch(self, header: BatchHeader) -> Iterator[EntryFault]:
        end = header.end
        while self._left and self._entry[1] < end:
            yield from self._check_entry(header)
            self._left = self._advance()
        last_offset = header.last_offset
        while self._waiting and self._waiting[0][1][0] <= last_offset:
            slot, entry = self._waiting.pop(0)
            if entry[0] != last_offset:
                yield self._wrong(slot, entry, "no batch ends with that offset")
        self._next_offset = last_offset + 1

    def _check_entry(self, header: BatchHeader) -> Iterator[EntryFault]:
        (offset, position), last = self._entry, self._last
        if last is not None and (offset <= last[0] or position <= last[1]):
            yield self._wrong(self._slot, self._entry, f"it is not above the previous entry, offset {last[0]}")
        elif position != header.position:
            reason = f"no batch begins there: it is inside the one at byte {header.position}"
            yield self._wrong(self._slot, self._entry, reason)
        elif position == 0:
            yield self._wrong(self._slot, self._entry, "the first batch has no entry")
        elif offset < self._next_offset:
            yield self._wrong(self._slot, self._entry, f"offset {offset} is before that batch")
        else:
            self._waiting.append((self._slot, self._entry))

    def end(self, size: int) -> Iterator[EntryFault]:
        while self._left:
            yield self._wrong(self._slot, self._entry, f"the log file has only {size} bytes of batches")
            self._left = self._advance()
        for slot, entry in self._waiting:
            yield self._wrong(slot, entry, "the segment ends before that offset")

    def _wrong(self, slot: int, entry: tuple[int, int], why: str) -> EntryFault:
        reason = f"entry {slot} has offset {entry[0]} at byte {entry[1]} of the log: {why}"
        return EntryFault(slot * self.ENTRY.size, entry[0], entry[0], reason)


class TimeIndexCheck(_EntryCheck):
    ENTRY = TimeIndex.ENTRY
    _largest = -1

    def _absolute(self, first: int, second: int) -> tuple[int, int]:
        return first, self._base + second

    def batch(self, header: BatchHeader) -> Iterator[EntryFault]:
        self._largest = max(self._largest, header.max_timestamp)
        last_offset = header.last_offset
        while self._left and self._entry[1] <= last_offset:
            timestamp, last = self._entry[0], self._last
            if last is not None and (timestamp <= last[0] or self._entry[1] < last[1]):
                yield self._wrong(f"it is not above the previous entry, ({last[0]}, {last[1]})")
            elif timestamp != self._largest:
                yield self._wrong(f"the largest timestamp up to there is {self._largest}")
            self._left = self._advance()

    def end(self) -> Iterator[EntryFault]:
        """End the segment. Rolling adds the largest timestamp of a closed segment as its last entry."""
        while self._left:
            yield self._wrong("the segment ends before that offset")
            self._left = self._advance()
        if self._closed and self._largest >= 0 and (self._last is None or self._last[0] != self._largest):
            reason = f"the largest timestamp of the segment, {self._largest}, is missing at its end"
            yield EntryFault(len(self._data), None, None, reason)

    def _wrong(self, why: str) -> EntryFault:
        timestamp, offset = self._entry
        reason = f"entry {self._slot} has timestamp {timestamp} for offset {offset}: {why}"
        return EntryFault(self._slot * self.ENTRY.size, offset, offset, reason)


class TransactionIndexCheck:
    def __init__(self, entries: Sequence[AbortedTransaction], *, present: bool, cleaned: range = range(0)) -> None:
        """present: True if the file exists. cleaned: compaction may have removed markers at these offsets."""
        self._present, self._cleaned = present, cleaned
        self._entries = {int(entry.last_offset): entry for entry in entries}
        self._reported = False

    def aborted(self, offset: int, producer_id: int, began: int | None = None) -> Iterator[EntryFault]:
        """Add the next abort marker of the segment. began: first offset of the transaction, if that is certain."""
        entry = self._entries.pop(offset, None)
        if entry is not None and entry.producer_id != producer_id:
            yield self._wrong(entry, f"the marker there belongs to producer {producer_id}")
        elif entry is not None and began is not None and entry.first_offset > began:
            yield self._wrong(entry, f"the transaction began at offset {began} already")
        elif entry is None and began is not None and not self._reported:
            self._reported = not self._present
            lost = "the file is missing" if not self._present else "it has no entry for it"
            yield EntryFault(
                None,
                began,
                offset,
                f"the transaction of producer {producer_id} from offset {began} on was aborted at offset {offset}, but "
                f"{lost}: a Kafka broker would return aborted records to read_committed consumers",
                missing=True,
            )

    def end(self) -> Iterator[EntryFault]:
        for entry in self._entries.values():
            if entry.last_offset not in self._cleaned:
                yield self._wrong(entry, "there is no abort marker at the last offset")

    @staticmethod
    def _wrong(entry: AbortedTransaction, why: str) -> EntryFault:
        reason = (
            f"an entry has an aborted transaction of producer {entry.producer_id}, offsets {entry.first_offset} to "
            f"{entry.last_offset}: {why}"
        )
        return EntryFault(None, entry.first_offset, entry.last_offset, reason)
