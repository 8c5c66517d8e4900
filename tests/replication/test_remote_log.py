"""Which remote segments a leader believes, where its remote log ends, and which segment has an offset: against the
records themselves, over logs of several leaders of which some lost their end."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.coordination.encoded_segment import EncodedSegment, SegmentHead, decode_segment, segment_head
from replication.coordination.remote_log_requests import SegmentPlace
from replication.coordination.tiering import segment_table
from replication.coordination.tiering.lost_segments import LostSegment
from replication.coordination.tiering.remote_log import RemoteLog, believed, refuted
from tests.replication.remote_segments import FINISHED, ORDERS, SECTIONS, STARTED, encoded
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId
from tidelog.types import EpochStart, LeaderEpoch, Millis, NodeId, Offset, PartitionKey


def history_of(epochs: list[int]) -> tuple[EpochStart, ...]:
    """The history of a log, from the epoch of each of its records."""
    return tuple(
        EpochStart(LeaderEpoch(epoch), Offset(offset))
        for offset, epoch in enumerate(epochs)
        if offset == 0 or epochs[offset - 1] != epoch
    )


def copied(number: int, epochs: list[int], start: int, end: int) -> RemoteSegment:
    """A copy of [start, end) of that log."""
    entries = [EpochStart(LeaderEpoch(epochs[start]), Offset(start))]
    entries += [
        EpochStart(LeaderEpoch(epochs[offset]), Offset(offset))
        for offset in range(start + 1, end)
        if epochs[offset] != epochs[offset - 1]
    ]
    return RemoteSegment(
        RemoteSegmentId(UUID(int=number)),
        ORDERS.topic_id,
        ORDERS.partition,
        Offset(start),
        Offset(end),
        tuple(entries),
        Millis(1_000 * end),
        10 * (end - start),
        LeaderEpoch(epochs[-1]),
        NodeId(1),
        Millis(0),
        FINISHED,
        SECTIONS,
    )


def head_of(segment: RemoteSegment) -> SegmentHead:
    return segment_head(encoded(segment))


@st.composite
def diverged_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """The epochs of the records of two logs that share a beginning, and then were led by different nodes."""
    shared = sorted(draw(st.lists(st.integers(0, 3), max_size=12)))
    one = sorted(draw(st.lists(st.sampled_from([4, 6]), max_size=8)))
    other = sorted(draw(st.lists(st.sampled_from([5, 7]), max_size=8)))
    return shared + one, shared + other


@given(logs=diverged_logs(), data=st.data())
def test_a_segment_is_believed_if_the_log_has_its_records(
    logs: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    own, others = logs
    if not others:
        return
    start = data.draw(st.integers(0, len(others) - 1))
    end = data.draw(st.integers(start + 1, len(others)))
    log_start = data.draw(st.integers(0, len(own)))
    seen = range(max(start, log_start), end)
    same = all(offset < len(own) and own[offset] == others[offset] for offset in seen)
    history = tuple(each for each in history_of(own) if each.start_offset < len(own))
    assert believed(copied(1, others, start, end), history, Offset(log_start), Offset(len(own))) is same


@given(logs=diverged_logs(), data=st.data())
def test_a_refuted_segment_is_never_believed_later(logs: tuple[list[int], list[int]], data: st.DataObject) -> None:
    """Of a follower's leader, the log below the high watermark is settled, and goes on in some way behind it."""
    leaders, others = logs
    epochs = data.draw(st.sampled_from([leaders, others]))
    if not epochs:
        return
    start = data.draw(st.integers(0, len(epochs) - 1))
    segment = copied(1, epochs, start, data.draw(st.integers(start + 1, len(epochs))))
    settled = data.draw(st.integers(0, len(leaders)))
    log_start = Offset(data.draw(st.integers(0, settled)))
    is_refuted = refuted(head_of(segment), history_of(leaders[:settled]), log_start, Offset(settled))
    assert is_refuted is refuted(head_of(segment), history_of(leaders), log_start, Offset(settled)), (
        "what follows does not count"
    )
    if believed(segment, history_of(leaders), log_start, Offset(len(leaders))):
        assert not is_refuted
    if settled >= segment.end_offset:
        assert is_refuted is not believed(segment, history_of(leaders), log_start, Offset(settled))


