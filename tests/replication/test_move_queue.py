"""Queued moves: the controller begins them in waves, and any later controller continues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from replication.controller import features, image_records, move_queue, placement
from replication.controller.controller import REVIEW_MS
from replication.controller.events import AlterCordon, DeleteTopic, Reassignment, UnregisterNode
from replication.controller.image import EMPTY, ClusterImage, PartitionState, apply
from replication.controller.move_queue import WAVES_PER_S
from replication.controller.partition_limits import PartitionLimits
from tests.replication.controlled import CONFIG, Controlled, directory
from tidelog.errors import InvalidReplicaAssignment, NoReassignmentInProgress, UnsupportedVersion
from tidelog.types import DirectoryId, NodeId, Offset


def world_of_two(partitions: int, moves_per_node: int) -> Controlled:
    world = Controlled()
    world.config = replace(CONFIG, moves_per_node=moves_per_node)
    world.activate()
    world.start(1, 2)
    world.made(partitions=partitions, replicas=2)
    return world


def world_of_three(partitions: int = 6, moves_per_node: int = 2) -> Controlled:
    """Partitions on nodes 1 and 2; node 3 has joined since, and has none."""
    world = world_of_two(partitions, moves_per_node)
    world.start(3)
    return world


def enqueue_all(world: Controlled, *target: int) -> None:
    for state in world.topic().partitions:
        assert isinstance(world.reassign(state.key, target, queued=True), PartitionState)


def review(world: Controlled, *alive: int) -> None:
    """Let the controller look at the queue, and begin all moves that can begin now."""
    world.pass_time(2 * REVIEW_MS, *(alive or (1, 2, 3)))


def moving(world: Controlled) -> list[int]:
    return [int(state.partition) for state in world.topic().partitions if state.adding or state.removing]


def queued(world: Controlled) -> list[int]:
    return [int(state.partition) for state in world.topic().partitions if state.queued]


def complete(world: Controlled, index: int) -> None:
    state = world.partition(index)
    world.propose(*state.replicas, state=state)
    assert world.partition(index).replicas == (1, 3)


def test_moves_begin_as_earlier_ones_complete_and_a_node_fetches_few_at_a_time() -> None:
    world = world_of_three()
    enqueue_all(world, 1, 3)
    assert (moving(world), len(queued(world))) == ([], 6), "nothing begins within the request"
    review(world)
    assert (moving(world), queued(world)) == ([0, 1], [2, 3, 4, 5])
    review(world)
    assert moving(world) == [0, 1], "node 3 fetches two"
    complete(world, 1)
    review(world)
    assert moving(world) == [0, 2]
    for index in (0, 2, 3, 4, 5):
        if index in (3, 5):
            review(world)
        complete(world, index)
    assert (moving(world), queued(world)) == ([], [])


@pytest.mark.parametrize(("moves_per_node", "begun"), [(1, {1}), (5, {1}), (10, {2}), (12, {3})])
def test_a_node_gets_its_moves_of_a_second_spread_over_it(moves_per_node: int, begun: set[int]) -> None:
    """Begun together they would be copied in one burst, for which the records of producers wait. Here each is complete
    before the next one begins, and a node gets no more of them for that."""
    world = world_of_three(partitions=40, moves_per_node=moves_per_node)
    enqueue_all(world, 1, 3)
    while not moving(world):
        world.pass_time(100, 1, 2, 3)
    waves = []
    for _ in range(20):
        if moving(world):
            waves.append(len(moving(world)))
        for index in moving(world):
            complete(world, index)
        world.pass_time(100, 1, 2, 3)
    assert set(waves) == begun
    assert sum(waves) in range(2 * moves_per_node, 2 * moves_per_node + max(begun) + 1)


def test_while_no_move_can_begin_the_queue_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look counts the partitions of the cluster."""
    world = world_of_three(moves_per_node=1)
    enqueue_all(world, 1, 3)
    review(world)
    looks: list[int] = []
    next_wave = move_queue.next_wave

    def looking(image: ClusterImage, moves_per_node: int) -> list[Reassignment]:
        looks.append(world.now)
        return next_wave(image, moves_per_node)

    monkeypatch.setattr(move_queue, "next_wave", looking)
    world.pass_time(10 * REVIEW_MS, 1, 2, 3)
    assert moving(world) == [0]
    assert 9 <= len(looks) <= 11


