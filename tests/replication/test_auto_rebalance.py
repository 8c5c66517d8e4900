"""When the controller evens out replicas by itself: once nodes have been uneven for a while, and nothing is wrong."""

from __future__ import annotations

import pytest

from replication.controller import auto_rebalance
from replication.controller.auto_rebalance import PAUSE_MS, AutoRebalance
from replication.controller.events import AlterCordon, DeleteTopic
from replication.controller.image import ClusterImage, TopicState
from tests.replication.controlled import Controlled
from tidelog.types import Millis, NodeId

DELAY_MS = 10_000


def world_with_a_new_node(partitions: int = 3) -> Controlled:
    """Partitions on nodes 1 and 2; node 3 has joined since."""
    world = Controlled()
    world.start(1, 2)
    world.made(partitions=partitions, replicas=2)
    world.start(3)
    return world


def is_uneven(image: ClusterImage) -> bool:
    return AutoRebalance(DELAY_MS).look(image).is_uneven


def queue_all(world: Controlled, auto: AutoRebalance, *target: int) -> None:
    """Queue a move of each partition of the topic, as a plan for the whole cluster."""
    image = world.image
    moved = tuple(map(NodeId, target))
    for state in world.topic().partitions:
        world.reassign(state.key, moved, queued=True)
    auto.planned(image, {state.key: moved for state in world.topic().partitions}, is_whole=True)


def is_due_after_the_delay(world: Controlled, auto: AutoRebalance, begin: int = 0) -> bool:
    assert not auto.is_due(world.image, Millis(begin))
    assert not auto.is_due(world.image, Millis(begin + DELAY_MS - 1))
    return auto.is_due(world.image, Millis(begin + DELAY_MS))


def test_a_plan_is_due_when_nodes_have_been_uneven_for_the_whole_delay() -> None:
    world, auto = world_with_a_new_node(), AutoRebalance(DELAY_MS)
    assert not auto.is_due(world.image, Millis(0))
    world.kill(3, alive=(1, 2))
    assert not auto.is_due(world.image, Millis(DELAY_MS)), "node 3 is fenced"
    world.start(3, run_number=2)
    assert is_due_after_the_delay(world, auto, 20_000), "the delay begins again"
    assert auto.is_due(world.image, Millis(90_000)), "until there is a plan"


def test_a_small_difference_is_no_reason_to_move_anything() -> None:
    """Two replicas, whatever their number; and a tenth of the mean where there are many."""
    assert not is_uneven(world_with_a_new_node(partitions=2).image)
    assert is_uneven(world_with_a_new_node(partitions=3).image)
    world = world_with_a_new_node(partitions=40)
    for state in world.topic().partitions:
        world.reassign(state.key, (1, 3) if state.partition % 2 else (3, 2))
        world.propose(*world.partition(state.partition).replicas, state=world.partition(state.partition))
    world.made("events", partitions=1, replicas=1)
    counts = [sum(node in state.replicas for state in world.image.partitions()) for node in (1, 2, 3)]
    assert max(counts) - min(counts) > 3
    assert is_uneven(world.image)


def test_nothing_is_planned_while_an_operator_moves_something_or_a_replica_is_not_in_sync() -> None:
    world, auto = world_with_a_new_node(), AutoRebalance(0)
    assert auto.is_due(world.image, Millis(0))
    state = world.partition()
    world.reassign(state.key, (1, 3), queued=True)
    assert not auto.is_due(world.image, Millis(1)), "a move is queued"
    world.reassign(state.key, (1, 3))
    assert not auto.is_due(world.image, Millis(2)), "it is in progress"
    world.reassign(state.key, None)
    assert auto.is_due(world.image, Millis(3))
    state = world.partition()
    world.propose(state.leader, state=state)
    assert not auto.is_due(world.image, Millis(4)), "a replica is not in sync"


def test_a_cordoned_node_is_not_short_of_replicas() -> None:
    world, auto = world_with_a_new_node(), AutoRebalance(0)
    world.ask(AlterCordon(NodeId(3), cordoned=True))
    assert not auto.is_due(world.image, Millis(0))