def test_a_lost_segment_behind_the_high_watermark_is_refuted_by_a_later_epoch_before_it() -> None:
    lost = copied(1, [0] * 10, 6, 10)
    assert not refuted(head_of(lost), history_of([0] * 4), Offset(0), Offset(4)), "it may still come"
    assert refuted(head_of(lost), history_of([0] * 3 + [2]), Offset(0), Offset(4))
    assert not refuted(head_of(lost), history_of([0] * 4 + [2]), Offset(0), Offset(4)), (
        "this log's end may be lost itself"
    )


def test_a_log_that_grew_after_the_copy_still_believes_it_and_one_that_lost_its_end_does_not() -> None:
    copy = copied(1, [0, 0, 1, 1], 0, 4)
    assert believed(copy, history_of([0, 0, 1, 1, 1, 2]), Offset(0), Offset(6))
    assert not believed(copy, history_of([0, 0, 1]), Offset(0), Offset(3))
    assert not believed(copy, history_of([0, 0, 0, 1]), Offset(0), Offset(4)), "the epochs begin elsewhere"
    assert believed(copy, (EpochStart(LeaderEpoch(1), Offset(2)),), Offset(2), Offset(9)), "the start was deleted"


def test_the_copied_end_stops_at_the_first_gap() -> None:
    epochs = [0] * 100
    log = RemoteLog(ORDERS, Offset(10))
    lost = log.load(
        map(encoded, [copied(1, epochs, 0, 20), copied(2, epochs, 15, 40), copied(3, epochs, 50, 60)]),
        history_of(epochs),
        Offset(10),
        Offset(100),
    )
    assert (lost, log.copied_end, len(log)) == ((), 40, 3)
    log.add(copied(4, epochs, 40, 50))
    assert log.copied_end == 50, "what lies behind is found again by the next leader, or copied once more"


def test_copies_of_a_lost_epoch_are_named_and_not_read() -> None:
    log = RemoteLog(ORDERS, Offset(0))
    own = [0] * 10 + [2] * 10
    fine, lost = copied(1, own, 0, 10), copied(2, [0] * 10 + [1] * 10, 10, 20)
    assert log.load(map(encoded, [fine, lost]), history_of(own), Offset(0), Offset(20)) == (
        LostSegment(encoded(lost), Offset(20), lost.max_timestamp),
    )
    assert (log.segment_with(Offset(9)), log.segment_with(Offset(10))) == (fine, None)
    assert log.copied_end == 10


def test_epochs_that_do_not_reach_back_to_the_log_start_condemn_no_segment_below_them() -> None:
    """The file of the epochs was lost: those of the local batches are left."""
    log = RemoteLog(ORDERS, Offset(10))
    below, across, lost = (copied(1, [0] * 20, 0, 8), copied(2, [0] * 20, 8, 12), copied(3, [1] * 20, 12, 20))
    local = [EpochStart(LeaderEpoch(0), Offset(10))]
    assert log.load(map(encoded, [below, across, lost]), local, Offset(0), Offset(20)) == (
        LostSegment(encoded(lost), Offset(20), lost.max_timestamp),
    )
    assert (log.unproven, len(log)) == (2, 0)


def test_a_copy_that_never_finished_is_not_read() -> None:
    log = RemoteLog(ORDERS, Offset(0))
    unfinished = replace(copied(1, [0] * 10, 0, 10), state=STARTED)
    assert log.load([encoded(unfinished)], history_of([0] * 10), Offset(0), Offset(10)) == ()
    assert (len(log), log.copied_end) == (0, 0)


