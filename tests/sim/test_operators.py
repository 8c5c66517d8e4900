"""A deletion that an operator requested allows losses only as far as a leader has done it."""

from __future__ import annotations

from tests.sim import operators
from tests.sim.controller_stories import away_from_voter
from tests.sim.plan import Fault, Kind
from tests.sim.stories import TOPIC, leads, write
from tests.sim.world import Simulation

DELETIONS = [Fault(0.0, Kind.DELETE, node=0, other=0, lasts=0.0, amount=number / 10) for number in range(10)]


def world(sim: Simulation) -> int:
    """Five records in one partition of a topic with retention. Returns its leader."""
    away_from_voter(sim, 4, replicas=3, min_insync=1, file_delete_delay_ms="60000")
    write(sim, 0, "a", 5)
    return sim.leader(TOPIC)


def test_records_may_be_missing_below_the_log_start_of_the_leader() -> None:
    with Simulation(1) as sim:
        leader = world(sim)
        for fault in DELETIONS:
            operators.delete(sim, fault)
            sim.run_until(
                lambda: sim.log(leader, TOPIC).log_start_offset == sim.ledger(TOPIC).deleted_to,
                within=1,
                what="the leader's log starts there",
            )
        assert sim.ledger(TOPIC).deleted_to > 0
        sim.must_heal()


def test_no_record_may_be_missing_if_no_leader_accepted_the_deletion() -> None:
    """The next leader is elected and does not know of the deletion."""
    with Simulation(4) as sim:
        leader = world(sim)
        sim.kill(leader)
        sim.run_until(lambda: sim.leader(TOPIC) not in (leader, -1), what="another node is elected")
        assert not leads(sim, sim.leader(TOPIC), 0)
        for fault in DELETIONS:
            operators.delete(sim, fault)
        assert sim.ledger(TOPIC).deleted_to == 0
        sim.must_heal()
