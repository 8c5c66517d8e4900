"""A truncation whose fsyncs run on another thread: the state of the log until it ends, and failures. test_truncate.py
shows the results of truncations."""

from __future__ import annotations

import errno

import pytest

from tests.storage.filled_logs import filled, values
from tests.storage.workbench import Bench, Deferred, stamped
from tidelog.errors import DiskFull, KafkaStorageError, TidelogError
from tidelog.types import Offset


class Ended:
    """The callback of a truncation. `outcomes`: its errors, None for success."""

    def __init__(self) -> None:
        self.outcomes: list[TidelogError | None] = []

    def __call__(self, error: TidelogError | None) -> None:
        self.outcomes.append(error)


def begin(bench: Bench, offset: int, *, fully: bool = False) -> Ended:
    ended = Ended()
    ticket = bench.log.begin_truncation(Offset(offset), fully=fully)
    assert ticket is not None
    bench.directory.commit.truncate(bench.log, ticket, ended)
    return ended


def deferred(count: int = 60) -> tuple[Bench, Deferred]:
    executor = Deferred()
    bench = Bench(executor=executor)
    bench.follow(*(stamped(i, b"old %03d" % i, epoch=1) for i in range(count)))
    bench.commit()
    executor.run_all()
    assert bench.log.durable_offset == count
    return bench, executor


def test_offsets_above_a_truncation_do_not_count_from_its_beginning() -> None:
    bench, executor = deferred()
    ended = begin(bench, 35)
    assert (bench.log.durable_offset, bench.log.recovery_point, bench.log.log_end_offset) == (35, 35, 60)
    executor.run_all()
    assert ended.outcomes == [None]
    assert (bench.log.durable_offset, bench.log.log_end_offset, bench.log.truncation) == (35, 35, None)
    assert values(bench) == [b"old %03d" % i for i in range(35)]


def test_no_flush_begins_during_a_truncation() -> None:
    bench, executor = deferred()
    begin(bench, 35)
    bench.commit()
    assert len(executor.waiting) == 1
    executor.run_one()
    assert bench.log.truncation is None
    bench.follow(stamped(35, b"new 035", epoch=2))
    bench.commit()
    executor.run_all()
    assert bench.log.durable_offset == 36


def test_a_flush_requested_during_a_truncation_runs_after_it() -> None:
    """Records below the truncation that were not durable become durable without another request."""
    executor = Deferred()
    bench = Bench(executor=executor)
    bench.follow(*(stamped(i, epoch=1) for i in range(20)))
    ended = begin(bench, 10)
    bench.commit()
    executor.run_all()
    assert ended.outcomes == [None]
    assert bench.log.durable_offset == bench.log.log_end_offset == 10


def test_a_flush_in_progress_counts_up_to_the_truncation_whenever_it_ends() -> None:
    for flush_first in (True, False):
        executor = Deferred()
        bench = Bench(executor=executor)
        executor.run_all()
        bench.follow(*(stamped(i, epoch=1) for i in range(20)))
        bench.commit()
        begin(bench, 10)
        assert len(executor.waiting) == 2
        executor.waiting.pop(0 if flush_first else 1)()
        assert bench.log.durable_offset == (10 if flush_first else 0)
        executor.run_one()
        assert (bench.log.durable_offset, bench.log.log_end_offset) == (10, 10)


def test_a_directory_is_busy_until_its_truncations_have_ended() -> None:
    bench, executor = deferred()
    begin(bench, 35)
    assert bench.directory.commit.busy
    executor.run_all()
    assert not bench.directory.commit.busy


def test_checkpoints_written_during_a_truncation_claim_nothing_that_it_removes() -> None:
    """The checkpoints are written before and after the truncation runs; then power fails."""
    for fully in (False, True):
        for checkpoints_first in (True, False):
            bench, executor = deferred()
            begin(bench, 500 if fully else 35, fully=fully)
            bench.directory.write_checkpoints()
            if checkpoints_first:
                executor.waiting.reverse()
            executor.run_one()
            bench.crash(3)
            assert bench.log.damage is None
            assert len(values(bench)) >= (0 if fully else 35)


def test_power_fails_between_the_steps_of_an_emptying() -> None:
    for pieces in range(3):
        bench, executor = deferred()
        begin(bench, 500, fully=True)
        for _ in range(pieces):
            executor.run_one()
        bench.crash(pieces)
        assert bench.log.damage is None
        assert bench.log.log_end_offset in ({60}, {0}, {500})[pieces]


def test_a_process_that_ends_after_the_work_of_a_truncation_leaves_a_truncated_log() -> None:
    """The files are truncated, and indexes still refer to removed batches: the owner did not complete the
    truncation."""
    for offset in range(5, 60, 7):
        bench = filled(60)
        ticket = bench.log.begin_truncation(Offset(offset))
        assert ticket is not None
        ticket.run()
        bench.kill()
        assert bench.log.damage is None
        assert values(bench) == [b"old %03d" % i for i in range(offset)]


def test_a_disk_that_is_full_before_claims_are_lowered_has_truncated_nothing() -> None:
    bench, executor = deferred()
    bench.directory.write_checkpoints()
    executor.run_all()
    before = bench.contents()
    bench.disk.fail("open", "recovery-point", error=errno.ENOSPC)
    ended = begin(bench, 35)
    executor.run_all()
    assert isinstance(ended.outcomes[0], DiskFull)
    assert bench.directory.offline is None
    assert (bench.log.truncation, bench.contents()) == (None, before)
    bench.commit()
    executor.run_all()
    assert bench.log.durable_offset == 60


@pytest.mark.parametrize(("operation", "path"), [("truncate", ".log"), ("sync", ".log"), ("remove", ".log")])
def test_a_failing_truncation_takes_the_directory_offline_halfway(operation: str, path: str) -> None:
    bench, executor = deferred()
    ended = begin(bench, 35)
    bench.disk.fail(operation, path)
    executor.run_all()
    assert isinstance(ended.outcomes[0], KafkaStorageError)
    assert bench.directory.offline is not None
    bench.crash(1)
    assert bench.log.damage is None


def test_a_truncation_in_a_directory_that_failed_meanwhile_is_not_completed() -> None:
    bench, executor = deferred()
    ended = begin(bench, 35)
    bench.directory.take_offline("another log's sync failed")
    executor.run_all()
    assert isinstance(ended.outcomes[0], KafkaStorageError)
    assert bench.log.truncation is None
