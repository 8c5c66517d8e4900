"""The bytes in which remote segments are kept and listed: what is read of them without decoding them agrees with what
decoding gives, and what cannot be decoded is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.coordination.encoded_segment import (
    EncodedSegment,
    SegmentHead,
    decode_segment,
    segment_head,
    segment_id_of,
    start_offset_of,
)
from replication.coordination.remote_log_records import REMOTE_LOG_RECORDS, decode_to_replay, segment_record
from tests.replication.remote_segments import FINISHED, ORDERS, SECTIONS, encoded
from tidelog.errors import UnreadableCoordinatorRecord
from tidelog.tiering.remote_segment import (
    ObjectSection,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    SectionKind,
)
from tidelog.types import EpochStart, LeaderEpoch, Millis, NodeId, Offset

SEGMENT = RemoteSegment(
    RemoteSegmentId(UUID(int=7)),
    ORDERS.topic_id,
    ORDERS.partition,
    Offset(10),
    Offset(20),
    (EpochStart(LeaderEpoch(3), Offset(10)), EpochStart(LeaderEpoch(4), Offset(15))),
    Millis(-1),
    1_000,
    LeaderEpoch(4),
    NodeId(1),
    Millis(1_700_000_000_000),
    FINISHED,
    SECTIONS,
)
STATE_AT = -1 - 22 * len(SECTIONS) - 2
"""The byte of the state, from the end: sections, their number."""


@st.composite
def segments(draw: st.DrawFn) -> RemoteSegment:
    """Any, with more leader epochs and sections than fit in a count of one byte."""
    few = st.one_of(st.integers(0, 8), st.integers(120, 135))
    start = draw(st.integers(0, 2**63 - 2))
    return RemoteSegment(
        RemoteSegmentId(draw(st.uuids())),
        ORDERS.topic_id,
        ORDERS.partition,
        Offset(start),
        Offset(draw(st.integers(start + 1, 2**63 - 1))),
        tuple(EpochStart(LeaderEpoch(number), Offset(3 * number)) for number in range(1 + draw(few))),
        Millis(draw(st.integers(-1, 2**62))),
        draw(st.integers(0, 2**62)),
        LeaderEpoch(draw(st.integers(0, 2**31 - 1))),
        NodeId(draw(st.integers(0, 2**31 - 1))),
        Millis(draw(st.integers(0, 2**62))),
        draw(st.sampled_from(RemoteSegmentState)),
        tuple(
            ObjectSection(SectionKind(number % len(SectionKind)), number, 2**40, 2**32 - 1)
            for number in range(draw(few))
        ),
    )


def head_of(segment: RemoteSegment) -> SegmentHead:
    return SegmentHead(
        segment.start_offset,
        segment.end_offset,
        segment.leader_epochs,
        segment.max_timestamp,
        segment.log_size,
        segment.state,
    )


@given(segment=segments())
def test_what_is_read_of_the_bytes_is_what_decoding_gives(segment: RemoteSegment) -> None:
    data = encoded(segment)
    assert segment_head(data) == head_of(segment)
    assert (segment_id_of(data), start_offset_of(data)) == (segment.segment_id, segment.start_offset)
    assert decode_segment(ORDERS, data) == segment


def test_a_record_is_replayed_as_the_bytes_that_a_page_has() -> None:
    key, value = REMOTE_LOG_RECORDS.encode(segment_record(SEGMENT))
    found = decode_to_replay(key, value)
    assert (found.key, found.value) == (segment_record(SEGMENT).key, encoded(SEGMENT))
    assert decode_to_replay(key, None) == REMOTE_LOG_RECORDS.decode(key, None)


def test_fields_of_a_later_version_are_passed_over() -> None:
    """Kafka's formats have tagged fields for that: number of fields, tag, size, bytes."""
    data = encoded(SEGMENT)
    assert segment_head(EncodedSegment(data[:-1] + b"\1\0\2ab")) == head_of(SEGMENT)
    in_section = data[:-2] + b"\1\0\2ab" + data[-1:]
    assert segment_head(EncodedSegment(in_section)) == head_of(SEGMENT)
    assert decode_segment(ORDERS, EncodedSegment(in_section)) == SEGMENT


@pytest.mark.parametrize(
    ("at", "byte"),
    [
        pytest.param(17, 1, id="version"),
        pytest.param(18, 0xFF, id="start offset"),
        pytest.param(STATE_AT, 9, id="state"),
        pytest.param(STATE_AT + 2, 99, id="kind of a section"),
        pytest.param(STATE_AT + 1, 9, id="number of sections"),
    ],
)
def test_what_this_version_does_not_know_is_refused(at: int, byte: int) -> None:
    """A coordinator that served such a segment would hand it to leaders that cannot use it."""
    data = bytearray(encoded(SEGMENT))
    data[at] = byte
    with pytest.raises(UnreadableCoordinatorRecord, match=str(SEGMENT.segment_id)):
        segment_head(EncodedSegment(bytes(data)))


@pytest.mark.parametrize(
    ("contradiction", "reason"),
    [
        ({"end_offset": Offset(10)}, "it has the offsets from 10 to below 10"),
        ({"end_offset": Offset(-1)}, "it has the offsets from 10 to below -1"),
        ({"start_offset": Offset(-5)}, "it has the offsets from -5 to below 20"),
        ({"leader_epochs": ()}, "it has no leader epochs"),
    ],
)
def test_a_segment_that_no_version_writes_is_refused(contradiction: dict[str, Any], reason: str) -> None:
    """Of a hostile or damaged record. The leader that lists it would divide by its number of offsets, or compare an
    epoch that is not there: both end the tier of the whole node."""
    data = encoded(replace(SEGMENT, **contradiction))
    with_tags = EncodedSegment(data[:-1] + b"\1\0\2ab")
    for each in (data, with_tags):
        with pytest.raises(UnreadableCoordinatorRecord, match=f"{reason}; no version writes that: restore __remote"):
            segment_head(each)
        with pytest.raises(UnreadableCoordinatorRecord, match=reason):
            decode_segment(ORDERS, each)


@given(cut=st.integers(1, 100), more=st.binary(min_size=1, max_size=30))
def test_bytes_that_end_early_or_go_on_are_refused(cut: int, more: bytes) -> None:
    for data in (encoded(SEGMENT)[:-cut], encoded(replace(SEGMENT, sections=())) + more):
        with pytest.raises(UnreadableCoordinatorRecord):
            segment_head(EncodedSegment(data))


@pytest.mark.parametrize("size", range(30))
def test_bytes_that_are_too_few_for_a_segment_are_refused(size: int) -> None:
    with pytest.raises(UnreadableCoordinatorRecord):
        segment_head(EncodedSegment(encoded(SEGMENT)[:size]))
