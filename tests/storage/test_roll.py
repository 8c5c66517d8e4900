"""When a segment is full or old, or its index is full: log-append-roll-flush.txt (maybeRoll, roll)."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from storage.files.file_system import read_file, write_file
from storage.log_config import LogConfig
from storage.segment.segment import segment_path
from storage.segment.segments import make_segment
from testbed.fake_disk import FakeDisk
from tests.storage.workbench import NOW, SMALL, Bench, batch, stamped
from tidelog.errors import DiskFull, RecordListTooLarge
from tidelog.types import Durability, LeaderEpoch, Offset


def bases(bench: Bench) -> list[int]:
    return [segment.base_offset for segment in bench.log.segments]


def test_roll_by_size_before_the_append_that_would_not_fit() -> None:
    size = len(batch(b"x"))
    bench = Bench(LogConfig(segment_bytes=2 * size))
    for _ in range(5):
        bench.lead(b"x")
    assert bases(bench) == [0, 2, 4]
    assert [segment.size for segment in bench.log.segments] == [2 * size, 2 * size, size]


def test_roll_by_age_according_to_timestamps() -> None:
    """The first batch's largest timestamp counts, as in Kafka; the clock does not."""
    bench = Bench(LogConfig(segment_ms=100))
    bench.lead(timestamp=NOW)
    bench.clock.now += 10_000
    bench.lead(timestamp=NOW + 100)
    assert bases(bench) == [0]
    bench.lead(timestamp=NOW + 101)
    assert bases(bench) == [0, 2]


def test_age_survives_a_restart() -> None:
    bench = Bench(LogConfig(segment_ms=100))
    bench.lead(timestamp=NOW)
    bench.restart_clean()
    bench.lead(timestamp=NOW + 101)
    assert bases(bench) == [0, 1]


def test_roll_by_the_clock_without_timestamps() -> None:
    bench = Bench(LogConfig(segment_ms=100))
    bench.lead(timestamp=-1)
    bench.clock.now += 100
    bench.lead(timestamp=-1)
    assert bases(bench) == [0]
    bench.clock.now += 1
    bench.lead(timestamp=-1)
    assert bases(bench) == [0, 2]


def test_jitter_rolls_earlier() -> None:
    bench = Bench(LogConfig(segment_ms=1_000, segment_jitter_ms=1_000))
    jitter = bench.log.active.jitter_ms
    assert 0 < jitter < 1_000
    bench.lead(timestamp=NOW)
    bench.lead(timestamp=NOW + 1_000 - jitter)
    assert bases(bench) == [0]
    bench.lead(timestamp=NOW + 1_001 - jitter)
    assert bases(bench) == [0, 2]


def test_roll_by_a_full_index() -> None:
    """60 bytes have space for 7 offset entries, and for 4 time entries beside the one reserved for rolling."""
    bench = Bench(LogConfig(index_interval_bytes=0, segment_index_bytes=60))
    for i in range(12):
        bench.lead(timestamp=NOW + i)
    assert bases(bench) == [0, 5, 10]
    assert bench.disk.size(segment_path(bench.log.path, 0, ".index")) == 4 * 8
    assert bench.disk.size(segment_path(bench.log.path, 0, ".timeindex")) == 4 * 12


def test_roll_by_a_full_offset_index_alone() -> None:
    """No timestamp grows, so the time index gets no entries: 60 bytes have space for 7 offset entries."""
    bench = Bench(LogConfig(index_interval_bytes=0, segment_index_bytes=60))
    for _ in range(18):
        bench.lead(timestamp=NOW)
    assert bases(bench) == [0, 8, 16]
    assert not bench.log.segments[0].time_index.is_full
    assert bench.disk.size(segment_path(bench.log.path, 0, ".index")) == 7 * 8


def test_roll_by_relative_offset_overflow() -> None:
    bench = Bench()
    bench.follow(stamped(0, b"a"))
    bench.follow(stamped(2**31, b"b"))
    assert bases(bench) == [0, 1]
    bench.follow(stamped(2**33, b"c"))
    assert bases(bench) == [0, 1, 2**33]


