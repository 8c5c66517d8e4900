"""Reading along a log, segment by segment; where readers go on and what was appended last is remembered, so that most
reads look nothing up.

Left to others: what may be read (log.py), reading within a segment (segment.py), and what waits for a disk
(cold_read.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.config import INT32_MAX
from storage.files.file_system import Buffer, Files
from storage.log.cold_read import BytesRead
from storage.segment.batch_walk import BrokenChain, Hole
from storage.segment.epoch_cache import LeaderEpochCache
from storage.segment.segment import LogSegment, Place, SegmentRead
from storage.segment.segments import LogSegments
from storage.segment.transaction_index import AbortedTransaction
from tidelog.records.v2.header import BatchHeader
from tidelog.types import EpochStart, Offset

_HINTS_MAX: Final = 64
"""Positions that are remembered: more than replicas and busy consumers of one partition, and than appends of which one
has not been fetched by all."""


class LogRead(NamedTuple):
    """What a read gives: whole batches, the first of which may begin below the offset asked for.

    next_offset: where to read on. epochs: the epoch entries over the batches' range. aborted: the aborted transactions
    that have records in it, where only decided records are read.
    """

    records: Buffer
    next_offset: Offset
    epochs: tuple[EpochStart, ...]
    aborted: tuple[AbortedTransaction, ...] = ()


class LogReader:
    """Reads of one log."""

    __slots__ = ("_epochs", "_hints", "_segments", "generation", "holes_below")

    def __init__(self, segments: LogSegments, epochs: LeaderEpochCache, holes_below: int) -> None:
        """holes_below: compaction may have taken the last batches of segments that end below it."""
        self._segments, self._epochs = segments, epochs
        self.holes_below = holes_below
        self._hints: dict[Offset, tuple[LogSegment, Place]] = {}
        self.generation = 0
        """Grows whenever bytes or segments go: what was read before may be none of the log's."""

    def forget(self) -> None:
        """Bytes or segments went: look everything up again."""
        self._hints.clear()
        self.generation += 1

    def note(self, offset: Offset, segment: LogSegment, position: int) -> None:
        """What is at or behind `offset` begins at byte `position` of the segment, or will with the next append."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX and offset not in hints:
            del hints[next(iter(hints))]
        hints[offset] = (segment, Place(position, offset))

    def begin(self, files: Files, offset: Offset, max_bytes: int) -> BytesRead:
        """What has to be read first, where `read` would have to wait."""
        segment, at = self._hints.get(offset) or (self._segments.from_offset(offset)[0], None)
        if at is not None and at.position >= segment.size:
            segment, at = self._segments.from_offset(offset)[0], None
        if offset <= segment.base_offset and segment.size:
            at = Place(0, segment.base_offset)
        behind = next((each for each in self._segments.behind(segment) if each.size), None)
        return BytesRead(files, segment, behind, offset, at, max_bytes, self.generation)

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        up_to: Offset,
        min_one_batch: bool,
        *,
        wait: bool = True,
        ready: BytesRead | None = None,
        end: Offset,
    ) -> LogRead:
        """Whole batches from the one that holds `offset` on, all of them below `up_to`, out of one segment. wait: for
        the disk; else raises WouldBlock where it would have to. ready: what has been read for that. end: of the log.
        Raises BrokenChain, OSError."""
        hint = self._hints.get(offset)
        if ready is not None and ready.generation == self.generation and ready.file is not None:
            ready.segment.take_file(ready.file)
            hint = None
        else:
            ready = None
        if hint is not None:
            segment, at = hint
            bound = min(up_to, self._segments.end_of(segment, up_to))
            found = segment.read(offset, max_bytes, bound, min_one=min_one_batch, at=at, wait=wait)
            if found is not None:
                return self._found(segment, found, offset, end)
            del self._hints[offset]  # the next segment has it
        holder, *behind = self._segments.from_offset(offset)
        for segment in (holder, *behind):
            found, bound = None, min(up_to, self._segments.end_of(segment, up_to))
            if ready is not None and segment.base_offset < ready.segment.base_offset:
                pass  # it has been looked through
            elif ready is None or segment is not ready.segment:
                found = segment.read(offset, max_bytes, bound, min_one=min_one_batch, at=None, wait=wait)
            elif ready.at is not None:
                found = segment.read(
                    offset,
                    max_bytes,
                    bound,
                    min_one=min_one_batch,
                    at=ready.at,
                    wait=wait,
                    data=ready.data,
                )
            if found is not None:
                return self._found(segment, found, offset, end)
            if segment is holder and behind and self.is_hole(holder, behind[0].base_offset):
                raise Hole(holder.size, offset, behind[0].base_offset)
        return LogRead(b"", offset, ())

    def is_hole(self, last: LogSegment, base_offset: Offset) -> bool:
        """Is it wrong that offsets are missing before a segment that begins at `base_offset`? A roll leaves none, but
        for what no segment can hold; compaction does."""
        return self.holes_below < base_offset <= last.base_offset + INT32_MAX

    def _found(self, segment: LogSegment, found: SegmentRead, offset: Offset, end: Offset) -> LogRead:
        if found.left is not None:
            self._check_reach(segment, found.next_position, found.left, offset, end)
            return LogRead(b"", offset, ())
        self.note(found.next_offset, segment, found.next_position)
        return LogRead(found.records, found.next_offset, self._epochs.over(offset, found.next_offset))

    def _check_reach(self, segment: LogSegment, position: int, left: BatchHeader, offset: Offset, end: Offset) -> None:
        """The batch at `position` reaches beyond what may be read. Into the next segment or beyond the log's end none
        does, and who waited for that would wait for ever. Raises BrokenChain."""
        bound = self._segments.end_of(segment, end)
        if left.last_offset >= bound:
            raise BrokenChain(position, offset, f"the batch claims offsets up to {left.last_offset}, not below {bound}")
