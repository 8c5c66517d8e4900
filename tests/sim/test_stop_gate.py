"""A node that is asked to stop waits until the other nodes can do without it, and not for ever."""

from __future__ import annotations

from node.replication_settings import ReplicationConfig
from testbed.sim.world import Simulation
from tests.sim.quorum_stories import wait_active
from tests.sim.stories import TOPIC, write
from tidelog.types import Millis

LIMIT_S = 15


def cluster(sim: Simulation, *, wait_s: int = LIMIT_S) -> int:
    """Start three nodes of which two must be in sync. Returns a leader that is not the active controller."""
    sim.start(min_insync=2, partitions=3, replication=ReplicationConfig(stop_wait_ms=Millis(wait_s * 1_000)))
    controller = wait_active(sim)
    write(sim, 0, "before", 1)
    return next(node for node in sim.nodes if node != controller)


def lost(sim: Simulation, leaving: int) -> int:
    """Kill the third node, neither this one nor the active controller, until the others know it."""
    away = sim.kill(next(node for node in sim.nodes if node not in (leaving, wait_active(sim))))
    sim.run_until(lambda: away not in sim.isr(TOPIC), what="the killed node is out of the set")
    sim.run_for(3)  # the pause of preStop
    return away


def lines(sim: Simulation, text: str) -> list[str]:
    return [line for line in sim.trace.lines if text in line]


def stopped(sim: Simulation, node: int, *, within: float) -> float:
    """The seconds until the process has ended by itself."""
    since = sim.loop.time()
    sim.run_until(lambda: not sim.machines[node].up, within=within, what=f"node {node} has stopped")
    return sim.loop.time() - since


def test_a_stop_waits_for_the_node_that_is_away_and_writes_go_on() -> None:
    with Simulation(5, voters=3) as sim:
        leaving = cluster(sim)
        away = lost(sim, leaving)
        sim.stop(leaving)
        for number in range(10):
            sim.run_for(1)
            write(sim, number % 3, f"meanwhile{number}-", 1)
        assert sim.machines[leaving].up
        sim.restart(away)
        assert stopped(sim, leaving, within=20) < 20
        write(sim, 0, "after", 3)  # the node that was away is in sync again
        (waiting,) = lines(sim, "goes on for 15 s at most before it stops")
        assert f"acks=all would be rejected (min.insync.replicas) by {TOPIC}-0" in waiting
        assert not lines(sim, "stops although")


def test_a_stop_is_delayed_no_longer_than_the_limit_and_says_what_it_interrupts() -> None:
    with Simulation(5, voters=3) as sim:
        leaving = cluster(sim)
        lost(sim, leaving)
        sim.stop(leaving)
        assert LIMIT_S <= stopped(sim, leaving, within=LIMIT_S + 40) < LIMIT_S + 40
        (line,) = lines(sim, "stops although it is not safe, after 15 s")
        assert f"node {leaving} " in line
        assert "no majority" in line
        assert f"{TOPIC}-0, {TOPIC}-1, {TOPIC}-2" in line


def test_what_any_restart_interrupts_is_named_and_not_waited_for() -> None:
    """The only replica of a partition is not worth a wait: no other node could ever lead it."""
    with Simulation(5, voters=3) as sim:
        leaving = cluster(sim)
        sim.create_topic("alone", partitions=3, replicas=1, min_insync=1)
        sim.stop(leaving)
        assert stopped(sim, leaving, within=20) < 10
        assert not lines(sim, "at most before it stops")
        (line,) = lines(sim, "stops although it is not safe:")
        assert "no other replica could lead alone-" in line
        assert TOPIC not in line


def test_a_safe_stop_and_a_stop_of_all_at_once_wait_for_nothing() -> None:
    with Simulation(5, voters=3) as sim:
        cluster(sim)
        for node in sim.nodes:
            sim.stop(node)
        sim.run_until(lambda: not any(sim.machines[node].up for node in sim.nodes), within=40, what="all have stopped")
        assert not lines(sim, "at most before it stops")


def test_without_the_setting_a_node_stops_at_once() -> None:
    with Simulation(5, voters=3) as sim:
        leaving = cluster(sim, wait_s=0)
        lost(sim, leaving)
        sim.stop(leaving)
        assert stopped(sim, leaving, within=40) < 40
        assert not lines(sim, "stops although")
