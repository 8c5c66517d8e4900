"""The contract of `Files` (storage/files/file_system.py), checked for the operating system, what wraps it for
tests, and the fake disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from storage.files.file_system import Files, WouldBlock, read_file, write_file
from storage.files.os_files import OsFiles
from testbed.disk_faults import FaultyFiles
from testbed.embedded_node import UnsyncedFiles
from testbed.fake_disk import FakeDisk


@pytest.fixture(params=["os", "faulty", "unsynced", "fake"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A disk and an empty directory on it."""
    real = {"os": OsFiles(), "faulty": FaultyFiles(str(tmp_path / "no faults")), "unsynced": UnsyncedFiles()}
    if request.param in real:
        (tmp_path / "directory").mkdir()
        return real[request.param], str(tmp_path / "directory")
    fake = FakeDisk()
    fake.make_directory("/tmp/directory")
    return fake, "/tmp/directory"


def test_buffers_are_written_one_after_the_other(disk: tuple[Files, str]) -> None:
    files, directory = disk
    file = files.open(f"{directory}/a", create=True)
    file.pwritev([b"head", memoryview(b"..tail")[2:], bytearray(b"!")], 0)
    file.pwritev([b"AD"], 2)
    assert file.size() == 9
    assert file.pread(100, 0) == b"heADtail!"
    assert file.pread(3, 4) == b"tai"
    assert file.pread(3, 9) == b""
    assert file.path == f"{directory}/a"
    file.close()


def test_a_write_after_the_end_leaves_zeros_between(disk: tuple[Files, str]) -> None:
    files, directory = disk
    file = files.open(f"{directory}/a", create=True)
    file.pwritev([b"x"], 3)
    assert file.pread(10, 0) == b"\0\0\0x"
    file.close()


def test_truncate_shortens_and_extends_with_zeros(disk: tuple[Files, str]) -> None:
    files, directory = disk
    file = files.open(f"{directory}/a", create=True)
    file.pwritev([b"abcdef"], 0)
    file.truncate(2)
    file.truncate(4)
    file.sync()
    assert file.pread(10, 0) == b"ab\0\0"
    file.close()


def test_space_is_allocated_before_it_is_written(disk: tuple[Files, str]) -> None:
    files, directory = disk
    file = files.open(f"{directory}/a", create=True)
    file.pwritev([b"abc"], 0)
    file.reserve(8192)
    assert (file.size(), file.pread(5, 0)) == (8192, b"abc\0\0")
    file.reserve(10)
    file.reserve(0)
    assert file.size() == 8192
    file.truncate(3)
    assert file.pread(10, 0) == b"abc"
    file.close()


def test_a_directory_reports_the_space_of_its_disk(disk: tuple[Files, str]) -> None:
    files, directory = disk
    free, total = files.space(directory)
    assert 0 < free <= total
    with pytest.raises(FileNotFoundError):
        files.space(f"{directory}/missing")


def test_missing_files_raise_the_errors_of_the_operating_system(disk: tuple[Files, str]) -> None:
    files, directory = disk
    with pytest.raises(FileNotFoundError):
        files.open(f"{directory}/none")
    with pytest.raises(FileNotFoundError):
        files.remove(f"{directory}/none")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{directory}/none", f"{directory}/other")
    with pytest.raises(FileNotFoundError):
        files.list(f"{directory}/none")
    assert files.size(f"{directory}/none") is None
    assert not files.is_directory(f"{directory}/none")
    assert read_file(files, f"{directory}/none") is None


def test_rename_replaces_the_target_in_one_step(disk: tuple[Files, str]) -> None:
    files, directory = disk
    write_file(files, f"{directory}/a", b"new")
    write_file(files, f"{directory}/b", b"old")
    files.rename(f"{directory}/a", f"{directory}/b")
    assert files.list(directory) == ["b"]
    assert read_file(files, f"{directory}/b") == b"new"


def test_a_file_with_two_names_exists_as_long_as_one_of_them(disk: tuple[Files, str]) -> None:
    files, directory = disk
    files.make_directory(f"{directory}/other")
    write_file(files, f"{directory}/a", b"bytes")
    files.link(f"{directory}/a", f"{directory}/other/b")
    file = files.open(f"{directory}/other/b")
    file.pwritev([b"B"], 0)
    file.close()
    assert read_file(files, f"{directory}/a") == b"Bytes"
    with pytest.raises(FileExistsError):
        files.link(f"{directory}/a", f"{directory}/other/b")
    write_file(files, f"{directory}/a", b"another")
    assert read_file(files, f"{directory}/other/b") == b"Bytes"
    files.remove(f"{directory}/a")
    files.remove(f"{directory}/other/b")
    assert files.list(f"{directory}/other") == []


