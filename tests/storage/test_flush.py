"""What counts as durable, and when: tickets, group commit, the durable offset, flush.messages and flush.ms.

log-append-roll-flush.txt (flush), design section 3 ("what an ack promises")."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk
from tests.storage.workbench import SMALL, TOPIC_ID, TP, Bench, Deferred, SetClock, stamped
from tidelog.errors import KafkaStorageError
from tidelog.types import Durability, LeaderEpoch, Offset, PartitionIndex, TopicPartition

OTHER = TopicPartition("other", PartitionIndex(3))


def bench_with(config: LogConfig = SMALL) -> tuple[Bench, Deferred]:
    executor = Deferred()
    bench = Bench(config, executor=executor)
    executor.run_all()
    return bench, executor


def test_the_durable_offset_rises_only_when_the_sync_has_ended() -> None:
    bench, executor = bench_with()
    bench.lead()
    bench.commit()
    assert (bench.log.durable_offset, bench.log.recovery_point) == (0, 0)
    executor.run_one()
    assert (bench.log.durable_offset, bench.log.recovery_point) == (1, 1)


def test_appended_records_of_a_page_cache_log_are_durable() -> None:
    bench, executor = bench_with(replace(SMALL, durability=Durability.PAGE_CACHE))
    bench.lead()
    bench.commit()
    executor.run_all()
    assert (bench.log.durable_offset, bench.log.recovery_point) == (1, 0), "nothing had to be flushed"


def test_one_sync_serves_all_waiting_appends() -> None:
    bench, executor = bench_with()
    reported: list[int] = []
    bench.directory.when_durable.append(lambda log: reported.append(log.durable_offset))
    for i in range(10):
        bench.lead(epoch=0)
        bench.commit()
        if i == 3:
            assert len(executor.waiting) == 1, "at most one flush is in progress"
    syncs = bench.disk.syncs
    executor.run_one()
    assert reported == [1], "the first flush covers what existed when it began"
    executor.run_one()
    assert reported == [1, 10]
    assert bench.disk.syncs - syncs <= 4
    assert executor.waiting == []


def test_at_most_one_flush_of_a_log_is_in_progress() -> None:
    bench, executor = bench_with()
    other = bench.directory.create_log(OTHER, bench.log.topic_id, SMALL)
    executor.run_all()
    flushes = bench.directory.commit.flushes
    durable_offset: list[Log] = []
    bench.directory.when_durable.append(durable_offset.append)
    bench.lead()
    bench.commit()
    other.append(stamped(0, b"x"), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    bench.directory.commit.request(other)
    bench.lead()
    bench.commit()
    executor.run_all()
    assert bench.directory.commit.flushes - flushes == 3
    assert durable_offset == [bench.log, other, bench.log] or durable_offset == [bench.log, bench.log, other]
    assert (bench.log.durable_offset, other.durable_offset) == (2, 1)


def test_several_logs_are_flushed_in_parallel() -> None:
    """A slow sync of one log delays no other; beyond `syncs_at_once` logs wait in the order of their requests."""
    disk, syncer = FakeDisk(), Deferred()
    directory = LogDirectory(
        "/data", files=disk, clock=SetClock(), rng=random.Random(7), syncer=syncer, syncs_at_once=2
    )
    names = [TopicPartition("orders", PartitionIndex(index)) for index in range(3)]
    first, second, third = (directory.create_log(name, TOPIC_ID, SMALL) for name in names)
    syncer.run_all()
    durable_offset: list[Log] = []
    directory.when_durable.append(durable_offset.append)
    for log in (first, second, third):
        log.append(stamped(0, b"x"), assign_offsets=False, leader_epoch=LeaderEpoch(0))
        directory.commit.request(log)
    assert len(syncer.waiting) == 2
    syncer.waiting.append(syncer.waiting.pop(0))  # the disk answers the second one first
    syncer.run_one()
    assert durable_offset == [second]
    assert (first.durable_offset, second.durable_offset, third.durable_offset) == (0, 1, 0)
    syncer.run_all()
    assert durable_offset == [second, first, third] or durable_offset == [second, third, first]
    assert not directory.commit.busy


@pytest.mark.parametrize("seed", range(8))
def test_a_sync_relies_on_no_unfinished_sync(seed: int) -> None:
    """A first flush syncs the names of a new log; the second must not count without them."""
    bench, executor = bench_with()
    log = bench.directory.create_log(OTHER, bench.log.topic_id, SMALL)
    log.append(stamped(0, b"x"), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    log.flush()  # while the first one, with the directory's name, has not run
    assert (log.durable_offset, executor.waiting != []) == (1, True)
    bench.crash(seed)
    assert bench.directory.logs[OTHER].log_end_offset == 1


def test_a_flush_at_or_below_the_recovery_point_does_nothing() -> None:
    bench = Bench()
    bench.lead()
    bench.log.flush()
    syncs = bench.disk.syncs
    bench.log.flush()
    assert bench.disk.syncs == syncs
    assert bench.log.begin_flush() is None


def test_a_flush_that_began_before_a_truncation_counts_only_up_to_it() -> None:
    """Scenario 2, the part of storage; scenario 3: new bytes replaced the synced ones."""
    bench = Bench()
    bench.follow(*(stamped(i, b"old %d" % i) for i in range(10)))
    ticket = bench.log.begin_flush()
    assert ticket is not None
    bench.log.truncate_to(Offset(6))
    bench.follow(*(stamped(i, b"new %d" % i, epoch=1) for i in range(6, 12)))
    ticket.run()
    bench.log.finish_flush(ticket)
    assert (bench.log.durable_offset, bench.log.recovery_point) == (6, 6)
    bench.commit()
    assert bench.log.durable_offset == 12


def test_a_ticket_outlives_its_segments() -> None:
    bench = Bench(replace(SMALL, segment_bytes=300))
    for _ in range(10):
        bench.lead(b"x" * 50)
    executor_free_ticket = bench.log.begin_flush(everything=True)
    bench.lead(b"y" * 50)
    ticket = bench.log.begin_flush()
    assert ticket is not None
    bench.log.truncate_to(Offset(1))
    ticket.run()
    bench.log.finish_flush(ticket)
    if executor_free_ticket is not None:
        executor_free_ticket.run()
        bench.log.finish_flush(executor_free_ticket)
    assert bench.log.durable_offset == 1


def test_a_failed_sync_takes_the_directory_offline_and_has_no_effect() -> None:
    bench, executor = bench_with()
    offline: list[str | None] = []
    bench.directory.when_offline.append(lambda directory: offline.append(directory.offline))
    bench.lead()
    bench.commit()
    bench.disk.fail("sync", ".log")
    executor.run_all()
    assert bench.log.durable_offset == 0
    assert len(offline) == 1
    assert "Input/output error" in str(offline[0])
    for work in (bench.lead, bench.commit_log, bench.read_first):
        with pytest.raises(KafkaStorageError, match="offline"):
            work()


def test_after_a_failed_sync_an_earlier_ticket_does_not_count() -> None:
    """The kernel reports an error once: the second sync of the file would succeed, and lost bytes would count as
    durable."""
    bench = Bench()
    bench.commit()
    bench.lead(b"a")
    first = bench.log.begin_flush()
    bench.lead(b"b")
    second = bench.log.begin_flush()
    assert first is not None
    assert second is not None
    bench.disk.fail("sync", ".log")
    for ticket in (first, second):
        with pytest.raises(OSError, match=r"Input/output error|an earlier sync failed"):
            ticket.run()
        bench.log.abandon_flush(ticket)
    assert bench.log.durable_offset == 0


def test_other_directories_continue_when_one_fails() -> None:
    broken, sound = Bench(), Bench()
    broken.lead()
    broken.disk.fail("sync")
    broken.commit()
    assert broken.directory.offline is not None
    sound.lead()
    sound.commit()
    assert sound.log.durable_offset == 1


def test_flush_messages_limits_unflushed_records() -> None:
    config = replace(SMALL, durability=Durability.PAGE_CACHE, flush_messages=5, segment_bytes=100_000)
    bench = Bench(config)
    for expected in (0, 0, 0, 0, 5, 5, 5, 5, 5, 10):
        bench.lead()
        assert bench.log.recovery_point == expected


def page_cache(flush_messages: int, executor: Deferred) -> Bench:
    config = replace(SMALL, durability=Durability.PAGE_CACHE, flush_messages=flush_messages, segment_bytes=100_000)
    bench = Bench(config, executor=executor)
    executor.run_all()
    return bench


def test_with_flush_messages_1_only_flushed_records_count_as_durable() -> None:
    """As in Kafka, which flushes within the append: acknowledged records survive a power loss."""
    for seed in range(10):
        executor = Deferred()
        bench = page_cache(1, executor)
        bench.lead(b"a")
        assert (bench.log.durable_offset, bench.log.log_end_offset) == (0, 1)
        bench.lead(b"b")
        executor.run_one()
        assert bench.log.durable_offset == 1, "the flush began before the second append"
        executor.run_one()
        assert (bench.log.durable_offset, bench.log.recovery_point) == (2, 2)
        bench.lead(b"may be lost")
        log = bench.crash(seed)
        assert log.damage is None
        assert log.log_end_offset >= 2


def test_the_append_that_reaches_flush_messages_waits_and_those_before_it_do_not() -> None:
    executor = Deferred()
    bench = page_cache(3, executor)
    for expected in (1, 2, 2, 2):
        bench.lead()
        assert bench.log.durable_offset == expected
    executor.run_one()
    assert bench.log.durable_offset == 4, "one record is unflushed, fewer than 3"
    assert bench.log.recovery_point == 3
    bench.lead(b"x", b"y")
    assert bench.log.durable_offset == 4
    executor.run_all()
    assert bench.log.durable_offset == bench.log.recovery_point == 6


def test_a_full_disk_delays_a_record_until_its_flush_is_requested_again() -> None:
    executor = Deferred()
    bench = page_cache(1, executor)
    bench.lead()
    bench.disk.fail("write", "leader-epoch", error=errno.ENOSPC)
    executor.run_all()
    assert (bench.log.durable_offset, bench.directory.offline) == (0, None)
    bench.disk.heal()
    bench.directory.request_flushes()
    executor.run_all()
    assert bench.log.durable_offset == 1


def test_a_truncation_withdraws_records_that_wait_for_their_flush() -> None:
    executor = Deferred()
    bench = page_cache(2, executor)
    bench.follow(*(stamped(i) for i in range(10)))
    assert bench.log.durable_offset == 0
    ticket = bench.log.begin_truncation(Offset(5))
    assert ticket is not None
    bench.directory.commit.truncate(bench.log, ticket, lambda error: None)
    executor.run_all()
    assert (bench.log.durable_offset, bench.log.log_end_offset) == (5, 5)
    bench.follow(stamped(5, b"new"))
    assert bench.log.durable_offset == 6
    bench.follow(stamped(6, b"new"))
    assert bench.log.durable_offset == 6
    executor.run_all()
    assert bench.log.durable_offset == 7


def test_flush_ms_does_not_delay_acknowledgements() -> None:
    """As in Kafka: it limits how long records exist only in the page cache."""
    bench = Bench(replace(SMALL, durability=Durability.PAGE_CACHE, flush_ms=1))
    bench.lead()
    assert (bench.log.durable_offset, bench.log.recovery_point) == (1, 0)


def test_flush_ms_limits_the_age_of_unflushed_records() -> None:
    bench = Bench(replace(SMALL, durability=Durability.PAGE_CACHE, flush_ms=1_000))
    bench.lead()
    bench.clock.now += 999
    bench.directory.request_flushes()
    assert bench.log.recovery_point == 0
    bench.clock.now += 1
    bench.directory.request_flushes()
    assert bench.log.recovery_point == 1


def test_epoch_entries_are_durable_before_their_records() -> None:
    bench = Bench()
    bench.lead(epoch=3)
    bench.commit()
    for seed in range(20):
        again = Bench()
        again.lead(epoch=3)
        again.commit()
        again.crash(seed)
        assert again.log.epochs.entries == bench.log.epochs.entries
        assert again.log.durable_offset == 1


def test_a_flush_that_began_before_a_truncation_does_not_restore_truncated_epochs() -> None:
    bench = Bench()
    bench.follow(stamped(0, b"a", epoch=1), stamped(1, b"b", epoch=2))
    ticket = bench.log.begin_flush()
    assert ticket is not None
    bench.log.truncate_to(Offset(1))
    ticket.run()
    bench.log.finish_flush(ticket)
    bench.follow(stamped(1, b"c", epoch=1), stamped(2, b"d", epoch=1))
    bench.kill()
    assert [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries] == [(1, 0)]


def test_a_deleted_log_is_not_flushed() -> None:
    bench, executor = bench_with()
    bench.lead()
    bench.commit()
    bench.directory.delete_log(TP)
    executor.run_all()
    assert not any(name.startswith("orders") for name in bench.disk.list("/data"))
    assert bench.directory.offline is None


def test_a_flush_on_a_full_disk_waits_for_space() -> None:
    bench, executor = bench_with()
    bench.lead(epoch=2)
    bench.disk.capacity = bench.disk.used  # no space for the new leader-epoch-checkpoint
    bench.commit()
    executor.run_all()
    assert bench.directory.offline is None
    assert bench.log.durable_offset == 0
    bench.disk.capacity = None
    bench.directory.request_flushes()
    executor.run_all()
    assert bench.log.durable_offset == 1
