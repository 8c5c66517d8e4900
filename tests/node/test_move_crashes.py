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
from testbed.fake_disk import FakeDisk, SimulatedCrash
from tests.storage.workbench import SetClock, batch, contents
from tidelog.types import (
    DirectoryId,
    Durability,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    PartitionKey,
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
        for number in range(20):
            self.append(self.log, number)
        self.first.commit.request(self.log)
        self.log.flush()
        self.log.advance_high_watermark(Offset(20))
        self.first.move_log_start(self.log, Offset(7))
        self.expected = contents(self.log)

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
        self.expected = contents(log)
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
