"""Three voters under whole metadata sides of nodes: leaders lost, directories emptied, sets that grow, drains."""

from __future__ import annotations

import pytest

from testbed.topic_requests import creating
from tests.node.metadata_world import MetadataWorld
from tidelog.errors import NodeIdNotRegistered, NotController, VoterNotFound
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2, controller_pb2
from tidelog.types import NodeId


def leader(world: MetadataWorld) -> int:
    """The active controller by its own state; -1 if there is none."""
    for node, node_run in sorted(world.node_runs.items()):
        core = None if node_run.node is None else node_run.node._quorum.core
        if core is not None and core.active:
            return node
    return -1


def voters(world: MetadataWorld, node: int = 0) -> list[int]:
    return [voter.node_id for voter in world.image(node).voters]


def wait_leader(world: MetadataWorld, *, but: int = -1) -> int:
    world.run_until(lambda: leader(world) not in (-1, but), what="another node is the active controller")
    return leader(world)


def test_a_cluster_begins_with_three_voters() -> None:
    with MetadataWorld(nodes=5, voters=3) as world:
        world.begin()
        assert voters(world) == [0, 1, 2]
        assert leader(world) == 0
        assert {world.image(node).cluster_id for node in range(5)} == {world.image().cluster_id}


@pytest.mark.parametrize("seed", range(5))
def test_the_controller_is_lost_and_another_node_takes_over(seed: int) -> None:
    with MetadataWorld(seed=seed, voters=3) as world:
        world.begin()
        world.create("before")
        world.kill(0, power=True)
        began = world.loop.time()
        other = wait_leader(world)
        assert world.loop.time() - began < 3.0
        world.run_until(lambda: world.unfenced(other) == {1, 2}, what="the lost node is fenced")
        assert world.loop.time() - began < 3.5
        world.create("after", at=other, replicas=2)
        assert sorted(world.image(other).topic_ids) == ["after", "before"]
        world.start(0)
        world.wait_whole()
        assert world.image(0).topic("after") is not None


def test_a_node_that_is_not_the_active_controller_names_it() -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        world.kill(0)
        active = wait_leader(world)
        other = next(node for node in (1, 2) if node != active)
        with pytest.raises(NotController) as refused:
            world.call(other, methods.CONTROLLER_HEARTBEAT, controller_pb2.HeartbeatRequest(node_id=2))
        assert refused.value.leader is not None
        assert refused.value.leader.node_id == active


def test_one_voter_alone_decides_nothing() -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        world.kill(1)
        world.kill(2)
        world.run_until(lambda: leader(world) == -1, what="it resigns")
        request = creating(name="orders", partitions=1, replication_factor=1)
        task = world.asking(0, methods.ADMIN_CREATE_TOPICS, request)
        world.loop.run_for(10)
        assert world.image(0).topic("orders") is None
        world.start(1)
        world.run_until(task.done)
        world.start(2)
        world.wait_whole()


def test_a_cluster_of_one_voter_is_grown_to_three() -> None:
    """As a log directory of the first version is: its log names one voter."""
    with MetadataWorld(voters=1) as world:
        world.begin()
        assert voters(world) == [0]
        for node in range(3):
            world.kill(node)
        world.voters = 3
        world.start(0, 1, 2)
        world.wait_whole()
        world.run_until(lambda: voters(world) == [0, 1, 2], what="it has grown")
        world.kill(0)
        assert wait_leader(world) in (1, 2)


def test_an_emptied_voter_is_removed_and_added_again_with_its_new_directory() -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        world.create()
        before = {voter.node_id: voter.directory_id for voter in world.image().voters}
        world.kill(2)
        world.empty(2)
        world.start(2)
        world.wait_whole()
        world.run_until(
            lambda: (
                voters(world) == [0, 1, 2]
                and {voter.node_id: voter.directory_id for voter in world.image().voters} != before
            ),
            what="the new directory votes",
        )
        assert world.image(2).topic("orders") is not None
        world.kill(0)
        world.create("more", at=wait_leader(world), replicas=2)


