"""The indexes of an active segment are in memory at first: what a partition costs, and what a stop leaves."""

from __future__ import annotations

import random

from storage.isolation import FetchIsolation
from storage.log.cold_read import BytesRead
from storage.log_config import LogConfig
from storage.segment.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from tests.storage.workbench import NOW, Bench
from tidelog.types import Millis, Offset

CONFIG = LogConfig(index_interval_bytes=200, segment_bytes=1 << 20)


def filled(count: int = 40) -> Bench:
    bench = Bench(CONFIG)
    for i in range(count):
        bench.lead(b"x" * 100, timestamp=NOW + i)
    bench.commit()
    return bench


def index_files(bench: Bench, base: int = 0) -> list[bool]:
    paths = (segment_path("/data/orders-0", base, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
    return [bench.disk.size(path) is not None for path in paths]


def offset_of(bench: Bench, timestamp: int) -> int:
    found = bench.log.offset_for_timestamp(timestamp, up_to=bench.log.log_end_offset)
    assert found is not None
    return int(found.offset)


def test_appends_create_no_files() -> None:
    """A new partition and its first batches cost no file beyond those of the empty log."""
    bench = Bench(CONFIG)
    names = bench.disk.list("/data/orders-0")
    assert index_files(bench) == [False, False]
    for i in range(40):
        bench.lead(b"x" * 100, timestamp=NOW + i)
    assert bench.disk.list("/data/orders-0") == names
    assert bench.log.active.index.entries > 5
    assert offset_of(bench, NOW + 30) == 30


def test_a_roll_writes_them_and_its_flush_makes_them_durable() -> None:
    bench = filled()
    bench.log.roll(Millis(bench.clock.now))
    assert index_files(bench) == [True, True]
    assert index_files(bench, 40) == [False, False]
    bench.log.flush()
    bench.crash(3)
    assert index_files(bench) == [True, True]
    assert bench.log.notes == ()
    assert offset_of(bench, NOW + 30) == 30


def test_a_clean_stop_makes_them_and_their_names_durable() -> None:
    """Otherwise a loss of power after the stop leaves a clean log whose times are not found."""
    for seed in range(20):
        bench = filled()
        bench.directory.close_clean()
        bench.disk.crash(random.Random(seed))
        assert index_files(bench) == [True, True]
        bench.reopen()
        assert offset_of(bench, NOW + 3) == 3


def test_a_kill_leaves_none_and_the_next_start_builds_them() -> None:
    bench = filled()
    contents = bench.contents()
    bench.kill()
    assert bench.contents() == contents
    assert bench.log.active.index.entries > 5
    assert index_files(bench) == [False, False]
    assert offset_of(bench, NOW + 30) == 30


def test_a_read_from_the_disk_searches_the_entries_in_memory() -> None:
    """The ticket runs on another thread: it has its own copy of the entries, since there is no file to read."""
    bench = filled(400)  # the places of the last appends are remembered without a search
    bench.disk.is_cold = lambda _path: True
    ticket = bench.log.try_fetch(Offset(30), 1, FetchIsolation.LOG_END)
    assert isinstance(ticket, BytesRead)
    ticket.run()
    for i in range(40):
        bench.lead(b"x" * 100, timestamp=NOW + 40 + i)
    read = bench.log.try_fetch(Offset(30), 1, FetchIsolation.LOG_END, ticket)
    ticket.release()
    assert not isinstance(read, BytesRead)
    assert read.next_offset == 31  # type: ignore[union-attr]
