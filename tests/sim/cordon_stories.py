"""Stories of cordoned nodes in a cluster of whole nodes: topics, partitions and moves come, the controller changes.

testbed/sim/checkers.py checks after every event that no replica is placed on a cordoned node. test_scenarios.py runs
each story as it is; test_mutants.py runs it with its rule weakened.
"""

from __future__ import annotations

import pytest

from testbed.sim.world import Simulation
from testbed.topic_requests import creating, growing
from tests.sim.controller_stories import moving
from tests.sim.stories import TOPIC, fenced, leads_quorum, write
from tidelog.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import DirectoryId, NodeId


def cordon(sim: Simulation, node: int, *directories: DirectoryId, cordoned: bool = True) -> None:
    """Cordon the node, or these log directories of it, or end that."""
    named = [each.bytes for each in directories]
    request = admin_pb2.AlterCordonRequest(node_id=node, cordoned=cordoned, directories=named)
    sim.admin(methods.ADMIN_ALTER_CORDON, request)


def is_cordoned(sim: Simulation, node: int) -> bool:
    return sim.image().nodes[NodeId(node)].cordoned


def nodes_of(sim: Simulation, topic: str) -> set[int]:
    return {int(node) for state in sim.topic(topic).partitions for node in state.replicas}


def cordoned_node_gets_no_replica(sim: Simulation) -> None:
    """KIP-1066: neither of a new topic, nor of new partitions, nor where a reassignment names it. It keeps what it has,
    and gets replicas again once that ends."""
    sim.start(nodes=4, topics=())
    sim.create_topic("before", partitions=4, replicas=4, min_insync=1)
    cordon(sim, 3)
    sim.create_topic(TOPIC, partitions=6, replicas=3, min_insync=1)
    sim.admin(methods.ADMIN_CREATE_PARTITIONS, growing(topic=TOPIC, count=9))
    assert (nodes_of(sim, TOPIC), nodes_of(sim, "before")) == ({0, 1, 2}, {0, 1, 2, 3})
    with pytest.raises(InvalidReplicaAssignment, match="the node is cordoned"):
        sim.reassign(TOPIC, 0, 1, 3)
    write(sim, 0, "a", 5)
    cordon(sim, 3, cordoned=False)
    sim.reassign(TOPIC, 0, 1, 3)
    sim.run_until(lambda: not moving(sim) and 3 in sim.isr(TOPIC), what="the replica has moved")
    sim.must_heal()


def cordon_outlives_the_controller_and_the_node(sim: Simulation) -> None:
    """The node is started again, and the controller is replaced twice: the cordon holds. A topic with a replica on each
    node is refused until it ends."""
    sim.start(nodes=3, topics=(), voters=3, min_insync=1)
    cordon(sim, 2)
    sim.kill(2)
    sim.run_until(lambda: fenced(sim, 2), what="node 2 is fenced")
    sim.restart(2)
    sim.run_until(lambda: not fenced(sim, 2), what="node 2 serves again")
    assert is_cordoned(sim, 2), "a registration ended the cordon"
    for node in (0, 1):
        sim.kill(node)
        sim.run_until(lambda node=node: fenced(sim, node), within=20, what="another controller fences it")  # type: ignore[misc]
        sim.restart(node)
        sim.run_until(lambda node=node: not fenced(sim, node), within=20, what="it serves again")  # type: ignore[misc]
    sim.create_topic(TOPIC, partitions=6, replicas=2, min_insync=1)
    assert nodes_of(sim, TOPIC) == {0, 1}, "placed on the cordoned node"
    with pytest.raises(InvalidReplicationFactor, match="Cordoned nodes get no replicas: node 2"):
        sim.admin(methods.ADMIN_CREATE_TOPICS, creating(name="everywhere", partitions=1, replication_factor=3))
    cordon(sim, 2, cordoned=False)
    sim.create_topic("everywhere", partitions=1, replicas=3, min_insync=1)
    sim.must_heal()


