"""Iteration over the batches of a file: what headers alone show, and what reading every byte shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.files.file_system import File
from storage.segment.batch_walk import BrokenChain, Link, walk_file
from storage.segment.verifier import sound_batches, verify
from testbed.fake_disk import FakeDisk
from tidelog.records import Record, RecordBatch, build_batch, build_message_set
from tidelog.types import Codec, LeaderEpoch, Millis, Offset

NOW = 1_700_000_000_000


def records(first: int, count: int) -> list[Record]:
    return [Record(Offset(first + i), Millis(NOW + i), b"key", b"value %d" % i) for i in range(count)]


def log_of(*parts: tuple[int, Codec, int]) -> bytes:
    """Batches given as (format, codec, number of records), one after the other."""
    data, first = b"", 0
    for magic, codec, count in parts:
        new = records(first, count)
        data += (
            build_batch(new, codec, leader_epoch=LeaderEpoch(3)) if magic == 2 else build_message_set(new, magic, codec)
        )
        first += count
    return data


MIXED = log_of((0, Codec.NONE, 2), (2, Codec.NONE, 3), (1, Codec.GZIP, 3), (2, Codec.LZ4, 2), (1, Codec.NONE, 1))
BATCHES = [(0, 0), (0, 1), (2, 4), (1, 7), (2, 9), (1, 10)]
"""Of `MIXED`: format and last offset."""


def file_of(data: bytes) -> File:
    file = FakeDisk().open("/x.log", create=True)
    file.pwritev([data], 0)
    return file


def walked(data: bytes) -> list[tuple[int, int, int]]:
    return [(h.position, h.magic, h.last_offset) for h in walk_file(file_of(data), 0, len(data), 0)]


def scanned(data: bytes) -> list[tuple[int, int, int]]:
    found = list[tuple[int, int, int]]()
    for _, header, _, _, fault in verify(file_of(data), Link(0, len(data), 0)):
        if fault is not None:
            raise fault
        assert header is not None
        found.append((header.position, header.magic, header.last_offset))
    return found


def sound(file: File, position: int, end: int, next_offset: int) -> Iterator[RecordBatch]:
    return sound_batches(file, Link(position, end, next_offset))


def test_both_walks_find_every_format() -> None:
    assert [found[1:] for found in walked(MIXED)] == BATCHES
    assert scanned(MIXED) == walked(MIXED)


def test_a_decreasing_leader_epoch_does_not_break_the_chain() -> None:
    """No checksum covers the epoch. It is compared with the epoch cache and makes no records unreadable."""
    data = bytearray(MIXED)
    position = walked(MIXED)[4][0]
    data[position + 12 : position + 16] = (2).to_bytes(4)
    assert walked(bytes(data)) == walked(MIXED)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, len(MIXED) - 1), st.integers(1, 255))
def test_a_full_scan_finds_each_flipped_byte_that_a_checksum_covers(at: int, flip: int) -> None:
    """Not covered: offset and length in every format, and in v2 the epoch and the magic."""
    data = bytearray(MIXED)
    data[at] ^= flip
    start, magic = next((position, magic) for position, magic, _ in reversed(walked(MIXED)) if position <= at)
    if at - start < (17 if magic == 2 else 12):
        with suppress(BrokenChain):
            scanned(bytes(data))
        return
    with pytest.raises(BrokenChain) as caught:
        scanned(bytes(data))
    assert caught.value.position == start, "the error names the batch"


@settings(deadline=None)
@given(st.sampled_from(range(len(BATCHES))), st.sampled_from([0, 1, 2, 3, 255]))
def test_a_full_scan_finds_a_damaged_magic(batch: int, magic: int) -> None:
    position, right, _ = walked(MIXED)[batch]
    data = bytearray(MIXED)
    data[position + 16] = magic
    if magic == right:
        return
    with pytest.raises(BrokenChain):
        scanned(bytes(data))


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 40), st.integers(0, 2000), st.sampled_from(list(Codec)), st.sampled_from([0, 1]))
def test_headers_alone_reveal_a_v2_batch_with_an_older_magic(count: int, size: int, codec: Codec, magic: int) -> None:
    data = bytearray(build_batch([Record(Offset(i), Millis(NOW), None, b"v" * size) for i in range(count)], codec))
    data[16] = magic
    with pytest.raises(BrokenChain):
        walked(bytes(data))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=300), st.sampled_from([b"", MIXED, MIXED[:100]]))
def test_any_bytes_end_in_broken_chain(garbage: bytes, before: bytes) -> None:
    """Nothing else is raised, and the batches before the break are returned."""
    data = before + garbage
    for walk in (walk_file, sound):
        seen = 0
        with suppress(BrokenChain):
            for _ in walk(file_of(data), 0, len(data), 0):
                seen += 1
        if before == MIXED:
            assert seen >= len(BATCHES)


@pytest.mark.parametrize("length", range(0, len(MIXED), 7))
def test_a_truncated_file_keeps_its_whole_batches(length: int) -> None:
    starts = [position for position, _, _ in walked(MIXED)]
    ends = [*starts[1:], len(MIXED)]
    for walk in (walk_file, sound):
        seen = 0
        with suppress(BrokenChain):
            for _ in walk(file_of(MIXED[:length]), 0, length, 0):
                seen += 1
        assert seen == sum(end <= length for end in ends)


def test_a_batch_larger_than_one_read_is_read_whole() -> None:
    large = build_batch([Record(Offset(0), Millis(NOW), None, b"v" * (3 << 20))])
    data = large + build_batch(records(1, 1))
    assert [found[2] for found in scanned(data)] == [0, 1]
    assert [found[2] for found in walked(data)] == [0, 1]
