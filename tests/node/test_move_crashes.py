"""Crashes while a log moves to another directory of its node: what the next start finds, and uses."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest

from node.replicas.log_registry import LogRegistry
from replication.controller.image import EMPTY, PartitionState, TopicState
from storage.directory.future_log import FutureLog, settle
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.directory.new_log import run_ticket
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log_config import LogConfig
from storage.segment.epoch_cache import LeaderEpochCache
from testbed.fake_disk import FakeDisk, SimulatedCrash
from tests.storage.workbench import NOW, SetClock, batch, contents
from tidelog.records import iter_batches
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.types import (
    DirectoryId,
    Durability,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    PartitionKey,
    ProducerId,
    TopicId,
    TopicPartition,
)

ME = NodeId(1)
TOPIC = TopicId(UUID(int=70))
NAME = TopicPartition("t", PartitionIndex(0))
KEY = PartitionKey(TOPIC, NAME.partition)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=200, segment_index_bytes=240)
PAGE_CACHE = replace(CONFIG, durability=Durability.PAGE_CACHE)


class TwoDirectories:
    """A node's log directories /first and /second. A log in the first one, which the metadata name."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.disk, self.config = FakeDisk(), config
        self.first, self.second = self.open("first"), self.open("second")
        self.named: DirectoryId = self.first.directory_id
        self.log = self.first.create_log(NAME, TOPIC, config)
        self.filled(self.log)
        self.first.commit.request(self.log)
        self.log.flush()
        self.log.advance_high_watermark(Offset(20))
        self.first.move_log_start(self.log, Offset(7))
        self.expected = contents(self.log)

    def filled(self, log: Log) -> None:
        for number in range(20):
            self.append(log, number)

    def open(self, name: str) -> LogDirectory:
        return LogDirectory(f"/{name}", files=self.disk, clock=SetClock(), rng=random.Random(name))

    def append(self, log: Log, number: int) -> None:
        data = batch(b"%d" % number + b"x" * 40)
        log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(3))

    def copy(self) -> FutureLog:
        """A complete copy of the log, flushed."""
        future = FutureLog(self.first, self.log, self.second)
        ticket = future.begin(future.next_offset)
        future.begun(run_ticket(ticket.run))
        while future.lag:
            future.append(self.log.fetch(future.next_offset, 300, FetchIsolation.LOG_END))
        future.roll()
        future.copy.flush()
        return future

    def move(self) -> Log:
        """Move the log, append to it where it is now, and report that as durable."""
        future = self.copy()
        future.seal()
        log = future.promoted(run_ticket(future.promote()))
        renamed: list[bool] = []
        future.leave(lambda: renamed.append(True))
        assert renamed, "appends are held until here"
        self.append(log, 20)
        log.flush()
        self.expected = local_contents(log) if log.config.remote_storage else contents(log)
        return log

    def restart(self, *, power_fails: bool, seed: int) -> tuple[LogManager, Log | None]:
        """The directories after a crash, and the log that the node uses."""
        self.disk.crash(random.Random(seed)) if power_fails else self.disk.kill()
        self.first, self.second = self.open("first"), self.open("second")
        manager = LogManager([self.first, self.second])
        manager.load(lambda _tp, _id: self.config, lambda: None)
        state = PartitionState(
            TOPIC, PartitionIndex(0), (ME,), (self.named,), (ME,), (), (), ME, LeaderEpoch(3), PartitionEpoch(3)
        )
        configs = {"durability": self.config.durability.value}
        topic = TopicState("t", TOPIC, configs, (state,))
        registry = LogRegistry(ME, manager, self.config)
        registry.assign_recovered(replace(EMPTY, topics={TOPIC: topic}, topic_ids={"t": TOPIC}))
        found = registry.find(topic, state)
        return manager, None if found is None else found[1]


