"""The fake disk is the worst allowed one: what it may lose, and what it may not."""

from __future__ import annotations

import errno
import random

import pytest

from storage.files.file_system import read_file, write_file
from testbed.fake_disk import FakeDisk, SimulatedCrash

SEEDS = range(60)


def after_crash(disk: FakeDisk, path: str, seed: int) -> bytes | None:
    disk.crash(random.Random(seed))
    return read_file(disk, path)


def test_synced_bytes_under_a_synced_name_survive() -> None:
    for seed in SEEDS:
        disk = FakeDisk()
        disk.make_directory("/f")
        disk.sync_directory("/")
        write_file(disk, "/f/a", b"kept")
        assert after_crash(disk, "/f/a", seed) == b"kept"


def test_unsynced_bytes_survive_in_part_completely_or_not_at_all() -> None:
    seen = set()
    for seed in SEEDS:
        disk = FakeDisk()
        write_file(disk, "/a", b"kept.")
        file = disk.open("/a")
        file.pwritev([b"maybe"], 5)
        found = after_crash(disk, "/a", seed)
        assert found is not None
        assert found.startswith(b"kept.")
        assert b"kept.maybe".startswith(found)
        seen.add(found)
    assert {b"kept.", b"kept.maybe"} < seen, "both extremes, and torn writes between them"


def test_large_writes_may_lose_any_of_their_blocks() -> None:
    holes = 0
    for seed in SEEDS:
        disk = FakeDisk()
        write_file(disk, "/a", b"")
        disk.open("/a").pwritev([b"x" * 40_000], 0)
        found = after_crash(disk, "/a", seed) or b""
        holes += b"\0" in found and found.endswith(b"x")
    assert holes > 3


def test_a_synced_file_is_lost_if_its_name_is_not_synced() -> None:
    lost = 0
    for seed in SEEDS:
        disk = FakeDisk()
        file = disk.open("/a", create=True)
        file.pwritev([b"data"], 0)
        file.sync()
        found = after_crash(disk, "/a", seed)
        assert found in (None, b"data")
        lost += found is None
    assert 0 < lost < len(SEEDS)


def test_an_unsynced_rename_may_be_undone_but_never_half_done() -> None:
    seen = set()
    for seed in SEEDS:
        disk = FakeDisk()
        write_file(disk, "/a", b"old")
        write_file(disk, "/b", b"new")
        disk.rename("/b", "/a")
        disk.crash(random.Random(seed))
        seen.add((read_file(disk, "/a"), read_file(disk, "/b")))
    assert seen == {(b"old", b"new"), (b"new", None)}


def test_after_a_failed_sync_a_later_one_does_not_help() -> None:
    """Scenario 14: the kernel marks the pages as clean, readers still see them, the disk never receives them."""
    disk = FakeDisk()
    write_file(disk, "/a", b"")
    file = disk.open("/a")
    file.pwritev([b"data"], 0)
    disk.fail("sync", "/a")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert file.pread(10, 0) == b"data"
    assert after_crash(disk, "/a", 1) == b""


def test_writing_again_after_a_failed_sync_helps() -> None:
    disk = FakeDisk()
    write_file(disk, "/a", b"")
    file = disk.open("/a")
    file.pwritev([b"data"], 0)
    disk.fail("sync", "/a")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.pwritev([file.pread(4, 0)], 0)
    file.sync()
    assert after_crash(disk, "/a", 1) == b"data"


def test_a_full_disk_writes_a_part_and_raises() -> None:
    disk = FakeDisk(capacity=10)
    file = disk.open("/a", create=True)
    file.pwritev([b"12345678"], 0)
    with pytest.raises(OSError, match="No space") as caught:
        file.pwritev([b"abcd"], 8)
    assert caught.value.errno == errno.ENOSPC
    assert file.pread(100, 0) == b"12345678ab"
    file.truncate(4)
    file.pwritev([b"abcd"], 4)
    assert disk.used == 8
    disk.remove("/a")
    assert disk.used == 0


def test_a_handle_does_not_outlive_its_machine() -> None:
    disk = FakeDisk()
    write_file(disk, "/a", b"x")
    file = disk.open("/a")
    disk.crash(random.Random(1))
    with pytest.raises(OSError, match="restarted"):
        file.pread(1, 0)