def test_an_emptied_first_node_joins_its_cluster_again() -> None:
    """It is configured to form a cluster; the others belong to one, and they are a majority of its voters."""
    with MetadataWorld(voters=3) as world:
        world.begin()
        cluster = world.image().cluster_id
        world.kill(0)
        world.empty(0)
        other = wait_leader(world)
        world.start(0)
        world.wait_whole(other)
        assert world.image(0).cluster_id == cluster
        world.run_until(lambda: len(voters(world, other)) == 3 and voters(world, 0) == [0, 1, 2])


def test_an_emptied_first_node_joins_while_a_third_one_is_away() -> None:
    with MetadataWorld(voters=3, nodes=4) as world:
        world.begin()
        world.kill(0)
        world.empty(0)
        other = wait_leader(world)
        world.kill(3)
        world.start(0)
        world.wait_whole(other)


def test_a_draining_controller_hands_over_at_once() -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        task = world.node_runs[0].process.run(world.loop.create_task, world.side(0).drain())
        world.run_until(task.done, what="it has drained")
        began = world.loop.time()
        world.kill(0)
        wait_leader(world)
        assert world.loop.time() - began < 0.6


def test_all_voters_drain_at_once_and_come_back() -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        world.create()
        tasks = {
            node: world.node_runs[node].process.run(world.loop.create_task, world.side(node).drain())
            for node in range(3)
        }
        began = world.loop.time()
        for node in range(3):
            world.run_until(tasks[node].done, what=f"node {node} is drained")
            world.kill(node)
        assert world.loop.time() - began < 6.0
        world.start(0, 1, 2)
        world.wait_whole()


def test_all_nodes_lose_power_while_the_cluster_is_formed() -> None:
    for moment in range(20):
        with MetadataWorld(seed=moment, voters=3) as world:
            world.start(0, 1, 2)
            world.loop.run_for(0.01 + 0.01 * moment)
            for node in range(3):
                world.kill(node, power=True)
            world.start(0, 1, 2)
            world.wait_whole()
            assert voters(world) == [0, 1, 2]


def test_a_removed_node_that_was_only_cut_off_registers_again_and_keeps_its_directory() -> None:
    """Its process ran all the time. The new number is in its directory before it is unfenced: after the next start the
    directory is no older copy, and the node is in service and a voter again."""
    with MetadataWorld(nodes=4, voters=3) as world:
        world.begin()
        for other in (0, 1, 3):
            world.network.disconnect("node-2", f"node-{other}")
            world.network.disconnect(f"node-{other}", "node-2")
        world.run_until(lambda: world.unfenced(1) == {0, 1, 3})
        removed = world.call(3, methods.ADMIN_UNREGISTER_NODE, admin_pb2.UnregisterNodeRequest(node_id=2))
        assert removed.removed_voter
        world.run_until(lambda: voters(world) == [0, 1, 3], what="another takes its place")
        with pytest.raises(NodeIdNotRegistered):
            world.call(1, methods.ADMIN_UNREGISTER_NODE, admin_pb2.UnregisterNodeRequest(node_id=2))
        world.network.heal_all()
        world.run_until(lambda: world.unfenced(1) == {0, 1, 2, 3}, what="it registered again")
        entry = world.image(1).nodes[NodeId(2)]
        written = [directory.identity.last_registration for directory in world.node_runs[2].directories]
        assert [directory.last_registration for directory in entry.directories] == written


def test_a_lost_voter_is_removed_and_another_node_replaces_it() -> None:
    with MetadataWorld(nodes=4, voters=3) as world:
        world.begin()
        world.kill(2)
        world.run_until(lambda: world.unfenced(1) == {0, 1, 3})
        world.call(3, methods.ADMIN_REMOVE_VOTER, admin_pb2.RemoveVoterRequest(node_id=2))
        world.run_until(lambda: voters(world) == [0, 1, 3], what="another takes its place")
        with pytest.raises(VoterNotFound):
            world.call(1, methods.ADMIN_REMOVE_VOTER, admin_pb2.RemoveVoterRequest(node_id=2))
        world.kill(0)
        assert wait_leader(world) in (1, 3)
