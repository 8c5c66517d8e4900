"""The remote part of one log as its leader sees it: which segments it believes, up to where the log is copied without a
gap, and which segment has an offset.

Invariants:
  1. A segment is believed only if the log's epoch history has each of its epochs over the same offsets: a segment that
     a leader of a lost epoch copied (an unclean election) has other records than this log, at the same offsets.
  2. `copied_end` has every offset from the local log start up to it in believed, finished segments: local segments may
     be deleted up to it. A gap ends it, whatever was copied behind.
  3. Segments may overlap: another leader rolled its segments at other offsets. Each believed one serves its offsets.

Not here: the order in which copies begin and end (remote_log_machine.py).
Source: KIP-405, RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID

from replication.coordination.encoded_segment import (
    ID_BYTES,
    EncodedSegment,
    SegmentHead,
    encoded_segment,
    segment_head,
    segment_value,
)
from replication.coordination.remote_log_requests import SegmentPlace
from replication.coordination.tiering.lost_segments import LostSegment, LostSegments
from replication.coordination.tiering.segment_table import SegmentTable
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState
from tidelog.types import EpochStart, Millis, Offset, PartitionKey

_EPOCH: Final = attrgetter("epoch")


def believed(
    segment: RemoteSegment | SegmentHead, history: Sequence[EpochStart], log_start: Offset, log_end: Offset
) -> bool:
    """True if the log with this history has the records of the segment. Those below the log start do not count."""
    epochs = segment.leader_epochs
    for entry, following in zip(epochs, (*epochs[1:], None), strict=True):
        end = segment.end_offset if following is None else following.start_offset
        begin = max(entry.start_offset, log_start)
        if end <= begin:
            continue  # nothing of it is in the log any more
        own = bisect_left(history, entry.epoch, key=_EPOCH)
        if own == len(history) or history[own].epoch != entry.epoch or history[own].start_offset > begin:
            return False
        if end > (history[own + 1].start_offset if own + 1 < len(history) else log_end):
            return False
    return True


def refuted(segment: SegmentHead, history: Sequence[EpochStart], log_start: Offset, settled: Offset) -> bool:
    """True if a log with this history never gets the records of the segment, not even from its leader later. settled:
    below it the log does not change any more, without an unclean election."""
    known = [each for each in history if each.start_offset < settled]
    below = [each for each in segment.leader_epochs if each.start_offset < settled]
    if below:
        part = segment._replace(end_offset=min(segment.end_offset, settled), leader_epochs=tuple(below))
        if not believed(part, known, log_start, settled):
            return True
    # Epochs never decrease along a log.
    return bool(known) and any(each.epoch < known[-1].epoch for each in segment.leader_epochs[len(below) :])


class OffsetGap(NamedTuple):
    """Offsets that no segment has."""

    start: Offset
    end: Offset
    """One past the last of them."""


class RemoteLog:
    """The believed and finished segments of one partition."""

    def __init__(self, partition: PartitionKey, local_start: Offset) -> None:
        """local_start: where the local log starts: what is copied from there on may leave the node."""
        self._table = SegmentTable(partition)
        self.unproven = 0
        """Segments that this log's epochs can neither confirm nor refute."""
        self._longest = 0
        """The largest number of offsets of a segment: a segment with an offset begins at most so far before it."""
        self.copied_end = local_start
        """Every offset from the local log start up to this one is in a segment."""
        self.end = local_start
        """Where the last segment ends: behind `copied_end` if there is a gap between."""
        self.is_whole = False
        """True once every segment is known: an offset that none has is lost. False: it may be copied meanwhile, and
        segments may be deleted."""
        self.expired_below = Offset(0)
        """Up to here a former leader has deleted the log: below it, nothing is lost."""
        self.lost = LostSegments(partition)
        """Of a leader: what an unclean election has lost."""
        self.size = 0
        """Bytes of the record batches in all segments. What is in two of them counts once, by its share of offsets:
        retention would take overlaps, of which each change of the leader can leave one, from the records."""
        self._doubled: dict[bytes, int] = {}
        """By id: bytes of segments that were in others, too, when they were added."""

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, segment: RemoteSegment) -> bool:
        return segment.segment_id.bytes in self._table

    def __iter__(self) -> Iterator[RemoteSegment]:
        """By start offset."""
        return iter(self._table)

    def load(
        self, segments: Iterable[EncodedSegment], history: Sequence[EpochStart], log_start: Offset, log_end: Offset
    ) -> tuple[LostSegment, ...]:
        """Take over those segments of a page that are finished and believed. Returns the finished ones that are not:
        their records are of a lost epoch. The pages come in the order of start offsets.

        Segments below the first epoch of a history that does not reach back to the log start are `unproven`: neither
        read nor deleted."""
        lost = []
        known_from = history[0].start_offset if history and history[0].start_offset > log_start else log_start
        for encoded in segments:
            segment = segment_head(encoded)
            if segment.state is not RemoteSegmentState.COPY_SEGMENT_FINISHED:
                continue
            if believed(segment, history, log_start, log_end):
                self.put(encoded, segment)
            elif known_from > log_start and segment.start_offset < known_from:
                # Epochs that a damaged file has lost say nothing: to delete these would lose the only copy.
                self.unproven += 1
            else:
                lost.append(LostSegment(encoded, segment.end_offset, segment.max_timestamp))
        return tuple(lost)

    def add(self, segment: RemoteSegment) -> None:
        """Add a segment that this leader has copied."""
        encoded = encoded_segment(segment.segment_id, segment_value(segment))
        self.put(encoded, segment_head(encoded))

    def put(self, encoded: EncodedSegment, segment: SegmentHead) -> None:
        """Add a segment that is finished and believed. segment: the head of these bytes."""
        segment_id = encoded[:ID_BYTES]
        if segment_id not in self._table:
            doubled = self._doubled_bytes(segment)
            if doubled:
                self._doubled[segment_id] = doubled
            self.size += segment.log_size - doubled
        self._table.put(encoded, segment)
        self.end = max(self.end, segment.end_offset)
        self._longest = max(self._longest, segment.end_offset - segment.start_offset)
        if segment.start_offset <= self.copied_end:
            self.copied_end = max(self.copied_end, segment.end_offset)

    def _doubled_bytes(self, segment: SegmentHead) -> int:
        shared = min(self._table.reach(segment.start_offset), segment.end_offset) - segment.start_offset
        return segment.log_size * max(0, shared) // (segment.end_offset - segment.start_offset)

    def advance(self, log_start: Offset) -> tuple[RemoteSegmentId, ...]:
        """The log start has moved. Returns the segments that lie below it, which are to be deleted."""
        below = []
        for segment in self._table:
            if segment.start_offset >= log_start:
                break
            if segment.end_offset <= log_start:
                below.append(segment)
        for segment in below:
            self._table.remove(segment.segment_id)
            self.size -= segment.log_size - self._doubled.pop(segment.segment_id.bytes, 0)
        if log_start > self.copied_end:
            self.copied_end = log_start
            while (behind := self._table.reach(self.copied_end)) > self.copied_end:  # a gap below the log start now
                self.copied_end = behind
        return tuple(each.segment_id for each in below)

    @property
    def next_place(self) -> SegmentPlace:
        """Segments that go on behind `copied_end` follow this place, if they are not longer than those that are known.
        It is not that of the last one: a copy that replaced another has any id, and another leader's segments begin
        elsewhere."""
        return SegmentPlace(Offset(max(0, self.copied_end - self._longest)), RemoteSegmentId(UUID(int=0)))

    def segment_with(self, offset: Offset) -> RemoteSegment | None:
        """A segment with this offset, the one that goes on the furthest; None if no segment has it."""
        found = self._table.furthest(offset)
        return found if found is not None and found.end_offset > offset else None

    def covering(self, start: Offset, end: Offset, most: int) -> tuple[tuple[RemoteSegment, ...], Offset]:
        """The segments with the offsets of [start, end), as few as possible and at most `most`, and where to continue:
        the answer is complete below it. Offsets in a gap are in none of them."""
        found: list[RemoteSegment] = []
        offset = start
        while offset < end:
            segment = self.segment_with(offset)
            if segment is not None:
                if len(found) == most:
                    return tuple(found), offset
                found.append(segment)
                offset = segment.end_offset
                continue
            behind = next(self._table.following_offset(offset), None)
            if behind is None:
                break
            offset = behind.start_offset
        return tuple(found), max(offset, end)

    def gaps(self, start: Offset, end: Offset) -> tuple[OffsetGap, ...]:
        """The offsets in [start, end) that no segment has."""
        found = []
        for first, behind in self._table.spans():
            if first >= end:
                break
            if first > start:
                found.append(OffsetGap(start, first))
            start = max(start, behind)
        if start < end:
            found.append(OffsetGap(start, end))
        return tuple(found)

    def first_since(self, timestamp: Millis, after: SegmentPlace | None) -> RemoteSegment | None:
        """The first segment, behind this one, that may have a record at or after a timestamp; None if none has."""
        return self._table.first_since(timestamp, after)

    def largest_timestamp(self, start: Offset, up_to: Offset) -> Millis:
        """The largest timestamp of the segments in [start, up_to), but for those that `reaching_out` returns; -1 if
        there is none."""
        return self._table.largest_timestamp(start, up_to)

    def reaching_out(self, start: Offset, up_to: Offset) -> tuple[RemoteSegment, ...]:
        """The few segments that may have offsets of [start, up_to) and others: their largest timestamp may be one of
        the others."""
        return self._table.reaching_out(start, up_to)
