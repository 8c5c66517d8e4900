"""Failures found by crashes at every call (test_crash_points.py), each as its own test, with the worst outcome for
unsynced data.

Scenarios 3 and 14 of the design: names, truncations and bytes that only the page cache has when the process dies."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from storage.checkpoints.checkpoint_file import LEADER_EPOCH_CHECKPOINT, read_epochs
from storage.files.file_system import sync_paths, write_file
from storage.log.log import Log
from storage.log_config import LogConfig
from storage.producers.snapshot_files import snapshot_path
from storage.segment.segment import ALL_SUFFIXES
from testbed.fake_disk import FakeDisk, SimulatedCrash
from tests.fakes.log_start import delete_old_segments, delete_records
from tests.storage.cleaning_bench import COMPACTED, CleaningBench, clean, table, visible
from tests.storage.workbench import NOW, SMALL, TOPIC_ID, Bench, Deferred, batch, stamped
from tidelog.errors import DiskFull, KafkaStorageError
from tidelog.records.legacy.message_builder import MessageSetBuilder
from tidelog.types import Durability, EpochStart, LeaderEpoch, Millis, Offset, PartitionIndex, TopicPartition


class NothingSurvives(random.Random):
    """Outcome for unsynced data: all of it is lost."""

    def randrange(self, *_: object) -> int:
        return 0


class FirstWriteSurvives(random.Random):
    """Outcome for unsynced data: only the first change of each file survives."""

    def randrange(self, start: int, *_: object) -> int:
        return 2 if start == 4 else min(1, start - 1)


class OnlySizesSurvive(random.Random):
    """Outcome for unsynced data: files keep their sizes but none of the written bytes."""

    def randrange(self, start: int, *_: object) -> int:
        return min(3, start - 1)

    def random(self) -> float:
        return 0.9


class OnlyNamesAreLost(random.Random):
    """Outcome for unsynced data: bytes survive, names do not."""

    def randrange(self, start: int, *_: object) -> int:
        return 1 if start == 4 else 0


def lose_power(bench: Bench) -> Log:
    bench.disk.crash(NothingSurvives())
    return bench.reopen()


class IdleBench(Bench):
    """An executor that drops background work."""

    def __init__(self, config: LogConfig = SMALL) -> None:
        self.deferred = Deferred()
        super().__init__(config, executor=self.deferred)
        self.settle()

    def settle(self) -> None:
        """Make everything durable, and write the checkpoints."""
        self.log.flush()
        self.directory.write_checkpoints()
        self.deferred.run_all()


def stop_at(disk: FakeDisk, operation: str, *, behind: str, times: int = 1) -> None:
    """Kill the process inside the next such call, after a number of calls of the other kind; the machine continues."""
    seen = 0

    def on_call(now: str) -> None:
        nonlocal seen
        if seen >= times and now == operation:
            disk.on_call = None
            raise SimulatedCrash(operation)
        seen += now == behind

    disk.on_call = on_call


def test_records_after_a_roll_survive_the_death_of_the_process() -> None:
    """The new segment's name is not durable, but everything below it is: the next flush must sync the directory."""
    bench = IdleBench()
    bench.lead(b"a")
    bench.settle()
    bench.log.roll(NOW)
    bench.kill()
    bench.lead(b"b")
    bench.log.flush()
    assert bench.log.durable_offset == 2
    assert lose_power(bench).log_end_offset == 2