def test_a_follower_rolls_at_its_log_end_not_after_a_hole() -> None:
    """Kafka names the segment by the first offset of the append. Then recovery could not distinguish a hole from
    records that a closed segment has lost."""
    bench = Bench(replace(SMALL, segment_bytes=200))
    bench.follow(stamped(0, b"x" * 100))
    bench.follow(stamped(40, b"x" * 100))
    assert bases(bench) == [0, 1]


def test_the_old_indexes_are_trimmed_and_the_last_time_entry_is_added() -> None:
    bench = Bench(LogConfig(segment_bytes=400, index_interval_bytes=150))
    for i in range(6):
        bench.lead(b"x" * 30, timestamp=NOW + i)
    first = bench.log.segments[0]
    assert bench.disk.size(first.index.path) == first.index.entries * 8 > 0
    assert bench.disk.size(first.time_index.path) == first.time_index.entries * 12
    assert first.index.last.offset == 2
    assert first.time_index.last == first.largest == (NOW + 3, 3)


def test_an_empty_file_in_the_way_is_replaced_and_another_set_aside() -> None:
    bench = Bench(LogConfig(segment_bytes=100))
    bench.lead(b"x" * 20)
    write_file(bench.disk, segment_path(bench.log.path, 1, ".log"), b"who wrote this?")
    write_file(bench.disk, segment_path(bench.log.path, 1, ".index"), b"")
    bench.lead(b"y" * 20)
    assert bases(bench) == [0, 1]
    assert read_file(bench.disk, segment_path(bench.log.path, 1, ".log.stray")) == b"who wrote this?"
    assert "in the way" in bench.log.notes[-1]
    assert len(bench.contents()) == 2


def test_a_roll_flushes_up_to_the_new_base_in_the_background() -> None:
    bench = Bench(LogConfig(segment_bytes=100, durability=Durability.PAGE_CACHE))
    bench.lead(b"x" * 20)
    assert bench.log.recovery_point == 0
    bench.lead(b"y" * 20)
    assert bench.log.recovery_point == 1


def test_the_indexes_of_a_closed_segment_are_durable_with_its_records() -> None:
    for seed in range(10):
        bench = Bench()
        for i in range(60):
            bench.lead(b"value %d" % i)
        bench.commit()
        bench.directory.write_checkpoints()
        paths = [index.path for segment in bench.log.segments[:-1] for index in (segment.index, segment.time_index)]
        before = [read_file(bench.disk, path) for path in paths]
        assert all(before)
        bench.disk.crash(random.Random(seed))
        assert [read_file(bench.disk, path) for path in paths] == before


def test_changed_settings_apply_from_the_next_append_on() -> None:
    bench = Bench(LogConfig(segment_bytes=10_000))
    bench.lead(b"x" * 20)
    bench.log.reconfigure(LogConfig(segment_bytes=100))
    bench.lead(b"y" * 20)
    assert bases(bench) == [0, 1]


def test_index_entries_follow_the_rule_of_kafka_4() -> None:
    """Before a batch, if more than the interval was appended since the last entry: its last offset and its position."""
    size = len(batch(b"x"))
    bench = Bench(LogConfig(index_interval_bytes=2 * size))
    for i in range(9):
        bench.lead(b"x", timestamp=NOW + (i if i != 6 else 100))
    index, times = bench.log.active.index, bench.log.active.time_index
    assert [index.entry(slot) for slot in range(index.entries)] == [(3, 3 * size), (6, 6 * size)]
    assert [times.entry(slot) for slot in range(times.entries)] == [(NOW + 3, 3), (NOW + 100, 6)]


def test_a_follower_that_appends_many_batches_at_once_writes_the_same_files() -> None:
    config = LogConfig(index_interval_bytes=300)
    leader, follower = Bench(config), Bench(config)
    for i in range(40):
        leader.lead(b"x" * (i % 7 * 20), b"y", timestamp=NOW + i % 5)
    for first in range(0, 40, 8):
        data = b"".join(leader.contents()[first : first + 8])
        follower.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(0))
    for bench in (leader, follower):
        bench.log.close()
    for suffix in (".log", ".index", ".timeindex"):
        path = segment_path(leader.log.path, 0, suffix)
        assert read_file(leader.disk, path) == read_file(follower.disk, path)


