"""The aborted transactions of one log: readers with read_committed skip their records.

Invariants:
  1. A transaction index is trusted only after a comparison with the batches of its segment in this process: a file that
     was lost, truncated or corrupted while the clean-stop marker existed is rebuilt on its first read. The comparison
     reads the batch headers and the markers of the segment once. Segments that this process wrote or recovered need no
     comparison, nor do segments that agreed in an earlier process and have the same size and checksum now.
  2. A search beyond the range ends at the first segment at whose end no transaction that began in the range is open, so
     that a read at the log's start does not search all segments.
  3. A segment that cannot be checked (the log is damaged there) raises an error; it is never skipped.
Not here: the index file of one segment (transaction_index.py), the effect of a batch (producer_entry.py).
Source: Kafka's LocalLog.collectAbortedTransactions; the check is Tidelog's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from storage.files.file_system import Files, WouldBlock
from storage.producers.producer_replay import Batches, replay, walk_producers
from storage.producers.producer_state import ProducerStateManager
from storage.segment.abstract_index import CorruptIndex
from storage.segment.agreed_indexes import Agreement, read_agreements, remove_agreements, write_agreements
from storage.segment.segment import LogSegment, segment_path
from storage.segment.segments import LogSegments
from storage.segment.transaction_index import (
    TRANSACTION_INDEX_SUFFIX,
    AbortedTransaction,
    TransactionIndex,
    encode_transactions,
)
from tidelog.records.v2.checksum import crc32c
from tidelog.types import INT64_MAX, Offset, ProducerId

HoleRule: TypeAlias = Callable[[LogSegment, Offset], bool]


class _Marker(NamedTuple):
    """An abort marker in the batches."""

    producer_id: ProducerId
    """The producer of the transaction."""
    earliest: Offset
    """Lower bound of the transaction's first offset: one past the producer's previous marker."""
    stable: Offset
    """The last stable offset after the marker."""


class Transactions(NamedTuple):
    """The transactions in the batches of a segment."""

    aborted: list[AbortedTransaction]
    """The transactions whose abort marker is in the segment; their batches are in it or in earlier ones."""
    markers: dict[Offset, _Marker]
    """All abort markers, by offset."""
    open_since: Offset | None
    """First offset of the oldest transaction that is open at the end of the segment."""


class Unverified(WouldBlock):
    """The transaction index of the segment has not been compared with its batches, or has not been read."""

    def __init__(self, segment: LogSegment) -> None:
        super().__init__(segment)
        self.segment = segment


class AbortedTransactions:
    """The transaction indexes of one log. Use on the owner's thread only."""

    __slots__ = ("_agreed", "_directory", "_files", "_open_after", "_verified")

    def __init__(self, files: Files, directory: str) -> None:
        self._files, self._directory = files, directory
        self._verified: dict[Offset, TransactionIndex] = {}
        """Indexes that agree with their segments, by base offset."""
        self._open_after: dict[Offset, Offset | None] = {}
        """For closed segments, by base offset: first offset of the oldest transaction open at the segment's end."""
        self._agreed: dict[Offset, Agreement] | None = None
        """Agreements recorded by earlier processes; None: the file has not been read."""

    def _index(self, base_offset: Offset) -> TransactionIndex:
        path = segment_path(self._directory, base_offset, TRANSACTION_INDEX_SUFFIX)
        return TransactionIndex(self._files, path, base_offset)

    def begin(self, base_offset: Offset) -> None:
        """Add a new, empty segment without an index file."""
        index = self._verified[base_offset] = self._index(base_offset)
        index.begin()

    def close(self, base_offset: Offset, open_since: Offset | None) -> None:
        """Record that the segment is closed. open_since: first offset of the oldest open transaction."""
        self._open_after[base_offset] = open_since

    def append(self, base_offset: Offset, transactions: Sequence[AbortedTransaction]) -> None:
        """Add transactions whose markers were written to the segment. Raises OSError."""
        index = self._verified.get(base_offset) or self._index(base_offset)
        try:
            for transaction in transactions:
                index.append(transaction)
        except CorruptIndex:
            self._verified.pop(base_offset, None)  # rebuilt on the next read

    def rebuilt(self, base_offset: Offset, transactions: Sequence[AbortedTransaction]) -> None:
        """Rewrite the index if it differs from the transactions in all batches of the segment. Raises OSError."""
        index = self._index(base_offset)
        try:
            agrees = list(index.entries) == list(transactions)
        except CorruptIndex:
            agrees = False
        if not agrees:
            index.replace(transactions)
        self._verified[base_offset] = index

    def truncate_to(self, last_base: Offset, offset: Offset) -> None:
        """Remove entries at and above `offset`, to which the log was truncated in the segment at `last_base`. Raises
        OSError."""
        for base in [base for base in self._verified if base > last_base]:
            del self._verified[base]
        for base in [base for base in self._open_after if base >= last_base]:
            del self._open_after[base]
        (self._verified.get(last_base) or self._index(last_base)).truncate_to(offset)

    def forget(self) -> bool:
        """Forget all comparisons, because segments are about to be truncated, emptied or replaced. Returns True if the
        directory must be synced before the next append. Raises OSError."""
        self._verified.clear()
        self._open_after.clear()
        return self.truncating()

    def truncating(self) -> bool:
        """Discard the agreements of earlier processes before a truncation. Returns as `forget`."""
        self._agreed = {}
        return remove_agreements(self._files, self._directory)

    def recovered(self, read_from: Offset) -> None:
        """Discard, durably, the agreements of segments that recovery has read (from `read_from` on). Raises OSError."""
        before = self._earlier()
        self._agreed = {base: agreement for base, agreement in before.items() if base < read_from}
        if len(self._agreed) < len(before):
            write_agreements(self._files, self._directory, self._agreed, sync=True)

    def note_agreements(self, segments: LogSegments, open_since: Offset | None) -> None:
        """Write the agreements of all checked segments, for later processes. open_since: first offset of the oldest
        transaction open at the log's end. Raises OSError."""
        before, now = self._earlier(), dict[Offset, Agreement]()
        for segment in segments:
            base, index = segment.base_offset, self._verified.get(segment.base_offset)
            since = open_since if segment is segments.active else self._open_after.get(base)
            if index is not None and (segment is segments.active or base in self._open_after):
                now[base] = Agreement(segment.size, *_summary_of(index), Offset(-1) if since is None else since)
            elif base in before:
                now[base] = before[base]
        if now != before:
            write_agreements(self._files, self._directory, now)
            self._agreed = now

    def _earlier(self) -> dict[Offset, Agreement]:
        if self._agreed is None:
            self._agreed = read_agreements(self._files, self._directory)
        return self._agreed

    def recall(self, segment: Batches) -> bool:
        """Trust the index if segment and index have the sizes and checksum recorded by an earlier process. Returns
        whether it is trusted. Raises OSError."""
        base, index = segment.base_offset, self._index(segment.base_offset)
        then = self._earlier().get(base)
        try:
            if then is None or (segment.size, *_summary_of(index)) != then[:3]:
                return False
        except CorruptIndex:
            return False
        self._verified[base] = index
        self._open_after[base] = then.open_since if then.open_since >= 0 else None
        return True

    def collect(
        self, segments: LogSegments, start: Offset, end: Offset, is_hole: HoleRule, *, wait: bool = True
    ) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions with records in [start, end), by first offset. is_hole: whether missing offsets
        between this segment and one that begins at the given offset are an error. wait: wait for the disk; if False,
        raises Unverified instead of waiting. Raises BrokenChain, OSError."""
        found: list[AbortedTransaction] = []
        searched = segments.from_offset(start)
        for segment, behind in zip_longest(searched, searched[1:]):
            if not wait and not self._is_in_memory(segment, segments):
                raise Unverified(segment)
            index = self._verify(segment, segments, behind, is_hole)
            transactions, complete = index.collect(start, end)
            found.extend(transactions)
            open_since = self._open_after.get(segment.base_offset)
            reaches_end = behind is None or behind.base_offset >= end
            if complete or (reaches_end and (open_since is None or open_since >= end)):
                break
        return tuple(sorted(found, key=lambda transaction: transaction.first_offset))

    def _is_in_memory(self, segment: LogSegment, segments: LogSegments) -> bool:
        """True if the segment's index is trusted and in memory."""
        index = self._verified.get(segment.base_offset)
        if index is None or not index.is_read:
            return False
        return segment is segments.active or segment.base_offset in self._open_after

    def enter(
        self, segment: LogSegment, segments: LogSegments, is_hole: HoleRule, read: Transactions | None, end: Offset
    ) -> None:
        """Store the result of reading a segment's batches, which end at `end`. read: None if an earlier process has
        checked the segment. The segment must still belong to the log and must not have grown. Raises OSError."""
        if read is None:
            self.recall(segment)
            return
        base = segment.base_offset
        behind = next(iter(segments.behind(segment)), None)
        if behind is not None and end < behind.base_offset and is_hole(segment, behind.base_offset):
            read = read._replace(aborted=self._joined(base, read.aborted))
        self._repair(base, read)
        if behind is not None:
            self._open_after[base] = read.open_since

    def _verify(
        self, segment: LogSegment, segments: LogSegments, behind: LogSegment | None, is_hole: HoleRule
    ) -> TransactionIndex:
        """The segment's index, after a comparison with the batches. The batches of a segment that lost its end may lack
        markers: the entries of the index are then kept as well."""
        base, closed = segment.base_offset, segment is not segments.active
        index = self._verified.get(base)
        if index is not None and (not closed or base in self._open_after):
            return index
        if closed and self.recall(segment):
            return self._verified[base]
        read = read_transactions(self._files, self._directory, segments.all, segment)
        end = None if behind is None or not is_hole(segment, behind.base_offset) else behind.base_offset
        if end is not None and segment.end_below(end) < end:
            read = read._replace(aborted=self._joined(base, read.aborted))
        index = self._repair(base, read)
        if closed:
            self._open_after[base] = read.open_since
        return index

    def _joined(self, base: Offset, read: list[AbortedTransaction]) -> list[AbortedTransaction]:
        """The union of the index entries and the transactions from the batches."""
        try:
            entries = self._index(base).entries
        except CorruptIndex:
            return read
        return sorted({*entries, *read}, key=lambda transaction: transaction.last_offset)

    def _repair(self, base: Offset, read: Transactions) -> TransactionIndex:
        index = self._index(base)
        if not _agrees(index, read):
            index.replace(read.aborted)
        self._verified[base] = index
        return index

    def unverified(self, closed: Iterable[LogSegment]) -> list[LogSegment]:
        """The closed segments whose batches a search would have to read. Raises OSError."""
        return [
            segment
            for segment in closed
            if not (segment.base_offset in self._verified and segment.base_offset in self._open_after)
            and not self.recall(segment)
        ]

    def replaced(self, old: Sequence[Offset], base_offset: Offset) -> None:
        """Enter a cleaned segment, which has replaced the segments `old`. Its index was derived from theirs and is
        trusted if it is readable. Raises OSError."""
        index = self._index(base_offset)
        known, open_since = old[-1] in self._open_after, self._open_after.get(old[-1])
        for base in old:
            self._verified.pop(base, None)
            self._open_after.pop(base, None)
            self._earlier().pop(base, None)
        if known:
            with suppress(CorruptIndex):
                _ = index.entries  # read now: the file is known to be right
                self._verified[base_offset], self._open_after[base_offset] = index, open_since


