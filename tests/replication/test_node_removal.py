"""A node that is gone for good is removed with its vote; never while it runs, has replicas, or its vote is needed."""

from __future__ import annotations

from replication.controller import features
from replication.controller.events import NodeUnregistered, Registered, UnregisterNode, VotersReviewed
from replication.raft.voters import ReplicaKey
from tests.replication.controlled import SESSION_MS, Controlled, directory
from tidelog.errors import InvalidRequest, NodeIdNotRegistered, UnsupportedVersion, VoterChangePending
from tidelog.types import NodeId


def cluster(*nodes: int, level: int = features.LATEST) -> Controlled:
    controlled = Controlled(level=level)
    controlled.start(*nodes)
    return controlled


def with_voters(controlled: Controlled, *nodes: int) -> Controlled:
    caught_up = tuple(ReplicaKey(NodeId(node), directory(node)) for node in nodes)
    for _ in nodes:
        controlled.handle(VotersReviewed(controlled.now, caught_up))
    return controlled


def removed(controlled: Controlled, node: int) -> object:
    return controlled.ask(UnregisterNode(NodeId(node)))


def nodes_of(controlled: Controlled) -> list[int]:
    return sorted(controlled.replayed().nodes)


def voters_of(controlled: Controlled) -> list[int]:
    return [voter.node_id for voter in controlled.replayed().voters]


def test_a_dead_node_is_removed_once_and_returns_as_a_new_one() -> None:
    world = cluster(1, 2, 3)
    world.kill(3, alive=(1, 2))
    assert removed(world, 3) == NodeUnregistered(removed_voter=False, metadata_offset=world.end)
    assert nodes_of(world) == [1, 2]
    again = removed(world, 3)  # the answer to the first request was lost
    assert isinstance(again, NodeIdNotRegistered)
    assert again.message.startswith("there is no node 3: it was removed before")
    assert "the registered nodes are 1, 2 (`tidelog cluster status`)" in again.message
    assert isinstance(world.beat(3), NodeIdNotRegistered), "a late heartbeat does not bring it back"
    assert isinstance(world.register(3, run_number=2), Registered)
    world.beat(3)
    assert nodes_of(world) == [1, 2, 3]
    assert not world.node(3).fenced


def test_a_running_node_is_not_removed() -> None:
    """Neither one in service, nor one that starts: it is fenced, but heard from."""
    world = cluster(1, 2)
    assert isinstance(removed(world, 2), InvalidRequest)
    world.register(3)
    refused = removed(world, 3)
    assert isinstance(refused, InvalidRequest)
    assert "node 3 is alive" in refused.message
    world.pass_time(SESSION_MS + 400, 1, 2)
    assert isinstance(removed(world, 3), NodeUnregistered)


def test_a_node_with_replicas_is_not_removed_before_they_have_moved() -> None:
    world = cluster(1, 2, 3)
    state = world.made("orders", replicas=2)
    lost, spare = state.replicas[1], next(node for node in (1, 2, 3) if node not in state.replicas)
    world.kill(lost, alive=tuple(node for node in (1, 2, 3) if node != lost))
    refused = removed(world, lost)
    assert isinstance(refused, InvalidRequest)
    assert "orders-0" in refused.message
    assert "tidelog node drain" in refused.message
    assert "LOST" not in refused.message, "the leader has every record"
    world.reassign(state.key, [state.leader, spare])
    assert isinstance(removed(world, lost), InvalidRequest), "it stays a replica until the new one is in sync"
    world.propose(state.leader, spare)
    assert world.partition().replicas == (state.leader, spare)
    assert isinstance(removed(world, lost), NodeUnregistered)


def test_the_refusal_names_first_what_only_that_node_has() -> None:
    world = cluster(1, 2)
    for number in range(7):
        world.made(f"shared-{number}", replicas=2)
    only = world.made("precious", replicas=1)
    other = 1 if only.leader == 2 else 2
    world.kill(only.leader, alive=(other,))
    refused = removed(world, only.leader)
    assert isinstance(refused, InvalidRequest)
    assert "has replicas of 8 partitions (precious-0, shared-" in refused.message
    assert "and 3 more" in refused.message
    assert "of 1 of them" in refused.message
    assert "LOST" in refused.message


def test_the_vote_of_a_dead_voter_ends_with_its_registration() -> None:
    world = with_voters(cluster(0, 1, 2, 3), 0, 1, 2)
    world.kill(2, alive=(0, 1, 3))
    world.hold_commits = True
    assert removed(world, 2) is None, "not committed yet"
    assert isinstance(removed(world, 2), VoterChangePending | None)
    world.hold_commits = False
    world.commit()
    assert (nodes_of(world), voters_of(world)) == ([0, 1, 3], [0, 1])
    assert len(world.batches[-1]) == 2, "one atomic batch"
    with_voters(world, 0, 1, 3)
    assert voters_of(world) == [0, 1, 3]


def test_a_vote_that_a_majority_needs_stays_and_so_does_its_node() -> None:
    world = with_voters(cluster(0, 1, 2), 0, 1, 2)
    world.kill(1, 2, alive=(0,))
    refused = removed(world, 2)
    assert isinstance(refused, InvalidRequest)
    assert "only 1 of the 2 other voters" in refused.message
    assert (nodes_of(world), voters_of(world)) == ([0, 1, 2], [0, 1, 2])


def test_removal_needs_a_feature_level_that_all_nodes_know() -> None:
    world = cluster(1, 2, level=features.NODE_REMOVAL - 1)
    world.kill(2, alive=(1,))
    assert isinstance(removed(world, 2), UnsupportedVersion)
    assert nodes_of(world) == [1, 2]
