"""One random world from beginning to end: a cluster, its clients, a plan of faults, and then it must heal."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.sim.loop import SimulationError
from tests.sim.nemesis import Nemesis
from tests.sim.plan import Plan, make_plan
from tests.sim.producers import SimProducer
from tests.sim.workload import Client, Fate, Sent
from tests.sim.world import Simulation
from tidelog.errors import InvalidReplicationFactor, TopicExists
from tidelog.records.record import Record

CHURNED = "comes-and-goes"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one world. `failure` is None where all went well, else what to show."""

    seed: int
    failure: str | None
    digest: str
    virtual_seconds: float
    real_seconds: float
    callbacks: int
    acknowledged: int
    unknown: int
    read: int


class Workload:
    """Producers and readers that go on until they are stopped."""

    def __init__(self, sim: Simulation, plan: Plan) -> None:
        self._sim = sim
        self._stopping = False
        self._running = plan.producers + plan.idempotent + plan.churn
        self._pace = plan.pace
        self._targets = [(topic.name, number) for topic in plan.topics for number in range(topic.partitions)]
        for _ in range(plan.producers):
            client = sim.client()
            client.start(self._produce(client), "produces")
        for _ in range(plan.idempotent):
            client = sim.client()
            client.start(self._produce_once_each(client), "produces with idempotence")
        if plan.churn:
            client = sim.client()
            client.start(self._churn(client, min(plan.nodes, 3)), "makes and deletes a topic")
        for _ in range(plan.readers):
            client = sim.client()
            for topic, index in self._targets:
                take = partial(self._take, topic, index)
                client.start(client.tail(topic, index, take), f"reads {topic}-{index}")

    def _take(self, topic: str, partition: int, record: Record) -> None:
        self._sim.checkers.reader_got(self._sim.ledger(topic, partition), record)

    async def _produce(self, client: Client) -> None:
        rng = client.rng
        count = 0
        while not self._stopping:
            count += 1
            topic, partition = rng.choice(self._targets)
            value = f"{client.process.name}-{count} ".encode() + b"." * rng.choice((0, 10, 100, 1000))
            sent = Sent(topic, partition, value, rng.choice((-1, -1, -1, 1)))
            self._sim.checkers.sending(sent)
            await client.produce(sent)
            await client.sleep(rng.uniform(0, self._pace))
        self._running -= 1

    async def _produce_once_each(self, client: Client) -> None:
        """Bursts of records, several batches of a partition under way at a time; some are given up early."""
        rng = client.rng
        producer = SimProducer(
            client,
            self._sim.checkers,
            None,
            batch_bytes=rng.choice((300, 1_500)),
            linger_ms=rng.choice((0, 5)),
            request_timeout_ms=rng.choice((800, 3_000)),
            delivery_timeout_ms=rng.choice((3_000, 10_000, 30_000)),
        )
        await producer.start()
        count = 0
        while not self._stopping:
            topic, partition = rng.choice(self._targets)
            for _ in range(rng.choice((1, 3, 12))):
                count += 1
                value = f"{producer.name}-{count} ".encode() + b"." * rng.choice((0, 10, 200))
                await producer.enqueue(topic, value, partition)
            await client.sleep(rng.uniform(0, 2 * self._pace))
        await producer.stop()
        self._running -= 1

    async def _churn(self, client: Client, replicas: int) -> None:
        """Make a topic, write a little to it, delete it: each life of it is another partition to the checkers."""
        count = 0
        settings = {"segment.index.bytes": "16384"}
        while not self._stopping:
            try:
                await client.create_topic(CHURNED, 2, replicas, settings)
            except TopicExists:  # the answer to its deletion was lost
                pass
            except InvalidReplicationFactor:  # too few nodes are there now
                await client.pause()
                continue
            for _ in range(client.rng.randrange(5)):
                count += 1
                sent = Sent(CHURNED, client.rng.randrange(2), f"{client.process.name}-{count}".encode(), -1)
                self._sim.checkers.sending(sent)
                await client.produce(sent, attempts_max=20)
            await client.delete_topic(CHURNED)
        self._running -= 1

    def stop(self, within: float) -> None:
        """No new records; every record under way must get its answer."""
        self._stopping = True
        self._sim.run_until(lambda: self._running == 0, within=within, what="every producer has its answer")


def run(plan: Plan, *, show: Callable[[str], None] | None = None) -> Outcome:
    """Run the world of a plan. A broken promise is an outcome, not an exception."""
    began = time.perf_counter()  # noqa: TID251 - how long it really took is part of the report
    failure: str | None = None
    sim = Simulation(plan.seed, show=show)
    try:
        with sim:
            sim.start(
                nodes=plan.nodes,
                topics=(),
                folders=plan.folders,
                voters=plan.voters,
                snapshot_bytes=plan.snapshot_bytes,
            )
            for topic in plan.topics:
                sim.create_topic(
                    topic.name,
                    partitions=topic.partitions,
                    replicas=topic.replicas,
                    min_insync=topic.min_insync,
                    configs={"segment_bytes": str(topic.segment_bytes)},
                )
            workload = Workload(sim, plan)
            nemesis = Nemesis(sim, plan)
            sim.run_for(plan.seconds)
            nemesis.stop()
            sim.heal_everything()
            workload.stop(within=60)
            sim.must_heal()
    except (SimulationError, Exception) as error:  # noqa: BLE001 - whatever ends a world is what it has to tell
        failure = f"{type(error).__name__}: {error}\n" + "\n".join(getattr(error, "__notes__", []))
    fates = [sent.fate for sent in sim.checkers.sent]
    return Outcome(
        seed=plan.seed,
        failure=failure,
        digest=sim.digest(),
        virtual_seconds=sim.loop.time(),
        real_seconds=time.perf_counter() - began,  # noqa: TID251
        callbacks=sim.loop.callbacks_run,
        acknowledged=fates.count(Fate.ACKNOWLEDGED),
        unknown=fates.count(Fate.UNKNOWN),
        read=sim.checkers.reads,
    )


def run_seed(seed: int) -> Outcome:
    """The world of a seed."""
    return run(make_plan(seed))