def directories_of(sim: Simulation, topic: str, node: int) -> set[DirectoryId]:
    """The log directories of the node in which the topic has replicas."""
    states = (state for state in sim.topic(topic).partitions if node in state.replicas)
    return {state.directory_of(NodeId(node)) for state in states}


def cordoned_directory_gets_no_replica(sim: Simulation) -> None:
    """KIP-1066: new replicas go to the other directory of the node, also after a restart of the node and of the
    controller. With both cordoned, the node gets none. What is there stays."""
    sim.start(nodes=4, topics=(), directories=2, min_insync=1)
    sim.create_topic("before", partitions=4, replicas=4, min_insync=1)
    first, second = (each.directory_id for each in sim.image().nodes[NodeId(3)].directories)
    cordon(sim, 3, second)
    sim.create_topic(TOPIC, partitions=8, replicas=3, min_insync=1)
    assert directories_of(sim, TOPIC, 3) == {first}
    sim.kill(3)
    sim.run_until(lambda: fenced(sim, 3), what="node 3 is fenced")
    sim.restart(3)
    sim.run_until(lambda: not fenced(sim, 3), what="node 3 serves again")
    sim.admin(methods.ADMIN_CREATE_PARTITIONS, growing(topic=TOPIC, count=16))
    assert directories_of(sim, TOPIC, 3) == {first}
    assert directories_of(sim, "before", 3) == {first, second}, "what is there stays"
    cordon(sim, 3, first)
    with pytest.raises(InvalidReplicationFactor, match="Cordoned nodes get no replicas: node 3"):
        sim.admin(methods.ADMIN_CREATE_TOPICS, creating(name="everywhere", partitions=1, replication_factor=4))
    cordon(sim, 3, first, cordoned=False)
    sim.create_topic("everywhere", partitions=1, replicas=4, min_insync=1)
    assert directories_of(sim, "everywhere", 3) == {first}
    sim.must_heal()


def cordon_ends_within_one_commit(sim: Simulation) -> None:
    """While the other voters are paused, the controller decides the end of a cordon, a topic with a replica on the
    node, and the next cordon. All three are committed in one step, between two images in which the node is cordoned:
    no rule is broken."""
    sim.start(nodes=3, topics=(), voters=3, min_insync=1)
    controller = next(node for node in sim.nodes if leads_quorum(sim, node))
    others = [node for node in sim.nodes if node != controller]
    cordon(sim, others[0])
    for node in others:
        sim.pause(node)
    client, asked = sim.client([controller]), methods.ADMIN_ALTER_CORDON
    tasks = []
    for call in (
        client.admin(methods.ADMIN_CREATE_TOPICS, creating(name="before", partitions=1, replication_factor=1)),
        client.admin(asked, admin_pb2.AlterCordonRequest(node_id=others[0], cordoned=False)),
        client.admin(methods.ADMIN_CREATE_TOPICS, creating(name=TOPIC, partitions=1, replication_factor=3)),
        client.admin(asked, admin_pb2.AlterCordonRequest(node_id=others[0], cordoned=True)),
    ):  # the fetches that wait are answered with the first one
        tasks.append(client.start(call, "asks the controller"))
        sim.run_for(0.1)
    assert is_cordoned(sim, others[0]) and not any(task.done() for task in tasks), "nothing is committed yet"
    for node in others:
        sim.resume(node)
    sim.run_until(lambda: all(task.done() for task in tasks), what="all is committed")
    for task in tasks:
        task.result()
    assert is_cordoned(sim, others[0]) and nodes_of(sim, TOPIC) == {0, 1, 2}
    sim.must_heal()


ALL = (
    cordoned_node_gets_no_replica,
    cordon_outlives_the_controller_and_the_node,
    cordoned_directory_gets_no_replica,
    cordon_ends_within_one_commit,
)
