"""Which log is cleaned when: dirty ratio, lags, checkpoint, choice between logs, rate.

Covers the applicable cases of Kafka's LogCleanerManagerTest and LogCleanerIntegrationTest."""

from __future__ import annotations

from dataclasses import replace

from storage.directory.log_cleaner import CleaningThrottle, LogCleaner, measure_log
from tests.fakes.log_start import delete_records
from tests.storage.cleaning_bench import COMPACTED, DAY, CleaningBench, clean, make_cleaner, records_of
from tests.storage.workbench import NOW
from tidelog.types import Millis, Offset

SMALL_SEGMENTS = replace(COMPACTED, segment_bytes=120)


def log_of(batches: int, config: object = SMALL_SEGMENTS, *, timestamp: int = NOW) -> CleaningBench:
    """A log with one batch per segment."""
    bench = CleaningBench(config)  # type: ignore[arg-type]
    for n in range(batches):
        bench.put((b"k%d" % (n % 3), b"." * 40), timestamp=timestamp + n)
    bench.settle()
    return bench


def test_a_new_log_is_all_dirty_and_a_cleaned_log_is_clean() -> None:
    bench = log_of(10)
    dirty = measure_log(bench.log, Millis(NOW))
    assert (dirty.first_dirty, dirty.end, dirty.clean_bytes, dirty.ratio) == (0, 10, 0, 1.0)
    clean(bench.log)
    done = measure_log(bench.log, Millis(NOW))
    assert (done.first_dirty, done.end, done.dirty_bytes, done.ratio) == (10, 10, 0, 0.0)
    assert clean(bench.log) == 0


def test_a_log_is_cleaned_above_the_minimum_dirty_ratio() -> None:
    bench = log_of(3, replace(SMALL_SEGMENTS, min_cleanable_ratio=0.5))
    assert clean(bench.log)
    for n in range(3):
        bench.put((b"k%d" % n, b"." * 40))
        bench.settle()
        worth = measure_log(bench.log, Millis(NOW)).is_worth_it(bench.log.config)
        assert worth == (n + 1 > 3), n
    bench.put((b"k0", b"." * 40))
    bench.settle()
    assert clean(bench.log), "4 of 7"


def test_an_overdue_log_is_cleaned_at_any_dirty_ratio() -> None:
    """KIP-354."""
    bench = log_of(9, replace(SMALL_SEGMENTS, min_cleanable_ratio=0.5, max_compaction_lag_ms=DAY))
    assert clean(bench.log)
    bench.put((b"k0", b"." * 40), timestamp=NOW)
    bench.settle()
    assert clean(bench.log, NOW + DAY) == 0
    assert clean(bench.log, NOW + DAY + 1)


def test_the_active_segment_rolls_in_time_for_the_maximum_lag() -> None:
    bench = CleaningBench(replace(COMPACTED, segment_bytes=100_000, max_compaction_lag_ms=DAY))
    bench.put((b"a", b"1"), timestamp=NOW - DAY - 1)
    bench.put((b"a", b"2"), timestamp=NOW - 1)
    assert len(bench.log.segments) == 1
    bench.put((b"a", b"2"), timestamp=NOW)
    assert len(bench.log.segments) == 2


def test_the_cleaned_offset_survives_a_restart() -> None:
    bench = log_of(10)
    clean(bench.log)
    bench.put((b"k0", b"."))
    bench.settle()
    bench.crash(seed=1)
    bench.settle(roll=False)
    assert measure_log(bench.log, Millis(NOW)).first_dirty == 10


def test_a_cleaned_offset_outside_the_log_is_ignored() -> None:
    bench = log_of(10)
    for wrong in (11, 2):
        bench.directory.claims.note_cleaned(bench.log.topic_partition, Offset(wrong))
        if wrong == 2:
            delete_records(bench.log, Offset(4))
        assert measure_log(bench.log, Millis(NOW)).first_dirty == (0 if wrong == 11 else 4)


def test_a_truncated_log_is_dirty_from_the_truncation_on() -> None:
    """Records fetched again above it were never cleaned."""
    bench = log_of(10)
    clean(bench.log)
    bench.log.truncate_to(Offset(9))
    end = bench.log.log_end_offset
    for n in range(5):
        bench.put((b"k%d" % n, b"." * 40))
    bench.settle()
    assert end < 10
    assert measure_log(bench.log, Millis(NOW)).first_dirty == end


def test_the_dirtiest_log_is_cleaned_first() -> None:
    benches = [log_of(6), log_of(6), log_of(6)]
    for bench, more in zip(benches, (1, 5, 3), strict=True):
        clean(bench.log)
        for n in range(more):
            bench.put((b"k%d" % n, b"." * 40))
        bench.settle()
    left = [bench.log for bench in benches]
    order = []
    while left:
        cleaner = make_cleaner()
        clean(left, cleaner=cleaner)
        done = next(log for log in left if not measure_log(log, Millis(NOW)).dirty_bytes)
        order.append(left.index(done) if len(left) == 3 else [b.log for b in benches].index(done))
        left.remove(done)
    assert order == [1, 2, 0]


def test_only_open_compacted_logs_are_cleaned() -> None:
    deleted, closed, damaged = log_of(6, replace(SMALL_SEGMENTS, compact=False)), log_of(6), log_of(6)
    closed.directory.close_clean()
    damaged.disk.flip_bit(damaged.log.segments[1].path, 3)
    damaged.log.segments[1].close()
    assert clean([deleted.log, closed.log]) == 0
    cleaner = make_cleaner()
    clean(damaged.log, cleaner=cleaner)
    assert list(cleaner.uncleanable) == [damaged.log.topic_partition]
    damaged.directory.close()
    assert cleaner.uncleanable == {}


def test_a_skipped_log_is_tried_again_after_a_restart() -> None:
    bench = log_of(6)
    cleaner = make_cleaner()
    bench.disk.flip_bit(bench.log.segments[1].path, 70)
    clean(bench.log, cleaner=cleaner)
    assert cleaner.uncleanable
    assert clean(bench.log, cleaner=cleaner) == 0
    bench.disk.flip_bit(bench.log.segments[1].path, 70)
    bench.directory.close()
    bench.kill()
    bench.settle(roll=False)
    assert clean(bench.log, cleaner=cleaner)
    assert cleaner.uncleanable == {}
    assert len(records_of(bench.log)) == 3


def test_the_rate_is_limited() -> None:
    throttle = CleaningThrottle(1000)
    assert throttle.wait_after(500, Millis(0), Millis(100)) == 400
    assert throttle.wait_after(500, Millis(500), Millis(1100)) == 0, "the work itself was slower"
    assert throttle.wait_after(500, Millis(9000), Millis(9000)) == 500, "idle time is not credited"


def test_the_cleaner_returns_the_time_to_wait() -> None:
    bench = log_of(30)
    cleaner = LogCleaner(map_bytes=1 << 20, bytes_per_second=1000, on_failure=lambda error: None)
    piece = cleaner.begin([bench.log], Millis(NOW))
    assert piece is not None
    assert piece.wait_ms == 0
    waits = 0
    now = Millis(0)
    while piece is not None:
        waits += piece.wait_ms
        now = Millis(now + piece.wait_ms)
        piece = cleaner.settle(piece.work(), Millis(NOW), started=now, ended=now)
    assert cleaner.last is not None
    assert waits >= cleaner.last.stats.bytes_read
