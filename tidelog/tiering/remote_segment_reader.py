"""Reads a segment from its object: batches from an offset, a record by its timestamp, aborted transactions.

A read takes the offset index (once) and then ranges of the log, each with a checksum of its own. Reads that follow each
other ask the store for more at a time, up to 4 MiB.

Invariants:
  1. Every byte that is returned was compared with a checksum that the coordinator or a manifest gave, offsets and
     leader epochs of the batches included. The checksums of ranges are covered by the checksum of their section.
  2. Batches follow each other as in the log, within the segment's offsets.
  3. Any thread may call any method.
Not here: which segment contains an offset (the caller has the list), when it is deleted (the coordinator).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidelog.epochs import epoch_before
from tidelog.errors import CorruptLog, CorruptRecord
from tidelog.records.aborted_transaction import AbortedTransaction, collect_transactions, decode_transactions
from tidelog.records.batches import view
from tidelog.records.producer_snapshot import decode_snapshot
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.fast_paths import follow_chain
from tidelog.records.v2.header import (
    HEADER_BYTES,
    LENGTHS_MIN,
    BatchHeader,
    header_problem,
    peek_header,
)
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.remote_cache import Part, RemoteCache
from tidelog.tiering.remote_errors import RemoteObjectDamaged
from tidelog.tiering.remote_segment import ObjectSection, RemoteSegment, SectionKind
from tidelog.tiering.segment_object import CHECKSUM_RANGE_BYTES, damaged, ensure_crc, sections_problem
from tidelog.types import NO_TIMESTAMP, Buffer, LeaderEpoch, Millis, Offset

_AHEAD_MAX: Final = 3
"""Ranges of a MiB that a read takes beside the one it needs, if the reads before it were sequential."""
_RANGES_MAX: Final = _AHEAD_MAX + 1
"""In one request."""
_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_CRC: Final = Struct(">I")


class RemoteRead(NamedTuple):
    """Whole batches of a segment, the first of which may begin below the requested offset."""

    records: Buffer
    next_offset: Offset
    """Where to continue: the end of the segment if no batch is left in it, although it may reach further."""


class RemoteRecord(NamedTuple):
    """A record that was found by its timestamp."""

    offset: Offset
    timestamp: Millis
    leader_epoch: LeaderEpoch


class RemoteSegmentReader:
    """Reads one segment."""

    def __init__(self, store: ObjectStore, cache: RemoteCache, key: str, segment: RemoteSegment) -> None:
        """key: of the object. segment: with its sections. Raises RemoteObjectDamaged if these cannot be right."""
        self.segment = segment
        self._store, self._cache, self.key = store, cache, key
        self._name = f"the object {key} in {store.url}"
        self._cache_key = f"{store.url}/{key}"
        problem = sections_problem(segment.sections, segment.log_size)
        if problem is not None:
            raise damaged(self._name, problem)
        self._sections = {section.kind: section for section in segment.sections}
        self._log_start = self._sections[SectionKind.LOG].start
        self._read_to = segment.start_offset, 0
        """Where the last read ended, and its byte in the log: the next one mostly begins there, and needs no index."""

    # --- what a reader needs --------------------------------------------------------------------------------------

    def read(self, offset: Offset, max_bytes: int, *, up_to: Offset) -> RemoteRead:
        """Whole batches from the one that contains `offset` on, all below `up_to`: at most `max_bytes`, but at least
        one. No batches if the first one reaches `up_to`; then `next_offset` is `offset`. Raises RemoteObjectDamaged,
        and as the store does."""
        position, least = self._place_for(offset)
        first = next((each for each in self._walk(position, least) if each.last_offset >= offset), None)
        if first is None:
            return RemoteRead(b"", self.segment.end_offset)
        if first.last_offset >= up_to:
            return RemoteRead(b"", offset)
        size = self._size_of_read(first, max_bytes)
        data = self._log(first.position, size)
        _, chained = follow_chain(data, size, first.base_offset, min(up_to, self.segment.end_offset))
        end, next_offset = first.position + chained.position, Offset(chained.next_offset)
        for header in self._walk(end, next_offset, first.position + size):  # older formats, or what ended the chain
            if header.last_offset >= up_to or header.end > first.position + size:
                break
            end, next_offset = header.end, Offset(header.last_offset + 1)
        self._read_to = next_offset, end
        return RemoteRead(data if end == first.position + size else data[: end - first.position], next_offset)

    def _size_of_read(self, first: BatchHeader, max_bytes: int) -> int:
        """Bytes of the log that a read takes, from its first batch on."""
        return min(max(max_bytes, first.size), self.segment.log_size - first.position)

    def find_timestamp(self, timestamp: int, start: Offset, up_to: Offset) -> RemoteRecord | None:
        """The first record at or after `timestamp` with start <= offset < up_to; None if there is none in this segment.
        Raises as `read`, and CorruptRecord for records that their producer has sent unreadable."""
        if self.segment.max_timestamp < timestamp:
            return None
        position, least = self._place_for(max(self._earliest_with(timestamp), start))
        for header in self._walk(position, least):
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp < timestamp or header.last_offset < start:
                continue
            for record in view(self._log(header.position, header.size), header._replace(position=0)).records():
                if record.timestamp >= timestamp and start <= record.offset < up_to:
                    epoch = header.leader_epoch if header.magic == 2 else self._epoch_of(record.offset)
                    return RemoteRecord(record.offset, record.timestamp, epoch)
        return None

    def largest_timestamp(self, start: Offset, up_to: Offset) -> Millis:
        """The largest timestamp of the records with start <= offset < up_to; -1 if there is none in this segment. Reads
        all batches there. Raises as `find_timestamp`."""
        largest: Millis = NO_TIMESTAMP
        for header in self._walk(*self._place_for(start)):
            if header.base_offset >= up_to:
                break
            if header.last_offset < start or header.max_timestamp <= largest:
                continue
            # The base offset of a message of v0 or v1 is that of the last one in it.
            if header.magic == 2 and start <= header.base_offset and header.last_offset < up_to:
                largest = header.max_timestamp
                continue
            records = view(self._log(header.position, header.size), header._replace(position=0)).records()
            largest = max(largest, *(each.timestamp for each in records if start <= each.offset < up_to), NO_TIMESTAMP)
        return largest

    def aborted_transactions(self, start: Offset, end: Offset) -> tuple[tuple[AbortedTransaction, ...], bool]:
        """The aborted transactions with records in [start, end) whose markers are in this segment, and True if no later
        segment can contain more. Raises as `read`."""
        try:
            entries = decode_transactions(self.section(SectionKind.TRANSACTION_INDEX), self.segment.start_offset)
        except CorruptRecord as error:
            raise damaged(self._name, f"in its transaction index, {error.message}") from error
        return collect_transactions(entries, start, end)

    def leaves_open(self, end: Offset) -> bool:
        """True if a transaction that began below `end` is open at the end of the segment. Without the producer
        snapshot, every segment up to the log end would have to be searched for its marker. Raises as `read`."""
        name = f"the producer snapshot in {self._name}"
        try:
            producers = decode_snapshot(self.section(SectionKind.PRODUCER_SNAPSHOT), name)
        except CorruptLog as error:
            raise damaged(self._name, error.message) from error
        return any(0 <= each.transaction_start < end for each in producers)

    def section(self, kind: SectionKind) -> bytes:
        """The bytes of a section, b"" if the object has none. For the small ones: it is cached whole. Raises as
        `read`."""
        section = self._sections.get(kind)
        if section is None or not section.size:
            return b""
        part = Part(self._cache_key, kind)
        data = self._cache.get(part)
        if data is None:
            with self._cache.loading(self._cache_key):
                data = self._cache.get(part)
                if data is None:
                    data = self._verified(section)
                    self._cache.put(part, data)
        return data

    def _verified(self, section: ObjectSection) -> bytes:
        data = bytes(self._store.get_range(self.key, section.start, section.size))
        ensure_crc(self._name, section, crc32c(data))
        return data

    # --- lookups --------------------------------------------------------------------------------------------------

    def _place_for(self, offset: Offset) -> tuple[int, Offset]:
        """Where a search for `offset` starts: a batch at or before it, and the least offset that it may begin with."""
        base = self.segment.start_offset
        read_to, position = self._read_to
        if offset == read_to:
            return position, offset
        if offset <= base:
            return 0, base
        entry = _last_entry(
            self.section(SectionKind.OFFSET_INDEX), _OFFSET_ENTRY, lambda entry: entry[0] + base, offset
        )
        return (0, base) if entry is None else (entry[1], base)

    def _earliest_with(self, timestamp: int) -> Offset:
        """No batch that ends below this offset has a record at or after `timestamp`."""
        entry = _last_entry(self.section(SectionKind.TIME_INDEX), _TIME_ENTRY, lambda entry: entry[0], timestamp - 1)
        return Offset(self.segment.start_offset + (0 if entry is None else entry[1]))

    def _epoch_of(self, offset: Offset) -> LeaderEpoch:
        return epoch_before(self.segment.leader_epochs, offset + 1)

    # --- batches --------------------------------------------------------------------------------------------------

    def _walk(self, position: int, least: Offset, until: int | None = None) -> Iterator[BatchHeader]:
        """Headers of the batches from byte `position` of the log on; their positions are those in the log. until: no
        byte from here on is read."""
        end = self.segment.log_size if until is None else until
        while position < end:
            head = self._log(position, min(HEADER_BYTES, end - position))
            header = peek_header(head, position=position)
            if header is None and end < self.segment.log_size:
                return
            problem = self._problem(header, least)
            if header is None or problem is not None:
                raise damaged(self._name, f"at byte {position} of its log, {problem}")
            yield header
            position, least = header.end, Offset(header.last_offset + 1)

    def _problem(self, header: BatchHeader | None, least: Offset) -> str | None:
        """Why a header does not continue the log; None if it does."""
        if header is None:
            return "there are too few bytes for a batch"
        if not 0 <= header.magic < len(LENGTHS_MIN) or header.length < LENGTHS_MIN[header.magic]:
            return f"a batch has magic {header.magic} and a length of {header.length} bytes"
        if header.end > self.segment.log_size:
            return f"a batch reaches to byte {header.end} of {self.segment.log_size}"
        if header.base_offset < least or header.last_offset >= self.segment.end_offset:
            end = self.segment.end_offset
            return (
                f"a batch has offsets {header.base_offset} to {header.last_offset}, not between {least} and {end - 1}"
            )
        return header_problem(header)

    def _log(self, start: int, size: int) -> Buffer:
        """Bytes of the log, verified."""
        first, last = start // CHECKSUM_RANGE_BYTES, (start + size - 1) // CHECKSUM_RANGE_BYTES
        ranges = self._ranges(first, last)
        at = start - first * CHECKSUM_RANGE_BYTES
        if len(ranges) == 1:
            return ranges[0] if size == len(ranges[0]) else memoryview(ranges[0])[at : at + size]
        return memoryview(b"".join(ranges))[at : at + size]

    def _ranges(self, first: int, last: int) -> Sequence[bytes]:
        """The ranges of the log from `first` to `last`."""
        found = self._cached(first, last)
        if None in found.values():
            with self._cache.loading(self._cache_key):
                found = self._cached(first, last)
                while (missing := next((index for index, data in found.items() if data is None), None)) is not None:
                    found |= self._fetch(missing, last)
        return [found[index] or b"" for index in range(first, last + 1)]

    def _cached(self, first: int, last: int) -> dict[int, bytes | None]:
        return {index: self._cache.get(self._part(index)) for index in range(first, last + 1)}

    def _part(self, index: int) -> Part:
        return Part(self._cache_key, SectionKind.LOG, index)

    def _fetch(self, first: int, last: int) -> dict[int, bytes]:
        """Read ranges from `first` on with one request: up to `last`, and as many behind it as sequential reads will
        need."""
        until = min(max(first + 1 + self._ahead_of(first), last + 1), first + _RANGES_MAX)
        read = {}
        for index, data in enumerate(self._pieces(self._request(first, until, self._checksums())), first):
            piece = bytes(data)  # a copy: a view would keep the whole answer in memory
            self._cache.put(self._part(index), piece)
            read[index] = piece
        return read

    def _request(self, first: int, until: int, checksums: bytes) -> memoryview:
        """The ranges from `first` to before `until`, as far as there are some, with one request. They are verified."""
        start = first * CHECKSUM_RANGE_BYTES
        size = min(until * CHECKSUM_RANGE_BYTES, self.segment.log_size) - start
        data = memoryview(self._store.get_range(self.key, self._log_start + start, size))
        for index, piece in enumerate(self._pieces(data), first):
            (due,) = _CRC.unpack_from(checksums, index * _CRC.size)
            crc = crc32c(piece)
            if crc != due:
                raise self._wrong(index * CHECKSUM_RANGE_BYTES, len(piece), crc, due)
        return data

    @staticmethod
    def _pieces(data: memoryview) -> Iterator[memoryview]:
        return (data[at : at + CHECKSUM_RANGE_BYTES] for at in range(0, len(data), CHECKSUM_RANGE_BYTES))

    def _ahead_of(self, first: int) -> int:
        """How many ranges behind this one a sequential reader will need. The cache tells which reader is one, since a
        node makes one for each fetch: the range before is there, unless the cache is too small for reading ahead."""
        if first == 0:
            return 1
        return _AHEAD_MAX if self._part(first - 1) in self._cache else 0

    def _wrong(self, start: int, size: int, crc: int, due: int) -> RemoteObjectDamaged:
        return damaged(
            self._name,
            f"bytes {start} to {start + size - 1} of its log have checksum {crc:#010x} instead of {due:#010x}",
        )

    def _checksums(self) -> bytes:
        """The section of the checksums. The caller is the one that reads from the object."""
        part = Part(self._cache_key, SectionKind.LOG_CHECKSUMS)
        data = self._cache.get(part)
        if data is None:
            data = self._verified(self._sections[SectionKind.LOG_CHECKSUMS])
            self._cache.put(part, data)
        return data


def _last_entry(
    index: bytes, entry: Struct, key: Callable[[tuple[int, int]], int], target: int
) -> tuple[int, int] | None:
    """The last entry of an index with a key at or below `target`."""

    def at(slot: int) -> tuple[int, int]:
        first, second = entry.unpack_from(index, slot * entry.size)
        return first, second

    slot = bisect_right(range(len(index) // entry.size), target, key=lambda slot: key(at(slot)))
    return at(slot - 1) if slot else None


def aborted_in(
    readers: Sequence[RemoteSegmentReader], start: Offset, end: Offset
) -> tuple[tuple[AbortedTransaction, ...], bool]:
    """The aborted transactions with records in [start, end), by first offset, and True if none can be missing. readers:
    of the segments from the one that contains `start` on, in order; as many as there are. False: the marker of a
    transaction may be behind them, in the local log. Raises as their methods."""
    found: list[AbortedTransaction] = []
    is_complete = False
    for reader in readers:
        transactions, is_complete = reader.aborted_transactions(start, end)
        found.extend(transactions)
        if is_complete:
            break
    return tuple(sorted(found, key=lambda each: each.first_offset)), is_complete