def test_moves_that_were_begun_without_the_queue_count() -> None:
    world = world_of_three()
    for index in (4, 5):
        world.reassign(world.partition(index).key, (1, 3))
    enqueue_all(world, 3, 1)
    review(world)
    assert moving(world) == [4, 5], "node 3 fetches two already; their own queued moves wait for them too"
    complete(world, 4)
    review(world)
    assert moving(world) == [0, 5]


def test_moves_that_fetch_nothing_do_not_wait_for_those_that_do() -> None:
    world = world_of_three(moves_per_node=1)
    enqueue_all(world, 1, 3)
    last = world.partition(5)
    world.reassign(last.key, tuple(reversed(last.replicas)), queued=True)
    review(world)
    assert moving(world) == [0]
    assert world.partition(5).replicas == tuple(reversed(last.replicas))
    assert queued(world) == [1, 2, 3, 4]


def test_a_wave_counts_the_replicas_of_the_cluster_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 3 has two log directories: the new replicas are spread over them. To count again for each move would keep
    the controller of a large cluster from its heartbeats for seconds."""
    world = world_of_two(partitions=6, moves_per_node=6 * WAVES_PER_S)
    disks = dict.fromkeys((directory(30), directory(31)), -1)
    world.register(3, directories=disks)
    world.beat(3)
    enqueue_all(world, 1, 3)
    counted: list[ClusterImage] = []
    count = placement._directories

    def counting(image: ClusterImage) -> Iterable[DirectoryId]:
        counted.append(image)
        return count(image)

    monkeypatch.setattr(placement, "_directories", counting)
    review(world)
    assert moving(world) == [0, 1, 2, 3, 4, 5]
    chosen = Counter(state.directory_of(NodeId(3)) for state in world.topic().partitions)
    assert chosen == dict.fromkeys(disks, 3)
    assert len(counted) == 1


def test_the_queue_outlives_its_controller_and_is_in_snapshots() -> None:
    world = world_of_three()
    enqueue_all(world, 1, 3)
    review(world)
    image = world.image
    records = list(image_records.records_of(image))
    restored = apply(EMPTY, [(Offset(index), record) for index, record in enumerate(records)])
    assert restored.topics == image.topics
    world.activate()
    complete(world, 0)
    review(world)
    assert moving(world) == [1, 2]


def test_a_cancelled_move_does_not_begin_and_one_in_progress_goes_back() -> None:
    world = world_of_three()
    enqueue_all(world, 1, 3)
    review(world)
    for state in world.topic().partitions:
        assert isinstance(world.reassign(state.key, None), PartitionState)
    assert isinstance(world.reassign(world.partition().key, None), NoReassignmentInProgress)
    assert {frozenset(state.replicas) for state in world.topic().partitions} == {frozenset((1, 2))}
    end = world.end
    review(world)
    review(world)
    assert (moving(world), queued(world), world.end) == ([], [], end)


def test_a_later_request_takes_the_place_of_a_queued_move() -> None:
    """A reassignment that begins at once, another queued one, and the replicas that the partition has already."""
    world = world_of_three(partitions=3, moves_per_node=1)
    keys = [state.key for state in world.topic().partitions]
    present = world.partition(2).replicas
    for key in keys:
        world.reassign(key, (1, 3), queued=True)
    world.reassign(keys[0], (3, 2))
    world.reassign(keys[1], (2, 3), queued=True)
    world.reassign(keys[2], present, queued=True)
    assert [world.partition(index).queued for index in range(3)] == [(), (2, 3), ()]
    world.propose(*world.partition(0).replicas, state=world.partition(0))
    review(world)
    assert moving(world) == [1]
    assert (world.partition(0).replicas, world.partition(2).replicas) == ((3, 2), present)
    end = world.end
    world.reassign(keys[2], present, queued=True)
    assert world.end == end, "nothing to write"


def test_a_move_waits_for_its_new_node_and_for_the_reassignment_in_progress() -> None:
    world = world_of_three(partitions=1)
    key = world.partition().key
    world.kill(3, alive=(1, 2))
    world.reassign(key, (1, 3), queued=True)
    review(world, 1, 2)
    assert (moving(world), queued(world)) == ([], [0]), "node 3 is fenced"
    world.start(3, run_number=2)
    review(world)
    assert moving(world) == [0]
    world.reassign(key, (3, 2), queued=True)
    review(world)
    assert world.partition().adding == (3,)
    assert queued(world) == [0], "its own reassignment first"
    complete(world, 0)
    review(world)
    assert world.partition().adding == (2,)


def test_a_move_that_can_never_begin_is_dropped_with_the_reason() -> None:
    """Its node was cordoned, or removed, or has as many replicas as it may have, since it was queued."""
    world = world_of_three(partitions=2)
    enqueue_all(world, 1, 3)
    world.ask(AlterCordon(NodeId(3), cordoned=True))
    assert isinstance(world.reassign(world.partition().key, (2, 3), queued=True), InvalidReplicaAssignment)
    review(world)
    assert (moving(world), queued(world)) == ([], [])
    (report,) = world.reports
    assert "2 queued moves are dropped: orders-0 cannot get a replica on node 3: the node is cordoned" in report
    assert "; orders-1 cannot" in report

    world.ask(AlterCordon(NodeId(3), cordoned=False))
    world.kill(3, alive=(1, 2))
    enqueue_all(world, 1, 3)
    world.ask(UnregisterNode(NodeId(3)))
    review(world, 1, 2)
    assert (moving(world), queued(world)) == ([], [])
    assert "it is not registered" in world.reports[-1]

    world = world_of_three(partitions=4)
    enqueue_all(world, 1, 3)
    world.config = replace(world.config, limits=PartitionLimits(node=1), moves_per_node=4 * WAVES_PER_S)
    world.activate()
    review(world)
    assert (moving(world), queued(world)) == ([0], [])
    assert (
        "3 queued moves are dropped: orders-1 cannot be moved: node 3 would have more than the 1" in world.reports[-1]
    )


def test_moves_to_a_node_that_takes_none_are_dropped_at_once_also_while_it_is_down() -> None:
    """They fetch nothing: the limit of a node is not for them. One line in the log counts them."""
    world = world_of_three(moves_per_node=1)
    world.kill(3, alive=(1, 2))
    enqueue_all(world, 1, 3)
    review(world, 1, 2)
    assert len(queued(world)) == 6, "the node may come back"
    world.ask(AlterCordon(NodeId(3), cordoned=True))
    review(world, 1, 2)
    assert (moving(world), queued(world)) == ([], [])
    (dropped,) = (report for report in world.reports if "dropped" in report)
    assert dropped.startswith("6 queued moves are dropped: orders-0 cannot")
    assert dropped.endswith(" and 1 more")


def test_a_deleted_topic_has_no_queued_moves() -> None:
    world = world_of_three(partitions=2)
    enqueue_all(world, 1, 3)
    world.ask(DeleteTopic("orders"))
    review(world)
    assert world.reports == []


def test_below_its_feature_level_no_move_is_queued() -> None:
    world = Controlled(level=features.QUEUED_MOVES - 1)
    world.start(1, 2, 3)
    state = world.made(replicas=2)
    refused = world.reassign(state.key, (1, 3), queued=True)
    assert isinstance(refused, UnsupportedVersion)
    assert "a queued move needs feature level 10" in refused.message
