"""A full disk and a failing disk: typed errors, nothing half written, other directories unaffected."""

from __future__ import annotations

import errno
import random

import pytest

from storage.log_config import LogConfig
from testbed.fake_disk import SimulatedCrash
from tests.storage.workbench import SMALL, TOPIC_ID, TP, Bench, stamped
from tidelog.errors import DiskFull, KafkaStorageError
from tidelog.types import Offset, PartitionIndex, TopicPartition


def test_a_full_directory_rejects_whole_appends_and_serves_reads() -> None:
    bench = Bench()
    for i in range(5):
        bench.lead(b"value %d" % i)
    before, size = bench.contents(), bench.disk.size(bench.segment_path)
    for free in (0, 1, 30, 60):
        bench.disk.capacity = bench.disk.used + free
        with pytest.raises(DiskFull, match="free some space"):
            bench.lead(b"one too many")
        assert bench.contents() == before
        assert bench.disk.size(bench.segment_path) == size, "the bytes that fitted were truncated again"
        assert bench.disk.used + free == bench.disk.capacity
    assert bench.directory.offline is None


def test_appends_resume_when_space_is_free() -> None:
    bench = Bench()
    bench.lead(b"a")
    bench.disk.capacity = bench.disk.used
    with pytest.raises(DiskFull):
        bench.lead(b"b", epoch=5)
    assert [entry.epoch for entry in bench.log.epochs.entries] == [0], "the rejected epoch left no trace"
    bench.disk.capacity = None
    assert bench.lead(b"c") == 1
    bench.commit()
    assert bench.log.durable_offset == 2
    bench.kill()
    assert len(bench.contents()) == 2


def test_a_roll_on_a_full_disk_keeps_the_old_segment() -> None:
    bench = Bench(LogConfig(segment_bytes=200, index_interval_bytes=10))
    bench.lead(b"x" * 50)
    before, bases = bench.contents(), [segment.base_offset for segment in bench.log.segments]
    bench.disk.capacity = bench.disk.used
    for _ in range(3):
        with pytest.raises(DiskFull):
            bench.lead(b"x" * 120)
    assert [segment.base_offset for segment in bench.log.segments] == bases
    bench.disk.capacity = None
    bench.lead(b"x" * 120)
    assert bench.contents()[:-1] == before
    bench.kill()
    assert bench.contents()[:-1] == before


