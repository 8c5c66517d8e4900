"""The sequences of events that would write an idempotent producer's record twice, in another order, or lose it.

Told with the real producer over one simulated cluster. Each ends with everything once and in order, and in a broken
promise when the rule it is about is made weaker (test_planted_bugs.py).
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.machine import machine_name
from tests.sim.network import Envelope, Held
from tests.sim.producers import SimProducer
from tests.sim.stories import TOPIC, committed, end, epoch, leads, write
from tests.sim.workload import Sent
from tests.sim.world import Simulation
from tidelog.errors import CommitUnknown

BIG = b"." * 400
"""Fills a batch of a producer with `batch_bytes=300`."""


def answers_to(sim: Simulation, producer: SimProducer) -> Held:
    """Hold back what the nodes answer to its batches."""
    return sim.network.hold(
        lambda envelope: (
            envelope.method == "Data.ProduceStream" and envelope.part == "answer" and envelope.target == producer.name
        )
    )


def batches_for(sim: Simulation, producer: SimProducer, *nodes: int) -> Held:
    """Hold back the batches that it sends to these nodes."""
    names = {machine_name(node) for node in nodes}

    def matches(envelope: Envelope) -> bool:
        return (
            envelope.method == "Data.ProduceStream"
            and envelope.part == "request"
            and envelope.source == producer.name
            and envelope.target in names
        )

    return sim.network.hold(matches)


def lies_at(sim: Simulation, sent: Sent, offset: int) -> None:
    """The record is acknowledged at that offset, and the checkers have seen it there."""
    got = sent.wait()
    sim.run_for(0.01)
    assert got == offset, f"{sent} at {got}, not at {offset}"


def away_from_the_voter(sim: Simulation) -> tuple[int, list[int]]:
    """A partition none of whose replicas is on node 0, and these, the leader first."""
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    return p, [int(node) for node in sim.partition(TOPIC, p).replicas]


def answer_is_lost(sim: Simulation) -> None:
    """A record is committed, its answer is lost with the leader; the next leader is sent it again."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, _, _) = away_from_the_voter(sim)
    producer = sim.producer()
    producer.send(TOPIC, b"a", p).wait()
    answers = answers_to(sim, producer)
    sent = producer.send(TOPIC, b"b", p)
    sim.run_until(lambda: committed(sim, p) == 2 and answers.count > 0, what="the record is committed")
    answers.let_pass()
    sim.kill(leader)
    lies_at(sim, sent, 1)
    lies_at(sim, producer.send(TOPIC, b"c", p), 2)
    sim.must_heal()


def later_batch_comes_through(sim: Simulation) -> None:
    """The first of two batches is refused while too few replicas are in sync; later there are enough."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (_, *followers) = away_from_the_voter(sim)
    producer = sim.producer(batch_bytes=300, linger_ms=0)
    producer.send(TOPIC, b"a", p).wait()
    for node in followers:
        sim.kill(node)
    sim.run_until(lambda: len(sim.isr(TOPIC, p)) == 1, what="the leader is alone in sync")
    sim.run_for(0.5)  # and has heard of it
    answers = answers_to(sim, producer)
    first = producer.send(TOPIC, b"b" + BIG, p)
    sim.run_until(lambda: answers.count > 0, what="the first batch is refused")
    for node in followers:
        sim.restart(node)
    sim.run_until(lambda: len(sim.isr(TOPIC, p)) == 3, what="all are in sync again")
    second, third = producer.send(TOPIC, b"c" + BIG, p), producer.send(TOPIC, b"d" + BIG, p)
    sim.run_until(lambda: answers.count > 1, what="the second batch is answered")
    answers.release()
    for offset, sent in enumerate((first, second, third), 1):
        lies_at(sim, sent, offset)
    sim.must_heal()


def sequence_of_a_lost_answer(sim: Simulation) -> None:
    """Scenario 11, variant: the answer to a record is lost, and no later attempt gets through, so that it is given up.
    Its sequence is not given to the next record, which would be answered as the duplicate."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, replicas = away_from_the_voter(sim)
    producer = sim.producer(delivery_timeout_ms=8_000)
    producer.send(TOPIC, b"a", p).wait()
    answers = answers_to(sim, producer)
    lost = producer.send(TOPIC, b"b", p)
    sim.run_until(lambda: committed(sim, p) == 2 and answers.count > 0, what="the record is committed")
    answers.let_pass()
    for node in replicas:
        sim.kill(node)
    sim.run_until(lambda: lost.done, what="the record is given up")
    for node in replicas:
        sim.restart(node)
    lies_at(sim, producer.send(TOPIC, b"c", p), 2)
    sim.must_heal()
    assert isinstance(lost.error, CommitUnknown)