def test_an_open_file_outlives_its_name(disk: tuple[Files, str]) -> None:
    files, directory = disk
    file = files.open(f"{directory}/a", create=True)
    files.remove(f"{directory}/a")
    file.pwritev([b"still here"], 0)
    file.sync()
    assert file.pread(5, 0) == b"still"
    file.close()
    assert files.list(directory) == []


def test_a_shared_handle_closes_with_its_last_user(disk: tuple[Files, str]) -> None:
    files, directory = disk
    file = files.open(f"{directory}/a", create=True)
    other = file.share()
    file.close()
    other.pwritev([b"x"], 0)
    other.sync()
    other.close()
    with pytest.raises(AssertionError):
        file.share()


def test_directories_are_created_listed_and_removed(disk: tuple[Files, str]) -> None:
    files, directory = disk
    files.make_directory(f"{directory}/x/y")
    files.make_directory(f"{directory}/x/y")
    write_file(files, f"{directory}/x/file", b"1")
    assert files.list(f"{directory}/x") == ["file", "y"]
    assert files.is_directory(f"{directory}/x/y")
    assert not files.is_directory(f"{directory}/x/file")
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory(f"{directory}/x")
    files.remove_directory(f"{directory}/x/y")
    assert files.list(f"{directory}/x") == ["file"]
    files.sync_directory(directory)


def test_a_mapping_and_its_file_show_the_same_bytes(disk: tuple[Files, str]) -> None:
    files, directory = disk
    mapping = files.map(f"{directory}/index", 10_000, writable=True)
    assert files.size(f"{directory}/index") == 10_000
    mapping.reserve(12)
    mapping.write(0, b"entry one...")
    assert mapping.read(0, 12) == b"entry one..."
    file = files.open(f"{directory}/index")
    assert file.pread(14, 0) == b"entry one...\0\0"
    mapping.close()
    file.truncate(12)
    file.close()
    again = files.map(f"{directory}/index", 12, writable=False)
    assert again.read(0, 12) == b"entry one..."
    again.close()


def test_a_mapping_allocates_only_reserved_space(disk: tuple[Files, str]) -> None:
    files, directory = disk
    mapping = files.map(f"{directory}/index", 10_000, writable=True)
    with pytest.raises(AssertionError, match="reserved"):
        mapping.write(0, b"x")
    mapping.reserve(1)
    mapping.reserve(1)
    mapping.reserve(10_000)
    mapping.write(9_999, b"x")
    mapping.close()


def test_a_lock_has_one_owner(disk: tuple[Files, str]) -> None:
    files, directory = disk
    lock = files.lock(f"{directory}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{directory}/.lock")
    lock.release()
    files.lock(f"{directory}/.lock").release()


def test_write_file_leaves_only_the_new_contents(disk: tuple[Files, str]) -> None:
    files, directory = disk
    write_file(files, f"{directory}/checkpoint", b"long old contents")
    write_file(files, f"{directory}/checkpoint", b"new", sync=False)
    assert read_file(files, f"{directory}/checkpoint") == b"new"
    assert files.list(directory) == ["checkpoint"]


def test_a_read_that_does_not_wait_gives_the_same_bytes(disk: tuple[Files, str]) -> None:
    files, directory = disk
    file = files.open(f"{directory}/a", create=True)
    data = bytes(range(256)) * 1_000
    file.pwritev([data], 0)
    for size, position in ((10, 0), (100_000, 7), (256_000, 0), (300_000, 0), (100, 255_950), (5, 256_000)):
        assert bytes(file.pread_now(size, position)) == file.pread(size, position)
    file.close()


def test_a_read_that_would_wait_raises_and_a_waiting_read_succeeds(disk: tuple[Files, str]) -> None:
    """A file system may keep pages that it was asked to drop; then no read has to wait."""
    files, directory = disk
    file = files.open(f"{directory}/a", create=True)
    data = b"x" * (1 << 20)
    file.pwritev([data], 0)
    file.sync()
    if isinstance(files, FakeDisk):
        files.is_cold = lambda path: path.endswith("/a")
    else:
        with Path(file.path).open("rb") as same:
            os.posix_fadvise(same.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with suppress(WouldBlock):
        assert bytes(file.pread_now(len(data), 0)) == data
        assert not isinstance(files, FakeDisk), "it must raise WouldBlock"
    assert file.pread(len(data), 0) == data
    if isinstance(files, FakeDisk):
        files.is_cold = None
    assert bytes(file.pread_now(len(data), 0)) == data
    file.close()
