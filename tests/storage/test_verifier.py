"""The verifier reports what is wrong with a batch, and continues wherever the next batch can be found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from storage.files.file_system import File
from storage.segment.batch_walk import Link
from storage.segment.epoch_cache import epoch_due
from storage.segment.index_check import OffsetIndexCheck, TimeIndexCheck
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex
from storage.segment.verifier import Checked, FaultKind, Gap, SegmentRules, verify, verify_around_gaps
from testbed.fake_disk import FakeDisk
from tidelog.records import Record, build_batch
from tidelog.records.v2.header import HEADER_BYTES, LEADER_EPOCH_AT, MAGIC_AT
from tidelog.types import EpochStart, LeaderEpoch, Millis, Offset

NOW = 1_700_000_000_000
EPOCHS = (EpochStart(LeaderEpoch(3), Offset(10)),)
BEHIND = 16
"""Base offset of the next segment."""
RULES = SegmentRules(10, BEHIND, partial(epoch_due, EPOCHS))


def batch(offset: int) -> bytes:
    records = [Record(Offset(offset + at), Millis(NOW + offset + at), b"key", b"value") for at in range(2)]
    return build_batch(records, leader_epoch=LeaderEpoch(3))


BATCHES = [batch(offset) for offset in (10, 12, 14)]
SIZE = len(BATCHES[0])


def file_of(data: bytes) -> File:
    file = FakeDisk().open("/00000000000000000010.log", create=True)
    file.pwritev([data], 0)
    return file


def checked(data: bytes, rules: SegmentRules = RULES) -> list[Checked]:
    return list(verify(file_of(data), Link(0, len(data), 10), rules))


def changed(position: int, value: int) -> bytes:
    data = bytearray(b"".join(BATCHES))
    data[position] = value
    return bytes(data)


def test_a_sound_segment_has_no_fault_and_its_steps_are_contiguous() -> None:
    steps = checked(b"".join(BATCHES))
    assert [step.fault for step in steps] == [None] * 3
    assert [step.link.next_offset for step in steps] == [10, 12, 14]
    assert [step.after for step in steps[:-1]] == [step.link for step in steps[1:]]
    assert (steps[-1].after.position, steps[-1].after.next_offset) == (3 * SIZE, BEHIND)


@pytest.mark.parametrize(
    ("position", "value", "kind", "seen"),
    [
        (SIZE + HEADER_BYTES + 3, 0xFF, FaultKind.CONTENTS, 3),
        (SIZE + 7, 9, FaultKind.HEADER, 3),
        (SIZE + 7, 200, FaultKind.NEXT_SEGMENT, 3),
        (SIZE + LEADER_EPOCH_AT + 3, 4, FaultKind.EPOCH, 3),
        (SIZE + MAGIC_AT, 9, FaultKind.NO_BATCH, 2),
        (SIZE + 8, 0x7F, FaultKind.NO_BATCH, 2),
    ],
)
def test_a_fault_has_its_kind_its_byte_and_its_offset(position: int, value: int, kind: FaultKind, seen: int) -> None:
    """The walk ends only after bytes that are no batch."""
    steps = checked(changed(position, value))
    assert len(steps) == seen
    fault = steps[1].fault
    assert fault is not None
    assert (fault.kind, fault.position, fault.next_offset) == (kind, SIZE, 12)
    assert (fault.header is not None) == (kind in (FaultKind.CONTENTS, FaultKind.EPOCH))
    assert [step.fault for step in steps[2:]] == [None] * (seen - 2), "the next batch is judged on its own"


def test_impossible_offsets_of_a_batch_with_a_wrong_checksum_are_ignored() -> None:
    data = bytearray(changed(SIZE - 1, 1))  # a record of the first batch
    data[3] ^= 0x10  # its base offset is 2**36 higher
    fault = checked(bytes(data))[0].fault
    assert fault is not None
    assert (fault.kind, fault.header) == (FaultKind.HEADER, None)


def test_in_a_recovery_segments_may_overlap_and_no_hole_may_cross_the_durable_offset() -> None:
    data = BATCHES[0] + BATCHES[2]
    assert checked(data, RULES._replace(protected=10))[1].fault is None
    in_hole = checked(data, RULES._replace(protected=13))[1].fault
    assert in_hole is not None
    assert in_hole.kind is FaultKind.HEADER
    assert checked(BATCHES[0] + BATCHES[1], RULES._replace(behind=13, protected=10))[1].fault is None


@pytest.mark.parametrize("garbage", [b"", b"\0" * 30, b"\xff" * 100])
def test_after_bytes_of_any_kind_the_next_batch_is_found(garbage: bytes) -> None:
    data = BATCHES[0] + garbage + BATCHES[2]
    steps = list(verify_around_gaps(file_of(data), len(data)))
    gaps = [step for step in steps if isinstance(step, Gap)]
    assert [step.link.position for step in steps if isinstance(step, Checked)] == [0, SIZE + len(garbage)]
    assert [(gap.position, gap.end, gap.zeros) for gap in gaps] == (
        [(SIZE, SIZE + len(garbage), not any(garbage))] if garbage else []
    )


def wrong(check: OffsetIndexCheck | TimeIndexCheck, end: Callable[[], object]) -> list[str]:
    found = list(check.shape())
    for step in checked(b"".join(BATCHES)):
        assert step.header is not None
        found += check.batch(step.header)
    found += end()  # type: ignore[arg-type]  # both ends yield faults
    return [fault.reason for fault in found]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([(3, SIZE)], None),
        ([(5, SIZE)], None),  # older Kafka: the last offset of an append of two batches
        ([(4, SIZE)], "no batch ends with that offset"),
        ([(1, 0)], "the first batch has no entry"),
        ([(3, SIZE + 1)], "no batch begins there"),
        ([(1, SIZE)], "is before that batch"),
        ([(9, SIZE)], "the segment ends before that offset"),
        ([(7, 3 * SIZE)], "the log file has only"),
        ([(3, SIZE), (3, 2 * SIZE)], "not above the previous entry"),
    ],
)
def test_an_offset_index_entry_is_compared_with_its_batch(entries: list[tuple[int, int]], said: str | None) -> None:
    check = OffsetIndexCheck(b"".join(OffsetIndex.ENTRY.pack(*entry) for entry in entries), 10, closed=True)
    found = wrong(check, lambda: check.end(3 * SIZE))
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


@pytest.mark.parametrize("closed", [True, False])
def test_zeros_after_the_entries_are_wrong_only_in_a_closed_segment(closed: bool) -> None:
    check = OffsetIndexCheck(OffsetIndex.ENTRY.pack(3, SIZE) + bytes(80), 10, closed=closed)
    assert (wrong(check, lambda: check.end(3 * SIZE)) != []) == closed


@pytest.mark.parametrize("closed", [True, False])
def test_only_a_closed_segment_must_end_with_its_largest_timestamp(closed: bool) -> None:
    check = TimeIndexCheck(TimeIndex.ENTRY.pack(NOW + 13, 3), 10, closed=closed)
    assert any("is missing at its end" in reason for reason in wrong(check, check.end)) == closed
