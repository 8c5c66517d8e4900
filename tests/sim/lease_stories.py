"""Sequences of events in which a coordinator that was replaced would answer from its old state, or one that was not
would answer nothing: the lease that a node has of the controller (node/controller/controller_lease.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from node.requests.group_handlers import DISCONNECTED_MS
from testbed.sim.machine import KAFKA_PORT, endpoint_of
from testbed.sim.world import Simulation
from tests.sim.group_stories import (
    GROUP,
    begin,
    coordinator_place,
    finished,
    tool_commits,
    wait_other_coordinator,
)
from tests.sim.kafka_client import KafkaClient, message_of
from tests.sim.stories import TOPIC, leads_quorum
from tidelog.errors import CoordinatorLoadInProgress, NotCoordinator, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.v1 import groups_pb2
from tidelog.types import Endpoint


def silent_coordinator_tells_no_old_offset(sim: Simulation) -> None:
    """A coordinator is disconnected from all other nodes, and a client still asks it for a committed offset. It answers
    until its lease ends, and nothing from then on: another node coordinates, where a newer offset is committed. The
    same for a coordinator that is also the active controller, and acknowledges its own heartbeats."""
    group = begin(sim, nodes=4, partitions=1)
    for offset, is_controller in ((1, False), (2, True)):
        assert tool_commits(sim, offset) is None
        former = next(node for node in sim.nodes if leads_quorum(sim, node) is is_controller)
        coordinate_at(sim, former)
        told = told_by(sim, former)
        sim.run_for(2)
        sim.disconnect(former)
        wait_other_coordinator(sim, former)
        before = len(told)
        assert before > 0, "the coordinator has answered nothing"
        sim.run_for(1)  # then no node sends the commit to the former coordinator, which would wait for the in-sync set
        assert tool_commits(sim, offset + 1, asking=[node for node in sim.nodes if node != former]) is None
        sim.run_for(2)
        assert len(told) == before, f"a coordinator that was replaced answers with the offset {told[-1]}"
        sim.heal(former)
        sim.run_until(lambda former=former: former in sim.isr(*coordinator_place(sim, GROUP)))  # type: ignore[misc]
    finished(group)


def coordinator_answers_while_the_controller_fails_over(sim: Simulation) -> None:
    """The active controller is killed. The lease of a coordinator on another node lasts until the next controller: the
    committed offset is answered all the time."""
    group = begin(sim, nodes=4, partitions=1)
    assert tool_commits(sim, 1) is None
    controller = next(node for node in sim.nodes if leads_quorum(sim, node))
    coordinator = next(node for node in sim.nodes if node != controller)
    coordinate_at(sim, coordinator)
    told = told_by(sim, coordinator)
    sim.run_until(lambda: bool(told), what="the coordinator answers")
    sim.kill(controller)
    for _ in range(20):
        before = len(told)
        sim.run_for(0.5)
        assert len(told) > before, "the coordinator has answered nothing for half a second"
    sim.restart(controller)
    finished(group)


def coordinator_without_a_lease_is_asked_again(sim: Simulation) -> None:
    """Goal: a consumer of Kafka's protocol that asks while the coordinator may not answer has its offset afterwards:
    one of librdkafka never asks again after NOT_COORDINATOR, and one of Java that sends no heartbeats asks nowhere
    else before it. Method: the metadata quorum has no leader for a while; then the coordinator is disconnected."""
    sim.network.has_kafka = True
    group = begin(sim, nodes=4, partitions=1)
    assert tool_commits(sim, 1) is None
    *voters, coordinator = sim.nodes
    coordinate_at(sim, coordinator)
    told = told_to_kafka(sim, coordinator)
    sim.run_until(lambda: 0 in told, what="the coordinator answers")
    told[:] = [0]  # until then it may not have known that it leads
    for voter in voters[:2]:
        sim.kill(voter)
    sim.run_until(lambda: told[-1] != 0, what="the lease has ended")
    sim.run_for(5)
    for voter in voters[:2]:
        sim.restart(voter)
    sim.run_until(lambda: told[-1] == 0, what="the coordinator answers again")
    assert set(told) == {0, CoordinatorLoadInProgress.code}, f"a coordinator without a lease answers with {set(told)}"
    sim.run_until(lambda: len(sim.isr(*coordinator_place(sim, GROUP))) == 3, what="the replicas are there")

    sim.disconnect(coordinator)
    wait_other_coordinator(sim, coordinator)
    sim.run_until(
        lambda: told[-1] == NotCoordinator.code,
        within=2 * DISCONNECTED_MS / 1_000,
        what="clients of a disconnected coordinator are sent away",
    )
    assert set(told) == {0, CoordinatorLoadInProgress.code, NotCoordinator.code}
    sim.heal(coordinator)
    finished(group)


def coordinate_at(sim: Simulation, node: int) -> None:
    """Move the coordinator of the group to a node."""
    place = coordinator_place(sim, GROUP)
    followers = [other for other in sim.nodes if other != node][:2]
    sim.reassign(*place, node, *followers)
    sim.run_until(
        lambda: sim.isr(*place) == {node, *followers} and not sim.partition(*place).adding,
        what="the replicas are there",
    )
    if sim.leader(*place) != node:
        sim.elect(*place)
    sim.run_until(lambda: sim.leader(*place) == node, what=f"node {node} coordinates")


def told_by(sim: Simulation, node: int) -> list[int]:
    """The committed offsets of the only partition that a node answers from now on, asked for all the time."""
    told: list[int] = []
    client = sim.client()
    request = groups_pb2.OffsetFetchRequest(group_id=GROUP, member_epoch=-1)

    async def asks() -> None:
        while True:
            with contextlib.suppress(TidelogError):
                to = endpoint_of(node)
                answer = await client.transport.call(to, methods.GROUPS_OFFSET_FETCH, request, timeout_ms=200)
                told.extend(each.offset for each in answer.partitions)
            await client.sleep(0.02)

    client.start(asks(), f"asks node {node}")
    return told


def told_to_kafka(sim: Simulation, node: int) -> list[int]:
    """The errors, 0 for none, with which a node answers a client of Kafka's protocol that asks for the committed offset
    from now on, all the time and without a membership."""
    told: list[int] = []
    client = sim.client()
    kafka, sent = KafkaClient(client), message_of("OffsetFetch")
    topic = sent.OffsetFetchRequestTopics((0,), TOPIC)
    request = sent.OffsetFetchRequest("", (), (sent.OffsetFetchRequestGroup(GROUP, (topic,)),))

    async def asks() -> None:
        while True:
            with contextlib.suppress(TidelogError):
                wire = await kafka.wire(Endpoint(endpoint_of(node).host, KAFKA_PORT))
                answer = await wire.ask("OffsetFetch", request)
                told.extend(each.error_code for each in answer.groups)
            await client.sleep(0.05)

    client.start(asks(), f"asks node {node}")
    return told


ALL: tuple[Callable[[Simulation], None], ...] = (
    silent_coordinator_tells_no_old_offset,
    coordinator_answers_while_the_controller_fails_over,
    coordinator_without_a_lease_is_asked_again,
)