def test_a_preallocated_segment_allocates_its_space_and_frees_the_unused_part() -> None:
    """preallocate=true: the open segment ends in zeros that are not part of the log."""
    bench = Bench(replace(SMALL, preallocate=True))
    first = bench.log.active
    assert bench.disk.size(first.path) == SMALL.segment_bytes
    while len(bench.log.segments) == 1:
        bench.lead(b"x" * 100)
    assert bench.disk.size(first.path) == first.size < SMALL.segment_bytes
    assert bench.disk.size(bench.segment_path) == SMALL.segment_bytes
    stored = bench.contents()
    assert bench.kill() is bench.log
    assert bench.disk.size(bench.segment_path) == bench.log.active.size, "recovery truncates the zeros"
    assert bench.contents() == stored
    bench.lead(b"more")
    bench.restart_clean()
    assert bench.disk.size(bench.segment_path) == bench.log.active.size
    assert len(bench.contents()) == len(stored) + 1
    assert bench.log.notes == ()


def test_a_preallocated_log_is_truncated_to_its_size_when_closed() -> None:
    bench = Bench(replace(SMALL, preallocate=True))
    bench.lead(b"a")
    bench.restart_clean()
    assert bench.log.notes == ()
    assert bench.disk.size(bench.segment_path) == bench.log.active.size


def test_a_full_disk_starts_no_segment() -> None:
    bench = Bench(replace(SMALL, preallocate=True))
    bench.lead(b"x" * 1_500)
    bench.disk.capacity = bench.disk.used + SMALL.segment_bytes - 1
    with pytest.raises(DiskFull):
        bench.lead(b"x" * 1_500)
    assert bases(bench) == [0]
    bench.disk.capacity = None
    bench.lead(b"x" * 1_500)
    assert bases(bench) == [0, 1]


@pytest.mark.parametrize("seed", range(30))
def test_no_file_of_a_failed_roll_returns_after_a_power_loss(seed: int) -> None:
    """Found by a random world: the empty file was taken for the last segment and got the next batches, although its
    base offset was below the log end."""
    bench = Bench()
    bench.lead(b"x" * 1_500)
    bench.commit()
    bench.disk.fail("open", ".timeindex", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        bench.lead(b"x" * 1_500)
    bench.lead(b"fits into the first segment")
    bench.commit()
    bench.crash(seed)
    bench.lead(b"x" * 1_500)
    assert bases(bench) == [0, 2]
    assert len(bench.contents()) == 3


@pytest.mark.parametrize(("age", "jitter"), [(1_000, 400), (400, 10**9), (1_000, 1_000), (1_000, 0)])
def test_the_jitter_of_each_segment_is_limited_by_the_setting_and_the_age(age: int, jitter: int) -> None:
    disk, rng, config = FakeDisk(), random.Random(1), LogConfig(segment_ms=age, segment_jitter_ms=jitter)
    disk.make_directory("/orders-0")
    drawn = [make_segment(disk, "/orders-0", Offset(base), config, rng, NOW).jitter_ms for base in range(200)]
    most = min(age, jitter)
    assert all(0 <= each < max(most, 1) for each in drawn)
    assert (min(drawn) < most // 10 and max(drawn) >= most * 9 // 10) or most == 0
    assert len(set(drawn)) > (50 if most else 0)


def test_an_append_may_fill_a_whole_segment_and_no_more() -> None:
    size = len(batch(b"x"))
    bench = Bench(LogConfig(segment_bytes=size))
    assert (bench.lead(b"x"), bench.lead(b"y")) == (0, 1)
    assert bases(bench) == [0, 1]
    with pytest.raises(RecordListTooLarge, match=f"{size + 1} bytes in one append"):
        bench.lead(b"xx")
