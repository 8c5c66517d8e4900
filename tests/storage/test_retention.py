"""What is removed from the front of a log: by time, by size, by the log start; and what is never removed.

Covers the applicable cases of UnifiedLogTest, LocalLogTest and LogManagerTest (retention, DeleteRecords), scenario 10's
second variant, and log-append-roll-flush.txt's segments as the unit of deletion."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from storage.files.deleted_files import DeletedFiles
from storage.files.file_system import remove_files
from storage.log_config import LogConfig
from testbed.fake_disk import SimulatedCrash
from tests.fakes.log_start import delete_old_segments, delete_records
from tests.storage.workbench import NOW, SMALL, Bench, batch, contents, epoch_end
from tidelog.errors import DiskFull, KafkaStorageError, OffsetOutOfRange
from tidelog.types import Durability, LeaderEpoch, Millis, Offset

DAY = 86_400_000
BY_TIME = replace(SMALL, retention_ms=DAY, segment_bytes=400, file_delete_delay_ms=1000)
BY_SIZE = replace(SMALL, retention_ms=-1, retention_bytes=1000, segment_bytes=400, file_delete_delay_ms=1000)


def filled(config: LogConfig = BY_TIME, *, batches: int = 12, timestamp: int = NOW) -> Bench:
    """A log of small segments, durable and committed."""
    bench = Bench(config)
    for number in range(batches):
        bench.lead(b"%02d" % number + b"." * 60, timestamp=timestamp + number)
    bench.commit()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    return bench


def bases(bench: Bench) -> list[int]:
    return [segment.base_offset for segment in bench.log.segments]


def epochs(bench: Bench) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries]


def leftovers(bench: Bench) -> list[str]:
    return [name for name in bench.files.list(bench.log.path) if name.endswith(".deleted")]


# --- by time ----------------------------------------------------------------------------------------------------------


def test_a_segment_is_removed_when_its_youngest_record_expires() -> None:
    bench = filled()
    before = bases(bench)
    second_last = bench.log.segments[1].largest.timestamp
    assert delete_old_segments(bench.log, Millis(second_last + DAY)) == 1, "the second is just young enough to stay"
    assert bases(bench) == before[1:]
    assert bench.log.log_start_offset == before[1]
    assert delete_old_segments(bench.log, Millis(second_last + DAY)) == 0


def test_a_young_record_keeps_all_later_segments() -> None:
    """Producers set the timestamps: only segments at the front are removed, so there is never a hole."""
    bench = Bench(BY_TIME)
    for number in range(12):
        bench.lead(b"." * 60, timestamp=NOW - 10 * DAY if number != 5 else NOW)
    bench.commit()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    delete_old_segments(bench.log, Millis(NOW))
    assert bench.log.log_start_offset <= 5 < bench.log.segments[1].base_offset


def test_an_expired_active_segment_is_rolled_and_removed() -> None:
    """Kafka: a log without new records is empty after retention.ms and keeps its log end."""
    bench = filled()
    end = bench.log.log_end_offset
    gone = len(bases(bench))
    assert delete_old_segments(bench.log, Millis(NOW + 2 * DAY)) == gone
    assert (bench.log.log_start_offset, bench.log.log_end_offset, bases(bench)) == (end, end, [end])
    assert delete_old_segments(bench.log, Millis(NOW + 9 * DAY)) == 0, "an empty active segment stays"
    assert bench.lead(b"next") == end
    bench.commit()
    assert bench.crash(seed=1).log_start_offset == end
    assert bench.log.damage is None


def test_unreplicated_records_stay_whatever_their_timestamps() -> None:
    """Scenario 10: followers would start at the leader's log start without records that were never replicated."""
    bench = filled(timestamp=1)
    bench.log.high_watermark = Offset(5)
    delete_old_segments(bench.log, Millis(NOW))
    assert bench.log.log_start_offset <= 5
    assert bench.log.segments[1].base_offset > 5


def test_records_that_are_not_durable_stay() -> None:
    """A page-cache topic: recovery expects everything from the recovery point on."""
    bench = Bench(replace(BY_TIME, durability=Durability.PAGE_CACHE, segment_bytes=100_000))
    for _ in range(5):
        bench.lead(b"." * 60, timestamp=1)
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert bench.log.recovery_point == 0
    assert delete_old_segments(bench.log, Millis(NOW)) == 0


