"""A deletion that an operator requested allows losses only as far as a leader has done it."""

from __future__ import annotations

import pytest

from testbed.sim.machine import endpoint_of
from testbed.sim.world import Simulation
from tests.sim import operators
from tests.sim.controller_stories import away_from_voter
from tests.sim.deletion_requests import delete_records
from tests.sim.plan import Fault, Kind
from tests.sim.stories import TOPIC, write
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2

DELETIONS = [Fault(0.0, Kind.DELETE, node=0, other=0, lasts=0.0, amount=number / 10) for number in range(10)]


def test_a_node_that_does_not_know_the_topic_yet_is_not_the_only_one_that_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Simulation(3) as sim:
        sim.start()
        behind = next(node for node in sim.nodes if node != 0)  # node 0 is the only voter
        sim.disconnect(behind)
        sim.run_for(3)
        sim.create_topic("events", replicas=2, client=sim.client((0,)), wait=False)
        operator = sim.client((behind,))
        monkeypatch.setattr(sim, "client", lambda *_asked: operator)
        pauses: list[float] = []
        pause = operator.pause

        async def other_nodes_are_asked_next() -> None:
            pauses.append(sim.loop.time())
            operator.bootstrap = [endpoint_of(0)]
            await pause()

        monkeypatch.setattr(operator, "pause", other_nodes_are_asked_next)
        place = admin_pb2.TopicPartitionId(topic="events", partition=0)
        wanted = admin_pb2.PartitionReassignment(partition=place, replicas=[0])
        request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=[wanted])
        operators._ask(sim, methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, request)
        sim.run_until(lambda: sim.partition("events").replicas == (0,), within=20, what="the replicas have moved")
        assert pauses, "the first node that was asked did not know the topic"


def world(sim: Simulation) -> int:
    """Five records in one partition of a topic with retention. Returns its leader."""
    away_from_voter(sim, 4, replicas=3, min_insync=1, file_delete_delay_ms="60000")
    write(sim, 0, "a", 5)
    return sim.leader(TOPIC)


def test_records_may_be_missing_below_the_log_start_of_the_leader() -> None:
    with Simulation(1) as sim:
        leader, deletions = world(sim), sim.ledger(TOPIC).deletions
        for fault in DELETIONS:
            operators.delete(sim, fault)
            sim.run_for(0.01)
            sim.run_until(lambda: deletions.is_settled, within=5, what="the deletion is answered")
            assert sim.log(leader, TOPIC).log_start_offset == sim.ledger(TOPIC).deleted_to == deletions.acknowledged
        assert deletions.acknowledged > 0
        sim.must_heal()


@pytest.mark.parametrize("offset", [6, 1 << 40])
def test_no_record_may_be_missing_if_no_leader_accepted_the_deletion(offset: int) -> None:
    with Simulation(4) as sim:
        world(sim)
        task = delete_records(sim, TOPIC, 0, offset)
        sim.run_until(task.done, within=5, what="the deletion is answered")
        assert (task.result(), sim.ledger(TOPIC).deleted_to) == (-1, 0)
        sim.must_heal()