def test_a_killed_process_leaves_the_page_cache() -> None:
    disk = FakeDisk()
    disk.open("/a", create=True).pwritev([b"not synced"], 0)
    disk.kill()
    assert read_file(disk, "/a") == b"not synced"


def test_a_planned_crash_happens_in_the_planned_call() -> None:
    disk = FakeDisk()
    write_file(disk, "/a", b"")
    file = disk.open("/a")
    disk.crash_at_call(disk.calls + 2)
    file.pwritev([b"one"], 0)
    with pytest.raises(SimulatedCrash):
        file.sync()


def test_the_same_seed_gives_the_same_disk() -> None:
    def run(seed: int) -> bytes | None:
        disk = FakeDisk()
        write_file(disk, "/a", b"start")
        for i in range(20):
            disk.open("/a").pwritev([bytes([i]) * 100], i * 100)
        return after_crash(disk, "/a", seed)

    assert [run(seed) for seed in SEEDS] == [run(seed) for seed in SEEDS]
    assert len({run(seed) for seed in SEEDS}) > 10


def test_a_copy_shares_nothing_with_its_disk() -> None:
    disk = FakeDisk()
    disk.make_directory("/d")
    file = disk.open("/d/a", create=True)
    file.pwritev([b"kept"], 0)
    file.sync()
    disk.sync_directory("/d")
    disk.sync_directory("/")
    seen: list[str] = []
    disk.on_call = seen.append
    file.pwritev([b"lost"], 4)
    twin = disk.twin()
    twin.crash(random.Random(1))
    file.pwritev([b"more"], 8)
    assert seen == ["write", "write"]
    assert disk.open("/d/a").pread(12, 0) == b"keptlostmore"
    found = twin.open("/d/a").pread(12, 0)
    assert found[:4] == b"kept"
    assert len(found) <= 8
    twin.open("/d/a").pwritev([b"twin"], 0)
    assert disk.open("/d/a").pread(4, 0) == b"kept"


def test_a_slow_disk_reports_the_time_of_a_call_and_performs_it() -> None:
    disk = FakeDisk()
    waited: list[int] = []
    disk.on_wait = waited.append
    file = disk.open("/a", create=True)
    disk.slow("sync", "/a", wait_ms=700, skip=1)
    disk.slow("write", wait_ms=20, times=1)
    for _ in range(3):
        file.pwritev([b"x"], file.size())
        file.sync()
    assert waited == [20, 700, 700]
    assert file.pread(9, 0) == b"xxx"
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.heal()
    file.sync()
    assert waited == [20, 700, 700, 700]


def test_a_flipped_bit_stays_for_readers_and_after_a_crash() -> None:
    disk = FakeDisk()
    write_file(disk, "/a", b"abc")
    disk.flip_bit("/a", 1, 5)
    assert read_file(disk, "/a") == b"aBc"
    assert after_crash(disk, "/a", 1) == b"aBc"
    disk.flip_bit("/a", 1, 5)
    assert read_file(disk, "/a") == b"abc"


def test_a_disk_tracks_corrupt_bytes_until_they_are_overwritten() -> None:
    disk = FakeDisk()
    write_file(disk, "/a", b"abcdef")
    assert not disk.rots
    for position in (1, 3, 5):
        disk.flip_bit("/a", position, 5)
    with disk.as_written():
        assert read_file(disk, "/a") == b"abcdef"
    assert read_file(disk, "/a") == b"aBcDeF"
    file = disk.open("/a")
    file.pwritev([b"x"], 1)
    file.pwritev([b"cDe"], 2)
    file.truncate(5)
    with disk.as_written():
        assert read_file(disk, "/a") == b"axcde"
    assert read_file(disk, "/a") == b"axcDe"
    with disk.twin().as_written():
        assert read_file(disk, "/a") == b"axcDe", "a copy's bits are its own"


def test_corrupt_bytes_that_were_overwritten_without_a_sync_may_return_after_a_crash() -> None:
    found = set()
    for seed in SEEDS:
        disk = FakeDisk()
        write_file(disk, "/a", b"abc")
        disk.flip_bit("/a", 1, 5)
        disk.open("/a").pwritev([b"b"], 1)
        assert read_file(disk, "/a") == b"abc"
        found.add(after_crash(disk, "/a", seed))
        with disk.as_written():
            assert read_file(disk, "/a") == b"abc"
    assert found == {b"abc", b"aBc"}