@pytest.mark.parametrize("config", [CONFIG, PAGE_CACHE], ids=["fsync", "page-cache"])
@pytest.mark.parametrize("power_fails", [True, False])
def test_a_crash_at_any_step_of_a_move_loses_nothing(power_fails: bool, config: LogConfig) -> None:
    """What was durable before, or was appended after the move, is in the one log that the node uses afterwards."""
    step, crashed, homes = 0, True, set()
    while crashed:
        node = TwoDirectories(config)
        step, crashed = step + 1, False
        node.disk.crash_at_call(node.disk.calls + step)
        try:
            node.move()
        except SimulatedCrash:
            crashed = True
        manager, log = node.restart(power_fails=power_fails, seed=step)
        assert log is not None, f"step {step}"
        assert contents(log)[: len(node.expected)] == node.expected, f"step {step}"
        assert (log.log_start_offset, log.damage) == (7, None), f"step {step}"
        assert manager.damaged() == {}, f"step {step}"
        assert sum(NAME in each.logs for each in manager.directories) == 1, f"step {step}"
        homes.add(log.path)
    assert homes == {"/first/t-0", "/second/t-0"}


class TieredLog(TwoDirectories):
    """A log whose first segments are in the remote tier only, with a producer whose last batch is there."""

    def __init__(self) -> None:
        super().__init__(replace(CONFIG, remote_storage=True, local_retention_bytes=0, file_delete_delay_ms=0))

    def filled(self, log: Log) -> None:
        for sequence in range(9):
            log.append(sequenced(sequence), assign_offsets=True, leader_epoch=LeaderEpoch(1))
        for number in range(9, 20):
            self.append(log, number)


def sequenced(sequence: int) -> bytes:
    builder = RecordBatchBuilder(producer_id=ProducerId(9), producer_epoch=0, base_sequence=sequence)
    builder.append(key=None, value=b"x" * 40, timestamp=NOW)
    return builder.build()


def tiered() -> TieredLog:
    """Its first segments have left."""
    node = TieredLog()
    node.log.copied_end = Offset(15)
    node.first.drop_expired(node.log)
    log = node.log
    assert log.log_start_offset == 7 < log.local_log_start_offset == log.segments[0].base_offset
    node.expected = local_contents(log)
    return node


def local_contents(log: Log) -> list[bytes]:
    read = log.read(log.local_log_start_offset, 1 << 20, up_to=log.log_end_offset)
    found = [bytes(read.records)]
    while read.next_offset < log.log_end_offset:
        read = log.read(read.next_offset, 1 << 20, up_to=log.log_end_offset)
        found.append(bytes(read.records))
    return [bytes(batch.buffer) for part in found for batch in iter_batches(part)]


def whole_state(log: Log) -> tuple[object, ...]:
    producers = {each.to_snapshot() for each in log.producers.state.active_producers()}
    epochs = LeaderEpochCache(log.epochs.entries)
    epochs.truncate_from_start(log.log_start_offset)  # the file may be older than the log start
    return log.log_start_offset, log.local_log_start_offset, epochs.entries, producers


@pytest.mark.parametrize("power_fails", [True, False])
def test_a_crash_at_any_step_of_a_move_keeps_what_is_known_of_the_remote_part(power_fails: bool) -> None:
    """The log starts, epochs and producers of a log with a remote tier are the same in either directory, and only its
    local part is copied."""
    step, crashed, homes = 0, True, set()
    state = whole_state(tiered().log)
    assert len(state[2]) == 2  # type: ignore[arg-type]
    while crashed:
        node = tiered()
        step, crashed = step + 1, False
        node.disk.crash_at_call(node.disk.calls + step)
        try:
            node.move()
        except SimulatedCrash:
            crashed = True
        manager, log = node.restart(power_fails=power_fails, seed=step)
        assert log is not None, f"step {step}"
        assert local_contents(log)[: len(node.expected)] == node.expected, f"step {step}"
        assert whole_state(log) == state, f"step {step}"
        assert log.damage is None and manager.damaged() == {}, f"step {step}"
        homes.add(log.path)
    assert homes == {"/first/t-0", "/second/t-0"}


