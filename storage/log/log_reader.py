"""Reads along a log, segment by segment. The reader caches the positions of current readers and of recent appends, so
that most reads need no index lookup.

Not here: which offsets may be read (log.py), reading within a segment (segment.py), reads that wait for the disk
(cold_read.py), the memory for recent batches (recent_appends.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.files.file_system import Files
from storage.log.cold_read import BytesRead
from storage.log.log_read import LogRead
from storage.log.recent_appends import RecentAppends, Tail
from storage.segment.batch_walk import BrokenChain, Hole
from storage.segment.epoch_cache import LeaderEpochCache
from storage.segment.segment import BatchPlace, LogSegment, SegmentRead
from storage.segment.segment_bases import begins_behind_a_hole
from storage.segment.segments import LogSegments
from tidelog.records.v2.header import BatchHeader
from tidelog.types import Buffer, Offset

_HINTS_MAX: Final = 64
"""Number of cached positions: more than the replicas and active consumers of one partition plus the appends that some
replica has not fetched yet.
"""


class LogReader:
    __slots__ = ("_epochs", "_hints", "_recent", "_segments", "_tail", "generation", "holes_below", "keeps_recent")

    def __init__(
        self, segments: LogSegments, epochs: LeaderEpochCache, holes_below: int, recent: RecentAppends
    ) -> None:
        """holes_below: compaction may have removed the last batches of segments that end below it. recent: of the log
        directory."""
        self._segments, self._epochs, self._recent = segments, epochs, recent
        self._tail: Tail = {}
        self.keeps_recent = False
        """True if the batches that the leader appends are kept in memory, because followers will fetch them."""
        self.holes_below = holes_below
        self._hints: dict[Offset, tuple[LogSegment, BatchPlace]] = {}
        self.generation = 0
        """Incremented whenever bytes or segments are removed: earlier reads may no longer be part of the log."""

    def forget(self) -> None:
        """Drop all cached positions and batches, because bytes or segments were removed."""
        self._hints.clear()
        self._drop_recent()
        self.generation += 1

    def succeed(self, reader: LogReader) -> None:
        """Continue the generations of a reader of another log: earlier reads are no part of this one."""
        self.generation = reader.generation + 1

    def keep_recent(self, *, keep: bool) -> None:
        """Keep the batches that the leader appends from now on, or drop those kept and keep no more."""
        self.keeps_recent = keep
        if not keep:
            self._drop_recent()

    def _drop_recent(self) -> None:
        if self._tail:
            self._recent.forget(self._tail)
            self._tail = {}

    def note(self, offset: Offset, segment: LogSegment, position: int) -> None:
        """Cache that the batch at or after `offset` begins, or will begin, at byte `position` of the segment."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX and offset not in hints:
            del hints[next(iter(hints))]
        hints[offset] = (segment, BatchPlace(position, offset))

    def remember(self, base_offset: Offset, buffers: Sequence[Buffer], next_offset: Offset) -> None:
        """Keep a batch that the leader has just appended, for `from_memory`."""
        # Its epochs are looked up when it is read: the log start may have removed entries by then.
        self._recent.note(self._tail, base_offset, LogRead(b"".join(buffers), next_offset, ()))

    def from_memory(self, offset: Offset, max_bytes: int, up_to: Offset) -> LogRead | None:
        """Recent batches from `offset` on, at least one, all below `up_to`; None if the file must be read. Damage of
        the file is not seen."""
        parts: list[Buffer] = []
        at, size, tail = offset, 0, self._tail
        while (batch := tail.get(at)) is not None and batch.next_offset <= up_to:
            size += len(batch.records)
            if size > max_bytes and parts:
                break
            parts.append(batch.records)
            at = batch.next_offset
        if not parts:
            return None
        return LogRead(b"".join(parts), at, self._epochs.over(offset, at))

    def begin(self, files: Files, offset: Offset, max_bytes: int) -> BytesRead:
        """The ticket for a read that would have to wait for the disk."""
        segment, at = self._hints.get(offset) or (self._segments.from_offset(offset)[0], None)
        if at is not None and at.position >= segment.size:
            segment, at = self._segments.from_offset(offset)[0], None
        if offset <= segment.base_offset and segment.size:
            at = BatchPlace(0, segment.base_offset)
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
        """Read whole batches of one segment, starting with the batch that contains `offset`, all below `up_to`. wait:
        wait for the disk; if False, raises WouldBlock instead. ready: a ticket from `begin` that has run. end: the log
        end. Raises BrokenChain, OSError."""
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
            del self._hints[offset]  # continue in the next segment
        holder, *behind = self._segments.from_offset(offset)
        for segment in (holder, *behind):
            found, bound = None, min(up_to, self._segments.end_of(segment, up_to))
            place, data = (None, None) if ready is None or segment is not ready.segment else (ready.at, ready.data)
            is_searched = ready is not None and place is None and segment.base_offset <= ready.segment.base_offset
            if not is_searched:  # else the ticket has found nothing in it
                found = segment.read(offset, max_bytes, bound, min_one=min_one_batch, at=place, wait=wait, data=data)
            if found is not None:
                return self._found(segment, found, offset, end)
            if segment is holder and behind and self.is_hole(holder, behind[0].base_offset):
                raise Hole(holder.size, offset, behind[0].base_offset)
        return LogRead(b"", offset, ())

    def is_hole(self, last: LogSegment, base_offset: Offset) -> bool:
        """True if offsets missing before a segment that begins at `base_offset` are damage. A roll leaves a hole only
        if no segment can span it; compaction leaves holes."""
        return self.holes_below < base_offset and not begins_behind_a_hole(base_offset, last.base_offset)

    def _found(self, segment: LogSegment, found: SegmentRead, offset: Offset, end: Offset) -> LogRead:
        if found.left is not None:
            self._check_reach(segment, found.next_position, found.left, offset, end)
            return LogRead(b"", offset, ())
        self.note(found.next_offset, segment, found.next_position)
        return LogRead(found.records, found.next_offset, self._epochs.over(offset, found.next_offset))

    def _check_reach(self, segment: LogSegment, position: int, left: BatchHeader, offset: Offset, end: Offset) -> None:
        """Check a batch at `position` that ends beyond the readable range. No batch reaches into the next segment or
        beyond the log end: a reader would wait for it forever. Raises BrokenChain."""
        bound = self._segments.end_of(segment, end)
        if left.last_offset >= bound:
            raise BrokenChain(position, offset, f"the batch claims offsets up to {left.last_offset}, not below {bound}")