def test_records_without_timestamps_age_by_the_clock() -> None:
    """Not by the file's modification time: a copied directory would be young again, a restored one old."""
    bench = Bench(BY_TIME)
    for _ in range(12):
        bench.lead(b"." * 60, timestamp=-1)
    bench.commit()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert bench.log.segments[0].largest.timestamp == -1
    assert delete_old_segments(bench.log, Millis(bench.clock.now + DAY)) == 0
    segments = len(bench.log.segments)
    assert delete_old_segments(bench.log, Millis(bench.clock.now + DAY + 1)) == segments


def test_retention_of_minus_one_keeps_everything() -> None:
    bench = filled(replace(BY_TIME, retention_ms=-1), timestamp=1)
    assert delete_old_segments(bench.log, Millis(NOW)) == 0


def test_a_topic_that_is_only_compacted_is_not_deleted_by_age_or_size() -> None:
    bench = filled(replace(BY_SIZE, retention_ms=1, delete=False, compact=True), timestamp=1)
    assert delete_old_segments(bench.log, Millis(NOW)) == 0
    delete_records(bench.log, bench.log.segments[2].base_offset)
    assert delete_old_segments(bench.log, Millis(NOW)) == 2, "segments below its start are removed"


# --- by size ----------------------------------------------------------------------------------------------------------


def test_the_oldest_segments_are_removed_while_the_log_exceeds_retention_bytes() -> None:
    bench = filled(BY_SIZE, batches=30)
    delete_old_segments(bench.log, Millis(NOW))
    assert bench.log.size >= 1000 > bench.log.size - bench.log.segments[0].size


def test_retention_bytes_of_0_leaves_an_empty_log() -> None:
    bench = filled(replace(BY_SIZE, retention_bytes=0))
    delete_old_segments(bench.log, Millis(NOW))
    assert (bench.log.size, bench.log.log_start_offset) == (0, bench.log.log_end_offset)


# --- log start --------------------------------------------------------------------------------------------------------


def test_a_deletion_of_records_moves_the_start_at_once_and_removes_files_later() -> None:
    bench = filled(replace(BY_TIME, retention_ms=-1))
    before = bases(bench)
    delete_records(bench.log, Offset(before[2] + 1))
    assert bench.log.log_start_offset == before[2] + 1
    assert bases(bench) == before
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(Offset(before[2]), 100, up_to=bench.log.log_end_offset)
    assert delete_old_segments(bench.log, Millis(NOW)) == 2
    assert bases(bench) == before[2:]
    assert bench.log.log_start_offset == before[2] + 1
    assert len(contents(bench.log)) == 12 - before[2] - 1


def test_a_deletion_of_records_is_limited_to_the_high_watermark() -> None:
    bench = filled()
    bench.log.high_watermark = Offset(6)
    for offset in (7, -1):
        with pytest.raises(OffsetOutOfRange):
            delete_records(bench.log, Offset(offset))
    delete_records(bench.log, Offset(6))
    delete_records(bench.log, Offset(3))
    assert bench.log.log_start_offset == 6, "it never moves back"


def test_a_log_start_moves_at_most_to_the_high_watermark() -> None:
    bench = filled()
    bench.log.high_watermark = Offset(4)
    bench.directory.move_log_start(bench.log, Offset(9))
    assert bench.log.log_start_offset == 4
    bench.directory.move_log_start(bench.log, Offset(3))
    assert bench.log.log_start_offset == 4, "it never moves back"


def test_a_reported_log_start_survives_a_crash() -> None:
    for seed in range(8):
        bench = filled(replace(BY_TIME, retention_ms=-1))
        delete_records(bench.log, Offset(5))
        assert bench.crash(seed).log_start_offset == 5
        assert bench.log.log_end_offset == 12


