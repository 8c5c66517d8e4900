"""Stories of queued moves in a cluster of whole nodes: the controller, sources and targets end while waves run.

testbed/sim/waves.py checks after every event what waves may begin. test_scenarios.py runs each story as it is;
test_mutants.py runs it with its rule weakened.
"""

from __future__ import annotations

from collections import Counter

from node.replication_settings import ReplicationConfig
from testbed.sim.world import Simulation
from tests.sim.controller_stories import moving
from tests.sim.cordon_stories import cordon
from tests.sim.stories import TOPIC, fenced, write
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import Millis, NodeId

PARTITIONS = 8


def request_moves(sim: Simulation, *replicas: int, queued: bool = True) -> None:
    """Queue the move of all partitions to these nodes; with none, cancel all moves."""
    wanted = [
        admin_pb2.PartitionReassignment(
            partition=admin_pb2.TopicPartitionId(topic=TOPIC, partition=index),
            replicas=replicas,
            cancel=not replicas,
            queued=queued and bool(replicas),
        )
        for index in range(PARTITIONS)
    ]
    request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=wanted)
    sim.admin(methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, request)


def on_first_nodes(sim: Simulation, snapshot_bytes: int = 20 << 20) -> None:
    """Eight partitions on nodes 0 and 1 of four, with records; nodes 2 and 3 have none. One move per node at a time."""
    one = ReplicationConfig(moves_per_node=1)
    sim.start(nodes=4, topics=(), voters=3, min_insync=1, replication=one, snapshot_bytes=snapshot_bytes)
    sim.checkers.waves.moves_per_node = 1
    for node in (2, 3):
        cordon(sim, node)
    sim.create_topic(TOPIC, partitions=PARTITIONS, replicas=2, min_insync=1)
    for node in (2, 3):
        cordon(sim, node, cordoned=False)
    for index in range(PARTITIONS):
        write(sim, index, "a", 3)


def on_node(sim: Simulation, node: int) -> int:
    """The partitions that have moved to the node."""
    return sum(
        NodeId(node) in state.replicas and not state.adding and not state.removing
        for state in sim.topic(TOPIC).partitions
    )


def waves_outlive_controller_source_and_target(sim: Simulation) -> None:
    """The client that queued the moves has gone. Its controller dies in the middle, then a node that moves come from,
    then the one that they go to: all partitions arrive, one at a time, and no record is lost."""
    on_first_nodes(sim)
    request_moves(sim, 0, 3)
    for node in (0, 1, 3):
        reached = on_node(sim, 3)
        sim.run_until(lambda reached=reached: on_node(sim, 3) > reached, within=20, what="a move is complete")  # type: ignore[misc]
        sim.kill(node)
        sim.run_until(lambda node=node: fenced(sim, node), within=20, what="it is fenced")  # type: ignore[misc]
        sim.run_for(3)
        sim.restart(node)
    sim.must_heal()
    assert on_node(sim, 3) == PARTITIONS, "some partitions have not moved"
    assert 1 < sim.checkers.waves.begun <= PARTITIONS, "each move begins once; one step may show it begun and complete"
    for index in range(PARTITIONS):
        assert sim.read_committed(TOPIC, index)[:3] == [b"a0", b"a1", b"a2"]


def cancelled_queue_begins_nothing(sim: Simulation) -> None:
    """Moves are cancelled in the middle, and the controller is replaced: what has moved stays, and nothing else
    begins."""
    on_first_nodes(sim)
    request_moves(sim, 0, 3)
    sim.run_until(lambda: on_node(sim, 3) == 2, within=20, what="two moves are complete")
    request_moves(sim)
    sim.run_until(lambda: not any(state.queued for state in sim.topic(TOPIC).partitions), what="it is cancelled")
    left = on_node(sim, 3)
    sim.kill(0)
    sim.run_until(lambda: fenced(sim, 0), within=20, what="another controller fences it")
    sim.never(lambda: moving(sim) or on_node(sim, 3) > left, seconds=5, what="a cancelled move has begun")
    assert 2 <= left < PARTITIONS
    sim.must_heal()


