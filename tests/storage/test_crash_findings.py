"""What crashes at every call have found (test_crash_points.py), each told alone: the worst fate of what was not synced.

Scenarios 3 and 14 of the design: names, cuts and bytes that only the page cache has when the process dies.
"""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from storage.checkpoints.checkpoint_file import LEADER_EPOCH_CHECKPOINT, read_epochs
from storage.config import LogConfig
from storage.files.file_system import sync_paths
from storage.log.log import Log
from storage.producers.producer_snapshot import snapshot_path
from storage.segment.segment import ALL_SUFFIXES
from tests.fakes.fake_disk import FakeDisk, SimulatedCrash
from tests.fakes.log_start import delete_old_segments, delete_records
from tests.storage.cleaning_bench import COMPACTED, CleaningBench, clean, table, visible
from tests.storage.workbench import NOW, SMALL, TOPIC_ID, Bench, Deferred, batch, stamped
from tidelog.errors import DiskFull, KafkaStorageError
from tidelog.records.legacy.message_builder import MessageSetBuilder
from tidelog.types import Durability, EpochStart, LeaderEpoch, Millis, Offset, PartitionIndex, TopicPartition


class NothingSurvives(random.Random):
    """The fate of what was not synced: all of it is lost."""

    def randrange(self, *_: object) -> int:
        return 0


class FirstWriteSurvives(random.Random):
    """The fate of what was not synced: the first change of each file is kept."""

    def randrange(self, start: int, *_: object) -> int:
        return 2 if start == 4 else min(1, start - 1)


class OnlySizesSurvive(random.Random):
    """Of what was not synced, files keep their sizes, and nothing that was written to them."""

    def randrange(self, start: int, *_: object) -> int:
        return min(3, start - 1)

    def random(self) -> float:
        return 0.9


class OnlyNamesAreLost(random.Random):
    """The fate of what was not synced: bytes are kept, and no name."""

    def randrange(self, start: int, *_: object) -> int:
        return 1 if start == 4 else 0


def lose_power(bench: Bench) -> Log:
    bench.disk.crash(NothingSurvives())
    return bench.reopen()


class IdleBench(Bench):
    """Nothing happens in the background."""

    def __init__(self, config: LogConfig = SMALL) -> None:
        self.deferred = Deferred()
        super().__init__(config, executor=self.deferred)
        self.settle()

    def settle(self) -> None:
        """Everything is durable, and the checkpoints say so."""
        self.log.flush()
        self.directory.write_checkpoints()
        self.deferred.run_all()


def stop_at(disk: FakeDisk, operation: str, *, behind: str, times: int = 1) -> None:
    """The process dies inside the next such call behind so many of the other kind; the machine goes on."""
    seen = 0

    def on_call(now: str) -> None:
        nonlocal seen
        if seen >= times and now == operation:
            disk.on_call = None
            raise SimulatedCrash(operation)
        seen += now == behind

    disk.on_call = on_call


def test_a_roll_before_the_process_died_does_not_cost_what_came_behind_it() -> None:
    """The new segment's name is not durable, and everything below it is: the next flush has to sync the directory."""
    bench = IdleBench()
    bench.lead(b"a")
    bench.settle()
    bench.log.roll(NOW)
    bench.kill()
    bench.lead(b"b")
    bench.log.flush()
    assert bench.log.durable_offset == 2
    assert lose_power(bench).log_end_offset == 2


def test_a_log_made_before_the_process_died_keeps_what_it_held() -> None:
    """Nothing of it was ever flushed: neither its directory's name nor its partition.metadata are durable."""
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


def test_segments_that_a_cut_removed_do_not_come_back_behind_what_took_their_place() -> None:
    """The process died before the directory was synced; the log ended just where the recovery point had been lowered
    to."""
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


def test_a_time_index_that_recovery_rebuilt_is_durable_before_the_next_clean_stop() -> None:
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


def test_what_a_failed_fsync_left_in_the_page_cache_is_written_again_on_page_cache_topics_too() -> None:
    """Scenario 14: the recovery point must not rise over bytes that only look written."""
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


def test_a_disk_that_is_full_in_the_middle_of_a_roll_does_not_cost_the_segments_name() -> None:
    """The segment is there when the note of agreed transaction indexes finds no room: its name is made durable with
    what is appended next."""
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


def test_what_was_cut_from_a_v1_log_does_not_come_back_under_the_next_epoch() -> None:
    """Scenario 3, variant: the process died in a cut; its next epoch is durable before its first byte, the cut must be
    so before."""
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
    assert log.log_end_offset == 1, "the new message was lost, the old one must not be of epoch 5"


def test_epochs_of_a_log_that_was_here_before_are_none_of_this_one() -> None:
    """Goal: the epoch of what a log gets after it was emptied is known. Method: the process dies before the old epochs
    are cleared, and what comes then is there after a loss of power, its own epochs are not."""
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
    assert bench.log.epoch_entries() == (entry(0, bench.log.log_start_offset),)


def test_zeros_that_a_closed_segment_was_preallocated_with_are_no_damage() -> None:
    """Its cut to size was not durable when power failed, although all of its records had been."""
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


def test_a_preallocated_segment_is_cut_to_size_durably_before_a_clean_stop() -> None:
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


