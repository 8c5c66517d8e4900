"""The partition of each log, on a node with several log directories (KIP-858)."""

from __future__ import annotations

import asyncio
import errno
import random
from dataclasses import replace
from uuid import UUID

import pytest

from node.replicas.log_registry import LogRegistry
from replication.controller.image import EMPTY, PartitionState, TopicState
from replication.controller.metadata_records import LOST_DIRECTORY, UNKNOWN_DIRECTORY
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk
from tests.storage.workbench import SetClock
from tidelog.types import (
    DirectoryId,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

ME = NodeId(1)
TOPIC = TopicId(UUID(int=70))
NAME = TopicPartition("t", PartitionIndex(0))


def directory(disk: FakeDisk, name: str, *, with_log: bool) -> LogDirectory:
    opened = LogDirectory(f"/{name}", files=disk, clock=SetClock(), rng=random.Random(name))
    if with_log:
        opened.create_log(NAME, TOPIC, LogConfig())
    return opened


def state_in(home: DirectoryId) -> PartitionState:
    return PartitionState(
        TOPIC, PartitionIndex(0), (ME,), (home,), (ME,), (), (), ME, LeaderEpoch(3), PartitionEpoch(3)
    )


def registry_and_topic(directories: list[LogDirectory], state: PartitionState) -> tuple[LogRegistry, TopicState]:
    topic = TopicState("t", TOPIC, {}, (state,))
    registry = LogRegistry(ME, LogManager(directories), LogConfig())
    registry.assign_recovered(replace(EMPTY, topics={TOPIC: topic}, topic_ids={"t": TOPIC}))
    return registry, topic


@pytest.mark.parametrize("second_has_one_too", [True, False])
def test_a_log_in_another_directory_than_the_metadata_name_is_set_aside(second_has_one_too: bool) -> None:
    """The first directory was missing for a while, and the replica was assigned to the second: the log that returned is
    an old copy. If it were used, it would count as the one in the second directory, and would be missing once the first
    directory fails again."""
    disk = FakeDisk()
    first, second = directory(disk, "first", with_log=True), directory(disk, "second", with_log=second_has_one_too)
    old = first.logs[NAME]
    state = state_in(second.directory_id)
    registry, topic = registry_and_topic([first, second], state)
    found = registry.find(topic, state)
    assert (found is not None) is second_has_one_too
    home, log = found or asyncio.run(registry.make(topic, state)) or (None, None)
    assert home is second
    assert log is second.logs[NAME]
    assert log is not old
    assert old.closed
    assert [name for name in disk.list("/first") if name.endswith("-stray")]


@pytest.mark.parametrize("named", [UNKNOWN_DIRECTORY, LOST_DIRECTORY])
def test_where_the_metadata_name_no_directory_whatever_was_found_serves(named: DirectoryId) -> None:
    disk = FakeDisk()
    first, second = directory(disk, "first", with_log=False), directory(disk, "second", with_log=True)
    state = state_in(named)
    registry, topic = registry_and_topic([first, second], state)
    assert registry.find(topic, state) == (second, second.logs[NAME])


def test_an_unusable_log_is_not_recreated_while_others_rely_on_it() -> None:
    """It was loaded before its topic was known here, and is loaded again with its settings while the disk is full. A
    new log would be an empty member of the set."""
    disk = FakeDisk()
    only = directory(disk, "only", with_log=True)
    state = state_in(only.directory_id)
    registry, topic = registry_and_topic([only], state)
    topic = replace(topic, configs={"durability": "page-cache"})
    disk.fail("open", "/only/t-0", error=errno.ENOSPC, times=1)
    assert registry.find(topic, state) is None
    assert asyncio.run(registry.make(topic, state)) is None
    assert not [name for name in disk.list("/only") if name.endswith("-stray")]
    out = replace(state, isr=(), leader=NodeId(-1))
    assert asyncio.run(registry.make(topic, out)) is not None


@pytest.mark.parametrize("counted", [True, False])
def test_a_log_with_invalid_settings_is_used_once_they_are_corrected(counted: bool) -> None:
    """The settings are those of another version of the node. Others may rely on the log, or not: no new log is made
    beside it, and correcting the settings suffices."""
    disk = FakeDisk()
    only = directory(disk, "only", with_log=True)
    log = only.logs[NAME]
    state = state_in(only.directory_id)
    if not counted:
        state = replace(state, isr=(), leader=NodeId(-1))
    registry, topic = registry_and_topic([only], state)
    invalid = replace(topic, configs={"setting.of.tomorrow": "1"})
    for _ in range(2):
        assert registry.find(invalid, state) is None
        assert asyncio.run(registry.make(invalid, state)) is None
    corrected = replace(topic, configs={"retention.ms": "1000"})
    assert registry.find(corrected, state) == (only, log)
    assert log.config.retention_ms == 1_000
    assert registry.find(corrected, state) is None, "it is returned once"


def test_a_log_with_invalid_settings_is_deleted_with_its_replica() -> None:
    disk = FakeDisk()
    only = directory(disk, "only", with_log=True)
    log, state = only.logs[NAME], state_in(only.directory_id)
    registry, topic = registry_and_topic([only], state)
    assert registry.find(replace(topic, configs={"setting.of.tomorrow": "1"}), state) is None
    registry.discard(state.key)
    assert log.closed
    assert NAME not in only.logs
