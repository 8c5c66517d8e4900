"""Truncation of a log, in the order of design section 3; scenario 3 as far as one log shows it."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from storage.log_config import LogConfig
from testbed.fake_disk import SimulatedCrash
from tests.storage.filled_logs import filled, values
from tests.storage.workbench import NOW, SMALL, Bench, Deferred, stamped
from tidelog.errors import CorruptLog, KafkaStorageError
from tidelog.types import Durability, EpochStart, LeaderEpoch, Offset


def test_truncated_records_are_deleted_and_others_stay() -> None:
    bench = filled()
    before = bench.contents()
    bench.log.truncate_to(Offset(60))
    assert bench.contents() == before[:60]
    assert bench.log.log_end_offset == bench.log.durable_offset == bench.log.recovery_point == 60
    assert bench.log.active.base_offset < 60
    bench.follow(stamped(60, b"new", epoch=2))
    assert bench.log.log_end_offset == 61


def test_at_or_above_the_log_end_nothing_happens() -> None:
    bench = filled(10)
    calls = bench.disk.calls
    bench.log.truncate_to(Offset(10))
    bench.log.truncate_to(Offset(99))
    assert bench.disk.calls == calls
    assert bench.log.log_end_offset == 10


def test_a_batch_that_contains_the_offset_is_removed_whole() -> None:
    bench = Bench()
    bench.follow(stamped(0, b"a"), stamped(1, b"b", b"c", b"d"))
    bench.log.truncate_to(Offset(3))
    assert bench.log.log_end_offset == 1
    assert bench.contents() == [stamped(0, b"a")]


@pytest.mark.parametrize("bit", [1, 2, 47])
def test_a_batch_with_a_corrupt_offset_is_not_truncated_with_those_above(bit: int) -> None:
    """No checksum covers a batch's base offset. The batch at 4 claims offset 6, 0, or one far beyond the end: the log
    is not truncated at 5, which would remove 4 as well, and the damage is reported."""
    bench = Bench()
    bench.follow(*(stamped(i, b"record %03d" % i) for i in range(9)))
    bench.commit()
    position = sum(len(data) for data in bench.contents()[:4])
    bench.disk.flip_bit(bench.log.active.path, position + 7 - bit // 8, bit % 8)
    with pytest.raises(CorruptLog, match=r"lost offsets 4\.\."):
        bench.log.truncate_to(Offset(5))
    assert bench.log.damage is not None
    assert bench.log.log_end_offset == 9


def test_the_last_batch_of_a_segment_with_a_corrupt_offset_is_not_truncated_either() -> None:
    bench = filled()
    first, second = bench.log.segments[:2]
    last = list(first.walk())[-1]
    bench.disk.flip_bit(first.path, last.position + 6, 0)
    with pytest.raises(CorruptLog, match=f"lost offsets {last.last_offset}"):
        bench.log.truncate_to(second.base_offset)


def test_before_a_hole_the_log_ends_where_its_bytes_end() -> None:
    """A restart could not detect the hole: no offset may count as durable that a restart does not find."""
    bench = Bench()
    bench.follow(stamped(0, b"a"), stamped(20, b"b"))
    bench.commit()
    bench.log.truncate_to(Offset(15))
    assert bench.log.log_end_offset == bench.log.durable_offset == 1
    bench.crash(3)
    assert bench.log.damage is None
    assert bench.log.log_end_offset == 1


def test_epochs_and_high_watermark_are_truncated_as_well() -> None:
    bench = filled(10, epoch=1)
    bench.follow(*(stamped(i, b"x", epoch=4) for i in range(10, 20)))
    bench.log.advance_high_watermark(Offset(15))
    bench.log.truncate_to(Offset(10))
    assert bench.log.epochs.entries == (EpochStart(LeaderEpoch(1), Offset(0)),)
    assert bench.log.last_epoch == 1
    assert bench.log.high_watermark == 10


def test_indexes_and_timestamps_follow_the_truncation() -> None:
    bench = filled()
    bench.log.truncate_to(Offset(70))
    bench.follow(*(stamped(i, b"new", epoch=2, timestamp=NOW + 1_000 - i) for i in range(70, 90)))
    for i in range(70):
        assert bench.log.offset_for_timestamp(NOW + i, up_to=Offset(100)) == (i, NOW + i, 1)
    assert bench.log.offset_for_timestamp(NOW + 500, up_to=Offset(100)) == (70, NOW + 930, 2)


def test_a_reader_continues_after_a_truncation() -> None:
    """The cached position of its next batch is dropped with the bytes."""
    bench = filled(10)
    bench.log.read(Offset(0), 1 << 20, up_to=Offset(8))
    bench.log.truncate_to(Offset(5))
    new = [stamped(i, b"of another size" * 3, epoch=2) for i in range(5, 10)]
    bench.follow(*new)
    assert bytes(bench.log.read(Offset(8), 1, up_to=Offset(10)).records) == new[3]


def test_bytes_are_flushed_again_after_a_truncation_below_the_recovery_point() -> None:
    """Scenario 3: flushed to 100, truncated to 80, new bytes from there on; their flush is not skipped."""
    for seed in range(15):
        bench = filled()
        bench.log.truncate_to(Offset(80))
        bench.follow(*(stamped(i, b"new %03d" % i, epoch=2) for i in range(80, 95)))
        bench.commit()
        assert bench.log.durable_offset == 95
        bench.crash(seed)
        assert bench.log.damage is None
        assert values(bench) == [b"old %03d" % i for i in range(80)] + [b"new %03d" % i for i in range(80, 95)]


def test_a_truncation_lowers_the_recorded_recovery_point() -> None:
    """Scenario 3, variant: the recovery point file had 100, the follower crashes at 90: it reads from 80 on."""
    for seed in range(15):
        bench = filled()
        bench.directory.write_checkpoints()
        bench.log.truncate_to(Offset(80))
        bench.follow(*(stamped(i, b"new %03d" % i, epoch=2) for i in range(80, 90)))
        bench.crash(seed)
        assert bench.log.damage is None
        found = values(bench)
        assert found[:80] == [b"old %03d" % i for i in range(80)]
        assert found[80:] == [b"new %03d" % i for i in range(80, 80 + len(found[80:]))]
        assert bench.log.durable_offset == bench.log.log_end_offset


def test_the_high_watermark_of_a_truncated_log_does_not_return() -> None:
    """80 are committed and recorded as such. An unclean leader has 40: the log is truncated there and fetches 50
    others, none known to be committed when the process is killed. It starts with a high watermark of at most 40."""
    bench = filled(90)
    bench.log.advance_high_watermark(Offset(80))
    bench.directory.write_checkpoints()
    bench.log.truncate_to(Offset(40))
    bench.follow(*(stamped(i, b"new %03d" % i, epoch=2) for i in range(40, 90)))
    bench.commit()
    log = bench.kill()
    assert (log.log_end_offset, log.high_watermark) == (90, 40)


def test_the_high_watermark_of_an_emptied_log_does_not_return() -> None:
    bench = filled(90)
    bench.log.advance_high_watermark(Offset(80))
    bench.directory.write_checkpoints()
    bench.log.truncate_fully_and_start_at(Offset(10))
    bench.follow(*(stamped(i, b"new %03d" % i, epoch=2) for i in range(10, 90)))
    bench.commit()
    log = bench.kill()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (10, 90, 10)


def test_a_checkpoint_written_during_a_truncation_keeps_the_lowered_high_watermark() -> None:
    """During a truncation the log in memory still has its old high watermark."""
    executor = Deferred()
    bench = Bench(executor=executor)
    filled_deferred(bench, executor, 90)
    bench.log.advance_high_watermark(Offset(80))
    bench.directory.write_checkpoints()
    executor.run_all()
    ticket = bench.log.begin_truncation(Offset(40))
    assert ticket is not None
    bench.directory.commit.truncate(bench.log, ticket, lambda error: None)
    bench.directory.note_changed(bench.log)
    bench.directory.write_checkpoints()
    executor.run_all()
    bench.follow(*(stamped(i, b"new %03d" % i, epoch=2) for i in range(40, 90)))
    bench.commit()
    executor.run_all()
    assert bench.kill().high_watermark == 40


def filled_deferred(bench: Bench, executor: Deferred, upto: int) -> None:
    bench.follow(*(stamped(i, b"old %03d" % i, epoch=1) for i in range(upto)))
    bench.commit()
    executor.run_all()


def test_the_high_watermark_of_a_lost_tail_does_not_return() -> None:
    """A power loss removed records that were not durable; the log fetches others in their place from an unclean leader.
    The recorded high watermark of the lost ones does not apply to those."""
    found = []
    for seed in range(15):
        executor = Deferred()
        bench = Bench(executor=executor)
        filled_deferred(bench, executor, 40)
        bench.follow(*(stamped(i, b"lost %03d" % i, epoch=1) for i in range(40, 90)))
        bench.log.advance_high_watermark(Offset(80))
        bench.directory.claims.write([bench.log])
        left = bench.crash(seed).log_end_offset
        executor.waiting.clear()
        bench.follow(*(stamped(i, b"new %03d" % i, epoch=2) for i in range(left, 90)))
        assert bench.kill().high_watermark == min(left, 80)
        found.append(left)
    assert min(found) < 80


def test_truncated_epochs_do_not_return() -> None:
    """Scenario 3, variant: if a truncated epoch entry survived, old and new bytes would count as the same epoch."""
    for seed in range(15):
        bench = filled(10, epoch=1)
        bench.follow(*(stamped(i, b"x", epoch=4) for i in range(10, 20)))
        bench.commit()
        bench.log.truncate_to(Offset(10))
        bench.crash(seed)
        assert bench.log.epochs.entries == (EpochStart(LeaderEpoch(1), Offset(0)),)


@pytest.mark.parametrize("durability", list(Durability))
def test_power_fails_at_any_call_of_a_truncation(durability: Durability) -> None:
    """The log is in the state before or after the truncation, never between, and no file claims more than exists."""
    crashed = 0
    for call in range(1, 200):
        bench = filled_any(durability)
        bench.disk.crash_at_call(bench.disk.calls + call)
        try:
            bench.log.truncate_to(Offset(35))
        except SimulatedCrash:
            crashed += 1
        else:
            assert crashed > 10
            return
        bench.disk.crash(random.Random(call))
        bench.reopen()
        assert bench.log.damage is None
        found = values(bench)
        assert found == [b"old %03d" % i for i in range(len(found))]
        assert len(found) >= 35
        assert bench.log.epochs.entries[0] == EpochStart(LeaderEpoch(1), Offset(0))
    raise AssertionError("the truncation never ended")


def filled_any(durability: Durability) -> Bench:
    bench = Bench(replace(SMALL, durability=durability))
    bench.follow(*(stamped(i, b"old %03d" % i, epoch=1) for i in range(40)))
    bench.follow(*(stamped(i, b"old %03d" % i, epoch=2) for i in range(40, 60)))
    bench.log.flush()
    bench.directory.write_checkpoints()
    return bench


def test_a_log_is_emptied_and_starts_at_another_offset() -> None:
    bench = filled()
    bench.log.truncate_fully_and_start_at(Offset(500))
    log = bench.log
    assert (log.log_start_offset, log.log_end_offset, log.durable_offset, log.high_watermark) == (500, 500, 500, 500)
    assert log.epochs.entries == ()
    bench.follow(stamped(510, b"a", epoch=9))
    bench.commit()
    bench.crash(1)
    assert (bench.log.log_start_offset, bench.log.durable_offset) == (500, 511)
    assert bench.contents() == [stamped(510, b"a", epoch=9)]


def test_an_empty_log_still_starts_there_after_a_crash() -> None:
    for seed in range(10):
        bench = filled(20)
        bench.log.truncate_fully_and_start_at(Offset(500))
        bench.crash(seed)
        assert (bench.log.log_start_offset, bench.log.log_end_offset) == (500, 500)
        assert bench.log.damage is None


def test_a_truncation_at_the_log_start_empties_the_log() -> None:
    bench = filled(20)
    bench.log.truncate_to(Offset(0))
    assert (bench.log.log_start_offset, bench.log.log_end_offset, bench.contents()) == (0, 0, [])


def test_power_fails_at_any_call_of_an_emptying() -> None:
    for call in range(1, 200):
        bench = filled(60)
        bench.disk.crash_at_call(bench.disk.calls + call)
        try:
            bench.log.truncate_fully_and_start_at(Offset(500))
        except SimulatedCrash:
            bench.disk.crash(random.Random(call))
            bench.reopen()
            assert bench.log.damage is None
            found = values(bench)
            assert found == [b"old %03d" % i for i in range(len(found))]
            assert bench.log.log_end_offset in (len(found), 500)
        else:
            return
    raise AssertionError("it never ended")


def test_a_failing_truncation_takes_the_directory_offline() -> None:
    for operation, path in (("truncate", ".log"), ("sync", ".log"), ("remove", ".log"), ("write", "held-offset-marks")):
        bench = filled()
        bench.disk.fail(operation, path)
        with pytest.raises(KafkaStorageError):
            bench.log.truncate_to(Offset(50))
        assert bench.directory.offline is not None
        bench.crash(1)
        assert bench.log.damage is None
        assert values(bench)[:50] == [b"old %03d" % i for i in range(50)]


def test_a_half_emptied_log_on_a_full_disk_is_no_longer_used() -> None:
    """Its segments are gone and no new one can be created: the directory goes offline, and the next start finds it
    empty."""
    bench = filled(10)
    bench.log.reconfigure(replace(bench.log.config, preallocate=True))
    bench.disk.fail("reserve", ".log", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError, match="emptying failed halfway"):
        bench.log.truncate_fully_and_start_at(Offset(50))
    with pytest.raises(KafkaStorageError, match="offline"):
        bench.follow(stamped(50, b"new", epoch=2))
    bench.disk.heal()
    log = bench.kill()
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (50, 50, None)


def test_no_log_starts_below_zero() -> None:
    """Such a request is a defect: the log stays unchanged."""
    bench = Bench(SMALL)
    bench.lead(b"a")
    for cut in (bench.log.truncate_to, bench.log.truncate_fully_and_start_at):
        with pytest.raises(AssertionError, match="-5"):
            cut(Offset(-5))
    assert len(bench.contents()) == 1


@pytest.mark.parametrize("offset", range(20, 26))
def test_a_truncated_segment_with_more_entries_than_its_index_may_have_by_now_is_rolled(offset: int) -> None:
    """`segment.index.bytes` was lowered before the restart. Truncation takes away the last time index entry, and the
    roll adds another one."""
    bench = Bench(LogConfig(index_interval_bytes=300))
    for i in range(40):
        bench.lead(b"x" * 100, timestamp=NOW + i)
    bench.config = LogConfig(index_interval_bytes=300, segment_index_bytes=36)
    bench.restart_clean()
    bench.log.truncate_to(Offset(offset))
    bench.lead(b"x" * 100, timestamp=NOW + offset)
    assert bench.log.active.base_offset == offset
    bench.restart_clean()
    for i in range(offset + 1):
        assert bench.log.offset_for_timestamp(NOW + i, up_to=bench.log.log_end_offset).offset == i  # type: ignore[union-attr]
