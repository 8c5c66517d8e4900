"""Deletions of records: acknowledged once no replica that may lead has them, and never undone.

The requests go to the leader like those of any client; the checkers judge each answer (deletions.py).
"""

from __future__ import annotations

import asyncio

from testbed.sim.workload import Client
from testbed.sim.world import Simulation
from tests.sim.controller_stories import away_from_voter
from tests.sim.deletion_requests import delete_records
from tests.sim.log_stories import three_replicas
from tests.sim.stories import TOPIC, committed, fenced, leads, write
from tidelog.errors import TidelogError


def answered(sim: Simulation, task: asyncio.Task[int]) -> int:
    """The low watermark in the answer to a deletion; -1 if it failed."""
    sim.run_until(task.done, within=10, what="the deletion is answered")
    return task.result()


def is_waiting(sim: Simulation, task: asyncio.Task[int]) -> bool:
    """Whether the deletion has no answer within a second. Raises the violation that an answer is."""
    sim.run_for(1)
    return not (task.done() and task.result() >= 0)


def deletion_waits_for_the_followers(sim: Simulation) -> None:
    """One follower does not learn of a deletion for a while: it is not acknowledged before. The next leader does not
    have the records."""
    p, leader, second, third = three_replicas(sim)
    write(sim, p, "a", 5)
    updates = sim.hold("Data.FetchStream", source=leader, target=third, part="answer")
    task = delete_records(sim, TOPIC, p, 3)
    assert is_waiting(sim, task), "a follower has the records"
    updates.release()
    assert answered(sim, task) == 3
    sim.kill(leader)
    sim.run_until(lambda: leads(sim, second, p) or leads(sim, third, p), what="another node leads")
    write(sim, p, "b", 2)
    sim.must_heal()


def deletion_outlives_a_power_loss(sim: Simulation) -> None:
    """All machines lose their power as soon as a deletion is acknowledged."""
    p, *nodes = three_replicas(sim)
    write(sim, p, "a", 5)
    assert answered(sim, delete_records(sim, TOPIC, p, 3)) == 3
    for node in nodes:
        sim.power_off(node, forget_all=True)
    for node in nodes:
        sim.restart(node)
    sim.run_until(lambda: any(leads(sim, node, p) for node in nodes), what="one of them leads")
    write(sim, p, "b", 2)
    sim.must_heal()


def deletion_waits_for_a_slow_disk(sim: Simulation) -> None:
    """A follower knows of a deletion and its disk hangs: it loses its power before the new log start is durable. The
    deletion is not acknowledged by then."""
    p, _, second, _ = three_replicas(sim)
    write(sim, p, "a", 5)
    sim.stall_disk(second)
    task = delete_records(sim, TOPIC, p, 3)
    assert is_waiting(sim, task), "not durable on a follower"
    sim.power_off(second, forget_all=True)
    sim.release_disk(second)
    sim.restart(second)
    answered(sim, task)
    sim.must_heal()
    assert sim.log(second, TOPIC, p).log_start_offset == 3


def deletion_while_a_replica_is_down(sim: Simulation) -> None:
    """A replica that is out of sync has missed a deletion. It is in sync only after it has learned of it."""
    p, leader, _, third = three_replicas(sim)
    write(sim, p, "a", 5)
    sim.kill(third)
    sim.run_until(lambda: fenced(sim, third) and third not in sim.isr(TOPIC, p), what="the replica is out of sync")
    assert answered(sim, delete_records(sim, TOPIC, p, 3)) == 3
    answers = sim.hold("Data.FetchStream", source=leader, target=third, part="answer")
    sim.restart(third)
    sim.never(lambda: third in sim.isr(TOPIC, p), seconds=3, what="in sync, but it has deleted records")
    answers.release()
    sim.run_until(lambda: third in sim.isr(TOPIC, p), what="the replica is in sync")
    sim.must_heal()


def deletion_while_an_eligible_replica_is_down(sim: Simulation) -> None:
    """A replica that is eligible to lead is down: a deletion is not acknowledged, for this replica may lead next."""
    _, *others = away_from_voter(sim, 4, replicas=3, min_insync=2)
    write(sim, 0, "a", 5)
    for node in others:
        sim.kill(node)
        sim.run_until(lambda: fenced(sim, node), what="it is fenced")  # noqa: B023 (called at once)
    eligible = sim.partition(TOPIC).elr
    assert len(eligible) == 1
    assert answered(sim, delete_records(sim, TOPIC, 0, 3)) == -1, (
        "acknowledged, but an eligible replica has the records"
    )
    sim.restart(eligible[0])
    sim.run_until(lambda: eligible[0] in sim.isr(TOPIC), what="it is in sync")
    assert answered(sim, delete_records(sim, TOPIC, 0, 3)) == 3
    sim.must_heal()


def deletion_above_the_watermark(sim: Simulation) -> None:
    """A client requests the deletion of records that only the leader has: they may still get lost, and others may be
    committed in their place."""
    p, leader, second, third = three_replicas(sim)
    write(sim, p, "a", 5)
    for node in (second, third):
        sim.disconnect_link(node, leader)
    client = sim.client((leader,))
    for number in range(3):
        sim.produce(TOPIC, b"b%d" % number, acks="1", partition=p, client=client)
    sim.run_until(lambda: sim.log(leader, TOPIC, p).log_end_offset == 8, what="the leader has them")
    assert committed(sim, p) == 5
    task = delete_records(sim, TOPIC, p, 8, client=client)
    assert answered(sim, task) == -1
    assert sim.log(leader, TOPIC, p).log_start_offset == 0, "nothing is deleted"
    sim.must_heal()


def asks_until_answered(client: Client, p: int, last_epoch: int) -> asyncio.Task[tuple[int, int] | None]:
    """A reader at offset 5 asks the leader where its log diverges, once it knows who that is."""

    async def asks() -> tuple[int, int] | None:
        while True:
            try:
                return await client.truncation(TOPIC, p, 5, last_epoch)
            except TidelogError:
                client.forget(TOPIC, p)
                await client.pause()

    return client.start(asks(), "reads on")


def reader_at_the_end_of_an_empty_log(sim: Simulation) -> None:
    """Everything that a reader was given is deleted, and another node leads: no epoch of those records is left in its
    log. The reader is where the log begins, and must not be told that something was truncated (KIP-320)."""
    p, leader, second, third = three_replicas(sim)
    write(sim, p, "a", 5)
    before = int(sim.partition(TOPIC, p).leader_epoch)
    assert answered(sim, delete_records(sim, TOPIC, p, 5)) == 5
    sim.kill(leader)
    sim.run_until(lambda: leads(sim, second, p) or leads(sim, third, p), what="another node leads")
    told = asks_until_answered(sim.client((second, third)), p, before)
    sim.run_until(told.done, within=10, what="the reader is answered")
    assert told.result() is None, f"the reader at the end is told of {told.result()}"
    write(sim, p, "b", 2)
    sim.must_heal()


ALL = (
    deletion_waits_for_the_followers,
    deletion_outlives_a_power_loss,
    deletion_waits_for_a_slow_disk,
    deletion_while_a_replica_is_down,
    deletion_while_an_eligible_replica_is_down,
    deletion_above_the_watermark,
    reader_at_the_end_of_an_empty_log,
)
