"""Sequences of events that would write an idempotent producer's record twice, in another order, or lose it.

They run the real producer against one simulated cluster. Each story ends with every record once and in order, and fails
when its rule is weakened (test_mutants.py).
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.sim.machine import machine_name
from testbed.sim.network import Envelope, Held
from testbed.sim.producers import SimProducer
from testbed.sim.workload import Sent
from testbed.sim.world import Simulation
from tests.sim.stories import TOPIC, committed, end, epoch, leads, write
from tidelog.errors import CommitUnknown

BIG = b"." * 400
"""Fills a batch of a producer with `batch_bytes=300`."""


def answers_to(sim: Simulation, producer: SimProducer) -> Held:
    """Hold back the nodes' answers to its batches."""
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
    """Check that the record is acknowledged at that offset and that the checkers saw it there."""
    got = sent.wait()
    sim.run_for(0.01)
    assert got == offset, f"{sent} at {got}, not at {offset}"


def away_from_the_voter(sim: Simulation) -> tuple[int, list[int]]:
    """A partition without a replica on node 0, and its replicas, the leader first."""
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    return p, [int(node) for node in sim.partition(TOPIC, p).replicas]


def answer_is_lost(sim: Simulation) -> None:
    """A record is committed and its answer is lost with the leader; the producer sends it again to the next leader."""
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
    sim.run_for(0.5)  # and knows it
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
    """Scenario 11, variant: the answer to a record is lost, and no later attempt succeeds until the record times
    out. Its sequence number must not be reused for the next record, which would be acknowledged as a duplicate."""
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
    sim.run_until(lambda: lost.done, what="the record has timed out")
    for node in replicas:
        sim.restart(node)
    lies_at(sim, producer.send(TOPIC, b"c", p), 2)
    sim.must_heal()
    assert isinstance(lost.error, CommitUnknown)


def resend_meets_too_small_a_set(sim: Simulation) -> None:
    """Scenario 11, variant: the answer to a record is lost, and the in-sync set is too small when the record is sent
    again. The leader must not refuse it as not written, since it is: it answers as it would have answered the first
    copy."""
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
    sim.run_until(lambda: sent.done, within=3, what="the leader acknowledges the resent record")
    lies_at(sim, sent, 1)
    later = producer.send(TOPIC, b"c", p)
    sim.run_for(1)
    assert not later.done, "acknowledged by a set that is too small"
    for node in followers:
        sim.restart(node)
    lies_at(sim, later, 2)
    sim.must_heal()


def ids_outlive_the_cluster(sim: Simulation) -> None:
    """All nodes are killed, the controller too; a producer that starts afterwards gets a new ID."""
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


def truncation_removes_producer_state(sim: Simulation) -> None:
    """Scenario 3, variant: a replaced leader truncates its log, and with it a producer's record. When it leads
    again, it accepts the resent record like any other."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (old, new, other) = away_from_the_voter(sim)
    producer = sim.producer()
    producer.send(TOPIC, b"a", p).wait()
    elsewhere = batches_for(sim, producer, new, other)
    sim.disconnect(old)
    sent = producer.send(TOPIC, b"b", p)
    sim.run_until(lambda: end(sim, old, p) == 2, what="the old leader has the record")
    sim.run_until(lambda: leads(sim, new, p), what="another node leads")
    sim.run_until(lambda: epoch(sim, other, p) == epoch(sim, new, p), what="the follower knows its new leader")
    write(sim, p, "c", 5, asking=(new, other))
    sim.heal(old)
    sim.run_until(lambda: len(sim.isr(TOPIC, p)) == 3 and end(sim, old, p) == 6, what="the old leader is truncated")
    sim.kill(new)
    sim.run_until(lambda: leads(sim, old, p), what="the old leader leads again")
    elsewhere.let_pass()
    lies_at(sim, sent, 6)
    sim.must_heal()


def deposed_leader_is_late(sim: Simulation) -> None:
    """A batch for the old leader is delayed while the producer sends it again to the new one. It arrives late at a
    node that leads again and recognizes it as a duplicate."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (old, new, _) = away_from_the_voter(sim)
    producer = sim.producer()
    producer.send(TOPIC, b"a", p).wait()
    late = batches_for(sim, producer, old)
    sent = producer.send(TOPIC, b"b", p)
    sim.run_until(lambda: late.count > 0, what="the record is in transit")
    late.let_pass()
    sim.disconnect(old)
    lies_at(sim, sent, 1)
    sim.heal(old)
    sim.run_until(lambda: len(sim.isr(TOPIC, p)) == 3, what="all are in sync")
    sim.kill(new)
    sim.run_until(lambda: leads(sim, old, p), what="the old leader leads again")
    late.release()
    lies_at(sim, producer.send(TOPIC, b"c", p), 2)
    sim.must_heal()


def concurrent_callers_keep_their_order(sim: Simulation) -> None:
    """Three concurrent calls arrive while earlier ones wait for buffer memory, and more arrive while memory is
    freed. The order in the log is the order of the calls, even if a later record fits and an earlier one does not."""
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
    truncation_removes_producer_state,
    deposed_leader_is_late,
    concurrent_callers_keep_their_order,
)
