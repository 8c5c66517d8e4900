"""The faults that one process gives to the disk of another: no space, and slow syncs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import perf_counter

import pytest

from testbed.disk_faults import DiskFaults, FaultyFiles, write_faults


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    return tmp_path / "disk-faults.json"


def test_a_full_disk_refuses_growth_alone_until_there_is_room(faults: Path, tmp_path: Path) -> None:
    files = FaultyFiles(str(faults))
    mapping = files.map(str(tmp_path / "index"), 64, writable=True)
    with closing(mapping), closing(files.open(str(tmp_path / "log"), create=True)) as file:
        file.pwritev([b"abcd"], 0)
        write_faults(faults, DiskFaults(is_full=True))
        growths: list[Callable[[], None]] = [
            lambda: file.pwritev([b"xy"], 3),
            lambda: file.reserve(8),
            lambda: mapping.reserve(8),
        ]
        for growth in growths:
            with pytest.raises(OSError) as refused:
                growth()
            assert refused.value.errno == errno.ENOSPC
        assert files.space(str(tmp_path)).free == 0
        file.pwritev([b"XY"], 0)
        file.sync()
        assert file.pread(8, 0) == b"XYcd"
        write_faults(faults, DiskFaults())
        file.pwritev([b"xy"], 3)
        mapping.reserve(8)
        assert file.pread(8, 0) == b"XYcxy"
        assert files.space(str(tmp_path)).free > 0


def test_syncs_of_files_and_of_names_take_longer(faults: Path, tmp_path: Path) -> None:
    files = FaultyFiles(str(faults))
    write_faults(faults, DiskFaults(sync_ms=30))
    with closing(files.open(str(tmp_path / "log"), create=True)) as file:
        begun = perf_counter()
        file.sync()
        files.sync_directory(str(tmp_path))
        assert perf_counter() - begun >= 0.06


def test_a_broken_disk_refuses_every_write_and_sync_and_can_be_read(faults: Path, tmp_path: Path) -> None:
    files = FaultyFiles(str(faults))
    with closing(files.open(str(tmp_path / "log"), create=True)) as file:
        file.pwritev([b"abcd"], 0)
        write_faults(faults, DiskFaults(write_errno=errno.EROFS))
        refused_calls: list[Callable[[], object]] = [
            lambda: file.pwritev([b"X"], 0),
            lambda: file.reserve(8),
            file.sync,
            lambda: files.sync_directory(str(tmp_path)),
            lambda: files.open(str(tmp_path / "other"), create=True),
        ]
        for call in refused_calls:
            with pytest.raises(OSError) as refused:
                call()
            assert refused.value.errno == errno.EROFS
        assert file.pread(8, 0) == b"abcd"
        write_faults(faults, DiskFaults())
        file.pwritev([b"X"], 0)
        assert file.pread(8, 0) == b"Xbcd"
