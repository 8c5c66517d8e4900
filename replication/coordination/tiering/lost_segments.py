"""The remote segments of one partition that an unclean election has lost: their leader keeps them for a while.

Not here: which ones these are (remote_log.py), when they are looked at (node/tiering/tiered_partition.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from replication.coordination.coordinator_machine import Instant
from replication.coordination.encoded_segment import EncodedSegment, decode_segment, segment_id_of, start_offset_of
from tidelog.tiering.remote_segment import LostRemoteSegment, RemoteSegmentId
from tidelog.types import INT64_MAX, Millis, Offset, PartitionKey


class LostSegment(NamedTuple):
    """A finished segment of a lost leader epoch."""

    encoded: EncodedSegment
    end_offset: Offset
    max_timestamp: Millis

    @property
    def segment_id(self) -> RemoteSegmentId:
        """Its id."""
        return segment_id_of(self.encoded)

    @property
    def start_offset(self) -> Offset:
        """Its start offset."""
        return start_offset_of(self.encoded)


class LostSegments:
    """Those of a leader. `retention_ms`: by age, as of `age_limit` (storage/log/remote_retention.py)."""

    def __init__(self, partition: PartitionKey) -> None:
        self._partition = partition
        self.segments: Sequence[LostSegment] = ()
        """By start offset."""
        self.since_ms = Millis(0)
        """Since when the leader keeps them, by its wall clock."""
        self.hold_ends = Millis(0)
        """Until when, by its monotonic clock."""

    def __len__(self) -> int:
        return len(self.segments)

    def give_up(self, now: Instant, retention_ms: Millis | None) -> list[RemoteSegmentId]:
        """Remove those that are due, and return them: they are to be deleted."""
        due = {each.segment_id for each in self.segments if self._due(each, now, retention_ms) <= now.wall_ms}
        if due:
            self.segments = [each for each in self.segments if each.segment_id not in due]
        return [*due]

    def _due(self, segment: LostSegment, now: Instant, retention_ms: Millis | None) -> Millis:
        """When it is deleted, by the wall clock: with the end of the hold, or when retention would have done so."""
        due = min(INT64_MAX, now.wall_ms + self.hold_ends - now.monotonic_ms)
        if retention_ms is not None and segment.max_timestamp >= 0:
            due = min(due, segment.max_timestamp + retention_ms + 1)
        return Millis(due)

    def page(
        self, start: Offset, end: Offset, most: int, now: Instant, retention_ms: Millis | None
    ) -> tuple[tuple[LostRemoteSegment, ...], Offset]:
        """Those that begin in [start, end), about `most`, and where to continue: the answer is complete below it."""
        found: list[LostRemoteSegment] = []
        reached = start
        for number in range(bisect_left(self.segments, start, key=start_offset), len(self.segments)):
            lost = self.segments[number]
            if lost.start_offset >= end:
                break
            # Leaders of several lost epochs may have copied from the same offset on: the next page begins behind it.
            if len(found) >= most and lost.start_offset > reached:
                return tuple(found), lost.start_offset
            reached = lost.start_offset
            segment = decode_segment(self._partition, lost.encoded)
            found.append(LostRemoteSegment(segment, self.since_ms, self._due(lost, now, retention_ms)))
        return tuple(found), end


def start_offset(segment: LostSegment) -> Offset:
    """As a key to sort by."""
    return segment.start_offset
