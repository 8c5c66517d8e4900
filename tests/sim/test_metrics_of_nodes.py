"""What the nodes of a cluster say of themselves in their metrics while something fails, and when that is over."""

from __future__ import annotations

import re
from collections.abc import Callable

from node.observability.metrics import metrics_text
from testbed.sim.world import Simulation
from tests.sim.directory_stories import fails, lies_in_second
from tests.sim.quorum_stories import wait_active
from tests.sim.stories import TOPIC, write


async def no_turn() -> None:
    """Nothing else runs meanwhile."""


def said(sim: Simulation, node: int) -> dict[str, float]:
    """The samples of a node by name and labels; none if it does not run."""
    running = sim.machines[node].node
    if running is None:
        return {}
    writing = metrics_text(running.metric_sources(), no_turn)
    try:
        writing.send(None)
    except StopIteration as written:
        samples = re.findall(r"^(\w.*) (\S+)$", written.value.decode(), re.MULTILINE)
        return {name: float(value) for name, value in samples}
    raise AssertionError("it waits for something")


def together(sim: Simulation, name: str) -> float:
    """The sum over all nodes that run."""
    return sum(said(sim, node).get(name, 0) for node in sim.nodes)


def until(sim: Simulation, reached: Callable[[], bool]) -> None:
    """Run the world until its metrics say so. They are not read after each event: that would take long."""
    for _ in range(200):
        if reached():
            return
        sim.run_for(0.1)
    raise AssertionError("not within 20 s")


def lag(voter: int) -> str:
    return f'tidelog_quorum_replica_lag{{voter="{voter}"}}'


def test_all_nodes_know_the_quorum_and_its_leader_the_lag_of_the_others() -> None:
    with Simulation(3, voters=3) as sim:
        sim.start(min_insync=2, partitions=3)
        controller = wait_active(sim)
        others = [node for node in sim.nodes if node != controller]
        until(sim, lambda: not any(said(sim, controller)[lag(node)] for node in others))
        for node in sim.nodes:
            now = said(sim, node)
            assert (now["tidelog_ready"], now["tidelog_quorum_voters"], now["tidelog_quorum_is_voter"]) == (1, 3, 1)
            assert now["tidelog_quorum_leader"] == controller
            assert now["tidelog_active_controller"] == (node == controller)
            assert {name for name in now if name.startswith("tidelog_quorum_replica_lag")} == (
                {lag(each) for each in others} if node == controller else set()
            )
            assert ("tidelog_cluster_partitions" in now) == (node == controller)
        for node in others:
            sim.kill(node)
        until(sim, lambda: together(sim, "tidelog_active_controller") == 0)
        assert said(sim, controller)["tidelog_quorum_leader"] == -1
        until(sim, lambda: said(sim, controller)["tidelog_quorum_silence_seconds"] > 1)
        sim.must_heal()
        until(sim, lambda: together(sim, "tidelog_active_controller") == 1)


def test_a_node_that_fails_is_missed_and_counted_until_it_is_back() -> None:
    with Simulation(3, voters=3) as sim:
        sim.start(min_insync=2, partitions=3)
        controller = wait_active(sim)
        victim = max(node for node in sim.nodes if node != controller)
        write(sim, 0, "a", 3)
        received = f'tidelog_topic_replication_bytes_in_total{{topic="{TOPIC}"}}'
        sent = f'tidelog_topic_replication_bytes_out_total{{topic="{TOPIC}"}}'
        until(sim, lambda: together(sim, received) == together(sim, sent) > 0)
        missing = ("tidelog_under_replicated", "tidelog_at_min_isr", "tidelog_isr_shrinks_total")
        assert [together(sim, name) for name in missing] == [0, 0, 0]
        led = sum(sim.leader(TOPIC, index) == victim for index in range(3))
        sim.kill(victim)
        until(sim, lambda: [together(sim, name) for name in missing] == [3, 3, 3])
        now = said(sim, controller)
        assert now["tidelog_cluster_under_replicated_partitions"] == 3
        assert now["tidelog_cluster_not_preferred_leaders"] == led
        assert now['tidelog_elections_total{kind="failed"}'] == led
        assert sum(now[f'tidelog_fencings_total{{cause="{cause}"}}'] for cause in ("refused", "session_ended")) == 1
        assert [now[f'tidelog_cluster_nodes{{state="{each}"}}'] for each in ("active", "fenced")] == [2, 1]
        assert now[lag(victim)] > 0
        sim.must_heal()
        until(sim, lambda: [together(sim, name) for name in missing[:2]] == [0, 0])
        assert together(sim, "tidelog_isr_expansions_total") >= 3
        assert said(sim, controller)['tidelog_cluster_nodes{state="fenced"}'] == 0


def test_replicas_of_a_failed_directory_are_told_until_it_is_back() -> None:
    """Each is the only one of its partition, so that nobody leads it meanwhile."""
    with Simulation(1) as sim:
        sim.start(topics=(), directories=2)
        sim.create_topic(TOPIC, replicas=1, partitions=12)
        leaders = [sim.leader(TOPIC, index) for index in range(12)]
        second = {index for index in range(12) if leaders[index] != 0 and lies_in_second(sim, leaders[index], index)}
        victim = leaders[min(second)]
        lost = {index for index in second if leaders[index] == victim}
        fails(sim, victim)
        sim.produce(TOPIC, b"a", partition=min(lost), acks="1")
        until(sim, lambda: said(sim, victim)["tidelog_leaderless"] == len(lost))
        assert said(sim, victim)["tidelog_offline_replicas"] == len(lost)
        assert said(sim, victim)['tidelog_directory_offline{directory="/more"}'] == 1
        assert said(sim, 0)["tidelog_cluster_offline_partitions"] == len(lost)
        sim.repair_disk(victim)  # which restarts the node: its other partitions have no leader meanwhile
        until(sim, lambda: said(sim, 0)['tidelog_elections_total{kind="returned"}'] == leaders.count(victim))
        assert said(sim, 0)["tidelog_cluster_offline_partitions"] == 0
        until(sim, lambda: said(sim, victim).get("tidelog_leaders") == leaders.count(victim))
        assert said(sim, victim)["tidelog_leaderless"] == said(sim, victim)["tidelog_offline_replicas"] == 0
        sim.must_heal()


def test_requests_that_wait_for_the_controller_are_told_with_their_age() -> None:
    with Simulation(1) as sim:
        sim.start(topics=())
        sim.stall_disk(0)  # of the only voter: nothing is committed
        client = sim.client()
        creating = client.start(client.create_topic(TOPIC, 1, 3, {}), "creates a topic")
        sim.run_for(0.6)
        now = said(sim, 0)
        assert now["tidelog_controller_requests_waiting"] >= 1
        assert now["tidelog_controller_oldest_request_seconds"] > 0.5
        sim.release_disk(0)
        sim.run_until(creating.done, what="the topic is created")
        until(sim, lambda: said(sim, 0)["tidelog_controller_requests_waiting"] == 0)
        now = said(sim, 0)
        assert now["tidelog_controller_oldest_request_seconds"] == 0
        slow, count = (now[f"tidelog_controller_request_seconds_{each}"] for each in ('bucket{le="0.5"}', "count"))
        assert slow < count, "it is among those of more than half a second"
        sim.must_heal()