def test_one_cluster_gets_one_plan() -> None:
    """What the plan leaves uneven, racks forbid to move: another plan would be the same. It is another cluster once a
    node has joined, or there are more replicas."""
    world, auto = world_with_a_new_node(), AutoRebalance(DELAY_MS)
    assert is_due_after_the_delay(world, auto)
    auto.planned(world.image, {}, is_whole=True)
    assert not auto.is_due(world.image, Millis(30_000))
    world.start(4)
    assert is_due_after_the_delay(world, auto, 40_000)
    auto.planned(world.image, {}, is_whole=True)
    world.made("events", replicas=1)
    assert is_due_after_the_delay(world, auto, 60_000)
    auto.planned(world.image, {}, is_whole=True)
    auto.forget()
    assert is_due_after_the_delay(world, auto, 80_000), "another controller does not know of the plan"


def test_what_an_operator_cancelled_does_not_begin_again_because_of_another_topic() -> None:
    """It is another cluster once another node takes replicas."""
    world, auto = world_with_a_new_node(), AutoRebalance(DELAY_MS)
    assert is_due_after_the_delay(world, auto)
    queue_all(world, auto, 1, 3)
    assert not auto.is_due(world.image, Millis(20_000))
    for state in world.topic().partitions:
        world.reassign(state.key, None)
    world.made("events", partitions=6, replicas=1)
    assert auto.look(world.image).is_uneven
    assert not auto.is_due(world.image, Millis(30_000))
    assert auto.is_held
    assert not auto.is_due(world.image, Millis(90_000))
    world.start(4)
    assert is_due_after_the_delay(world, auto, 100_000)
    assert not auto.is_held


def test_a_move_that_was_replaced_or_is_gone_was_not_cancelled() -> None:
    world, auto = world_with_a_new_node(), AutoRebalance(DELAY_MS)
    assert is_due_after_the_delay(world, auto)
    queue_all(world, auto, 1, 3)
    for state in world.topic().partitions:
        world.reassign(state.key, (2, 3))
        world.propose(*world.partition(state.partition).replicas, state=world.partition(state.partition))
        assert world.partition(state.partition).replicas == (2, 3)
    world.made("events", partitions=3, replicas=1)
    assert is_due_after_the_delay(world, auto, 20_000)
    queue_all(world, auto, 1, 3)
    world.ask(DeleteTopic("orders"))
    assert not auto.is_due(world.image, Millis(40_000))
    assert not auto.is_held


def test_a_node_that_gets_another_rack_ends_what_a_cancel_began() -> None:
    world, auto = world_with_a_new_node(), AutoRebalance(0)
    queue_all(world, auto, 1, 3)
    assert not auto.is_due(world.image, Millis(0))
    for state in world.topic().partitions:
        world.reassign(state.key, None)
    assert not auto.is_due(world.image, Millis(1))
    world.kill(3, alive=(1, 2))
    world.start(3, run_number=2, racks={3: "b"})
    assert auto.is_due(world.image, Millis(2))


def test_after_a_plan_that_could_not_be_queued_there_is_a_pause() -> None:
    """Also without a delay: the plan for a large cluster takes seconds of a processor."""
    world, auto = world_with_a_new_node(), AutoRebalance(0)
    assert auto.is_due(world.image, Millis(0))
    auto.failed(Millis(1_000))
    assert not auto.is_due(world.image, Millis(PAUSE_MS))
    assert auto.is_due(world.image, Millis(PAUSE_MS + 1_000))


def test_nothing_is_counted_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller asks once a second, and answers heartbeats meanwhile."""
    world, auto = world_with_a_new_node(), AutoRebalance(DELAY_MS)
    counted: list[str] = []
    share_of = auto_rebalance._share_of

    def counting(topic: TopicState) -> auto_rebalance._TopicReplicas:
        counted.append(topic.name)
        return share_of(topic)

    monkeypatch.setattr(auto_rebalance, "_share_of", counting)
    auto.is_due(world.image, Millis(0))
    auto.is_due(world.image, Millis(1_000))
    assert counted == ["orders"]
    world.made("events", replicas=1)
    auto.is_due(world.image, Millis(2_000))
    assert counted == ["orders", "events"]
