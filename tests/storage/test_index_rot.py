"""Bits of an index file change while the log is in use: every answer of the log stays the same.

Kafka uses any entry that looks valid. Here the log decides: a search begins at a batch that ends where the entry says,
or the indexes are rebuilt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from storage.segment.segment import segment_path
from tests.fakes.log_start import delete_old_segments
from tests.storage.workbench import NOW, SMALL, Bench
from tidelog.types import Millis, Offset

CONFIG = replace(SMALL, index_interval_bytes=150, retention_ms=1_000)
COUNT = 40
BITS = (0, 6, 7)


@cache
def closed() -> Bench:
    """Two segments of single records, a millisecond apart."""
    bench = Bench(CONFIG)
    for i in range(COUNT):
        bench.lead(b"v%d" % i * 4, timestamp=NOW + i)
    bench.commit()
    bench.directory.close_clean()
    return bench


def filled() -> Bench:
    """The log, opened again, so that no index is in memory."""
    bench = closed().twin()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert len(bench.log.segments) == 2
    return bench


def read_at_every_offset(bench: Bench) -> object:
    return [bytes(bench.log.read(Offset(i), 1, up_to=Offset(COUNT)).records) for i in range(COUNT)]


def look_up_every_time(bench: Bench) -> object:
    return [bench.log.offset_for_timestamp(NOW + i, up_to=Offset(COUNT)) for i in range(COUNT)]


def find_the_largest_time(bench: Bench) -> object:
    return [bench.log.largest_timestamp(up_to=Offset(up_to)) for up_to in (COUNT, COUNT - 3)]


def truncate_and_continue(bench: Bench) -> object:
    ends = []
    for offset in (38, 20, 13):
        bench.log.truncate_to(Offset(offset))
        ends.append((bench.log.log_end_offset, bench.lead(b"new", timestamp=NOW + offset)))
    return ends, bench.contents(), look_up_every_time(bench)


def append_and_roll(bench: Bench) -> object:
    for i in range(8):
        bench.lead(b"new", timestamp=NOW + COUNT + i)
    bench.log.roll(Millis(NOW))
    return bench.contents(), [segment.base_offset for segment in bench.log.segments]


def stop(bench: Bench) -> object:
    bench.restart_clean()
    return bench.contents()


@pytest.mark.parametrize(
    "ask",
    [read_at_every_offset, look_up_every_time, find_the_largest_time, truncate_and_continue, append_and_roll, stop],
)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_flipped_bit_changes_no_answer(ask: Callable[[Bench], object], suffix: str) -> None:
    expected = ask(filled())
    whole = filled()
    for base in [segment.base_offset for segment in whole.log.segments]:
        for position in range(whole.disk.size(segment_path(whole.log.path, base, suffix)) or 0):
            bench = filled()
            bench.disk.flip_bit(segment_path(bench.log.path, base, suffix), position, BITS[position % 3])
            assert ask(bench) == expected, f"byte {position} of {base}{suffix}"
            assert bench.log.damage is None


def test_retention_ignores_a_timestamp_that_no_batch_has() -> None:
    """A smaller timestamp in the last entry, or entries lost at the end, would delete records too early."""
    for damage in ("flip", "cut"):
        bench = filled()
        path = segment_path(bench.log.path, 0, ".timeindex")
        size = bench.disk.size(path) or 0
        if damage == "flip":
            bench.disk.flip_bit(path, size - 12 + 4, 6)
        else:
            file = bench.disk.open(path)
            file.truncate(12)
            file.close()
        last = bench.log.segments[1].base_offset - 1
        assert delete_old_segments(bench.log, Millis(NOW + last + 1_000)) == 0
        assert delete_old_segments(bench.log, Millis(NOW + last + 1_001)) == 1


def test_damage_of_the_log_is_not_attributed_to_its_index() -> None:
    """A batch that an entry points at is gone: later entries still lead to readable batches."""
    bench = filled()
    entries = [bench.log.segments[0].index.entry(slot) for slot in range(bench.log.segments[0].index.entries)]
    bench.disk.flip_bit(segment_path(bench.log.path, 0, ".log"), entries[2].position + 16, 6)
    read = bench.log.read(entries[4].offset, 1, up_to=Offset(COUNT))
    assert read.next_offset == entries[4].offset + 1
    assert bench.log.segments[0].index.entries == len(entries)
