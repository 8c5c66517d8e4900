"""Periodic work on logs: each kind at its own interval, on its own thread, until it stops."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from storage.checkpoints.checkpoint_file import RECOVERY_POINT_CHECKPOINT, read_offsets
from storage.directory.log_directory import LogDirectory
from tests.storage.maintenance_world import CONFIG, World
from tests.storage.workbench import NOW, SMALL, Deferred
from tidelog.errors import DiskFull
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.types import (
    METADATA_TOPIC,
    LeaderEpoch,
    Millis,
    Offset,
    ProducerId,
)

ROLLING = replace(SMALL, segment_bytes=600)


def test_retention_runs_at_its_interval_and_files_are_removed_after_their_delay() -> None:
    world = World()
    log = world.make("orders", replace(ROLLING, retention_bytes=1_000, file_delete_delay_ms=8_000))
    world.fill(log, 30)
    world.wait(19_500)
    assert log.log_start_offset == 0
    world.wait(1_000)
    assert log.log_start_offset > 0
    assert log.size <= 1_600
    assert world.owner.starts == [log.topic_partition]
    gone = [name for name in world.disk.list(log.path) if name.endswith(".deleted")]
    assert gone
    world.wait(10_000)
    assert not any(name.endswith(".deleted") for name in world.disk.list(log.path))


def test_checkpoints_are_written_at_their_interval() -> None:
    world = World()
    log = world.make("orders", ROLLING)

    def written() -> int:
        return int(read_offsets(world.disk, f"/data/{RECOVERY_POINT_CHECKPOINT}").get(log.topic_partition, 0))

    for end in (3, 6):
        before = written()
        world.fill(log, 3)
        world.wait(4_500)
        assert written() == before
        world.wait(500)
        assert written() == end


def test_the_metadata_log_is_not_maintained() -> None:
    world = World()
    log = world.make(METADATA_TOPIC, replace(ROLLING, retention_bytes=1_000, compact=True, min_cleanable_ratio=0.0))
    world.fill(log, 30)
    size = log.size
    world.wait(60_000)
    assert log.log_start_offset == 0
    assert log.size == size
    assert world.owner.rounds == []


def test_a_compacted_log_is_cleaned_off_the_owners_thread() -> None:
    background = Deferred()
    world = World(background)
    log = world.make("table", replace(ROLLING, compact=True, delete=False))
    world.fill(log, 40)
    size = log.size
    world.wait(16_000)
    assert log.size == size, "nothing has run yet"
    for _ in range(100):
        background.run_all()
        world.wait(500)
    [round_] = world.owner.rounds
    assert round_.log == log.topic_partition
    assert log.size < size // 2
    assert world.maintenance.cleanings[world.directory].rounds == 1
    assert world.maintenance.cleanings[world.directory].bytes_processed > size
    world.wait(60_000)
    background.run_all()
    assert len(world.owner.rounds) == 1, "clean now"


def test_a_cleaner_that_is_switched_off_does_nothing() -> None:
    world = World(config=replace(CONFIG, cleaner=False))
    log = world.make("table", replace(ROLLING, compact=True, delete=False))
    world.fill(log, 40)
    world.wait(60_000)
    assert world.owner.rounds == []


def test_stopping_in_the_middle_of_a_cleaning_leaves_the_log_as_it_was() -> None:
    background = Deferred()
    world = World(background)
    log = world.make("table", replace(ROLLING, compact=True, delete=False))
    world.fill(log, 40)
    size, end = log.size, log.log_end_offset
    world.wait(16_000)
    world.maintenance.stop()
    background.run_one()
    world.directory.close_clean()
    background.run_all()
    again = LogDirectory("/data", files=world.disk, clock=world.clock, rng=random.Random(1))
    found = again.load_logs(lambda _name, _id: log.config)[log.topic_partition]
    assert (found.size, found.log_end_offset, found.damage) == (size, end, None)


def test_free_space_is_checked_and_changes_are_reported_once() -> None:
    world = World()
    log = world.make("orders", ROLLING)
    world.disk.capacity = world.disk.used + 5_000
    world.wait(5_000)
    assert world.owner.rooms == [True]
    with pytest.raises(DiskFull, match="reserve"):
        world.fill(log, 1)
    world.disk.capacity += 100_000
    world.wait(5_000)
    assert world.owner.rooms == [True, False]
    world.fill(log, 1)


def test_producers_expire() -> None:
    world = World(config=replace(CONFIG, producer_check_ms=1_000))
    log = world.make("orders", replace(ROLLING, producer_id_expiration_ms=10_000))
    builder = RecordBatchBuilder(producer_id=ProducerId(7), producer_epoch=0, base_sequence=0)
    builder.append(key=None, value=b"v", timestamp=Millis(NOW))
    log.append(builder.build(), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    world.wait(9_500)
    assert len(log.producers.state.active_producers()) == 1
    world.wait(1_500)
    assert log.producers.state.active_producers() == ()


def test_a_failure_of_one_log_does_not_delay_the_others() -> None:
    world = World()
    config = replace(ROLLING, retention_bytes=1_000)
    first, second = world.make("a", config), world.make("b", config)
    world.fill(first, 30)
    world.fill(second, 30)
    world.disk.fail("rename", first.path, error=28, times=-1)
    world.wait(21_000)
    assert [type(error) for error in world.owner.troubles] == [DiskFull]
    assert second.log_start_offset > 0


def test_a_tick_examines_a_limited_number_of_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.directory.maintenance._LOGS_AT_ONCE", 16)
    world = World()
    logs = [world.make(f"t{number}", replace(ROLLING, retention_bytes=1_000)) for number in range(40)]
    for log in logs:
        world.fill(log, 15)
    world.wait(20_000)
    first = sum(log.log_start_offset > Offset(0) for log in logs)
    assert 0 < first < 40
    world.wait(2_000)
    assert all(log.log_start_offset > 0 for log in logs)
