"""A page of a mapped index that the disk cannot read is a disk error, and never the signal of the kernel (SIGBUS),
which would end the process.

The signal is real if a test says so: the file is truncated under the mapping, in a separate process, or its disk fails
(a loop device whose own file is truncated, if root can create one)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.files import guard
from storage.log.log import Log
from storage.log_config import LogConfig
from tests.storage.workbench import NOW, Bench
from tidelog.errors import KafkaStorageError
from tidelog.records.v2 import fast_paths
from tidelog.types import Millis, Offset

ROOT = Path(__file__).resolve().parents[2]
NEEDS = {"losetup", "mkfs.ext4", "mount"}


def can_make_disks() -> bool:
    """True if this is root, with the tools and devices for a disk of its own."""
    found = {
        name
        for name in NEEDS
        for directory in ("/usr/sbin", "/sbin", "/usr/bin", "/bin")
        if Path(directory, name).exists()
    }
    return os.geteuid() == 0 and found == NEEDS and Path("/dev/loop-control").exists() and Path("/dev/loop0").exists()


def run(script: str, *arguments: object, pure: bool = False) -> subprocess.CompletedProcess[str]:
    """Run code in a separate process, which a signal may end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TIDELOG_PURE_PYTHON": str(int(pure))}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


DIRECTORY = """
import errno, os, random, sys
from storage.log_config import LogConfig
from storage.directory.log_directory import LogDirectory
from storage.files.os_files import OsFiles
from tests.storage.workbench import NOW, TOPIC_ID, TP, SetClock, batch
from tidelog.errors import KafkaStorageError
from tidelog.records.v2 import fast_paths
from tidelog.types import LeaderEpoch, Offset

def opened(path):
    directory = LogDirectory(path, files=OsFiles(), clock=SetClock(), rng=random.Random(7))
    log = directory.create_log(TP, TOPIC_ID, LogConfig(index_interval_bytes=100))
    for _ in range(1_100):  # more entries than are held in memory
        append(log)
    return directory, log

def append(log):
    return log.append(batch(b"x" * 100), assign_offsets=True, leader_epoch=LeaderEpoch(0))

def refused(work):
    try:
        work()
    except KafkaStorageError as error:
        assert "is offline" in error.message, error
    else:
        raise AssertionError("nothing refused it")

os.chdir(sys.argv[1])  # an index reserves space at points that depend on its path: these paths are always the same
failing, log = opened("failing")
sound, other = opened("sound")
index = log.path + "/00000000000000000000.index"
"""

CUT = "os.truncate(index, 0)\n"
READS = """
refused(lambda: log.fetch_offset_by_timestamp(NOW, up_to=Offset(1_100)))
"""
APPENDS = """
refused(lambda: [append(log) for _ in range(10)])
"""
GOES_ON = """
assert failing.offline is not None and sound.offline is None
append(other)
other.flush()
assert other.fetch_offset_by_timestamp(NOW, up_to=Offset(1_101)).offset == 0
print("continues")
"""


@pytest.mark.parametrize("pure", [False, True], ids=["compiled", "pure"])
@pytest.mark.parametrize("work", [READS, APPENDS], ids=["reads", "appends"])
def test_a_file_truncated_under_its_mapping_takes_its_directory_offline(
    tmp_path: Path, work: str, *, pure: bool
) -> None:
    done = run(DIRECTORY + CUT + work + GOES_ON, tmp_path, pure=pure)
    assert (done.returncode, done.stdout) == (0, "continues\n"), done.stderr


@contextmanager
def own_disk(directory: Path) -> Iterator[tuple[Path, Path]]:
    """A file system on a loop device: its mount point, and the file behind the device."""
    image, mounted = directory / "disk.img", directory / "mounted"
    image.touch()
    os.truncate(image, 64 << 20)
    mounted.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True)
    try:
        yield mounted, image
    finally:
        subprocess.run(["umount", "-l", mounted], check=True, capture_output=True)


def test_a_disk_that_fails_under_a_mapping_is_an_error(tmp_path: Path) -> None:
    """If root can create a disk; elsewhere the truncated file above stands for it."""
    script = """
import errno, os, sys
from storage.segment.offset_index import OffsetIndex
from storage.files.os_files import OsFiles
from tidelog.types import Offset

mounted, image = sys.argv[1:]
path = mounted + "/full.index"
index = OffsetIndex(OsFiles(), path, Offset(0), 1 << 20, fresh=True)
index.reserve_entries(1 << 17)
for i in range(1 << 17):
    index.append(i + 1, i + 1)
index.trim()
os.sync()
index = OffsetIndex(OsFiles(), path, Offset(0), 1 << 20)
assert index.lookup(1 << 17) == (1 << 17, 1 << 17)
file = os.open(path, os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
os.truncate(image, 1 << 20)
for read in (lambda: os.pread(file, 1, 1 << 19), lambda: index.lookup(7)):
    try:
        print(read())
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    if can_make_disks():
        with own_disk(tmp_path) as (mounted, image):
            done = run(script, mounted, image)
        assert (done.returncode, done.stdout.split()) == (0, ["EIO", "EIO"]), done.stderr


def test_a_signal_from_elsewhere_still_ends_the_process() -> None:
    """Only accesses to indexes are guarded: a fault anywhere else is not hidden."""
    fault = """
