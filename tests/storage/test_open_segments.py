"""A limited number of closed segments is open, whatever is read; users of shared handles are not affected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from storage.files.os_files import OsFiles
from storage.segment.segment import LogSegment, OpenSegments
from tests.storage.workbench import NOW, SMALL, Bench, contents
from tidelog.types import Durability, LeaderEpoch, Offset

TINY = replace(SMALL, segment_bytes=300)
SEGMENTS = 12


def is_open(segment: LogSegment) -> bool:
    return segment._file is not None or segment._index.is_open or segment._time_index.is_open


def open_closed(bench: Bench) -> int:
    return sum(is_open(segment) for segment in bench.log.segments[:-1])


def open_below(directory: Path) -> list[Path]:
    """The files below the directory that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            path = descriptor.readlink()
        except FileNotFoundError:  # closed since it was listed
            continue
        if path.is_relative_to(directory):
            found.append(path)
    return found


def filled(bench: Bench, most: int) -> Bench:
    bench.directory.open_segments._most = most
    number = 0
    while len(bench.log.segments) < SEGMENTS:
        bench.lead(b"x" * 30, timestamp=NOW + number)
        number += 1
    bench.commit()
    return bench


def test_reading_everything_leaves_a_limited_number_open() -> None:
    bench = filled(Bench(TINY), most=3)
    for _ in range(2):
        assert len(contents(bench.log)) == bench.log.log_end_offset
        assert open_closed(bench) == 3
    for segment in bench.log.segments[:-1]:
        bench.log.offset_for_timestamp(NOW + segment.base_offset, up_to=bench.log.log_end_offset)
        assert open_closed(bench) <= 3
    assert len(bench.directory.open_segments) == open_closed(bench)


def test_the_least_recently_used_segment_is_closed() -> None:
    bench = filled(Bench(TINY), most=2)
    first, second, third = bench.log.segments[:3]

    def read(segment: LogSegment) -> None:
        bench.log.read(segment.base_offset, 1, up_to=bench.log.log_end_offset)

    read(first)
    read(second)
    read(first)
    read(third)
    assert [is_open(segment) for segment in (first, second, third)] == [True, False, True]


def test_a_segment_that_is_not_durable_stays_open() -> None:
    """An fsync through a descriptor opened later might not report the error."""
    bench = Bench(replace(TINY, durability=Durability.PAGE_CACHE))
    bench.directory.open_segments._most = 1
    durable_offset = [bench.log.active.file]
    while len(bench.log.segments) < 4:
        before = bench.log.active
        bench.lead(b"x" * 30)
        if bench.log.active is not before and before.base_offset >= bench.log.recovery_point:
            durable_offset.append(before.file)
            assert is_open(before)
    bench.commit()
    contents(bench.log)
    assert open_closed(bench) == 1


def test_flushes_and_shared_handles_outlive_the_closing() -> None:
    bench = filled(Bench(TINY), most=1)
    segment = bench.log.segments[0]
    handle = segment.file.share()
    before = handle.pread(segment.size, 0)
    contents(bench.log)
    assert not is_open(segment)
    assert handle.pread(segment.size, 0) == before
    handle.close()


def test_a_segment_that_accepts_appends_again_is_never_closed() -> None:
    bench = filled(Bench(TINY), most=1)
    bench.log.truncate_to(Offset(bench.log.segments[4].base_offset + 2))
    active = bench.log.active
    for segment in bench.log.segments[:-1]:
        bench.log.read(segment.base_offset, 1, up_to=bench.log.log_end_offset)
    assert is_open(active)
    end = bench.log.log_end_offset
    bench.lead(b"y")
    assert bench.log.log_end_offset == end + 1
    assert len(contents(bench.log)) == end + 1


def test_a_closed_log_leaves_nothing_open() -> None:
    bench = filled(Bench(TINY), most=5)
    contents(bench.log)
    bench.directory.delete_log(bench.log.topic_partition)
    assert len(bench.directory.open_segments) == 0


def test_recovery_leaves_no_more_open_than_reading() -> None:
    bench = filled(Bench(TINY), most=1_000)
    bench.crash(3)
    bench.directory.open_segments._most = 2
    contents(bench.log)
    assert open_closed(bench) == 2


def test_descriptors_of_the_operating_system_are_limited(tmp_path: Path) -> None:
    bench = filled(Bench(TINY, files=OsFiles(), path=str(tmp_path / "data")), most=4)

    def descriptors() -> int:
        return sum(path.suffix == ".log" for path in open_below(tmp_path))

    contents(bench.log)
    assert descriptors() <= 4 + 1
    assert descriptors() > 0
    bench.directory.close()
    assert open_below(tmp_path) == []


def test_the_least_recently_used_list() -> None:
    pool = OpenSegments(most=2)
    bench = filled(Bench(TINY), most=1_000)
    closed = bench.log.segments[:4]
    for segment in closed:
        segment.track_in(pool)
        assert segment.index.entries >= 0
    assert len(pool) == 2
    assert [is_open(segment) for segment in closed] == [False, False, True, True]
    assert LeaderEpoch(0) == bench.log.last_epoch
