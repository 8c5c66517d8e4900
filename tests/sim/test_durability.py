"""The fake disk reports what survives any crash; the check of durable offsets relies on it."""

from __future__ import annotations

import random

import pytest

from storage.files.file_system import File
from testbed.fake_disk import FakeDisk

PATH = "/data/log"


def a_file(content: bytes) -> FakeDisk:
    """A disk with one file, contents and names synced."""
    disk = FakeDisk()
    disk.make_directory("/data")
    disk.open(PATH, create=True).pwritev([content], 0)
    disk.open(PATH).sync()
    disk.sync_directory("/data")
    disk.sync_directory("/")
    return disk


def test_synced_bytes_are_safe_and_appended_ones_are_not() -> None:
    disk = a_file(b"0123456789")
    assert disk.safe_end(PATH, 0, 10) == 10
    disk.open(PATH).pwritev([b"abc"], 10)
    assert disk.safe_end(PATH, 0, 13) == 10
    disk.open(PATH).sync()
    assert disk.safe_end(PATH, 0, 13) == 13


def test_an_unsynced_overwrite_or_truncation_endangers_its_bytes() -> None:
    disk = a_file(b"0123456789")
    disk.open(PATH).pwritev([b"x"], 4)
    assert disk.safe_end(PATH, 0, 4) == 4
    assert disk.safe_end(PATH, 0, 10) < 10
    disk = a_file(b"0123456789")
    disk.open(PATH).truncate(6)
    assert disk.safe_end(PATH, 0, 6) == 6


def test_a_file_without_a_durable_name_is_not_safe() -> None:
    disk = a_file(b"0123456789")
    disk.rename(PATH, "/data/other")
    assert disk.safe_end("/data/other", 0, 10) == 0
    disk.sync_directory("/data")
    assert disk.safe_end("/data/other", 0, 10) == 10


def test_bytes_of_a_failed_sync_are_not_safe() -> None:
    disk = a_file(b"0123456789")
    file = disk.open(PATH)
    file.pwritev([b"abc"], 10)
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert disk.safe_end(PATH, 0, 13) == 10


def test_rot_makes_nothing_unsafe_and_neither_does_putting_it_right() -> None:
    disk = a_file(b"0123456789")
    disk.flip_bit(PATH, 4)
    assert disk.safe_end(PATH, 0, 10) == 10
    disk.open(PATH).pwritev([b"4"], 4)
    assert disk.safe_end(PATH, 0, 10) < 10, "a crash restores the corrupt byte"
    with disk.as_written():
        assert disk.safe_end(PATH, 0, 10) == 10, "corruption does not count as lost durability"


def do_something(file: File, rng: random.Random) -> None:
    match rng.randrange(3):
        case 0:
            file.pwritev([rng.randbytes(rng.randint(1, 8))], rng.randrange(14))
        case 1:
            file.truncate(rng.randrange(14))
        case _:
            file.sync()


def test_safe_bytes_survive_every_crash() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        disk = a_file(b"0123456789")
        file = disk.open(PATH)
        for _ in range(rng.randrange(6)):
            do_something(file, rng)
        size = file.size()
        before, safe = file.pread(size, 0), disk.safe_end(PATH, 0, size)
        disk.crash(rng)
        assert disk.open(PATH).pread(safe, 0) == before[:safe]
