"""A node that was started has caught up once its replicas are in sync, and a whole cluster does not wait for itself."""

from __future__ import annotations

import asyncio

from node.process.catch_up import wait_until_caught_up
from replication.controller.image import EMPTY
from testbed.sim.world import Simulation
from tests.sim.quorum_stories import wait_active
from tests.sim.stories import TOPIC, write
from tidelog.types import NodeId


def watched(sim: Simulation, node: int) -> asyncio.Task[None]:
    """What a process does after its start, on this node."""
    machine = sim.machines[node]
    running, process = machine.node, machine.process
    assert running is not None
    assert process is not None

    async def wait() -> None:
        await wait_until_caught_up(
            NodeId(node), lambda: running.image or EMPTY, lambda: not running.why_not_ready(), machine.clock
        )

    return process.run(sim.loop.create_task, wait())


def beside(sim: Simulation, controller: int) -> tuple[int, int]:
    """The two nodes that are not the active controller."""
    first, second = (node for node in sim.nodes if node != controller)
    return first, second


def test_a_node_has_caught_up_when_its_replicas_are_in_sync_again() -> None:
    with Simulation(7, voters=3) as sim:
        sim.start(min_insync=2, partitions=3)
        controller = wait_active(sim)
        node, other = beside(sim, controller)
        sim.kill(node)
        sim.run_until(lambda: node not in sim.isr(TOPIC), what="the killed node is out of the set")
        write(sim, 0, "missed", 3)
        led = [partition for partition in range(3) if sim.leader(TOPIC, partition) == other]
        sim.disconnect_link(node, other)
        sim.disconnect_link(other, node)
        sim.restart(node)
        task = watched(sim, node)
        sim.run_until(lambda: not sim.image().nodes[NodeId(node)].fenced, what="the node is in service")
        sim.run_for(30)
        assert not task.done(), "it cannot fetch what the other one leads"
        names = ", ".join(f"{TOPIC}-{partition}" for partition in led)
        assert [line for line in sim.trace.lines if f"replicas are not in sync yet: {names}" in line]
        sim.heal_link(node, other)
        sim.heal_link(other, node)
        sim.run_until(task.done, within=30, what="the node has caught up")
        assert node in sim.isr(TOPIC)
        sim.kill(other)
        sim.run_until(lambda: other not in sim.isr(TOPIC), what="the other node is out of the set")
        write(sim, 0, "two are enough", 3)


def test_all_nodes_killed_at_once_catch_up() -> None:
    with Simulation(7, voters=3) as sim:
        sim.start(min_insync=2, partitions=3)
        write(sim, 0, "before", 3)
        for node in sim.nodes:
            sim.kill(node)
        for node in sim.nodes:
            sim.restart(node)
        tasks = [watched(sim, node) for node in sim.nodes]
        sim.run_until(lambda: all(task.done() for task in tasks), within=60, what="all have caught up")