def test_a_log_start_that_moves_gives_up_the_segments_below_it() -> None:
    epochs = [0] * 40
    log = RemoteLog(ORDERS, Offset(0))
    for number in range(3):
        log.add(copied(number, epochs, 10 * number, 10 * number + 10))
    assert log.advance(Offset(15)) == (RemoteSegmentId(UUID(int=0)),)
    assert log.segment_with(Offset(5)) is None
    found = log.first_since(Millis(25_000), None)
    assert found is not None and found.start_offset == 20
    assert log.advance(Offset(35)) == (RemoteSegmentId(UUID(int=1)), RemoteSegmentId(UUID(int=2)))
    assert log.copied_end == 35


def test_a_gap_that_lies_below_the_log_start_does_not_count() -> None:
    """A follower learns of the copies before it learns that the leader's log starts behind the gap."""
    epochs = [0] * 40
    log = RemoteLog(ORDERS, Offset(0))
    first, second = copied(1, epochs, 10, 20), copied(2, epochs, 18, 30)
    for segment in (first, second):
        log.add(segment)
    assert log.copied_end == 0
    assert log.size == 200, "the records at offsets 18 and 19 count once"
    assert log.advance(Offset(10)) == ()
    assert log.copied_end == 30
    assert log.advance(Offset(20)) == (first.segment_id,)
    assert ([*log], log.size) == ([second], 100), "never too much: retention would delete what is to stay"


def test_offsets_that_no_segment_has_are_named_and_stop_no_copy() -> None:
    """The local log starts at 30, and the coordinator has lost segments below that: what is copied from there on still
    leaves the node."""
    epochs = [0] * 60
    log = RemoteLog(ORDERS, Offset(30))
    for number, (start, end) in enumerate(((5, 12), (8, 10), (20, 25), (30, 50))):
        log.add(copied(number, epochs, start, end))
    assert log.copied_end == 50
    assert log.gaps(Offset(0), Offset(30)) == ((0, 5), (12, 20), (25, 30))
    assert log.gaps(Offset(6), Offset(18)) == ((12, 18),)
    assert log.gaps(Offset(20), Offset(25)) == ()


def test_the_first_segment_with_a_timestamp_is_found_behind_each_place() -> None:
    """A new leader's segments may overlap, and timestamps need not rise."""
    log = RemoteLog(ORDERS, Offset(0))
    stamps = {0: 50, 10: 20, 20: -1, 30: 70, 40: 60}
    for start, stamp in stamps.items():
        log.add(replace(copied(start, [0] * 60, start, start + 10), max_timestamp=Millis(stamp)))
    for timestamp in (0, 20, 55, 60, 70, 71):
        found, after = [], None
        while (segment := log.first_since(Millis(timestamp), after)) is not None:
            found.append(segment.start_offset)
            after = SegmentPlace(segment.start_offset, segment.segment_id)
        assert found == [start for start, stamp in stamps.items() if stamp >= timestamp]


@given(
    ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15), st.integers(-1, 90)), max_size=12),
    start=st.integers(0, 60),
    up_to=st.integers(0, 60),
)
def test_the_largest_timestamp_is_that_of_segments_without_other_offsets(
    ranges: list[tuple[int, int, int]], start: int, up_to: int
) -> None:
    """The largest one of a segment that begins below the log start may be that of a deleted record."""
    log = RemoteLog(ORDERS, Offset(0))
    for number, (first, length, stamp) in enumerate(ranges):
        log.add(replace(copied(number, [0] * 60, first, first + length), max_timestamp=Millis(stamp)))
    out = log.reaching_out(Offset(start), Offset(up_to))
    ids = {each.segment_id for each in out}
    inside = [each for each in log if start <= each.start_offset and each.end_offset <= up_to]
    stamps = [each.max_timestamp for each in inside if each.segment_id not in ids]
    assert log.largest_timestamp(Offset(start), Offset(up_to)) == max(stamps, default=-1)
    shared = {each.segment_id for each in log if each.start_offset < up_to and each.end_offset > start}
    assert shared <= ids | {each.segment_id for each in inside}, "none is left out"