def resend_meets_too_small_a_set(sim: Simulation) -> None:
    """Scenario 11, variant: the answer to a record is lost, and when it comes again the in-sync set is too small. It is
    not refused as not written, which it is: it is answered as its first copy would have been."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (_, *followers) = away_from_the_voter(sim)
    producer = sim.producer()
    producer.send(TOPIC, b"a", p).wait()
    answers = answers_to(sim, producer)
    sent = producer.send(TOPIC, b"b", p)
    sim.run_until(lambda: committed(sim, p) == 2 and answers.count > 0, what="the record is committed")
    for node in followers:
        sim.kill(node)
    sim.run_until(lambda: len(sim.isr(TOPIC, p)) == 1, what="the leader is alone in sync")
    answers.let_pass()
    answers.break_connections()
    sim.run_until(lambda: sent.done, within=3, what="the leader knows the record when it comes again")
    lies_at(sim, sent, 1)
    later = producer.send(TOPIC, b"c", p)
    sim.run_for(1)
    assert not later.done, "taken by a set that is too small"
    for node in followers:
        sim.restart(node)
    lies_at(sim, later, 2)
    sim.must_heal()


def ids_outlive_the_cluster(sim: Simulation) -> None:
    """Every node is killed, the controller too; a producer that comes afterwards has an id of its own."""
    sim.start(nodes=3, min_insync=2)
    early = sim.producer()
    lies_at(sim, early.send(TOPIC, b"a"), 0)
    for node in sim.nodes:
        sim.kill(node)
        sim.restart(node)
    late = sim.producer()
    lies_at(sim, late.send(TOPIC, b"b"), 1)
    lies_at(sim, early.send(TOPIC, b"c"), 2)
    sim.must_heal()


def cut_takes_producers_with_it(sim: Simulation) -> None:
    """Scenario 3, variant: a deposed leader's log is cut, a producer's record with it; leading again, the node takes
    the record when it comes again, as any other."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (old, new, other) = away_from_the_voter(sim)
    producer = sim.producer()
    producer.send(TOPIC, b"a", p).wait()
    elsewhere = batches_for(sim, producer, new, other)
    sim.cut(old)
    sent = producer.send(TOPIC, b"b", p)
    sim.run_until(lambda: end(sim, old, p) == 2, what="the old leader has the record")
    sim.run_until(lambda: leads(sim, new, p), what="another node leads")
    sim.run_until(lambda: epoch(sim, other, p) == epoch(sim, new, p), what="the follower knows its new leader")
    write(sim, p, "c", 5, asking=(new, other))
    sim.heal(old)
    sim.run_until(lambda: len(sim.isr(TOPIC, p)) == 3 and end(sim, old, p) == 6, what="the old leader is cut")
    sim.kill(new)
    sim.run_until(lambda: leads(sim, old, p), what="the old leader leads again")
    elsewhere.let_pass()
    lies_at(sim, sent, 6)
    sim.must_heal()


def deposed_leader_is_late(sim: Simulation) -> None:
    """A batch is on its way to the old leader while it is sent again to the new one; it arrives, late, at a node that
    leads again, and is known there."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (old, new, _) = away_from_the_voter(sim)
    producer = sim.producer()
    producer.send(TOPIC, b"a", p).wait()
    late = batches_for(sim, producer, old)
    sent = producer.send(TOPIC, b"b", p)
    sim.run_until(lambda: late.count > 0, what="the record is on its way")
    late.let_pass()
    sim.cut(old)
    lies_at(sim, sent, 1)
    sim.heal(old)
    sim.run_until(lambda: len(sim.isr(TOPIC, p)) == 3, what="all are in sync")
    sim.kill(new)
    sim.run_until(lambda: leads(sim, old, p), what="the old leader leads again")
    late.release()
    lies_at(sim, producer.send(TOPIC, b"c", p), 2)
    sim.must_heal()


def many_callers_at_once(sim: Simulation) -> None:
    """Three calls at a time come while earlier ones wait for the producer's memory, and go on coming when memory is
    freed: the order in the log is the order of the calls, also where a later record fits and an earlier does not."""
    sim.start(nodes=3, min_insync=2)
    producer = sim.producer(batch_bytes=300, buffer_bytes=3_000, linger_ms=0)
    calls = []
    for number in range(100):
        calls += [producer.send(TOPIC, b"%d %d" % (number, each) + BIG * (each == 1)) for each in range(3)]
        sim.run_for(0.0005)
    for offset, sent in enumerate(calls):
        assert sent.wait() == offset
    sim.must_heal()


ALL: tuple[Callable[[Simulation], None], ...] = (
    answer_is_lost,
    later_batch_comes_through,
    sequence_of_a_lost_answer,
    resend_meets_too_small_a_set,
    ids_outlive_the_cluster,
    cut_takes_producers_with_it,
    deposed_leader_is_late,
    many_callers_at_once,
)
