"""A crash at every call of a compaction: readers find the same records before and after, and the log continues.

Covers the part of scenario 10 that concerns compaction."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from storage.isolation import FetchIsolation
from testbed.fake_disk import SimulatedCrash
from tests.storage.cleaning_bench import (
    COMPACTED,
    DAY,
    CleaningBench,
    batches_of,
    clean,
    last_offsets,
    records_of,
    table,
    visible,
)
from tests.storage.workbench import NOW

CONFIG = replace(COMPACTED, segment_bytes=500, file_delete_delay_ms=0, delete_retention_ms=1000)


def keys_only() -> CleaningBench:
    bench = CleaningBench(CONFIG)
    for n in range(24):
        bench.put((b"k%d" % (n % 5), b"%d" % n + b"." * 40), (b"t%d" % (n % 3), None if n % 4 else b"x"))
    bench.settle()
    return bench


def transactions() -> CleaningBench:
    bench = CleaningBench(CONFIG)
    for n in range(10):
        bench.produce(7, (b"k%d" % (n % 3), b"%d" % n + b"." * 30), transactional=True)
        bench.produce(8, (b"k%d" % (n % 4), b"idempotent %d" % n))
        bench.end(7, commit=n % 2 == 0)
    bench.settle()
    return bench


def cleaned_before() -> CleaningBench:
    """A log after one cleaning. The second one merges the small segments and finds expired delete horizons."""
    bench = keys_only()
    clean(bench.log)
    for n in range(6):
        bench.put((b"k%d" % n, b"second %d" % n))
    bench.settle()
    return bench


def crash_everywhere(make: Callable[[], CleaningBench], now: int, seed: int) -> int:
    """Crash at every call. Returns the number of crashes."""
    call = 0
    while True:
        call += 1
        bench = make()
        before, all_before = visible(bench.log), records_of(bench.log)
        end, epochs, producers = (
            bench.log.log_end_offset,
            bench.log.epochs.entries,
            bench.log.producers.state.active_producers(),
        )
        bench.disk.crash_at_call(bench.disk.calls + call)
        try:
            clean(bench.log, now)
            return call
        except SimulatedCrash:
            bench.disk.crash(random.Random(seed * 10_000 + call))
        log = bench.reopen()
        assert log.damage is None, (call, log.damage)
        assert (log.log_end_offset, log.log_start_offset, log.epochs.entries) == (end, 0, epochs), call
        assert {(p.producer_id, p.epoch, p.last_sequence) for p in log.producers.state.active_producers()} == {
            (p.producer_id, p.epoch, p.last_sequence) for p in producers
        }
        bench.settle(roll=False)
        after = visible(log)
        assert table(after) == table(before), call
        assert set(after) <= set(before)
        assert set(records_of(log)) <= set(all_before)
        offsets = [batch.base_offset for batch in batches_of(log)]
        assert offsets == sorted(set(offsets)), "no offset exists twice"
        assert not [name for name in bench.files.list(log.path) if name.endswith((".cleaned", ".swap", ".deleted"))]
        clean(log, now)
        assert table(visible(log)) == table(before)
        assert last_offsets(visible(log)).items() <= last_offsets(before).items()
        assert bench.put((b"next", b"1")) == end


def test_a_crash_at_any_call_of_a_first_round() -> None:
    assert sum(crash_everywhere(keys_only, NOW, seed) for seed in range(2)) > 200


def test_a_crash_at_any_call_of_a_round_over_transactions() -> None:
    assert crash_everywhere(transactions, NOW, 2) > 100


def test_a_crash_at_any_call_of_a_second_round() -> None:
    assert crash_everywhere(cleaned_before, NOW + 2 * DAY, 3) > 100


def test_aborted_records_stay_hidden_when_the_index_of_a_cleaned_segment_is_lost() -> None:
    bench = transactions()
    clean(bench.log)
    bench.produce(7, (b"k0", b"aborted"), transactional=True)
    bench.end(7, commit=False)
    bench.settle()
    before = visible(bench.log)
    for name in bench.files.list(bench.log.path):
        if name.endswith(".txnindex"):
            bench.files.remove(f"{bench.log.path}/{name}")
    bench.kill()
    bench.settle(roll=False)
    assert visible(bench.log) == before
    assert len(visible(bench.log, FetchIsolation.HIGH_WATERMARK)) > len(before)
