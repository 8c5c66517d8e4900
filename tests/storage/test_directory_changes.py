"""Logs that are deleted, set aside, created, or get a new start: cost, thread, and state after a crash.

Costs are counted in disk calls. A call belongs to the owner's thread if no work of an executor is running."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from storage.directory.log_directory import LogDirectory
from storage.log.directory_claims import DirectoryClaims
from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk, SimulatedCrash
from tests.storage.watched_executor import Elsewhere
from tests.storage.workbench import SMALL, TOPIC_ID, SetClock, batch, stamped
from tidelog.errors import DiskFull, KafkaStorageError, TidelogError
from tidelog.records import iter_batches
from tidelog.types import LeaderEpoch, Offset, PartitionIndex, PartitionKey, TopicId, TopicPartition

WAITS = ("sync", "sync_directory", "rename", "remove", "remove_directory", "make_directory")
"""Calls that may wait for a disk or its journal."""
DAY = 24 * 3_600_000
AGAIN = TopicId(UUID(int=71))


class Office:
    """A log directory whose executor runs on request; disk calls are counted by caller."""

    def __init__(self) -> None:
        self.disk, self.clock = FakeDisk(), SetClock()
        self.executor = Elsewhere()
        self.directory = self.open()
        self.owners: Counter[str] = Counter()
        self.workers: Counter[str] = Counter()
        self.disk.on_call = self._count

    def open(self) -> LogDirectory:
        return LogDirectory("/data", files=self.disk, clock=self.clock, rng=random.Random(7), executor=self.executor)

    def _count(self, operation: str) -> None:
        (self.workers if self.executor.at_work else self.owners)[operation] += 1

    def fill(self, count: int, config: LogConfig = SMALL, batches: int = 1) -> list[Log]:
        """A number of logs with durable, committed records, and checkpoints that list them."""
        logs = [self.directory.create_log(name(index), TOPIC_ID, config) for index in range(count)]
        for log in logs:
            for _ in range(batches):
                log.append(batch(b"x" * 100), assign_offsets=True, leader_epoch=LeaderEpoch(0))
            log.flush()
            log.advance_high_watermark(log.log_end_offset)
        self.directory.write_checkpoints()
        self.executor.run_all()
        self.owners.clear()
        self.workers.clear()
        return logs

    def waits_of_owner(self) -> dict[str, int]:
        return {operation: count for operation, count in self.owners.items() if operation in WAITS}


def name(index: int) -> TopicPartition:
    return TopicPartition("orders", PartitionIndex(index))


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.disk.on_call = None


# --- deletions --------------------------------------------------------------------------------------------------------


def test_deleting_a_topic_with_many_partitions_takes_a_few_syncs_off_the_owners_thread(office: Office) -> None:
    """Each of 1,500 logs took 5 to 7 fsyncs, one after the other, and blocked all other requests."""
    office.fill(200)
    for index in range(200):
        office.directory.delete_log(name(index))
    assert office.waits_of_owner() == {}
    office.executor.run_all()
    assert office.directory.changes.batches == 1
    assert office.workers["sync"] + office.workers["sync_directory"] <= 10, (
        "the marks, and each checkpoint and its name"
    )
    assert not any("orders" in each for each in office.disk.list("/data"))
    assert office.waits_of_owner() == {}


def test_deletions_during_a_batch_go_into_the_next_batch(office: Office) -> None:
    office.fill(30)
    office.directory.delete_log(name(0))
    office.executor.run_one()  # the executor is free: the first batch begins
    for index in range(1, 30):
        office.directory.delete_log(name(index))
    office.executor.run_all()
    assert office.directory.changes.batches == 2
    assert not any("orders" in each for each in office.disk.list("/data"))


def test_logs_are_set_aside_with_one_sync_of_their_names(office: Office) -> None:
    office.fill(40)
    for index in range(40):
        office.directory.set_aside(name(index), "unknown topic")
    assert office.waits_of_owner() == {}
    office.executor.run_all()
    assert office.workers["sync_directory"] == 1
    assert sum(each.endswith("-stray") for each in office.disk.list("/data")) == 40


def test_a_name_that_is_used_again_at_once_finds_the_old_log_renamed(office: Office) -> None:
    office.fill(1)
    office.directory.delete_log(name(0))
    ticket = office.directory.begin_log(name(0), TOPIC_ID, SMALL)
    made: list[Log] = []
    office.executor.submit(ticket.run, lambda result: made.append(office.directory.finish_log(ticket, result)))
    office.executor.run_all()
    assert made[0].log_end_offset == 0
    assert not any(each.endswith(("-stray", "-delete")) for each in office.disk.list("/data"))
    assert office.waits_of_owner() == {}


def test_a_deletion_that_a_full_disk_rejected_is_repeated(office: Office) -> None:
    office.fill(3)
    office.directory.delete_log(name(1))
    office.disk.fail("open", "/data/recovery-point-offset-checkpoint.tmp", error=errno.ENOSPC)
    office.executor.run_all()
    assert office.disk.is_directory("/data/orders-1")
    office.directory.remove_deleted_files()
    office.executor.run_all()
    assert not office.disk.is_directory("/data/orders-1")
    assert office.directory.offline is None


@pytest.mark.parametrize(
    ("operation", "path", "skip"),
    [("open", "/data/recovery-point-offset-checkpoint.tmp", 0), ("sync_directory", "/data", 2)],
)
def test_a_repeated_deletion_does_not_touch_the_next_log_of_that_name(
    office: Office, operation: str, path: str, skip: int
) -> None:
    """A full disk rejects the deletion and has space again when a new log gets the same name. The repeated deletion
    took the new log for the old one and deleted it."""
    office.fill(1)
    office.directory.delete_log(name(0))
    office.disk.fail(operation, path, error=errno.ENOSPC, skip=skip)
    with pytest.raises(DiskFull, match="has not been renamed yet"):
        made(office, name(0), AGAIN)
    log = made(office, name(0), AGAIN)
    log.append(batch(b"new"), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    log.flush()
    office.directory.remove_deleted_files()
    office.executor.run_all()
    assert sorted(each for each in office.disk.list("/data") if "orders" in each) == ["orders-0"]
    office.disk.crash(random.Random(1))
    office.executor = Elsewhere()
    again = office.open().load_logs(lambda *_: SMALL)[name(0)]
    assert (again.topic_id, values(again)) == (AGAIN, [b"new"])


def made(office: Office, tp: TopicPartition, topic_id: TopicId) -> Log:
    """A new log, created by the executor."""
    ticket = office.directory.begin_log(tp, topic_id, SMALL)
    results: list[Log | BaseException] = []
    office.executor.submit(ticket.run, results.append)
    office.executor.run_all()
    return office.directory.finish_log(ticket, results[0])


def test_deletions_whose_marks_a_full_disk_rejected_are_repeated(office: Office) -> None:
    office.fill(2)
    office.directory.delete_log(name(0))
    office.directory.delete_log(name(1))
    office.disk.fail("write", "/data/held-offset-marks", error=errno.ENOSPC)
    office.executor.run_all()
    assert office.disk.is_directory("/data/orders-0")
    office.directory.remove_deleted_files()
    office.executor.run_all()
    assert not any("orders" in each for each in office.disk.list("/data"))
    assert office.directory.offline is None


def test_nothing_is_renamed_after_a_disk_failure(office: Office) -> None:
    office.fill(2)
    office.disk.fail("sync", "/data/held-offset-marks")
    office.directory.delete_log(name(0))
    office.executor.run_all()
    assert office.directory.offline is not None
    assert office.disk.is_directory("/data/orders-0")
    with pytest.raises(KafkaStorageError):
        office.directory.delete_log(name(1))


@pytest.mark.parametrize("power_fails", [True, False])
def test_a_crash_at_any_step_leaves_each_log_whole_or_deleted(power_fails: bool) -> None:
    step, crashed = 0, True
    while crashed:
        office = Office()
        kept, *_ = office.fill(4)
        step, crashed = step + 1, False
        for index in range(1, 4):
            office.directory.delete_log(name(index))
        office.disk.crash_at_call(office.disk.calls + step)
        try:
            office.executor.run_all()
        except SimulatedCrash:
            crashed = True
        office.disk.crash(random.Random(step)) if power_fails else office.disk.kill()
        office.executor = Elsewhere()
        directory = office.open()
        directory.load_logs(lambda _tp, _id: SMALL)
        assert directory.damaged() == {}, f"step {step}"
        assert values(directory.logs[kept.topic_partition]) == [b"x" * 100]
        for index in range(1, 4):
            if (log := directory.logs.get(name(index))) is not None:
                assert values(log) == [b"x" * 100]


# --- log starts -------------------------------------------------------------------------------------------------------


def test_log_starts_move_with_one_write_and_only_when_it_is_durable(office: Office) -> None:
    logs = office.fill(50, batches=3)
    for log in logs:
        office.directory.move_log_start(log, Offset(2))
    assert office.waits_of_owner() == {}
    assert {log.log_start_offset for log in logs} == {0}
    office.executor.run_all()
    assert {log.log_start_offset for log in logs} == {2}
    assert office.workers["sync"] + office.workers["sync_directory"] == 2
    claims = DirectoryClaims(office.disk, "/data")
    key = PartitionKey(TOPIC_ID, PartitionIndex(7))
    assert claims.known(name(7), key, clean=False).log_start == 2


def test_a_disk_failure_ends_the_wait_for_a_new_start(office: Office) -> None:
    """A snapshot of the metadata waited forever."""
    first, second = office.fill(2, batches=3)
    reported: list[TidelogError | None] = []
    office.directory.drop_before(first, Offset(1), reported.append)
    office.executor.run_one()  # the executor is free: the first batch begins
    office.directory.drop_before(second, Offset(1), reported.append)
    office.disk.fail("open", "/data/log-start-offset-checkpoint.tmp")
    office.executor.run_all()
    assert [type(error) for error in reported] == [KafkaStorageError, KafkaStorageError]


def test_a_start_is_never_moved_above_the_high_watermark(office: Office) -> None:
    (log,) = office.fill(1, batches=3)
    office.directory.move_log_start(log, Offset(99))
    office.executor.run_all()
    assert log.log_start_offset == log.high_watermark == 3


def test_a_truncation_that_begins_meanwhile_overrides_a_moving_start(office: Office) -> None:
    """The start is recorded, and the truncation lowers it again: neither memory nor file may place the start after the
    log end."""
    (log,) = office.fill(1, batches=6)
    office.directory.move_log_start(log, Offset(5))
    office.executor.run_one()  # the executor is free: the write is in progress
    cut = log.begin_truncation(Offset(3))
    assert cut is not None
    cut.run()
    assert log.truncation_ran(cut, None)
    office.executor.run_all()
    assert log.log_start_offset == 0
    assert log.log_end_offset == 3
    known = DirectoryClaims(office.disk, "/data").known(name(0), PartitionKey(TOPIC_ID, PartitionIndex(0)), clean=False)
    assert known.log_start == 0


def test_a_checkpoint_written_meanwhile_does_not_revert_a_start(office: Office) -> None:
    (log,) = office.fill(1, batches=6)
    office.directory.move_log_start(log, Offset(5))
    office.executor.run_one()
    office.directory.note_changed(log)
    office.directory.write_checkpoints()
    office.executor.run_all()
    known = DirectoryClaims(office.disk, "/data").known(name(0), PartitionKey(TOPIC_ID, PartitionIndex(0)), clean=False)
    assert known.log_start == log.log_start_offset == 5


# --- retention --------------------------------------------------------------------------------------------------------

ROLLING = replace(SMALL, segment_bytes=500, retention_bytes=1_000)


def test_retention_waits_for_no_disk_on_the_owners_thread(office: Office) -> None:
    logs = office.fill(10, ROLLING, batches=30)
    reported: list[TidelogError | None] = []
    for log in logs:
        office.directory.drop_expired(log, reported.append)
    assert office.waits_of_owner() == {}
    office.executor.run_all()
    assert office.waits_of_owner() == {}
    assert reported == [None] * 10
    for log in logs:
        assert 0 < log.log_start_offset == log.segments[0].base_offset
        assert len(values(log)) == log.log_end_offset - log.log_start_offset
    office.clock.now += 120_000
    office.directory.remove_deleted_files()
    office.executor.run_all()
    assert not any(each.endswith(".deleted") for each in office.disk.list(logs[0].path))


def test_if_all_segments_expired_the_next_one_is_durable_before_the_last_is_removed(office: Office) -> None:
    (log,) = office.fill(1, replace(SMALL, retention_ms=1_000), batches=3)
    office.clock.now += DAY
    office.directory.drop_expired(log)
    office.executor.run_all()
    assert log.log_start_offset == log.log_end_offset == 3
    office.disk.crash(random.Random(0))
    office.executor = Elsewhere()
    again = office.open().load_logs(lambda _tp, _id: SMALL)[name(0)]
    assert (again.log_start_offset, again.log_end_offset, again.damage) == (3, 3, None)


def test_a_crash_at_any_step_of_retention_loses_nothing_above_the_start() -> None:
    step, crashed = 0, True
    while crashed:
        office = Office()
        (log,) = office.fill(1, ROLLING, batches=12)
        end, step, crashed = log.log_end_offset, step + 1, False
        office.disk.crash_at_call(office.disk.calls + step)
        try:
            office.directory.drop_expired(log)
            office.executor.run_all()
        except SimulatedCrash:
            crashed = True
        office.disk.crash(random.Random(step))
        office.executor = Elsewhere()
        again = office.open().load_logs(lambda _tp, _id: ROLLING)[name(0)]
        assert again.damage is None, f"step {step}: {again.damage}"
        assert again.log_end_offset == end
        assert len(values(again)) == end - again.log_start_offset


def test_a_log_that_is_emptied_meanwhile_keeps_its_new_files(office: Office) -> None:
    """Old segments have left the log, and their files are not renamed yet when the log is emptied and starts at the
    base offset of one of them: the renaming must not take the new file."""
    (log,) = office.fill(1, ROLLING, batches=30)
    office.directory.drop_expired(log)
    while log.front.leaving is None:
        office.executor.run_one()
    cut = log.begin_truncation(Offset(0), fully=True)
    ended = False
    while cut is not None and not ended:
        cut.run()
        ended = log.truncation_ran(cut, None)
    log.append(stamped(0, b"new"), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    office.executor.run_all()
    assert office.disk.size(log.segments[0].path)
    assert values(log) == [b"new"]
    assert office.directory.offline is None


def values(log: Log) -> list[bytes]:
    """Every record from the log start on."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, up_to=log.log_end_offset)
        found += [record.value or b"" for each in iter_batches(read.records) for record in each.records()]
        offset = read.next_offset
    return found