def test_a_new_log_keeps_its_records_after_the_death_of_the_process() -> None:
    """It was never flushed: neither the directory's name nor its partition.metadata are durable."""
    bench = IdleBench()
    other = TopicPartition("orders", PartitionIndex(1))
    bench.directory.create_log(other, TOPIC_ID, SMALL)
    bench.disk.kill()
    bench.directory = bench.open_directory()
    log = bench.directory.load_logs(lambda _tp, _id: SMALL)[other]
    log.append(batch(b"a"), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    log.flush()
    assert log.durable_offset == 1
    bench.disk.crash(NothingSurvives())
    bench.directory = bench.open_directory()
    assert bench.directory.load_logs(lambda _tp, _id: SMALL)[other].log_end_offset == 1


def test_truncated_segments_do_not_return_after_their_replacements() -> None:
    """The process died before the directory was synced; the log ended exactly at the lowered recovery point."""
    bench = IdleBench()
    bench.lead(b"a")
    bench.log.roll(NOW)
    bench.lead(b"cut")
    bench.settle()
    stop_at(bench.disk, "sync_directory", behind="remove")
    with pytest.raises(SimulatedCrash):
        bench.log.truncate_to(Offset(1))
    bench.kill()
    assert bench.log.log_end_offset == 1
    bench.lead(b"b", epoch=1)
    bench.lead(b"c", epoch=1)
    bench.log.flush()
    before = bench.contents()
    lose_power(bench)
    assert bench.contents() == before


def test_a_rebuilt_time_index_is_durable_before_the_next_clean_stop() -> None:
    """Its last entry was lost and read as time 0: lookups by time found nothing."""
    bench = IdleBench(replace(SMALL, index_interval_bytes=10_000))
    for n in range(6):
        bench.lead(b"x" * 60, timestamp=NOW + n)
    bench.log.roll(NOW)
    bench.settle()
    bench.kill()
    bench.directory.close_clean()
    bench.disk.crash(OnlySizesSurvive())
    log = bench.reopen()
    assert bench.directory.identity.was_clean
    found = log.offset_for_timestamp(NOW + 5, up_to=log.log_end_offset)
    assert found is not None and found.offset == 5


def test_page_cache_logs_rewrite_the_pages_of_a_failed_fsync() -> None:
    """Scenario 14: the recovery point must not rise over bytes that only appear written."""
    bench = IdleBench(replace(SMALL, durability=Durability.PAGE_CACHE))
    bench.lead(b"a")
    bench.disk.fail("sync", ".log")
    with pytest.raises(KafkaStorageError):
        bench.log.flush()
    bench.kill()
    bench.log.flush()
    assert bench.log.recovery_point == 1
    assert lose_power(bench).log_end_offset == 1


def test_names_of_page_cache_topics_are_durable_below_the_recovery_point() -> None:
    bench = IdleBench(replace(SMALL, durability=Durability.PAGE_CACHE))
    bench.lead(b"a")
    bench.log.flush()
    bench.log.roll(NOW)
    bench.lead(b"b")
    bench.kill()
    bench.log.flush()
    assert bench.log.recovery_point == 2
    assert lose_power(bench).log_end_offset == 2


def test_a_full_disk_during_a_roll_does_not_lose_the_segments_name() -> None:
    """The segment exists when writing the agreed transaction indexes finds the disk full: its name becomes durable with
    the next append."""
    bench = IdleBench()
    bench.lead(b"a")
    bench.log.flush()
    bench.disk.fail("open", "transaction-index-agreement", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        bench.log.guard("rolling", lambda: bench.log.roll(NOW))
    bench.disk.heal()
    bench.lead(b"b")
    bench.log.flush()
    assert bench.log.durable_offset == 2
    assert lose_power(bench).log_end_offset == 2


def test_messages_truncated_from_a_v1_log_do_not_return_under_the_next_epoch() -> None:
    """Scenario 3, variant: the process died during a truncation. Its next epoch is durable before the epoch's first
    byte, so the truncation must be durable before that."""
    bench = IdleBench(replace(SMALL, magic=1))
    bench.log.append(message(0), assign_offsets=False, leader_epoch=LeaderEpoch(0), epochs=[entry(0, 0)])
    bench.log.append(message(1), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    bench.settle()
    stop_at(bench.disk, "sync", behind="truncate", times=2)
    with pytest.raises(SimulatedCrash):
        bench.log.truncate_to(Offset(1))
    bench.kill()
    bench.log.append(message(1), assign_offsets=False, leader_epoch=LeaderEpoch(5), epochs=[entry(5, 1)])
    log = lose_power(bench)
    assert log.log_end_offset == 1, "the new message was lost, the old one must not belong to epoch 5"


def test_epochs_of_an_emptied_log_do_not_apply_to_its_new_records() -> None:
    """Goal: the epoch of records appended after the log was emptied is known. Method: the process dies before the old
    epochs are cleared; after a power loss the new records exist without their own epochs."""
    bench = IdleBench()
    bench.follow(stamped(6, b"old", epoch=1))
    bench.settle()
    stop_at(bench.disk, "open", behind="sync_directory", times=2)
    with pytest.raises(SimulatedCrash):
        bench.log.truncate_fully_and_start_at(Offset(4))
    assert read_epochs(bench.disk, f"{bench.log.path}/{LEADER_EPOCH_CHECKPOINT}") == (entry(1, 6),)
    bench.kill()
    bench.lead(b"new", epoch=0)
    bench.disk.sync_directory(bench.log.path)
    sync_paths(bench.disk, [bench.log.active.path])
    lose_power(bench)
    assert bench.log.epochs.entries == (entry(0, bench.log.log_start_offset),)


def test_preallocated_zeros_of_a_closed_segment_are_no_damage() -> None:
    """The truncation of the file to its size was not durable when power failed, although all of its records were."""
    bench = IdleBench(replace(SMALL, preallocate=True))
    bench.lead(b"a")
    bench.settle()
    bench.log.roll(NOW)
    bench.lead(b"b")
    before = bench.contents()
    bench.disk.sync_directory(bench.log.path)
    sync_paths(bench.disk, [bench.log.active.path])
    lose_power(bench)
    assert bench.log.damage is None
    assert bench.contents() == before


def test_a_preallocated_segment_is_durably_truncated_before_a_clean_stop() -> None:
    bench = IdleBench(replace(SMALL, preallocate=True))
    bench.lead(b"a")
    bench.settle()
    bench.log.roll(NOW)
    bench.lead(b"b")
    before = bench.contents()
    bench.directory.close_clean()
    bench.disk.crash(NothingSurvives())
    bench.reopen()
    assert bench.directory.identity.was_clean
    assert bench.contents() == before


def test_a_log_start_stays_once_it_was_read() -> None:
    """The process died before the new start had a durable name, and the next process has reported that start."""
    bench = IdleBench()
    bench.follow(stamped(7, b"old"))
    bench.settle()
    bench.log.truncate_fully_and_start_at(Offset(7))
    stop_at(bench.disk, "sync_directory", behind="rename", times=2)
    with pytest.raises(SimulatedCrash):
        bench.log.truncate_fully_and_start_at(Offset(5))
    bench.kill()
    assert bench.log.log_start_offset == 5
    assert lose_power(bench).log_start_offset == 5


def test_a_full_disk_during_a_truncation_takes_the_directory_offline() -> None:
    """The bytes are gone, the epoch file cannot be written: the log must not continue as if nothing had been
    truncated."""
    bench = IdleBench()
    bench.lead(b"a")
    bench.lead(b"b", epoch=1)
    bench.settle()
    bench.disk.fail("rename", "leader-epoch-checkpoint", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        bench.log.truncate_to(Offset(1))
    bench.kill()
    assert (bench.log.log_end_offset, bench.log.epochs.entries) == (1, (entry(0, 0), entry(1, 1)))


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename"])
@pytest.mark.parametrize("file", ["recovery-point-offset-checkpoint", "held-offset-marks"])
def test_a_rejected_truncation_leaves_claims_for_the_next_one_to_lower(operation: str, file: str) -> None:
    """Scenario 3: a full disk rejected the first truncation, and its checkpoint kept the higher durable offset."""
    bench = IdleBench()
    for n in range(4):
        bench.lead(b"%d" % n)
    bench.settle()
    bench.disk.fail(operation, file, error=errno.ENOSPC)
    with suppress(DiskFull, KafkaStorageError):
        bench.log.truncate_to(Offset(2))
    if bench.directory.offline is not None:
        bench.kill()
    bench.disk.heal()
    stop_at(bench.disk, "open", behind="truncate", times=2)
    with suppress(SimulatedCrash):
        bench.log.truncate_to(Offset(2))
    bench.disk.on_call = None
    log = lose_power(bench)
    assert log.damage is None
    assert log.log_end_offset in (2, 4)


def test_damage_is_no_torn_tail_although_the_recovery_points_are_damaged_too() -> None:
    """Found by a random world: bits of the checkpoint and of the log flipped while the machine was off. The marks had
    not been synced, so recovery truncated the log, and the replica led without committed records."""
    bench = Bench()
    for n in range(4):
        bench.lead(b"%d" % n)
    bench.commit()
    bench.directory.write_checkpoints()
    second = list(bench.log.active.walk())[1]
    bench.disk.crash(NothingSurvives())
    write_file(bench.disk, "/data/recovery-point-offset-checkpoint", b"0\n1\nhalf a fi")
    bench.disk.flip_bit(bench.segment_path, second.position + 65)
    log = bench.reopen()
    assert log.damage is not None
    assert (log.damage.first_offset, log.log_end_offset) == (1, 4)


def test_truncating_the_batch_that_contains_the_log_start_keeps_the_log_end_at_the_start() -> None:
    bench = IdleBench()
    bench.lead(b"0", b"1", b"2", b"3")
    bench.log.flush()
    bench.log.advance_high_watermark(Offset(4))
    delete_records(bench.log, Offset(1))
    bench.log.truncate_to(Offset(3))
    assert (bench.log.log_start_offset, bench.log.log_end_offset, bench.log.high_watermark) == (1, 1, 1)
    log = lose_power(bench)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_a_rejected_log_start_does_not_hide_records_after_a_truncation() -> None:
    """The checkpoint may contain the start although it was rejected. The log was truncated below it and grew again: its
    records are not the ones to be deleted."""
    bench = IdleBench()
    for n in range(6):
        bench.lead(b"%d" % n)
    bench.settle()
    bench.log.advance_high_watermark(Offset(6))
    bench.disk.fail("sync_directory", "/data", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        delete_records(bench.log, Offset(5))
    bench.disk.heal()
    bench.log.truncate_to(Offset(2))
    for n in range(4):
        bench.lead(b"new %d" % n, epoch=1)
    bench.log.flush()
    before = bench.contents()
    log = lose_power(bench)
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    assert bench.contents() == before


def test_compaction_relies_on_no_marker_that_may_be_lost() -> None:
    """On a page-cache topic the high watermark passes the durable offset: a transaction whose marker is lost may end
    the other way, and the records that it superseded must still exist."""
    bench = CleaningBench(replace(COMPACTED, durability=Durability.PAGE_CACHE))
    bench.put((b"k", b"old"))
    bench.produce(7, (b"k", b"new"), transactional=True)
    bench.log.roll(NOW)
    bench.log.flush()
    bench.end(7, commit=True)
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert bench.log.last_stable_offset == 3 > bench.log.recovery_point == 2
    clean(bench.log)
    lose_power(bench)
    bench.end(7, commit=False)
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert table(visible(bench.log)) == {b"k": b"old"}

    bench.settle()
    assert clean(bench.log) > 0, "with a durable marker compaction proceeds"
    assert table(visible(bench.log)) == {b"k": b"old"}


def test_a_log_that_was_never_flushed_verifies_its_transaction_index() -> None:
    """By its checkpoints nothing was durable, so the log counted as new and its index as verified. The log starts
    within its only segment, so the index was not rebuilt either: aborted records were shown."""
    bench = CleaningBench(replace(SMALL, durability=Durability.PAGE_CACHE))
    bench.put((b"k", b"deleted"), (b"k", b"committed"))
    bench.produce(7, (b"k", b"aborted"), transactional=True)
    end = bench.end(7, commit=False) + 1
    bench.log.advance_high_watermark(Offset(end))
    delete_records(bench.log, Offset(1))
    bench.disk.sync_directory(bench.log.path)
    sync_paths(bench.disk, [bench.log.active.path])
    log = lose_power(bench)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (1, end, 0)
    log.advance_high_watermark(Offset(end))
    assert [record.value for record in visible(log)] == [b"committed"]


def test_retention_does_not_delete_the_producers_of_deleted_records() -> None:
    """The snapshot at the new start is then the only record of them. It was written without a sync: a resend after a
    power loss was appended a second time. Found by a random world."""
    bench = CleaningBench(replace(SMALL, retention_bytes=1))
    bench.produce(7, (b"k", b"sent once"))
    bench.log.roll(NOW)
    bench.put((b"k", b"from somebody else"))
    bench.log.flush()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert delete_old_segments(bench.log, NOW) == 1
    for name in bench.log.front.deleted.take(Millis(NOW + bench.log.config.file_delete_delay_ms)):
        bench.disk.remove(name)
    bench.disk.sync_directory(bench.log.path)
    log = lose_power(bench)
    assert log.log_start_offset == 1
    assert [producer.producer_id for producer in log.producers.state.active_producers()] == [7]


RETAINED = replace(SMALL, retention_bytes=1)


def known_producers(log: Log) -> dict[int, int]:
    """The last sequence of each producer."""
    return {state.producer_id: state.last_sequence for state in log.producers.state.active_producers()}


class QuietBench(CleaningBench):
    """A CleaningBench that writes checkpoints only if the test requests it."""

    def __init__(self, config: LogConfig) -> None:
        self.deferred = Deferred()
        super().__init__(config, executor=self.deferred)


def test_segments_that_return_below_the_start_do_not_invalidate_the_snapshot_there() -> None:
    """Power fails before the removal of the files is durable, and the recovery point file does not list them: recovery
    reads from the first of them on. It treated the snapshot at the log start as possibly lost, and read no batch below
    the start either: a resend was appended a second time."""
    bench = QuietBench(RETAINED)
    bench.produce(7, (b"k", b"sent once"))
    bench.log.roll(NOW)
    bench.produce(8, (b"k", b"sent once, too"))
    bench.log.roll(NOW)
    bench.put((b"k", b"from somebody else"))
    bench.log.flush()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert delete_old_segments(bench.log, NOW) == 2
    log = lose_power(bench)
    assert (log.log_start_offset, [segment.base_offset for segment in log.segments]) == (2, [0, 1, 2])
    assert known_producers(log) == {7: 0, 8: 0}


def test_the_snapshot_at_the_start_is_used_if_an_older_one_is_lost() -> None:
    """As above, and what came before is durably removed: the remaining batches do not mention producer 7."""
    bench = QuietBench(RETAINED)
    bench.produce(7, (b"k", b"sent once"))
    bench.log.roll(NOW)
    bench.put((b"k", b"from somebody else"))
    bench.log.flush()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert delete_old_segments(bench.log, NOW) == 1
    bench.disk.sync_directory(bench.log.path)
    bench.log.roll(NOW)
    bench.put((b"k", b"from somebody else"))
    bench.log.flush()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    assert delete_old_segments(bench.log, NOW) == 1
    bench.disk.crash(FirstWriteSurvives())
    log = bench.reopen()
    assert (log.log_start_offset, [segment.base_offset for segment in log.segments]) == (2, [1, 2])
    assert bench.disk.size(snapshot_path(log.path, Offset(1))) is None
    assert known_producers(log) == {7: 0}


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, durability=Durability.PAGE_CACHE), COMPACTED])
def test_producers_of_records_deleted_by_request_stay_known(config: LogConfig) -> None:
    """The log starts within its first segment: the batches below were not read again. Only the process died."""
    bench = QuietBench(config)
    bench.produce(7, (b"k", b"sent once"))
    bench.put((b"k", b"from somebody else"))
    bench.log.flush()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    delete_records(bench.log, Offset(2))
    bench.put((b"k", b"behind"))
    log = bench.kill()
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)
    assert known_producers(log) == {7: 0}


@pytest.mark.parametrize("lost", [(), (2,), (2, 4)])
def test_a_start_within_a_later_segment_needs_no_snapshot(lost: tuple[int, ...]) -> None:
    """Retention has not run, so no snapshot was made durable: snapshots that survive are used, otherwise the remaining
    batches."""
    bench = QuietBench(SMALL)
    for producer in (7, 8, 9):
        bench.produce(producer, (b"k", b"sent once"))
        bench.put((b"k", b"from somebody else"))
        bench.log.roll(NOW)
    bench.produce(8, (b"k", b"sent again"))
    bench.put((b"k", b"from somebody else"))
    bench.log.flush()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    delete_records(bench.log, Offset(5))
    for offset in lost:
        bench.disk.remove(snapshot_path(bench.log.path, Offset(offset)))
    log = bench.kill()
    assert log.log_start_offset == 5
    assert known_producers(log) == {7: 0, 8: 1, 9: 0}


def test_a_truncation_after_a_moved_start_keeps_the_producers() -> None:
    """As above without a stop: a truncation also reads the producers again."""
    bench = QuietBench(SMALL)
    bench.produce(7, (b"k", b"sent once"))
    bench.put((b"k", b"from somebody else"))
    bench.log.flush()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    delete_records(bench.log, Offset(2))
    bench.produce(8, (b"k", b"not committed"))
    bench.log.truncate_to(Offset(2))
    assert known_producers(bench.log) == {7: 0}


def test_an_emptying_interrupted_twice_loses_nothing_below_the_start() -> None:
    """The process dies when the last segment is removed, and the log created by the next process starts at the recorded
    durable offset. Power fails before the rest is durably removed: the offsets between were deleted, not lost."""
    bench = QuietBench(SMALL)
    bench.lead(b"a")
    bench.log.roll(NOW)
    bench.lead(b"b")
    bench.commit_log()
    bench.log.advance_high_watermark(Offset(2))
    delete_records(bench.log, Offset(2))
    last = bench.log.active
    stop_at(bench.disk, "remove", behind="remove", times=len(ALL_SUFFIXES))
    with suppress(SimulatedCrash):
        bench.log.truncate_fully_and_start_at(Offset(0))
    assert bench.disk.size(last.path) is None
    bench.disk.sync_directory(bench.log.path)
    log = bench.kill()
    assert (log.log_start_offset, log.log_end_offset, log.durable_offset) == (2, 2, 2)
    bench.disk.crash(OnlyNamesAreLost())
    assert bench.disk.size(f"{log.path}/00000000000000000000.log") is not None
    log = bench.reopen()
    assert (log.damage, log.log_start_offset, log.log_end_offset) == (None, 2, 2)


@pytest.mark.parametrize("done", range(10))
def test_a_swap_interrupted_by_a_full_disk_does_not_replace_later_records(done: int) -> None:
    """The next start completes the swap of a cleaned segment. The log had continued, was emptied and filled again: its
    new records were replaced by the old ones."""
    bench = CleaningBench()
    for n in range(4):
        bench.put((b"k", b"old %d" % n))
    bench.settle()
    bench.disk.fail("rename", "/data/orders-0/", error=errno.ENOSPC, skip=done)
    clean(bench.log)
    bench.disk.heal()
    if bench.directory.offline is not None:
        bench.kill()
    bench.log.truncate_fully_and_start_at(Offset(2))
    bench.put((b"k", b"new"))
    bench.log.flush()
    bench.kill()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (2, 3)
    bench.log.advance_high_watermark(Offset(3))
    assert table(visible(bench.log)) == {b"k": b"new"}


def test_a_partial_append_on_a_full_disk_does_not_return() -> None:
    """The append was rejected as not written although one whole message was; here it would belong to the epoch of the
    records that followed."""
    bench = IdleBench(replace(SMALL, magic=1))
    bench.disk.fail("write", ".log", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        refused = message(0) + message(1) + message(2)
        bench.log.append(refused, assign_offsets=False, leader_epoch=LeaderEpoch(0), epochs=[entry(0, 0)])
    bench.log.append(message(5), assign_offsets=False, leader_epoch=LeaderEpoch(1), epochs=[entry(1, 5)])
    bench.disk.crash(FirstWriteSurvives())
    bench.reopen()
    assert bench.contents() in ([], [message(5)])


def message(offset: int) -> bytes:
    builder = MessageSetBuilder(1, base_offset=offset)
    builder.append(key=b"k", value=b"v%d" % offset, timestamp=Millis(NOW))
    return builder.build()


def entry(epoch: int, offset: int) -> EpochStart:
    return EpochStart(LeaderEpoch(epoch), Offset(offset))
