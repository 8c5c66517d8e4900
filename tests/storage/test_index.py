"""The two indexes of a segment, as index-files.txt describes AbstractIndex, OffsetIndex and TimeIndex."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.files.os_files import OsFiles
from storage.segment.abstract_index import (
    By,
    CorruptIndex,
    IndexFull,
    IndexOffsetOverflow,
    InvalidIndexOffset,
    InvalidIndexTimestamp,
    memory_entries_max,
)
from storage.segment.lazy_index import LazyIndex
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex
from testbed.fake_disk import FakeDisk
from tidelog.errors import KafkaStorageError
from tidelog.types import Offset

BASE = Offset(1_000)


def offset_index(max_bytes: int = 1 << 16, disk: FakeDisk | None = None) -> OffsetIndex:
    return OffsetIndex(disk or FakeDisk(), "/00000000000000001000.index", BASE, max_bytes, fresh=True)


def time_index(max_bytes: int = 1 << 16, disk: FakeDisk | None = None) -> TimeIndex:
    return TimeIndex(disk or FakeDisk(), "/00000000000000001000.timeindex", BASE, max_bytes, fresh=True)


@pytest.mark.usefixtures("indexes_in_files")
def test_the_file_is_preallocated_to_whole_entries_and_trimmed() -> None:
    disk = FakeDisk()
    index = offset_index(100, disk)
    index.append(1_005, 300)
    assert disk.size(index.path) == 100 - 100 % 8
    index.trim()
    assert disk.size(index.path) == 8
    assert disk.open(index.path).pread(8, 0) == (5).to_bytes(4) + (300).to_bytes(4)


def test_a_size_below_one_entry_is_rejected() -> None:
    with pytest.raises(ValueError, match="less than one entry"):
        offset_index(7)
    with pytest.raises(ValueError, match="less than one entry"):
        time_index(11)


def test_a_lookup_before_the_first_entry_starts_at_the_beginning() -> None:
    index = offset_index()
    assert index.lookup(5_000) == (BASE, 0)
    index.append(1_010, 400)
    assert index.lookup(1_009) == (BASE, 0)
    assert index.lookup(1_010) == (1_010, 400)
    assert index.lookup(9_999) == (1_010, 400)


def test_the_slot_at_or_below_a_target() -> None:
    """By key or by value, -1 if there is none."""
    index, times = offset_index(), time_index()
    assert index.slot(1_000, By.KEY) == index.slot(0, By.VALUE) == -1
    for i in (1, 2, 3):
        index.append(1_000 + 10 * i, 500 * i)
        times.maybe_append(77 * i, 1_000 + 10 * i)
    assert [index.slot(offset, By.KEY) for offset in (1_009, 1_010, 1_025, 1_031)] == [-1, 0, 1, 2]
    assert [index.slot(at, By.VALUE) for at in (499, 500, 1_400, 1_501)] == [-1, 0, 1, 2]
    assert [times.slot(time, By.KEY) for time in (76, 77, 200, 232)] == [-1, 0, 1, 2]
    assert [times.slot(at, By.VALUE) for at in (1_009, 1_010, 1_025, 1_031)] == [-1, 0, 1, 2]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=50), st.integers(0, 200_000))
def test_the_warm_search_equals_a_plain_search(steps: list[int], target: int) -> None:
    """More entries than the warm 8,192 bytes contain, so that both sections are searched."""
    index = offset_index(1 << 20)
    offsets = []
    offset = int(BASE)
    for step in steps * (1 + 2_000 // len(steps)):
        offset += step
        offsets.append(offset)
        index.append(offset, len(offsets))
    wanted = BASE + target % (offset - BASE + 10)
    slot = index.slot(wanted, By.KEY)
    assert slot == bisect_right(offsets, wanted) - 1
    assert index.slot(slot + 1, By.VALUE) == slot


def test_offsets_must_grow_and_fit_into_31_bits() -> None:
    index = offset_index()
    index.append(1_010, 1)
    with pytest.raises(InvalidIndexOffset):
        index.append(1_010, 2)
    with pytest.raises(IndexOffsetOverflow):
        index.append(BASE + 2**31, 2)
    assert index.fits(BASE + 2**31 - 1)
    assert not index.fits(BASE + 2**31)
    assert not index.fits(BASE - 1)
    assert index.entries == 1


def test_a_full_index_raises() -> None:
    index = offset_index(24)
    for i in range(3):
        assert not index.is_full
        index.append(1_001 + i, i + 1)
    assert index.is_full
    with pytest.raises(IndexFull):
        index.append(1_010, 10)


def test_a_time_index_keeps_one_slot_for_rolling() -> None:
    index = time_index(36)
    index.maybe_append(10, 1_001)
    index.maybe_append(20, 1_002)
    assert index.is_full
    with pytest.raises(IndexFull):
        index.maybe_append(30, 1_003)
    index.maybe_append(30, 1_003, skip_full_check=True)
    assert index.entries == 3


def test_an_equal_timestamp_is_ignored_and_a_smaller_one_rejected() -> None:
    index = time_index()
    index.maybe_append(10, 1_001)
    index.maybe_append(10, 1_005)
    assert index.entries == 1
    with pytest.raises(InvalidIndexTimestamp):
        index.maybe_append(9, 1_006)
    with pytest.raises(InvalidIndexOffset, match="offset"):
        index.maybe_append(11, 1_000)


def test_time_lookups() -> None:
    index = time_index()
    assert index.lookup(100) == (-1, BASE)
    index.maybe_append(10, 1_001)
    index.maybe_append(20, 1_005)
    assert index.lookup(9) == (-1, BASE)
    assert index.lookup(10) == (10, 1_001)
    assert index.lookup(25) == (20, 1_005)


def test_truncation_removes_entries_at_and_above_the_offset() -> None:
    disk = FakeDisk()
    index, times = offset_index(disk=disk), time_index(disk=disk)
    for i in range(1, 6):
        index.append(1_000 + 10 * i, 100 * i)
        times.maybe_append(i, 1_000 + 10 * i)
    index.truncate_to(1_030)
    times.truncate_to(1_030)
    assert (index.entries, index.last) == (2, (1_020, 200))
    assert (times.entries, times.last) == (2, (2, 1_020))
    index.append(1_031, 300)
    times.maybe_append(3, 1_031)
    assert index.lookup(1_040) == (1_031, 300)
    index.truncate_to(BASE)
    assert index.entries == 0


@pytest.mark.parametrize("make", [offset_index, time_index])
def test_the_first_entries_are_in_memory_and_later_ones_in_the_file(
    make: Callable[..., OffsetIndex | TimeIndex],
) -> None:
    """Up to the limit there is no file; then it has all entries, and every lookup finds what it found before."""
    disk = FakeDisk()
    index = make(1 << 20, disk)
    limit = memory_entries_max(index.path)

    def add(number: int) -> None:
        index.push(index.relative(BASE + 10 * number), 100 * number)
        index.remember_last()

    for number in range(1, limit + 1):
        index.reserve_entries(1)
        add(number)
    assert disk.size(index.path) is None
    before = [index.slot(at, By.VALUE) for at in range(0, 10 * limit, 7)]
    index.reserve_entries(1)
    assert disk.size(index.path) == index.max_entries * index.ENTRY.size
    add(limit + 1)
    assert index.held is None
    assert (index.entries, index.slot(1 << 30, By.VALUE)) == (limit + 1, limit)
    assert [index.slot(at, By.VALUE) for at in range(0, 10 * limit, 7)] == before


def test_memory_entries_survive_a_full_disk() -> None:
    """Neither a file that cannot be created nor a failed trim loses them; the next attempt writes them."""
    disk = FakeDisk()
    held = LazyIndex(OffsetIndex, disk, "/00000000000000001000.index", BASE, 1 << 20)
    index = held.create()
    limit = memory_entries_max(index.path)
    for number in range(1, limit + 1):
        index.append(BASE + number, number)
    disk.fail("map", ".index", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        index.reserve_entries(1)
    assert index.lookup(BASE + 7) == (BASE + 7, 7)
    disk.heal()
    disk.fail("write", ".index", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        held.trim()
    assert held.get().lookup(BASE + 7) == (BASE + 7, 7)
    disk.heal()
    held.trim()
    assert disk.size(index.path) == 8 * limit
    assert held.get().lookup(BASE + limit) == (BASE + limit, limit)


def test_entries_of_an_earlier_start_are_read_into_memory() -> None:
    """A small file stays as it is until the index is trimmed, and then has old and new entries."""
    disk = FakeDisk()
    index = offset_index(disk=disk)
    index.append(1_010, 77)
    index.trim()
    again = lazy(disk, index.path)
    again.get().append(1_020, 99)
    assert disk.size(index.path) == 8
    assert again.get().lookup(1_015) == (1_010, 77)
    again.get().truncate_to(1_015)
    again.get().append(1_016, 88)
    again.trim()
    assert disk.size(index.path) == 16
    assert again.get().last == (1_016, 88)


def lazy(disk: FakeDisk, path: str) -> LazyIndex[OffsetIndex]:
    return LazyIndex(OffsetIndex, disk, path, BASE, 1 << 16)


@pytest.mark.usefixtures("indexes_in_files")
def test_an_index_is_opened_at_first_use_and_read_only() -> None:
    """LazyIndex: nothing is opened before its first use; the file stays unchanged until an entry is added."""
    disk = FakeDisk()
    index = offset_index(disk=disk)
    index.append(1_010, 77)
    index.trim()
    calls = disk.calls
    again = lazy(disk, index.path)
    assert disk.calls == calls
    assert not again.is_open
    assert again.get().lookup(1_010) == (1_010, 77)
    assert disk.size(index.path) == 8
    again.get().append(1_020, 99)
    assert again.get().last == (1_020, 99)
    assert disk.size(index.path) == 1 << 16
    opened = again.get()
    again.trim()
    assert disk.size(index.path) == 16
    assert again.get() is not opened
    assert again.get().entries == 2


def test_a_closed_index_rejects_entries_and_lookups() -> None:
    """append-as-leader.txt, checkIfMemoryMappedBufferClosed: KafkaStorageException."""
    index, times = offset_index(), time_index()
    index.append(1_010, 1)
    for each in (index, times):
        each.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        index.append(1_020, 2)
    with pytest.raises(KafkaStorageError, match="closed"):
        times.maybe_append(5, 1_020)
    with pytest.raises(KafkaStorageError, match="closed"):
        index.lookup(1_010)
    with pytest.raises(KafkaStorageError, match="closed"):
        index.truncate_to(1_000)


@pytest.mark.parametrize("contents", [b"123", b"\0" * 16, (5).to_bytes(4) + b"\0\0\0\0", b"\xff" * 8])
def test_a_file_that_is_no_index_is_corrupt(contents: bytes) -> None:
    disk = FakeDisk()
    disk.open("/x.index", create=True).pwritev([contents], 0)
    with pytest.raises(CorruptIndex):
        lazy(disk, "/x.index").get()
    assert lazy(disk, "/x.index").create().entries == 0, "it is written again"


@pytest.mark.usefixtures("indexes_in_files")
def test_a_time_index_that_ends_in_zeros_is_corrupt() -> None:
    disk = FakeDisk()
    index = time_index(disk=disk)
    index.maybe_append(10, 1_001)
    index.close()
    with pytest.raises(CorruptIndex):
        TimeIndex(disk, index.path, BASE, 1 << 16).sanity_check()


@pytest.mark.usefixtures("indexes_in_files")
def test_a_full_disk_raises_before_the_entry_is_written() -> None:
    disk = FakeDisk(capacity=4096)
    index = offset_index(1 << 20, disk)
    with pytest.raises(OSError, match="No space"):
        index.reserve_entries(513)
    index.reserve_entries(512)
    index.append(1_001, 1)
    assert index.entries == 1


@pytest.mark.usefixtures("indexes_in_files")
@pytest.mark.parametrize(("make", "entry"), [(offset_index, 8), (time_index, 12)])
def test_a_size_is_rounded_down_to_whole_entries(make: Callable[..., OffsetIndex | TimeIndex], entry: int) -> None:
    """roundDownToExactMultiple(1234567, 8) is 1234560; maxEntries = limit / entrySize."""
    disk = FakeDisk()
    index = make(1_234_567, disk)
    assert (index.entries, index.is_full) == (0, False)
    index.make_writable()
    assert disk.size(index.path) == 1_234_567 - 1_234_567 % entry == index.max_entries * entry


def test_a_hundred_entries_are_truncated_to_forty() -> None:
    """truncateToEntries: entries, position and last entry follow."""
    index = offset_index()
    for i in range(100):
        index.append(1_001 + i, 10 * (i + 1))
    index.truncate_entries(40)
    assert (index.entries, index.last) == (40, (1_040, 400))
    assert index.lookup(1_100) == (1_040, 400)
    index.truncate_entries(41)
    assert index.entries == 40, "a truncation does not extend it"
    index.append(1_041, 401)
    assert index.entries == 41


def test_an_existing_file_is_used_up_to_its_last_whole_entry() -> None:
    """idx.position(roundDownToExactMultiple(idx.limit(), entrySize)); the sanity check then complains."""
    disk = FakeDisk()
    index = offset_index(disk=disk)
    for i in (1, 2, 3):
        index.append(1_000 + i, i)
    index.trim()
    disk.open(index.path).truncate(20)
    cut = OffsetIndex(disk, index.path, BASE, 1 << 16)
    assert (cut.entries, cut.last) == (2, (1_002, 2))
    with pytest.raises(CorruptIndex, match="multiple of 8"):
        cut.sanity_check()


def test_a_time_entry_may_have_the_offset_of_the_last_one_but_no_smaller_one() -> None:
    """offset < lastEntry.offset is rejected; without a timestamp (v0) no entry is added."""
    index = time_index()
    index.maybe_append(-1, 1_001)
    assert index.entries == 0
    index.maybe_append(10, 1_005)
    index.maybe_append(11, 1_005)
    assert index.entries == 2
    with pytest.raises(InvalidIndexOffset):
        index.maybe_append(12, 1_004)
    with pytest.raises(IndexOffsetOverflow):
        index.maybe_append(12, BASE + 2**31)


@pytest.mark.usefixtures("indexes_in_files")
def test_written_entries_appear_in_the_file(tmp_path: Path) -> None:
    """mmap.putInt(relativeOffset(offset)); mmap.putInt(position): one page cache, on a real disk too."""
    files = OsFiles()
    index = OffsetIndex(files, str(tmp_path / "a.index"), BASE, 1 << 12, fresh=True)
    index.reserve_entries(1)
    index.append(1_007, 300)
    assert (tmp_path / "a.index").read_bytes()[:8] == (7).to_bytes(4) + (300).to_bytes(4)
    assert (tmp_path / "a.index").stat().st_size == 1 << 12
    index.trim()
    assert (tmp_path / "a.index").stat().st_size == 8
