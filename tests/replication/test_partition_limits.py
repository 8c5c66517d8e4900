"""Limits of the partitions of a cluster and of the replicas of a node: what would exceed them is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from replication.controller.events import ChangedTopic, CreatePartitions, CreateTopic, DeleteTopic, ReplicaAssignment
from replication.controller.image import PartitionState
from replication.controller.partition_limits import PartitionLimits
from tests.replication.controlled import CONFIG, Controlled
from tidelog.errors import PolicyViolation
from tidelog.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, NodeId


def limited(*nodes: int, cluster: int = 1_000, node: int = 1_000) -> Controlled:
    """Nodes in session, whose active controller has these limits."""
    world = Controlled()
    limit(world, PartitionLimits(cluster=cluster, node=node))
    world.start(*nodes)
    return world


def limit(world: Controlled, limits: PartitionLimits) -> None:
    """Another controller with these limits becomes active."""
    world.config = replace(CONFIG, limits=limits)
    world.activate()
    world.commit()


def replicas_by_node(world: Controlled) -> Counter[int]:
    return Counter(node for state in world.image.partitions() for node in state.replicas)


def refused(answer: object, *words: str) -> bool:
    assert isinstance(answer, PolicyViolation), answer
    assert all(word in answer.message for word in words), answer.message
    return True


def test_a_cluster_takes_as_many_partitions_as_it_may_have_and_no_more() -> None:
    """A client that may create topics made more than the nodes had memory for, and a restart did not undo it."""
    world = limited(1, 2, 3, cluster=10)
    world.made("orders", partitions=6)
    world.made("events", partitions=4, replicas=1)
    end = world.end
    assert refused(
        world.create("more", replicas=1), "topic more", "has 10 and may have 10 (max.partitions)", "delete topics"
    )
    assert refused(world.ask(CreateTopic("more", 1, 1, {}, validate_only=True)), "max.partitions")
    assert refused(world.ask(CreatePartitions("orders", 7)), "topic orders cannot get 1 more partitions")
    assert world.end == end, "nothing was written"
    world.ask(DeleteTopic("events"))
    assert isinstance(world.ask(CreatePartitions("orders", 10)), ChangedTopic)


def test_internal_topics_are_made_however_many_topics_users_have_and_take_no_room_from_them() -> None:
    world = limited(1, 2, 3, cluster=10, node=10)
    world.made("orders", partitions=10)
    assert isinstance(world.create(OFFSETS_TOPIC, partitions=50), ChangedTopic)
    world.ask(DeleteTopic("orders"))
    assert isinstance(world.create(TRANSACTIONS_TOPIC, partitions=50), ChangedTopic)
    assert isinstance(world.create("orders", partitions=10), ChangedTopic)


def test_no_node_gets_more_replicas_than_it_may_have() -> None:
    world = limited(1, 2, 3, node=4)
    world.made("orders", partitions=4, replicas=2)  # 8 replicas on three nodes
    end, before = world.end, replicas_by_node(world)
    assert max(before.values()) <= 4
    answer = world.create("wide", partitions=5, replicas=1)
    assert refused(answer, "max.broker.partitions", "5 more partitions with 1 replicas", "add nodes")
    assert refused(world.ask(CreatePartitions("orders", 9)), "max.broker.partitions")
    assert world.end == end
    world.made("narrow", partitions=3, replicas=1)
    assert max(replicas_by_node(world).values()) <= 4


def test_replicas_are_placed_on_the_nodes_that_have_room() -> None:
    world = limited(1, 2, node=6)
    world.made("orders", partitions=6, replicas=2)
    world.register(3)
    world.beat(3)
    world.made("new", partitions=6, replicas=1)
    assert {state.replicas for state in world.topic("new").partitions} == {(3,)}
    assert refused(world.create("other", replicas=1), "node 1, node 2, node 3 would have more than the 6 replicas")


def test_nodes_that_are_down_do_not_stand_in_for_full_ones() -> None:
    """The topic would have fewer copies than nodes run, until the others are back, where it was refused before."""
    world = limited(1, 2, 3, 4, node=6)
    world.kill(3, 4, alive=(1, 2))
    world.made("orders", partitions=5, replicas=2)
    world.made("one", partitions=1, replicas=1)  # one of the two is full now
    full = next(node for node, count in replicas_by_node(world).items() if count == 6)
    end = world.end
    assert refused(world.create("wide", replicas=2), f"node {full} would have more than the 6 replicas")
    assert refused(world.create("wider", replicas=3), f"node {full} would have")
    assert refused(world.ask(CreatePartitions("orders", 6)), f"node {full} would have")
    assert world.end == end
    assert full not in world.made("narrow", partitions=1, replicas=1).replicas


def test_a_reassignment_moves_no_replica_to_a_node_without_room() -> None:
    """Each partition is judged with the replicas that the request has moved before it."""
    world = limited(1, 2, 3, node=3)
    world.made("orders", partitions=3, replicas=1)
    home = {state.replicas[0] for state in world.topic().partitions}
    assert home == {1, 2, 3}
    (of_one,) = (state for state in world.topic().partitions if state.replicas == (1,))
    world.made("full", partitions=2, replicas=3)
    assert refused(world.reassign(of_one.key, (2,)), "orders-", "cannot be moved", "node 2", "max.broker.partitions")
    assert world.partition(of_one.partition) == of_one
    world.ask(DeleteTopic("full"))
    assert isinstance(world.reassign(of_one.key, (1, 2)), PartitionState)


def test_what_exceeds_a_lowered_limit_stays_and_moves_can_be_taken_back() -> None:
    world = limited(1, 2, 3)
    key = world.made("orders", partitions=6, replicas=2).key
    (other,) = {1, 2, 3} - set(world.partition().replicas)
    world.reassign(key, (other,))
    limit(world, PartitionLimits(cluster=2, node=1))
    assert refused(world.create("more", replicas=1), "has 6 and may have 2")
    back = world.reassign(key, None)
    assert isinstance(back, PartitionState)
    assert not back.adding
    assert isinstance(world.alter("orders", retention_ms="1000"), ChangedTopic)


def test_replicas_that_are_assigned_by_hand_count_like_others() -> None:
    world = limited(1, 2, 3, cluster=3, node=2)

    def assigned(*nodes: int) -> CreateTopic:
        each = tuple(ReplicaAssignment((NodeId(node),)) for node in nodes)
        return CreateTopic("orders", -1, -1, {}, assignments=each)

    assert refused(world.ask(assigned(1, 2, 3, 1)), "may have 3 (max.partitions)")
    assert refused(world.ask(assigned(1, 1, 1)), "the replicas that are assigned to it", "node 1")
    assert isinstance(world.ask(assigned(1, 1, 2)), ChangedTopic)