@given(
    ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), max_size=12),
    offset=st.integers(0, 60),
    log_start=st.integers(0, 20),
)
def test_lookups_agree_with_a_search_through_all_segments(
    ranges: list[tuple[int, int]], offset: int, log_start: int
) -> None:
    epochs = [0] * 60
    every = sorted(
        (copied(number, epochs, start, start + length) for number, (start, length) in enumerate(ranges)),
        key=lambda each: (each.start_offset, each.segment_id.int),
    )
    log = RemoteLog(ORDERS, Offset(log_start))
    assert log.load(map(encoded, every), history_of(epochs), Offset(log_start), Offset(60)) == ()
    assert log.size == 10 * len({each for copy in every for each in range(copy.start_offset, copy.end_offset)})
    ends = [each.end_offset for each in every if each.start_offset <= offset < each.end_offset]
    found = log.segment_with(Offset(offset))
    assert (None if found is None else found.end_offset) == max(ends, default=None)
    covered = {each for segment in every for each in range(segment.start_offset, segment.end_offset)}
    end = log_start
    while end in covered:
        end += 1
    assert log.copied_end == end
    gaps = {each for gap in log.gaps(Offset(log_start), Offset(60)) for each in range(gap.start, gap.end)}
    assert gaps == {*range(log_start, 60)} - covered

    log.advance(Offset(log_start + 5))
    left = [each.end_offset for each in every if each.start_offset <= offset < each.end_offset > log_start + 5]
    found = log.segment_with(Offset(offset))
    assert (None if found is None else found.end_offset) == max(left, default=None)


def test_a_lookup_decodes_one_segment_although_another_one_is_much_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose records have become larger: one old segment has more offsets than a thousand new ones. The node's
    loop decodes what a lookup looks at, and each fetch of history is a lookup."""
    log = RemoteLog(ORDERS, Offset(0))
    log.add(copied(0, [0] * 1_000, 0, 1_000))
    for number in range(300):
        log.add(
            replace(
                copied(number + 1, [0], 0, 1), start_offset=Offset(1_000 + number), end_offset=Offset(1_001 + number)
            )
        )
    decoded = []

    def counted(partition: PartitionKey, data: EncodedSegment) -> RemoteSegment:
        decoded.append(data)
        return decode_segment(partition, data)

    monkeypatch.setattr(segment_table, "decode_segment", counted)
    for offset in (0, 999, 1_000, 1_150, 1_299):
        found = log.segment_with(Offset(offset))
        assert found is not None
        assert found.start_offset <= offset < found.end_offset
    assert len(decoded) == 5
    assert log.segment_with(Offset(1_300)) is None


@given(
    ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), max_size=12),
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    most=st.integers(1, 4),
)
def test_the_segments_of_a_range_come_in_parts_without_a_hole(
    ranges: list[tuple[int, int]], bounds: tuple[int, int], most: int
) -> None:
    """A reader that asks for a range, part by part, gets every offset that is copied, and no segment in vain."""
    start, end = Offset(min(bounds)), Offset(max(bounds))
    log = RemoteLog(ORDERS, Offset(0))
    every = [copied(number, [0] * 60, first, first + length) for number, (first, length) in enumerate(ranges)]
    for segment in every:
        log.add(segment)
    found: list[RemoteSegment] = []
    offset = start
    while offset < end:
        part, following = log.covering(offset, end, most)
        assert len(part) <= most
        assert following > offset
        found += part
        offset = following

    def offsets(segments: list[RemoteSegment]) -> set[int]:
        return {each for segment in segments for each in range(segment.start_offset, segment.end_offset)}

    wanted = set(range(start, end))
    assert offsets(found) & wanted == offsets(every) & wanted
    ends = [segment.end_offset for segment in found]
    assert ends == sorted(set(ends))
    for segment in found:
        assert offsets([each for each in found if each is not segment]) & wanted != offsets(every) & wanted