def test_epochs_below_the_start_are_removed() -> None:
    """The vectors' `trimmed` and `expired`: the epoch in force then begins at the log start."""
    bench = Bench(replace(BY_TIME, retention_ms=-1))
    for epoch in (0, 2, 5):
        for _ in range(4):
            bench.lead(b"." * 60, epoch=epoch)
    bench.commit()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert epochs(bench) == [(0, 0), (2, 4), (5, 8)]
    delete_records(bench.log, Offset(6))
    assert epochs(bench) == [(2, 6), (5, 8)]
    delete_records(bench.log, Offset(8))
    assert epochs(bench) == [(5, 8)]
    assert epoch_end(bench.log, 2).end_offset == 8, "no record of it is left"


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_are_renamed_first_and_removed_after_the_delay() -> None:
    bench = filled()
    old = bench.log.segments[0].path
    delete_old_segments(bench.log, Millis(NOW + 2 * DAY))
    assert bench.files.size(old) is None
    assert bench.files.size(f"{old}.deleted") is not None
    assert bench.log.front.deleted.take(Millis(NOW + 2 * DAY + 999)) == []
    due = bench.log.front.deleted.take(Millis(NOW + 2 * DAY + 1000))
    assert sorted(name.rpartition("/")[2] for name in due) == leftovers(bench)
    remove_files(bench.files, due)
    remove_files(bench.files, due)  # its log's directory may have been renamed meanwhile
    assert leftovers(bench) == []


def test_a_restart_removes_deleted_files() -> None:
    bench = filled()
    delete_old_segments(bench.log, Millis(NOW + 2 * DAY))
    assert leftovers(bench)
    bench.restart_clean()
    assert leftovers(bench) == []


def test_a_flush_in_progress_keeps_the_file_that_it_syncs() -> None:
    bench = filled(replace(BY_TIME, durability=Durability.PAGE_CACHE))
    bench.log.flush()
    bench.lead(b"one more", timestamp=NOW)
    ticket = bench.log.begin_flush(everything=True)
    assert ticket is not None
    delete_old_segments(bench.log, Millis(NOW + 2 * DAY))
    ticket.run()
    bench.log.finish_flush(ticket)
    assert bench.log.recovery_point == bench.log.log_end_offset


def test_deleted_files_are_returned_in_order() -> None:
    waiting = DeletedFiles()
    waiting.put(["a", "b"], 10)
    waiting.put(["c"], 5)
    assert waiting.take(Millis(9)) == []
    assert waiting.take(Millis(10)) == ["a", "b", "c"]
    assert len(waiting) == 0


# --- trouble ----------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_log_unchanged() -> None:
    bench = filled()
    before = bases(bench)
    bench.disk.fail("write", "log-start-offset-checkpoint", error=errno.ENOSPC, times=-1)
    with pytest.raises(DiskFull):
        delete_records(bench.log, Offset(5))
    with pytest.raises(DiskFull):
        delete_old_segments(bench.log, Millis(bench.log.segments[0].largest.timestamp + DAY + 1))
    assert (bench.log.log_start_offset, bases(bench)) == (0, before)
    bench.disk.heal()
    delete_records(bench.log, Offset(5))
    assert delete_old_segments(bench.log, Millis(NOW)) > 0


def test_a_broken_disk_takes_the_directory_offline() -> None:
    bench = filled()
    bench.disk.fail("rename", ".index")
    with pytest.raises(KafkaStorageError):
        delete_old_segments(bench.log, Millis(NOW + 2 * DAY))
    assert bench.directory.offline is not None


def test_a_crash_at_any_call_of_a_deletion_loses_nothing_that_must_stay() -> None:
    """Crash at each call of a deletion of some segments, and of all; the log opens complete from its start on."""
    crashes = 0
    for age in (NOW + DAY + 6, NOW + 2 * DAY):
        call = 0
        while True:
            call += 1
            bench = filled()
            durable_offset = bench.log.durable_offset
            expected = contents(bench.log)
            bench.disk.crash_at_call(bench.disk.calls + call)
            try:
                delete_old_segments(bench.log, Millis(age))
                bench.disk.heal()
            except SimulatedCrash:
                crashes += 1
                bench.disk.crash(random.Random(call))
                bench.reopen()
                assert bench.log.damage is None, bench.log.damage
                assert bench.log.log_end_offset == durable_offset
                start = bench.log.log_start_offset
                assert contents(bench.log) == expected[start:]
                assert leftovers(bench) == []
                bench.log.append(batch(b"goes on"), assign_offsets=True, leader_epoch=LeaderEpoch(0))
                continue
            break
    assert crashes > 30
