"""Deep validation: the facts of a batch without decoding its records, and the records that violate a rule."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptRecord
from tidelog.records import Record, Rules
from tidelog.records.legacy.message import walk_set
from tidelog.records.legacy.message_builder import build_message_set
from tidelog.records.legacy.message_check import check_messages
from tidelog.records.v2.fast_paths import check_records
from tidelog.records.v2.record import decode_records, encode_record
from tidelog.records.v2.record_check import PROBLEMS_MAX, ProblemKind, RecordFacts
from tidelog.types import Millis, Offset

NOW = 1_700_000_000_000
ANY = Rules()


def payload(*records: tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]) -> bytes:
    return b"".join(encode_record(*fields) for fields in records)


def check(data: bytes, count: int, rules: Rules = ANY, *, base_timestamp: int = NOW, last: int = 10**6) -> RecordFacts:
    return check_records(data, count, base_offset=0, last_offset_delta=last, base_timestamp=base_timestamp, rules=rules)


def test_the_facts_of_valid_records() -> None:
    data = payload(
        (0, 0, b"k", b"v", ()),
        (1, 70, None, None, (("h", b"1"), ("", None))),
        (2, 70, b"", b"", ()),
        (3, -5, b"k" * 300, b"v" * 300, (("h" * 70, b""),)),
    )
    assert check(data, 4) == RecordFacts(4, NOW + 70, 1, consecutive=True, with_headers=2, problems=())


def test_an_empty_payload_has_no_largest_timestamp() -> None:
    assert check(b"", 0) == RecordFacts(0, -1, -1, consecutive=True, with_headers=0, problems=())
    assert check(payload((0, 0, None, None, ())), 1, base_timestamp=-1)[1:3] == (-1, -1)


def test_a_compacted_topic_needs_keys() -> None:
    """message-format-and-validation.txt: for a compacted topic, InvalidMessageException if the key is null. An empty
    key is valid."""
    data = payload((0, 0, b"k", None, ()), (1, 0, None, b"v", ()), (2, 0, b"", None, ()), (3, 0, None, None, ()))
    assert check(data, 4).problems == ()
    problems = check(data, 4, Rules(key_required=True)).problems
    assert [(p.record, p.kind) for p in problems] == [(1, ProblemKind.NO_KEY), (3, ProblemKind.NO_KEY)]
    assert "no key" in problems[0].describe(ANY)


def test_timestamps_must_be_within_bounds_or_absent() -> None:
    """Bounds are inclusive; -1 means that the producer has no clock."""
    rules = Rules(timestamp_min=NOW - 10, timestamp_max=NOW + 10)
    deltas = (0, -10, 10, -11, 11, -NOW - 1, -NOW)
    data = payload(*((index, delta, b"k", None, ()) for index, delta in enumerate(deltas)))
    problems = check(data, len(deltas), rules).problems
    assert [(p.record, p.detail) for p in problems] == [(3, NOW - 11), (4, NOW + 11), (6, 0)]
    assert f"{NOW - 10} to {NOW + 10}" in problems[0].describe(rules)


def test_offsets_follow_each_other_where_a_producer_wrote_them() -> None:
    data = payload(*((offset, 0, b"k", None, ()) for offset in (0, 1, 3, 4)))
    facts = check(data, 4)
    assert not facts.consecutive
    assert [(p.record, p.kind, p.detail) for p in facts.problems] == [(2, ProblemKind.OFFSET, 3)]


def test_offsets_only_increase_after_compaction() -> None:
    cleaned = Rules(consecutive=False)
    for offsets, wrong in (((2, 5, 9), []), ((2, 2, 3), [1]), ((3, 1), [1]), ((0, 10), [1]), ((-1, 0), [0])):
        data = payload(*((offset, 0, b"k", None, ()) for offset in offsets))
        facts = check(data, len(offsets), cleaned, last=9)
        assert not facts.consecutive
        assert [p.record for p in facts.problems] == wrong, offsets


def test_a_record_may_break_several_rules_and_the_list_is_bounded() -> None:
    rules = Rules(key_required=True, timestamp_max=0)
    data = payload(*((7, 0, None, None, ()) for _ in range(1000)))
    problems = check(data, 1000, rules).problems
    assert [p.kind for p in problems[:3]] == [ProblemKind.OFFSET, ProblemKind.NO_KEY, ProblemKind.TIMESTAMP]
    assert len(problems) == PROBLEMS_MAX


some_bytes = st.none() | st.binary(max_size=20)
some_records = st.lists(
    st.tuples(
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**63), 2**63 - 1),
        some_bytes,
        some_bytes,
        st.lists(st.tuples(st.text(max_size=4), some_bytes), max_size=2).map(tuple),
    ),
    max_size=6,
)


def _facts_of_reading(data: bytes, count: int, base_offset: int, base_timestamp: int) -> tuple[int, int, int] | None:
    """The slow twin: decode the records, then check them."""
    try:
        records = list(decode_records(data, count, base_offset, base_timestamp))
    except CorruptRecord:
        return None
    return len(records), max([-1, *(r.timestamp for r in records)]), sum(bool(r.headers) for r in records)


def _facts_of_checking(data: bytes, count: int, base_offset: int, base_timestamp: int) -> tuple[int, int, int] | None:
    try:
        facts = check_records(
            data, count, base_offset=base_offset, last_offset_delta=9, base_timestamp=base_timestamp, rules=ANY
        )
    except CorruptRecord:
        return None
    return facts.record_count, facts.max_timestamp, facts.with_headers


@given(some_records, st.integers(-2, 2), st.integers(-1, 2**62), st.integers(-1, 2**62))
def test_checking_and_reading_agree_on_any_records(
    fields: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    more: int,
    base_offset: int,
    base_timestamp: int,
) -> None:
    data, count = payload(*fields), max(0, len(fields) + more)
    assert _facts_of_checking(data, count, base_offset, base_timestamp) == _facts_of_reading(
        data, count, base_offset, base_timestamp
    )


@given(st.binary(max_size=60), st.integers(0, 4))
def test_checking_and_reading_reject_the_same_bytes(data: bytes, count: int) -> None:
    assert _facts_of_checking(data, count, 5, NOW) == _facts_of_reading(data, count, 5, NOW)


@given(some_records.filter(len), st.data())
def test_checking_and_reading_reject_the_same_corruption(
    fields: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]], draw: st.DataObject
) -> None:
    data = bytearray(payload(*fields))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    args = (bytes(data), len(fields), 5, NOW)
    assert _facts_of_checking(*args) == _facts_of_reading(*args)


# --- message sets ------------------------------------------------------------------------------------------------


def messages(magic: int, *fields: tuple[int, bytes | None, int]) -> bytes:
    """Return a message set; the offsets are set afterwards, so that they may have any value."""
    data = bytearray()
    for offset, key, timestamp in fields:
        one = bytearray(build_message_set([Record(Offset(0), Millis(timestamp), key, b"v")], magic))
        struct.pack_into(">q", one, 0, offset)
        data += one
    return bytes(data)


def check_set(data: bytes, magic: int, rules: Rules = ANY) -> RecordFacts:
    return check_messages(data, walk_set(data, partial_tail_ends=False), magic, rules, what="the set")


def test_the_facts_of_valid_messages() -> None:
    data = messages(1, (0, b"k", NOW), (1, None, NOW + 7), (2, b"", -1))
    assert check_set(data, 1) == RecordFacts(3, NOW + 7, 1, consecutive=True, with_headers=0, problems=())
    data = messages(0, (0, b"k", NOW), (1, None, NOW))
    assert check_set(data, 0) == RecordFacts(2, -1, -1, consecutive=True, with_headers=0, problems=())


@pytest.mark.parametrize("offsets", [(1, 2), (0, 2), (0, 0), (5, 3), (-1, 0)])
def test_offsets_of_messages_are_reported_and_not_rejected(offsets: tuple[int, ...]) -> None:
    """Some old clients number messages incorrectly; their leader renumbers them."""
    facts = check_set(messages(1, *((offset, b"k", NOW) for offset in offsets)), 1)
    assert (facts.consecutive, facts.problems) == (False, ())


def test_messages_that_break_rules_are_listed() -> None:
    rules = Rules(key_required=True, timestamp_min=NOW)
    facts = check_set(messages(1, (0, b"k", NOW - 1), (1, None, NOW), (2, None, -1)), 1, rules)
    assert [(p.record, p.kind) for p in facts.problems] == [
        (0, ProblemKind.TIMESTAMP),
        (1, ProblemKind.NO_KEY),
        (2, ProblemKind.NO_KEY),
    ]


def test_an_inner_checksum_is_compared() -> None:
    data = bytearray(messages(1, (0, b"k", NOW), (1, b"k", NOW)))
    data[-1] ^= 1
    with pytest.raises(CorruptRecord, match="message 2 inside the set"):
        check_set(bytes(data), 1)


def test_an_inner_message_has_the_format_of_its_wrapper() -> None:
    with pytest.raises(CorruptRecord, match="has format v0"):
        check_set(messages(1, (0, b"k", NOW)) + messages(0, (1, b"k", NOW)), 1)


def test_inner_fields_fill_their_message() -> None:
    body = struct.pack(">bbii", 0, 0, 100, -1)
    with pytest.raises(CorruptRecord, match="claims 100 bytes"):
        check_set(struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body, 0)
