"""Transactions of clients of Kafka's protocol, in version 2 (KIP-890), at the listener of simulated nodes: partitions
enter them with the first batch, and each end gives the producer another epoch.

What the clients are told, each marker and each state in the coordinator's log is judged throughout
(kafka_transactor.py, coordinated_transactions.py, transaction_log.py). Sources: KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from testbed.sim.coordinated_transactions import CoordinatedTransaction
from testbed.sim.coordination import TRANSACTIONS
from testbed.sim.ledger import Violation
from testbed.sim.loop import MICROS
from testbed.sim.world import Simulation
from tests.sim.coordinator_stories import ID, PARTITIONS, decided_values, two_places
from tests.sim.group_stories import begin, transaction_coordinator_of, wait_other_coordinator
from tests.sim.kafka_transactor import OpenKafkaTransaction, SimKafkaTransactor
from tests.sim.stepped_transactor import SteppedTransactor
from tests.sim.stories import TOPIC
from tidelog.errors import ProducerFenced, TidelogError

T = TypeVar("T")
TURNS: Final = 24
"""Transactions of a story in which connections break."""


def cluster(sim: Simulation) -> None:
    """A cluster with coordinators and listeners of Kafka's protocol."""
    sim.network.has_kafka = True
    begin(sim, nodes=4, partitions=PARTITIONS)


def done(sim: Simulation, instance: SimKafkaTransactor, work: Awaitable[T], what: str, within: float = 60.0) -> T:
    """The result of what an instance does."""
    task: Any = instance.client.start(work, what)  # type: ignore[arg-type]
    sim.run_until(task.done, within=within, what=f"{instance.client.process.name} {what}")
    result: T = task.result()
    return result


def started(sim: Simulation, **options: Any) -> SimKafkaTransactor:
    instance = SimKafkaTransactor(sim, ID, **options)
    done(sim, instance, instance.start(), "starts")
    return instance


def run_transaction(sim: Simulation, instance: SimKafkaTransactor, number: int, *, commits: bool) -> bool | None:
    """Write to all partitions, and end it. Returns what the client is told of it."""

    async def fill(opened: OpenKafkaTransaction) -> None:
        for partition in range(PARTITIONS):
            await opened.send(TOPIC, b"%d of %d" % (partition, number), partition)
        if not commits:
            await opened.abort()

    return done(sim, instance, instance.transact(fill), f"runs transaction {number}").told


def values_of(numbers: list[int]) -> list[bytes]:
    return sorted(b"%d of %d" % (partition, number) for number in numbers for partition in range(PARTITIONS))


def transactions_of_kafka_clients(sim: Simulation) -> None:
    """Goal: a client of Kafka needs no request but Produce and EndTxn. Method: commit and abort in turns, with nothing
    that disturbs it, so that each is told at once what it has asked for."""
    cluster(sim)
    instance = started(sim)
    sim.network.calm_since = sim.loop.time()
    turns = (True, False, True, True, False)
    for number, commits in enumerate(turns):
        told = run_transaction(sim, instance, number, commits=commits)
        assert told is commits, f"the client of Kafka is told {told}"
    assert sorted(value or b"" for value in decided_values(sim)) == values_of([0, 2, 3])
    sim.must_heal()


def ends_of_kafka_clients_are_repeated(sim: Simulation) -> None:
    """Goal: an EndTxn whose answer is lost is answered as before, with the same epoch. Method: send each one twice, cut
    connections again and again while requests and answers are on their way, and kill the coordinator in the middle."""
    cluster(sim)
    instance = started(sim, repeats_ends=True)
    committed = []
    for number in range(TURNS):
        sim.loop.call_later(sim.rng.uniform(0.0, 0.12), _cut, sim)
        if number == TURNS // 2:
            former = transaction_coordinator_of(sim, ID)
            sim.kill(former)
            wait_other_coordinator(sim, former, ID, TRANSACTIONS)
            sim.restart(former)
        if run_transaction(sim, instance, number, commits=number % 3 != 2):
            committed.append(number)
    assert committed == [number for number in range(TURNS) if number % 3 != 2], "the client knows each end"
    assert sorted(value or b"" for value in decided_values(sim)) == values_of(committed)
    sim.must_heal()