import ctypes, mmap, tempfile
import storage.files.os_files
with tempfile.TemporaryFile() as file:
    file.truncate(8192)
    mapped = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    ctypes.string_at(ctypes.addressof(ctypes.c_char.from_buffer(mapped)), 4)
"""
    assert run(fault).returncode == -signal.SIGBUS
    assert (
        run("import os, signal, storage.files.os_files; os.kill(os.getpid(), signal.SIGBUS)").returncode
        == -signal.SIGBUS
    )


# --- the compiled guard and its reference ---


def test_the_guard_is_compiled_where_the_codec_is() -> None:
    assert guard.COMPILED == fast_paths.COMPILED


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=60),
    st.integers(0, 70),
    st.sampled_from([(8, 0, 4), (8, 4, 4), (12, 0, 8), (12, 8, 4), (8, 0, 8)]),
    st.integers(-(2**33), 2**33),
    st.booleans(),
)
def test_both_searches_give_the_same_result(
    values: list[int], warm: int, layout: tuple[int, int, int], target: int, is_sorted: bool
) -> None:
    """Also in entries that are not sorted, as corruption leaves them."""
    size, at, wide = layout
    values = sorted(values) if is_sorted else values
    data = b"".join((bytes(at) + value.to_bytes(wide, "big", signed=True)).ljust(size, b"\x7f") for value in values)
    found = guard.search(data, len(values), warm, size, at, wide, target)
    assert found == guard._search(data, len(values), warm, size, at, wide, target)
    if is_sorted:
        assert found == sum(value <= target for value in values) - 1


@given(st.binary(max_size=40), st.integers(-3, 50), st.integers(-3, 50))
def test_both_implementations_are_alike(data: bytes, position: int, size: int) -> None:
    def result(work: Callable[[], object]) -> object:
        try:
            return work()
        except IndexError as error:
            return str(error)

    assert result(lambda: guard.load(data, position, size)) == result(lambda: guard._load(data, position, size))
    one, other = bytearray(30), bytearray(30)
    stored = result(lambda: guard.store(one, position, data))
    assert stored == result(lambda: guard._store(other, position, data))
    assert one == other


# --- each use of an index ---


def filled() -> Bench:
    """A log of several segments, all indexes closed except those in use."""
    bench = Bench(LogConfig(segment_bytes=2_000, index_interval_bytes=100, segment_index_bytes=2_400))
    for i in range(40):
        bench.lead(b"x" * 100, timestamp=NOW + i)
    bench.commit()
    return bench


def appends(log: Log, bench: Bench) -> None:
    for _ in range(30):
        bench.lead(b"x" * 100)


USES: dict[str, Callable[[Log, Bench], object]] = {
    "appends, and rolls": appends,
    "reads": lambda log, _: [log.read(Offset(offset), 1, up_to=log.log_end_offset) for offset in range(40)],
    "looks a timestamp up": lambda log, _: log.fetch_offset_by_timestamp(Millis(NOW + 20), up_to=log.log_end_offset),
    "looks the largest timestamp up": lambda log, _: log.largest_timestamp(up_to=log.log_end_offset),
    "is cut": lambda log, _: log.truncate_to(Offset(7)),
}


def outcome(work: Callable[[], object]) -> KafkaStorageError | None:
    try:
        work()
    except KafkaStorageError as error:
        return error
    return None


@pytest.mark.parametrize("operation", ["load", "store"])
@pytest.mark.parametrize("what", USES)
@pytest.mark.usefixtures("indexes_in_files")
def test_each_use_of_an_index_reports_the_disk_error(what: str, operation: str) -> None:
    """One access after another fails: the directory goes offline with a typed error, and nothing else is raised."""
    failed = 0
    for skip in range(200):
        bench = filled()
        log = bench.restart_clean()
        before = bench.contents()
        bench.disk.fail(operation, "index", error=errno.EIO, skip=skip)
        error = outcome(partial(USES[what], log, bench))
        assert (error is None) == (bench.directory.offline is None)
        if error is None:
            break
        assert "offline" in error.message
        failed += 1
        bench.disk.heal()
        bench.kill()
        assert bench.contents()[: len(before)] == before or what == "is cut", "nothing was lost"
    else:
        raise AssertionError("there is no end to it")
    assert failed or operation != ("store" if what == "appends, and rolls" else "load"), "an access failed"


def test_an_index_whose_first_page_is_unreadable_is_unmapped() -> None:
    """Otherwise the file could not be truncated, and rebuilding it would end the process."""
    bench = filled()
    log = bench.restart_clean()
    bench.disk.fail("load", ".timeindex", times=-1)
    with pytest.raises(KafkaStorageError):
        log.fetch_offset_by_timestamp(Millis(NOW + 20), up_to=log.log_end_offset)
    bench.disk.heal()
    file = bench.disk.open(log.segments[0].path.replace(".log", ".timeindex"))
    file.truncate(0)
    file.close()
