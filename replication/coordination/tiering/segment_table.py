"""The remote segments of one partition, in little memory: 100,000 of them take some 50 MB.

A segment is kept as the bytes of its record (encoded_segment.py), and decoded when it is read, which is rare: a list of
objects would take three times as much on the coordinator, and again on the leader. What lookups compare for every
segment, its end, how far those up to it reach, and its largest timestamp, stands in columns beside that.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from replication.coordination.encoded_segment import (
    ID_BYTES,
    START_OFFSET,
    EncodedSegment,
    SegmentHead,
    decode_segment,
    segment_id_of,
)
from replication.coordination.remote_log_requests import SegmentPlace
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId
from tidelog.types import NO_TIMESTAMP, Millis, Offset, PartitionKey

_OFFSET_BYTES: Final = 8
_LAST_ID: Final = b"\xff" * ID_BYTES


class SegmentTable:
    """Segments by id, and in the order of start offset and id."""

    def __init__(self, partition: PartitionKey) -> None:
        self._partition = partition
        self._order: list[bytes] = []  # start offset and id: 24 bytes that sort as the pair
        self._ends, self._largest = array("q"), array("q")  # in the same order: end offset, largest timestamp
        self._reach = array("q")  # in the same order: the largest end offset of the segments up to this one
        self._encoded: dict[bytes, EncodedSegment] = {}  # by id

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[RemoteSegment]:
        return map(self._at, range(len(self._order)))

    def put(self, encoded: EncodedSegment, head: SegmentHead) -> None:
        """Add a segment, or replace it by its new state. head: its own."""
        identity = encoded[:ID_BYTES]
        known = self._encoded.get(identity)
        place = _place_of(encoded)
        if known is not None and _place_of(known) != place:
            raise ValueError(f"segment {segment_id_of(encoded)} begins at another offset than before")
        index = bisect_left(self._order, place)
        if known is None:
            self._order.insert(index, place)
            self._ends.insert(index, head.end_offset)
            self._largest.insert(index, head.max_timestamp)
            self._reach.insert(index, -1)
        else:
            self._ends[index], self._largest[index] = head.end_offset, head.max_timestamp
        self._review_reach(index)
        self._encoded[identity] = encoded

    def __contains__(self, segment_id: bytes) -> bool:
        return segment_id in self._encoded

    def remove(self, segment_id: UUID) -> None:
        """Forget a segment, if it is known."""
        known = self._encoded.pop(segment_id.bytes, None)
        if known is not None:
            index = bisect_left(self._order, _place_of(known))
            del self._order[index], self._ends[index], self._largest[index], self._reach[index]
            self._review_reach(index)

    def _review_reach(self, index: int) -> None:
        """The end of the segment at `index` has changed. Mostly it is the last or the first one, and the next one's
        reach stays."""
        reach, most = self._reach, self._reach[index - 1] if index else -1
        for number in range(index, len(reach)):
            most = max(most, self._ends[number])
            if reach[number] == most:
                return  # so are those behind it: each follows from the one before
            reach[number] = most

    def get(self, segment_id: UUID) -> RemoteSegment | None:
        """The segment of an id; None if it is not known."""
        known = self._encoded.get(segment_id.bytes)
        return None if known is None else decode_segment(self._partition, known)

    def following(self, after: SegmentPlace | None, ends_behind: Offset = Offset(0)) -> Iterator[EncodedSegment]:
        """The segments behind one that need not be known any more, in order; all without one. Only those that end
        behind this offset. The table must not change meanwhile."""
        ends, order, encoded = self._ends, self._order, self._encoded
        return (
            encoded[order[number][_OFFSET_BYTES:]]
            for number in range(self._behind(after), len(ends))
            if ends[number] > ends_behind
        )

    def following_offset(self, offset: Offset) -> Iterator[RemoteSegment]:
        """The segments that begin at an offset or behind it, in order. The table must not change meanwhile."""
        first = bisect_left(self._order, offset.to_bytes(_OFFSET_BYTES, "big"))
        return map(self._at, range(first, len(self._order)))

    def with_offset(self, offset: Offset, most: int) -> Iterator[RemoteSegment]:
        """Segments with this offset, the last ones first; only the `most` that begin last before it are looked at."""
        behind = bisect_right(self._order, offset.to_bytes(_OFFSET_BYTES, "big") + _LAST_ID)
        numbers = range(behind - 1, max(behind - most, 0) - 1, -1)
        return (self._at(number) for number in numbers if self._ends[number] > offset)

    def furthest(self, offset: Offset) -> RemoteSegment | None:
        """Of the segments that begin at an offset or before it, the one that ends last; None if there is none. Only
        that one is decoded, however long or short the others are."""
        behind = bisect_left(self._order, (offset + 1).to_bytes(_OFFSET_BYTES, "big"))
        return self._at(bisect_left(self._reach, self._reach[behind - 1])) if behind else None

    def reach(self, offset: Offset) -> Offset:
        """The largest end offset of the segments that begin at an offset or before it; -1 if there is none."""
        behind = bisect_left(self._order, (offset + 1).to_bytes(_OFFSET_BYTES, "big"))
        return Offset(self._reach[behind - 1]) if behind else Offset(-1)

    def first_since(self, timestamp: Millis, after: SegmentPlace | None) -> RemoteSegment | None:
        """The first segment behind this one, or of all, whose largest timestamp is at least `timestamp`. Only that one
        is decoded: 100,000 of them take a few milliseconds."""
        largest = self._largest
        behind = range(self._behind(after), len(largest))
        return next((self._at(number) for number in behind if largest[number] >= timestamp), None)

    def largest_timestamp(self, start: Offset, up_to: Offset) -> Millis:
        """The largest timestamp of the segments in [start, up_to), but for those that `reaching_out` returns; -1 if
        there is none."""
        first, last = self._inside(start, up_to)
        return Millis(max(self._largest[first:last], default=NO_TIMESTAMP))

    def reaching_out(self, start: Offset, up_to: Offset) -> tuple[RemoteSegment, ...]:
        """The few segments that may have offsets of [start, up_to) and others."""
        first, last = self._inside(start, up_to)
        behind = range(max(first, last), bisect_left(self._order, up_to.to_bytes(_OFFSET_BYTES, "big")))
        return tuple(self._at(number) for number in (*range(first), *behind) if self._ends[number] > start)

    def _inside(self, start: Offset, up_to: Offset) -> tuple[int, int]:
        """Where the segments begin that begin at `start` or behind it, and where those end of which none, and none
        before, ends behind `up_to`."""
        return bisect_left(self._order, start.to_bytes(_OFFSET_BYTES, "big")), bisect_right(self._reach, up_to)

    def spans(self) -> Iterator[tuple[Offset, Offset]]:
        """Start and end offset of each segment, in order."""
        starts = (Offset(int.from_bytes(place[:_OFFSET_BYTES], "big")) for place in self._order)
        return zip(starts, map(Offset, self._ends), strict=True)

    def _behind(self, after: SegmentPlace | None) -> int:
        return 0 if after is None else bisect_right(self._order, _place(after.start_offset, after.segment_id))

    def _at(self, number: int) -> RemoteSegment:
        return decode_segment(self._partition, self._encoded[self._order[number][_OFFSET_BYTES:]])


def _place_of(encoded: EncodedSegment) -> bytes:
    return encoded[START_OFFSET] + encoded[:ID_BYTES]


def _place(start_offset: Offset, segment_id: RemoteSegmentId) -> bytes:
    return start_offset.to_bytes(_OFFSET_BYTES, "big") + segment_id.bytes