def test_a_log_start_that_was_read_is_not_forgotten_again() -> None:
    """The process died before the new start had a durable name, and the next one has said where the log starts."""
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


def test_a_disk_that_is_full_in_the_middle_of_a_cut_takes_the_directory_offline() -> None:
    """The bytes are gone, the epoch file has no room: the log must not go on as if nothing had been cut."""
    bench = IdleBench()
    bench.lead(b"a")
    bench.lead(b"b", epoch=1)
    bench.settle()
    bench.disk.fail("rename", "leader-epoch-checkpoint", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        bench.log.truncate_to(Offset(1))
    bench.kill()
    assert (bench.log.log_end_offset, bench.log.epoch_entries()) == (1, (entry(0, 0), entry(1, 1)))


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename"])
@pytest.mark.parametrize("file", ["recovery-point-offset-checkpoint", "held-offset-marks"])
def test_claims_that_could_not_be_lowered_are_lowered_by_the_next_cut(operation: str, file: str) -> None:
    """Scenario 3: a full disk refused the first cut, and its file went on saying that more was durable."""
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


def test_a_cut_of_the_batch_that_the_log_starts_in_does_not_end_the_log_below_its_start() -> None:
    bench = IdleBench()
    bench.lead(b"0", b"1", b"2", b"3")
    bench.log.flush()
    bench.log.advance_high_watermark(Offset(4))
    delete_records(bench.log, Offset(1))
    bench.log.truncate_to(Offset(3))
    assert (bench.log.log_start_offset, bench.log.log_end_offset, bench.log.high_watermark) == (1, 1, 1)
    log = lose_power(bench)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_a_start_that_a_full_disk_refused_does_not_hide_what_comes_behind_a_cut() -> None:
    """The file may say it all the same, and the log was cut below it and grew again: what it holds now is none of the
    records that were to be deleted."""
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


def test_compaction_goes_by_no_marker_that_may_be_lost() -> None:
    """On a page-cache topic the high watermark goes ahead of what is durable: a transaction whose marker is lost may
    end the other way, and what its record took the place of must still be there."""
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
    assert clean(bench.log) > 0, "once the marker is durable nothing holds compaction up"
    assert table(visible(bench.log)) == {b"k": b"old"}


def test_a_log_that_was_never_flushed_does_not_believe_a_transaction_index_that_lost_its_entries() -> None:
    """Nothing of it was durable by its files' word, so it was taken for new, and the index for one that agrees; the
    log starts within its only segment, so that it was not rebuilt either: aborted records were shown."""
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


def test_what_retention_takes_does_not_take_its_producers_with_it() -> None:
    """The snapshot at the new start is all that knows of them by then. It was written without being synced: a resend
    after a loss of power was appended a second time. Found by a random world."""
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
    assert [producer.producer_id for producer in log.active_producers()] == [7]


RETAINED = replace(SMALL, retention_bytes=1)


def known_producers(log: Log) -> dict[int, int]:
    """The last sequence of each."""
    return {state.producer_id: state.last_sequence for state in log.active_producers()}


class QuietBench(CleaningBench):
    """As CleaningBench, but checkpoints are written only when the test says so."""

    def __init__(self, config: LogConfig) -> None:
        self.deferred = Deferred()
        super().__init__(config, executor=self.deferred)


def test_segments_that_come_back_below_the_start_do_not_cost_the_snapshot_there() -> None:
    """The power fails before the removal of the files is durable, and the recovery point's file says nothing of them:
    recovery reads from the first of them on. It took the snapshot at the log's start for one of what may have been
    lost, and read no batch below the start either: a resend was appended a second time."""
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


def test_the_snapshot_at_the_start_is_believed_where_an_older_one_is_gone() -> None:
    """As above, and what came before is durably gone: the batches that are there say nothing of producer 7."""
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
def test_batches_that_were_deleted_by_request_keep_their_producers_known(config: LogConfig) -> None:
    """The log starts within its first segment: what lies below was not read again. Only the process died."""
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
    """Nothing was retained yet, so no snapshot was made durable: what comes back of them is taken, and for the others
    the batches that are there still."""
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


def test_a_cut_behind_a_start_that_moved_leaves_its_producers_known() -> None:
    """As above, where nothing has stopped: a cut reads the producers again as well."""
    bench = QuietBench(SMALL)
    bench.produce(7, (b"k", b"sent once"))
    bench.put((b"k", b"from somebody else"))
    bench.log.flush()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    delete_records(bench.log, Offset(2))
    bench.produce(8, (b"k", b"not committed"))
    bench.log.truncate_to(Offset(2))
    assert known_producers(bench.log) == {7: 0}


def test_an_emptying_that_broke_off_twice_loses_nothing_below_the_start() -> None:
    """The process dies with the last segment gone, and the log that its next life begins at the start is all that was
    held. The power fails before the rest is durably out of the way: the offsets between were deleted, not lost."""
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
def test_a_swap_that_a_full_disk_broke_off_does_not_replace_what_came_later(done: int) -> None:
    """The next start finishes the swap of a cleaned segment. The log had gone on, was emptied and filled again: what it
    held then was replaced by the old records."""
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


def test_a_part_of_an_append_that_found_no_room_does_not_come_back() -> None:
    """It was refused as not written, though a whole message of it had been; and here it would be of the epoch of what
    came instead."""
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
