"""The availability prober reports a wait without a reason, and no other wait."""

from __future__ import annotations

import pytest

from storage.log.log import Log
from testbed.sim.loop import Defect
from testbed.sim.world import Simulation
from tests.sim.availability import BOUND_S, Availability
from tests.sim.mutants import disks
from tests.sim.stories import TOPIC, durable_offset, write


def probed(sim: Simulation) -> tuple[Availability, int, int]:
    """A partition of two replicas whose records a prober reads. Returns the prober, the leader and the follower."""
    sim.start(nodes=3, topics=())
    sim.create_topic(TOPIC, replicas=2, min_insync=1, configs={"segment_bytes": "1000"})
    write(sim, 0, "a" * 100, 30)
    leader, (follower,) = sim.leader(TOPIC), sim.followers(TOPIC)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 30, what="both have all")
    client = sim.client()
    prober = Availability(sim, client)
    client.start(prober.ask(), "asks")
    return prober, leader, follower


def spoil(sim: Simulation, node: int) -> None:
    """Corrupt every segment of a replica; no scrub runs."""
    log = sim.log(node, TOPIC)
    assert isinstance(log, Log)
    for segment in log.segments:
        for position in range(50, segment.size, 100):
            sim.machines[node].disk.flip_bit(segment.path, position)


def test_an_answered_prober_reports_nothing() -> None:
    with Simulation(1) as sim:
        prober, leader, _ = probed(sim)
        sim.kill(leader)
        sim.run_for(2 * BOUND_S)
        assert prober.answered > 10


def test_a_leader_that_stays_though_it_cannot_be_read_is_complained_of(monkeypatch: pytest.MonkeyPatch) -> None:
    disks.a_damaged_leader_does_not_resign(monkeypatch)
    with Simulation(2) as sim:
        _, leader, follower = probed(sim)
        spoil(sim, leader)
        with pytest.raises(Defect, match=f"cannot be read for {BOUND_S} s, though of .*{follower}.* is sound"):
            sim.run_for(3 * BOUND_S)


def test_a_prober_of_a_disturbed_cluster_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    disks.a_damaged_leader_does_not_resign(monkeypatch)
    with Simulation(2) as sim:
        _, leader, follower = probed(sim)
        spoil(sim, leader)
        sim.slow_process(follower, 1)
        sim.run_for(3 * BOUND_S)