def read_transactions(files: Files, directory: str, segments: Sequence[Batches], segment: Batches) -> Transactions:
    """Read the transactions from the batches of a segment. segments: those of the log, at least the ones before it. Any
    thread, if the caller owns these segments. Raises BrokenChain, OSError."""
    base = segment.base_offset
    state = ProducerStateManager(files, directory, INT64_MAX)
    known, _ = state.load(base)
    replay(state, segments, segments[0].base_offset if known is None else known, base)
    aborted: list[AbortedTransaction] = []
    markers: dict[Offset, _Marker] = {}
    ends: dict[ProducerId, Offset] = {}
    for batch in walk_producers(segment, base, Offset(INT64_MAX)):
        aborted.extend(state.replay(batch))
        if batch.marker is None:
            continue
        producer_id, offset = batch.header.producer_id, batch.header.base_offset
        if batch.marker.aborted:
            stable = next(iter(state.open_transactions), Offset(offset + 1))
            markers[offset] = _Marker(producer_id, ends.get(producer_id, Offset(0)), stable)
        ends[producer_id] = Offset(offset + 1)
    return Transactions(aborted, markers, next(iter(state.open_transactions), None))


def _summary_of(index: TransactionIndex) -> tuple[int, int]:
    """Number of entries and their checksum. Raises CorruptIndex, OSError."""
    return len(index.entries), crc32c(encode_transactions(index.entries))


def _agrees(index: TransactionIndex, read: Transactions) -> bool:
    """True if the index covers exactly the transactions aborted according to the batches.

    The entries may differ from the batches: after cleaning, a transaction may have begun before its first remaining
    batch, or only its marker may remain.
    """
    try:
        entries = {entry.last_offset: entry for entry in index.entries}
    except CorruptIndex:
        return False
    for last_offset, entry in entries.items():
        marker = read.markers.get(last_offset)
        if marker is None or marker.producer_id != entry.producer_id:
            return False
        if entry.first_offset < marker.earliest or entry.last_stable_offset > marker.stable:
            return False
    return all(
        transaction.last_offset in entries and entries[transaction.last_offset].first_offset <= transaction.first_offset
        for transaction in read.aborted
    )