def test_a_copy_whose_log_has_left_it_behind_for_the_remote_tier_is_worthless() -> None:
    node = tiered()
    future = FutureLog(node.first, node.log, node.second)
    future.begun(run_ticket(future.begin(future.next_offset).run))
    assert future.is_valid
    node.log.copied_end = Offset(20)
    node.log.roll(NOW)
    node.log.flush()
    node.first.drop_expired(node.log)
    assert not future.is_valid


@pytest.mark.parametrize("power_fails", [True, False])
def test_a_crash_at_any_step_after_the_metadata_name_the_new_directory_is_no_loss(power_fails: bool) -> None:
    step, crashed = 0, True
    while crashed:
        node = TwoDirectories()
        log = node.move()
        node.named = node.second.directory_id
        step, crashed = step + 1, False
        node.disk.crash_at_call(node.disk.calls + step)
        try:
            settle(node.first, log, node.second, lambda: None)
        except SimulatedCrash:
            crashed = True
        manager, found = node.restart(power_fails=power_fails, seed=step)
        assert found is not None and contents(found) == node.expected, f"step {step}"
        assert manager.damaged() == {}, f"step {step}"


def test_records_deleted_during_the_copy_do_not_come_back_after_a_crash() -> None:
    """The copy has them; the log start and the high watermark are recorded where the log is now."""
    node = TwoDirectories()
    future = node.copy()
    node.first.move_log_start(node.log, Offset(11))
    future.seal()
    log = future.promoted(run_ticket(future.promote()))
    future.leave(lambda: None)
    assert (log.log_start_offset, log.high_watermark) == (11, 20)
    _, found = node.restart(power_fails=True, seed=1)
    assert found is not None and found.path == "/second/t-0"
    assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (11, 20, 20)


def test_a_moved_log_that_is_lost_before_the_metadata_name_its_directory_is_reported_as_missing() -> None:
    """Else a new, empty log in the first directory would count as complete."""
    node = TwoDirectories(PAGE_CACHE)
    node.move()
    for name in list(node.disk.list("/second/t-0")):
        node.disk.remove(f"/second/t-0/{name}")
    node.disk.remove_directory("/second/t-0")
    manager, found = node.restart(power_fails=False, seed=1)
    assert found is None
    assert manager.damaged()[KEY].end_offset == 20
    assert manager.is_missing(KEY)


def test_after_a_move_that_failed_the_log_that_was_written_to_is_used() -> None:
    """The second directory fails when the copy has its name: appends go on in the first one."""
    node = TwoDirectories()
    future = node.copy()
    future.seal()
    run = future.promote()
    run()
    future.unseal()
    node.append(node.log, 20)
    node.log.flush()
    manager, found = node.restart(power_fails=True, seed=1)
    assert found is not None and found.path == "/first/t-0"
    assert found.log_end_offset == 21
    assert manager.damaged() == {}
    assert [name for name in node.disk.list("/second") if name == "t-0"] == []


def test_the_log_waits_for_the_directory_that_it_came_from() -> None:
    """While that one is missing, it may have the newer log: its move may have failed."""
    node = TwoDirectories()
    node.move()
    node.disk.crash(random.Random(1))
    second = node.open("second")
    manager = LogManager([second])
    manager.load(lambda _tp, _id: CONFIG, lambda: None)
    state = PartitionState(
        TOPIC, PartitionIndex(0), (ME,), (node.named,), (ME,), (), (), ME, LeaderEpoch(3), PartitionEpoch(3)
    )
    topic = TopicState("t", TOPIC, {}, (state,))
    registry = LogRegistry(ME, manager, CONFIG)
    registry.assign_recovered(replace(EMPTY, topics={TOPIC: topic}, topic_ids={"t": TOPIC}))
    assert registry.find(topic, state) is None
    assert second.logs[NAME].log_end_offset == 21, "it is kept"