def _cut(sim: Simulation) -> None:
    sim.network.cut_byte_streams(0.7, MICROS // 50)


def late_batches_of_kafka_clients_are_refused(sim: Simulation) -> None:
    """Goal: what arrives after the end of its transaction enters no log: neither alone, where nobody would end it, nor
    in the next transaction. Method: send batches in the former epoch to a partition that was in the transaction and to
    one that was not; with no transaction open, and with the next one open in both."""
    cluster(sim)
    instance = started(sim)
    first, second = two_places(sim)

    async def write_late(ended: CoordinatedTransaction, partition: int, sequence: int) -> None:
        sent = instance.announced(ended, (TOPIC, partition), b"late %d" % len(ended.sent))
        try:
            await instance.attempt(sent, instance.batch(sent, instance.instance.producer[1] - 1, sequence))
        except TidelogError:
            return
        raise Violation(f"{sent} is accepted in the epoch of a transaction that has ended")

    async def fill(opened: OpenKafkaTransaction) -> None:
        await opened.send(TOPIC, b"a", first)

    async def fill_both(opened: OpenKafkaTransaction) -> None:
        for partition in (first, second):
            await opened.send(TOPIC, b"b", partition)
        await write_late(ended, first, 1)
        await write_late(ended, second, 0)

    ended = done(sim, instance, instance.transact(fill), "commits")
    assert ended.told is True
    written = sim.ledger(TOPIC, first)
    sim.run_until(lambda: written.stable == written.end, what="its marker is written")  # before that it is still open
    for partition, sequence in ((first, 1), (second, 0)):
        done(sim, instance, write_late(ended, partition, sequence), f"writes late to {partition}")
    sim.run_for(1)
    assert sim.ledger(TOPIC, second).stable == sim.ledger(TOPIC, second).end, "a transaction hangs"
    assert done(sim, instance, instance.transact(fill_both), "commits again").told is True
    assert sorted(value or b"" for value in decided_values(sim)) == [b"a", b"b", b"b"]
    sim.must_heal()


def clients_of_both_protocols_fence_each_other(sim: Simulation) -> None:
    """Goal: a transactional id has one producer, whichever protocol it speaks. Method: while a client of Kafka has a
    transaction open, a producer of Tidelog starts with its id; while that one has, another client of Kafka does."""
    cluster(sim)
    former, goes_on = started(sim), sim.loop.create_future()

    async def fill(opened: OpenKafkaTransaction) -> None:
        await opened.send(TOPIC, b"former")
        await goes_on

    ending = former.client.start(former.transact(fill), "runs a transaction")
    sim.run_until(lambda: sim.ledger(TOPIC, 0).end > 0, what="its record is written")
    own = SteppedTransactor(sim, ID)
    own.begin().send(b"own").wait()
    goes_on.set_result(None)
    sim.run_until(ending.done, what="the former client knows how its transaction ended")
    assert ending.result().told is None, f"it is told {ending.result().told}"
    assert isinstance(former.over, ProducerFenced)
    newest = started(sim)
    assert own.end() is not True
    assert run_transaction(sim, newest, 1, commits=True) is True
    assert sorted(value or b"" for value in decided_values(sim)) == values_of([1])
    sim.must_heal()


def transaction_of_a_kafka_client_times_out(sim: Simulation) -> None:
    """Goal: a client whose transaction the coordinator has aborted learns of it from its commit, aborts, and goes on in
    the next epoch; it is not fenced. Method: wait for the timeout with a transaction open."""
    cluster(sim)
    run_transaction(sim, started(sim), 0, commits=True)
    instance = started(sim, transaction_timeout_ms=2_000)

    async def fill(opened: OpenKafkaTransaction) -> None:
        await opened.send(TOPIC, b"too late")
        await opened.client.sleep(4)

    judged = done(sim, instance, instance.transact(fill), "waits too long")
    assert (judged.told, instance.over) == (False, None), f"it is told {judged.told}, {instance.over}"
    assert run_transaction(sim, instance, 1, commits=True) is True
    assert sorted(value or b"" for value in decided_values(sim)) == values_of([0, 1])
    sim.must_heal()


ALL = [
    transactions_of_kafka_clients,
    ends_of_kafka_clients_are_repeated,
    late_batches_of_kafka_clients_are_refused,
    clients_of_both_protocols_fence_each_other,
    transaction_of_a_kafka_client_times_out,
]
