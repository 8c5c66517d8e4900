"""Coordinators of damaged partitions: a log is not replaced or repaired under one; the next one loads what is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node.coordinators.coordinator_state import CoordinatorState
from tests.node.coordinator_world import Add, Get, World
from tidelog.errors import CorruptLog
from tidelog.types import NO_NODE, PartitionIndex, TopicPartition

NAME = TopicPartition("t", PartitionIndex(0))
PATH = "/data/t-0/00000000000000000000.log"
IN_THE_FIRST_BATCH = 65


@pytest.fixture
def world() -> Iterator[World]:
    """Three batches. A bit of the first one, in a closed segment that was flushed long ago, has flipped on the disk of
    node 3, which now leads: no other replica can."""
    world = World(segment_bytes="150")
    world.set(0, leader=1, min_insync=1)
    world.until_active(1)
    for number in (1, 10, 100):
        world.ask(1, Add("a", number))
    world.run(120)
    assert len(world.log(3).segments) > 1
    assert world.log(3).recovery_point > 1
    world.read_files_only(3)
    world.machines[3].disk.flip_bit(PATH, IN_THE_FIRST_BATCH)
    world.set(0, leader=3, isr=(3,))
    world.until(lambda: world.coordinator(3).state is CoordinatorState.UNREADABLE, within=10)
    yield world
    world.loop.raise_defects()
    world.close()


def restart(world: World) -> None:
    world.stop(3)
    world.coordinators.pop(3).task.cancel()
    world.start(3, publish=False)
    assert world.directory(3).logs[NAME].damage is not None, "found before anything is read"
    world.publish()
    world.run(1)


def test_a_damaged_leader_without_a_successor_serves_no_coordinator(world: World) -> None:
    """It leads with what it has, which is enough for readers of other offsets, not for a coordinator."""
    assert world.partition(3).leader is not None
    with pytest.raises(CorruptLog, match=r"lost offsets 0\.\.0"):
        world.ask(3, Get("a"))
    world.run(60)
    assert world.coordinator(3).state is CoordinatorState.UNREADABLE


def test_a_coordinator_loads_everything_once_the_file_is_restored(world: World) -> None:
    world.stop(3)
    world.coordinators.pop(3).task.cancel()
    world.machines[3].disk.flip_bit(PATH, IN_THE_FIRST_BATCH)
    world.start(3)
    world.set(0, leader=3)  # an epoch belongs to one start of one node
    world.until_active(3)
    assert world.ask(3, Get("a")) == 111


def test_a_coordinator_loads_what_is_left_once_the_loss_is_accepted(world: World) -> None:
    """The node reads its log when it starts, and leads nothing with it until an unclean election, which begins a leader
    epoch. The log without the lost records is another one."""
    before = world.log(3)
    restart(world)
    assert world.partition(3).leader is None
    world.set(0, leader=NO_NODE, isr=(), last_known_elr=(3,))
    world.machines[3].executor.holding = True
    world.set(0, leader=3, isr=(3,), last_known_elr=())
    world.run(0.1)
    world.machines[3].executor.release()
    world.until_active(3)
    assert world.log(3) is not before
    assert world.ask(3, Get("a")) == 110
    assert world.ask(3, Add("a", 1_000)) == 1_110