def later_request_replaces_a_queued_move(sim: Simulation) -> None:
    """The operator changes the mind: the moves that are queued still go to another node, and are not repeated."""
    on_first_nodes(sim)
    request_moves(sim, 0, 3)
    sim.run_until(lambda: on_node(sim, 3) == 1, within=20, what="one move is complete")
    request_moves(sim, 0, 2)
    sim.run_until(lambda: on_node(sim, 2) == PARTITIONS, within=60, what="all have moved to node 2")
    sim.never(lambda: moving(sim), seconds=3, what="a replaced move has begun")
    sim.must_heal()


def queue_outlives_all_nodes(sim: Simulation) -> None:
    """Every machine loses power while moves wait for a node that is down: snapshots of the metadata have the queue."""
    on_first_nodes(sim, snapshot_bytes=2_000)
    sim.kill(3)
    sim.run_until(lambda: fenced(sim, 3), what="node 3 is fenced")
    request_moves(sim, 0, 3)
    for number in range(20):  # so that a snapshot replaces the records of the queue
        cordon(sim, 2, cordoned=not number % 2)
    sim.run_for(3)
    assert not moving(sim)
    for node in (0, 1, 2):
        sim.power_off(node)
    for node in sim.nodes:
        sim.restart(node, after=1)
    sim.run_until(lambda: on_node(sim, 3) == PARTITIONS, within=60, what="some queued moves were forgotten")
    sim.must_heal()


def new_node_gets_its_share(sim: Simulation) -> None:
    """`cluster.rebalance = "auto"`: a node takes replicas from now on, as one that has joined. Nothing moves while
    another one is down; then it gets its share, though the controller dies in the middle. After that nothing moves."""
    evens_out = ReplicationConfig(moves_per_node=1, rebalance="auto", rebalance_delay_ms=Millis(4_000))
    sim.start(nodes=4, topics=(), voters=3, min_insync=1, replication=evens_out)
    sim.checkers.waves.moves_per_node = 1
    cordon(sim, 3)
    sim.create_topic(TOPIC, partitions=PARTITIONS, replicas=2, min_insync=1)
    for index in range(PARTITIONS):
        write(sim, index, "a", 3)
    sim.kill(1)
    sim.run_until(lambda: fenced(sim, 1), what="node 1 is fenced")
    cordon(sim, 3, cordoned=False)
    sim.never(lambda: planned(sim), seconds=8, what="moves are planned while a node is down")
    sim.restart(1)
    sim.run_until(lambda: not fenced(sim, 1) and sim._whole(TOPIC), what="all replicas are in sync")
    sim.never(lambda: planned(sim), seconds=3, what="moves are planned at once")
    sim.run_until(lambda: on_node(sim, 3) > 0, within=20, what="a move is complete")
    sim.kill(0)
    sim.run_until(lambda: fenced(sim, 0), within=20, what="another controller fences it")
    sim.restart(0)
    sim.run_until(lambda: shares(sim) == [4, 4, 4, 4], within=60, what="all nodes have equally many replicas")
    sim.run_until(lambda: not planned(sim), within=20, what="nothing is queued")
    sim.never(lambda: planned(sim), seconds=15, what="moves are planned though the nodes are even")
    sim.must_heal()


def planned(sim: Simulation) -> bool:
    return moving(sim) or any(state.queued for state in sim.image().partitions())


def shares(sim: Simulation) -> list[int]:
    """The replicas of each node."""
    held = Counter(int(node) for state in sim.image().partitions() for node in state.replicas)
    return [held[node] for node in sim.nodes]


ALL = (
    waves_outlive_controller_source_and_target,
    cancelled_queue_begins_nothing,
    later_request_replaces_a_queued_move,
    queue_outlives_all_nodes,
    new_node_gets_its_share,
)