def test_a_segment_after_a_hole_is_removed_if_the_disk_is_full() -> None:
    """A batch that no segment can span starts one after the hole, at an offset above the log end. If it stayed, empty,
    later segments would begin below it: segments out of order, of which a restart would use only one."""
    bench = Bench()
    bench.lead(b"a")
    bench.disk.fail("write", ".log", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        bench.follow(stamped(2**33, b"far", epoch=1))
    assert [segment.base_offset for segment in bench.log.segments] == [0]
    assert bench.lead(b"b", epoch=2) == 1
    bench.commit()
    stored = bench.contents()
    bench.crash()
    assert bench.log.log_end_offset == 2
    assert bench.contents() == stored


@pytest.mark.parametrize(("call", "offset"), [("write", 2**33), ("write", 1), ("open", 1)])
def test_a_log_whose_batches_are_damaged_takes_appends_only_in_a_new_segment(call: str, offset: int) -> None:
    """The new segment cannot be made, or written to, on a full disk: the next append must not follow the break in the
    old one, where only the index would find it."""
    bench = Bench()
    bench.lead(b"a")
    bench.log.lost.chain_is_broken = True
    bench.disk.fail(call, ".log", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        bench.follow(stamped(offset, b"b"))
    bench.lead(b"c")
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1]
    assert not bench.log.lost.chain_is_broken


def test_a_full_disk_rejects_new_logs_and_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.disk.capacity = bench.disk.used
    other = TopicPartition("other", PartitionIndex(0))
    with pytest.raises(DiskFull):
        bench.directory.create_log(other, TOPIC_ID, SMALL)
    assert "other-0" not in bench.disk.list("/data")
    bench.disk.capacity = None
    bench.directory.create_log(other, TOPIC_ID, SMALL)


def test_a_full_disk_rejects_a_truncation_before_anything_is_removed() -> None:
    bench = Bench()
    bench.follow(*(stamped(i, b"%d" % i) for i in range(20)))
    bench.commit()
    bench.directory.write_checkpoints()
    before = bench.contents()
    bench.disk.capacity = bench.disk.used
    with pytest.raises(DiskFull):
        bench.log.truncate_to(Offset(5))
    assert bench.contents() == before
    bench.disk.capacity = None
    bench.log.truncate_to(Offset(5))
    assert bench.contents() == before[:5]
    bench.crash(1)
    assert bench.contents() == before[:5]


def test_a_failing_write_takes_the_directory_offline() -> None:
    bench = Bench()
    bench.lead(b"a")
    bench.disk.fail("write", ".log")
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        bench.lead(b"b")
    assert bench.directory.offline is not None
    with pytest.raises(KafkaStorageError, match="offline"):
        bench.lead(b"c")
    with pytest.raises(KafkaStorageError, match="offline"):
        bench.directory.create_log(TopicPartition("other", PartitionIndex(0)), TOPIC_ID, SMALL)
    with pytest.raises(KafkaStorageError, match="offline"):
        bench.directory.close_clean()
    bench.reopen()
    assert not bench.directory.identity.was_clean
    assert len(bench.contents()) == 1


def test_a_sync_without_free_space_takes_the_directory_offline() -> None:
    """Goal: bytes that the kernel dropped for lack of space never count as durable. Method: a sync fails as "full", so
    that a later one would succeed without them; then power fails."""
    bench = Bench()
    bench.lead(b"a")
    bench.commit()
    bench.lead(b"b")
    bench.disk.fail("sync", ".log", error=errno.ENOSPC)
    bench.commit()
    bench.commit()
    assert bench.log.durable_offset == 1
    assert bench.directory.offline is not None
    with pytest.raises(KafkaStorageError):
        bench.lead(b"c")


def test_a_failing_read_takes_the_directory_offline() -> None:
    bench = Bench()
    bench.lead(b"a")
    bench.disk.fail("read", ".log")
    with pytest.raises(KafkaStorageError, match="reading"):
        bench.read_first()
    assert bench.directory.offline is not None


def test_any_call_may_fail_and_nothing_durable_is_lost() -> None:
    """Each call of an ordinary run fails once, with each error; then the machine restarts."""
    for operation in ("write", "sync", "truncate", "open", "map", "reserve", "rename", "remove", "sync_directory"):
        for skip in range(12):
            bench = Bench()
            fault = bench.disk.fail(operation, "/data", skip=skip)
            durable_offset = 0
            try:
                for i in range(30):
                    bench.lead(b"value %d" % i)
                    bench.commit()
                    durable_offset = bench.log.durable_offset
                    if i == 20:
                        durable_offset = 15  # from here on the truncation may have happened
                        bench.log.truncate_to(Offset(15))
                        bench.directory.write_checkpoints()
            except KafkaStorageError:
                assert bench.directory.offline is not None
            if fault.times == 1:
                break  # there are fewer such calls
            bench.disk.heal()
            bench.disk.crash(random.Random(skip))
            try:
                bench.reopen()
            except KeyError:
                assert durable_offset == 0
                continue
            assert bench.log.damage is None
            assert bench.log.log_end_offset >= durable_offset


def test_a_crash_in_any_call_of_an_append_leaves_whole_batches() -> None:
    for call in range(1, 60):
        bench = Bench()
        for i in range(12):
            bench.lead(b"value %d" % i)
        bench.commit()
        before = bench.contents()
        bench.disk.crash_at_call(bench.disk.calls + call)
        try:
            bench.lead(b"the last one" * 40)
        except SimulatedCrash:
            bench.disk.crash(random.Random(call))
            bench.reopen()
            assert bench.contents()[:12] == before
            assert len(bench.contents()) in (12, 13)
        else:
            assert call > 1
            return
    raise AssertionError("the append never ended")


def test_the_creation_of_a_log_can_be_interrupted_anywhere() -> None:
    for call in range(1, 80):
        bench = Bench()
        other = TopicPartition("other", PartitionIndex(0))
        bench.disk.crash_at_call(bench.disk.calls + call)
        try:
            bench.directory.create_log(other, TOPIC_ID, SMALL)
        except SimulatedCrash:
            bench.disk.crash(random.Random(call))
            directory = bench.open_directory()
            logs = directory.load_logs(lambda _tp, _id: SMALL)
            assert TP in logs
            if other not in logs:
                directory.create_log(other, TOPIC_ID, SMALL)
            assert directory.damaged() == {}
        else:
            assert call > 5
            return
    raise AssertionError("it never ended")
