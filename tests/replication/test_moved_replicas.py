"""A node reports a replica that moved to another of its log directories (KIP-858)."""

from __future__ import annotations

import pytest

from replication.controller.events import Registered
from replication.controller.image import PartitionState
from replication.controller.moved_replicas import MovedReplica
from tests.replication.controlled import Controlled, directory
from tidelog.types import NO_NODE, DirectoryId, PartitionEpoch


def second(node: int) -> DirectoryId:
    return directory(node + 50)


def started() -> Controlled:
    """Nodes 1 and 2 with two directories each, and a topic with replicas on both."""
    world = Controlled()
    for node in (1, 2):
        named = dict.fromkeys((directory(node), second(node)), -1)
        answer = world.register(node, directories=named)
        assert isinstance(answer, Registered), answer
        world.on_disk.update(dict.fromkeys(named, answer.node_epoch))
        world.beat(node)
    world.made(partitions=1, replicas=2)
    return world


def other_of(state: PartitionState, node: int) -> DirectoryId:
    """The directory of the node in which the replica is not."""
    return second(node) if state.directory_of(node) == directory(node) else directory(node)  # type: ignore[arg-type]


def test_the_metadata_name_the_directory_that_the_node_reports_and_nothing_else_changes() -> None:
    world = started()
    before = world.partition(0)
    node = before.leader
    moved = MovedReplica(before.key, other_of(before, node), before.partition_epoch)
    world.beat(node, moved=[moved])
    after = world.partition(0)
    assert after.directory_of(node) == moved.directory_id
    assert (after.leader, after.leader_epoch, after.isr) == (before.leader, before.leader_epoch, before.isr)
    (other,) = {1, 2} - {node}
    assert after.directory_of(other) == before.directory_of(other)  # type: ignore[arg-type]
    end = world.end
    world.beat(node, moved=[moved])
    assert world.end == end, "it is repeated until the node knows"


def test_a_report_that_comes_late_does_not_undo_a_later_move() -> None:
    world = started()
    before = world.partition(0)
    node = before.leader
    first = MovedReplica(before.key, other_of(before, node), before.partition_epoch)
    world.beat(node, moved=[first])
    there = world.partition(0)
    world.beat(node, moved=[MovedReplica(there.key, before.directory_of(node), there.partition_epoch)])
    back = world.partition(0)
    assert back.directory_of(node) == before.directory_of(node)
    world.beat(node, moved=[first])
    assert world.partition(0) == back


@pytest.mark.parametrize("wrong", ["a directory of another node", "an unknown directory", "another epoch"])
def test_a_report_that_does_not_fit_changes_nothing(wrong: str) -> None:
    world = started()
    before = world.partition(0)
    node = before.leader
    home, epoch = other_of(before, node), before.partition_epoch
    if wrong == "another epoch":
        epoch = PartitionEpoch(epoch + 1)
    else:
        home = directory(3 - node) if wrong == "a directory of another node" else directory(99)
    world.beat(node, moved=[MovedReplica(before.key, home, epoch)])
    assert world.partition(0) == before


def test_a_moved_replica_is_rated_by_its_new_directory() -> None:
    world = started()
    before = world.partition(0)
    node = next(each for each in before.replicas if each != before.leader)
    target = second(node)
    if before.directory_of(node) != target:
        world.beat(node, moved=[MovedReplica(before.key, target, before.partition_epoch)])
    assert node in world.partition(0).isr
    world.beat(node, offline=[target])
    assert node not in world.partition(0).isr


def home_in_second(world: Controlled) -> PartitionState:
    """The partition, led by a node whose replica is in its second directory: only that one may fail."""
    state = world.partition(0)
    if state.directory_of(state.leader) != second(state.leader):
        world.beat(state.leader, moved=[MovedReplica(state.key, second(state.leader), state.partition_epoch)])
    return world.partition(0)


def test_a_leader_whose_new_directory_fails_before_it_is_named_loses_its_leadership() -> None:
    """The metadata still name the old directory, which works: without the report the partition would keep a leader
    that is offline."""
    world = started()
    before = world.partition(0)
    node = before.leader
    if before.directory_of(node) == second(node):
        world.beat(node, moved=[MovedReplica(before.key, directory(node), before.partition_epoch)])
        before = world.partition(0)
    world.beat(node, offline=[second(node)], moved=[MovedReplica(before.key, second(node), before.partition_epoch)])
    after = world.partition(0)
    assert after.directory_of(node) == second(node)
    assert (after.leader, after.isr) == (3 - node, (3 - node,))


def test_a_moved_replica_leads_again_after_its_old_directory_failed_before_the_report() -> None:
    """It is the only one in sync: its partition has lost its leader, and nobody else would elect one."""
    world = started()
    node = home_in_second(world).leader
    world.kill(3 - node, alive=(node,))
    before = world.partition(0)
    assert before.isr == (node,)
    world.beat(node, offline=[second(node)])
    alone = world.partition(0)
    assert alone.leader == NO_NODE
    world.beat(node, offline=[second(node)], moved=[MovedReplica(alone.key, directory(node), alone.partition_epoch)])
    after = world.partition(0)
    assert (after.directory_of(node), after.leader, after.isr) == (directory(node), node, (node,))
