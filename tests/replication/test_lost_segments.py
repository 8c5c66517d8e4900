"""Segments that an unclean election has lost: which ones are due, and how operators are told of many."""

from __future__ import annotations

from uuid import UUID

import pytest

from replication.coordination.coordinator_machine import Instant
from replication.coordination.tiering.lost_segments import LostSegment, LostSegments
from tests.replication.remote_segments import FINISHED, ORDERS, SECTIONS, encoded
from tidelog.tiering.remote_segment import LostRemoteSegment, RemoteSegment, RemoteSegmentId
from tidelog.types import INT64_MAX, EpochStart, LeaderEpoch, Millis, NodeId, Offset

HOLD_MS = 10_000
NOW = Instant(Millis(100), Millis(5_000))


def segment(number: int, start: int, *, timestamp: int = 4_000) -> RemoteSegment:
    return RemoteSegment(
        RemoteSegmentId(UUID(int=number)),
        ORDERS.topic_id,
        ORDERS.partition,
        Offset(start),
        Offset(start + 10),
        (EpochStart(LeaderEpoch(1), Offset(start)),),
        Millis(timestamp),
        1_000,
        LeaderEpoch(1),
        NodeId(1),
        Millis(7),
        FINISHED,
        SECTIONS,
    )


def lost_since_now(*segments: RemoteSegment) -> LostSegments:
    lost = LostSegments(ORDERS)
    lost.segments = [LostSegment(encoded(each), each.end_offset, each.max_timestamp) for each in segments]
    lost.since_ms, lost.hold_ends = NOW.wall_ms, Millis(NOW.monotonic_ms + HOLD_MS)
    return lost


def later(ms: int) -> Instant:
    return Instant(Millis(NOW.monotonic_ms + ms), Millis(NOW.wall_ms + ms))


def due(lost: LostSegments, retention_ms: Millis | None, now: Instant = NOW) -> list[int]:
    page, _ = lost.page(Offset(0), Offset(INT64_MAX), 100, now, retention_ms)
    return [each.deleted_at_ms for each in page]


@pytest.mark.parametrize("retention_ms", [None, 3_000])
def test_what_is_given_up_is_what_was_said_to_be_due(retention_ms: Millis | None) -> None:
    """By the hold, or before by age; what has no timestamp, by the hold."""
    lost = lost_since_now(segment(1, 0), segment(2, 10, timestamp=9_000), segment(3, 20, timestamp=-1))
    said = due(lost, retention_ms)
    assert said == ([15_000] * 3 if retention_ms is None else [7_001, 12_001, 15_000])
    for at in sorted({*said}):
        assert not lost.give_up(later(at - NOW.wall_ms - 1), retention_ms), "it is kept until then"
        given_up = lost.give_up(later(at - NOW.wall_ms), retention_ms)
        assert given_up == [RemoteSegmentId(UUID(int=1 + n)) for n, each in enumerate(said) if each == at]
    assert not lost


def test_a_wall_clock_that_jumps_deletes_nothing_before_its_time() -> None:
    lost = lost_since_now(segment(1, 0))
    jumped = Instant(NOW.monotonic_ms, Millis(NOW.wall_ms + 3_600_000))
    assert not lost.give_up(jumped, None)
    assert due(lost, None, jumped) == [jumped.wall_ms + HOLD_MS]


def test_a_hold_without_end_is_told_as_such() -> None:
    lost = lost_since_now(segment(1, 0))
    lost.hold_ends = Millis(NOW.monotonic_ms + INT64_MAX)
    assert due(lost, None) == [INT64_MAX]


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_pages_tell_each_segment_once(most: int) -> None:
    """Two leaders of lost epochs have copied from the same offset on, where a page may end."""
    segments = [segment(number, start) for number, start in enumerate([0, 10, 10, 10, 20])]
    lost = lost_since_now(*segments)
    found: list[LostRemoteSegment] = []
    offset = Offset(0)
    while offset < 100:
        page, following = lost.page(offset, Offset(100), most, NOW, None)
        assert following > offset
        found, offset = [*found, *page], following
    assert [each.segment for each in found] == segments
    assert {(each.since_ms, each.deleted_at_ms) for each in found} == {(NOW.wall_ms, NOW.wall_ms + HOLD_MS)}


def test_only_what_begins_in_the_range_is_told() -> None:
    lost = lost_since_now(*(segment(number, 10 * number) for number in range(4)))
    page, following = lost.page(Offset(10), Offset(30), 100, NOW, None)
    assert ([each.segment.start_offset for each in page], following) == ([10, 20], 30)
