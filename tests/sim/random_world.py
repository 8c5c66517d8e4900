"""One random world from start to end: a cluster, its clients, a plan of faults, and the recovery after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from node.coordinator_settings import CoordinatorSettings
from node.replication_settings import ReplicationConfig
from storage.log.log import Log
from testbed.sim.healing import tier_is_known
from testbed.sim.loop import MICROS, SimulationError, once_each
from testbed.sim.machine import SCRIPTED, coordinator_settings
from testbed.sim.producers import SimProducer
from testbed.sim.readings import Reading
from testbed.sim.transactions import Coordinator
from testbed.sim.workload import Client, Fate, Sent, Transaction
from testbed.sim.world import Simulation
from tests.sim.availability import Availability
from tests.sim.consumers import SimConsumer
from tests.sim.coordinated_workload import CoordinatedWorkload
from tests.sim.kafka_client import KafkaClient, SimKafkaProducer, SimKafkaReader
from tests.sim.nemesis import Nemesis
from tests.sim.plan import DECIDABLE, Cleaning, CoordinatorPlan, Plan
from tidelog.errors import InvalidReplicationFactor, TidelogError, TopicExists
from tidelog.types import Millis

TIER_WITHIN: Final = 200.0
"""A request to a coordinator waits for half a minute, and the next one is a minute later at most."""

EVENS_OUT: Final = ReplicationConfig(rebalance="auto", rebalance_delay_ms=Millis(2_000))

CHURNED: Final = "comes-and-goes"
KEYS: Final = 6
"""Few keys, so that compaction has work."""
UNACKNOWLEDGED: Final = 0.2
"""The share of bursts to Kafka's listener whose last record is sent with acks=0."""
AT_ONCE: Final = 0.5
"""The share of bursts in which each record has a caller that waits in its own task."""
FIRST_TRANSACTIONAL: Final = 1_000_000_000
"""Producer IDs that no node assigns."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one world. `failure` is None if the world passed, otherwise the text to report."""

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
    """Producers and readers that run until they are stopped."""

    def __init__(self, sim: Simulation, plan: Plan) -> None:
        self._sim = sim
        self._plan = plan
        self._stopping = False
        self._running = plan.producers + plan.idempotent + plan.transactional + plan.churn + plan.kafka_producers
        self._pace = plan.pace
        self._decided = [topic.name for topic in plan.topics if topic.cleaning in DECIDABLE]
        self._keyed = {topic.name for topic in plan.topics if topic.cleaning is Cleaning.COMPACTED}
        self._readings: list[Reading] = []
        for _ in range(plan.producers):
            client = sim.client()
            client.start(self._produce(client), "produces")
        for _ in range(plan.idempotent):
            client = sim.client()
            client.start(self._produce_once_each(client), "produces idempotently")
        for number in range(plan.transactional):
            client = sim.client()
            client.start(self._transact(client, FIRST_TRANSACTIONAL + number), "produces in transactions")
        if plan.churn:
            client = sim.client()
            client.start(self._churn(client, min(plan.nodes, 3)), "creates and deletes a topic")
        for number in range(plan.readers):
            client = sim.client()
            for place in self._places():
                reading = self._reading(*place, decided=number % 2 == 1)
                client.start(client.tail(*place, reading, decided=reading.decided), f"reads {place}")
            client = sim.client()
            client.start(self._ask_ends(client), "asks leaders for the end")
        prober = sim.client()
        prober.start(Availability(sim, prober).ask(), "reads one record after the other")
        for number in range(plan.consumers):
            self._consume(sim.client(), decided=(number + plan.seed) % 2 == 0)
        kafka = KafkaClient(sim.client()) if plan.kafka_producers else None
        for number in range(plan.kafka_producers):
            assert kafka is not None
            kafka.client.start(self._produce_to_kafka(kafka, number), "produces to Kafka's listener")
        for number in range(plan.kafka_readers):
            self._read_from_kafka(KafkaClient(sim.client()), decided=(number + plan.seed) % 2 == 1)

    def _places(self, *, decided: bool = False) -> list[tuple[str, int]]:
        """The current partitions. decided: those that may have transactions."""
        names = self._decided if decided else [topic.name for topic in self._plan.topics]
        return [(name, int(state.partition)) for name in names for state in self._sim.topic(name).partitions]

    def _reading(self, topic: str, partition: int, *, decided: bool) -> Reading:
        reading = self._sim.checkers.reading(self._sim.ledger(topic, partition), decided=decided)
        self._readings.append(reading)
        return reading

    def _consume(self, client: Client, *, decided: bool) -> None:
        clean = {topic.name for topic in self._plan.topics if topic.cleaning is not Cleaning.UNCLEAN}
        readings = {place: self._reading(*place, decided=decided) for place in self._places() if place[0] in clean}
        rack = f"rack-{client.rng.randrange(self._plan.racks)}" if self._plan.racks else ""
        consumer = SimConsumer(client, readings, decided=decided, rack=rack)
        client.start(consumer.run(), "consumes")

    def _sent(self, client: Client, count: int, sizes: tuple[int, ...], **how: Any) -> Sent:
        """A record for any partition. In a compacted topic it has a key, and some records have no value."""
        rng = client.rng
        topic, partition = rng.choice(self._places(decided="transaction" in how))
        value = f"{client.process.name}-{count} ".encode() + b"." * rng.choice(sizes)
        sent = Sent(topic, partition, value, rng.choice((-1, -1, -1, 1)), **how)
        if topic in self._keyed:
            sent.key, sent.tombstone = b"key-%d" % rng.randrange(KEYS), rng.random() < 0.15
        if sent.transaction is not None:
            sent.acks = -1
            sent.transaction.sent.append(sent)
        self._sim.checkers.sending(sent)
        return sent

    async def _produce(self, client: Client) -> None:
        count = 0
        while not self._stopping:
            count += 1
            await client.produce(self._sent(client, count, (0, 10, 100, 1000)))
            await client.sleep(client.rng.uniform(0, self._pace))
        self._running -= 1

    async def _transact(self, client: Client, producer_id: int) -> None:
        """One transaction after the other. It aborts if the outcome of a record is uncertain, and sometimes otherwise.
        Sometimes the producer crashes inside a transaction; what the old instance still sends after its replacement
        must have no effect.
        """
        rng, count = client.rng, 0
        coordinator = Coordinator(self._sim, producer_id, rng)
        while not self._stopping:
            transaction = coordinator.begin()
            transaction.registered.add(rng.choice(self._places(decided=True)))
            for _ in range(rng.randint(1, 5)):
                count += 1
                sent = self._sent(client, count, (0, 100), transaction=transaction)
                await client.produce(sent)
                if sent.fate is not Fate.ACKNOWLEDGED:
                    break
                await client.sleep(rng.choice((0.0, 0.0, rng.uniform(0, 2 * self._pace))))
            certain = all(sent.fate is Fate.ACKNOWLEDGED for sent in transaction.sent)
            if certain and rng.random() < 0.2:
                zombie = self._sim.client()
                zombie.start(self._linger(zombie, transaction), "continues after its replacement")
                await coordinator.init(client)
            else:
                await coordinator.end(client, transaction, commit=certain and rng.random() < 0.7)
            await client.sleep(rng.uniform(0, 4 * self._pace))
        self._running -= 1

    async def _linger(self, client: Client, transaction: Transaction) -> None:
        """The old instance of a producer continues to send to the partitions of its transaction."""
        for count in range(3):
            topic, partition = client.rng.choice(transaction.places)
            value = f"{client.process.name}-{count}".encode()
            sent = Sent(topic, partition, value, -1, key=b"key-0", transaction=transaction)
            transaction.sent.append(sent)
            self._sim.checkers.sending(sent)
            await client.produce(sent, attempts_max=3)
            if sent.fate is not Fate.ACKNOWLEDGED:
                break
            await client.sleep(client.rng.uniform(0, 0.3))

    async def _ask_ends(self, client: Client) -> None:
        """Ask the leaders repeatedly for the end of the committed log."""
        while not self._stopping:
            topic, partition = client.rng.choice(self._places())
            try:
                ledger = self._sim.ledger(topic, partition)
                asked_at, forgiven = ledger.end, ledger.forgiven
                reported = await client.reported_end(topic, partition)
            except TidelogError:
                client.forget(topic, partition)
            else:
                self._sim.checkers.reported_end(ledger, *reported, asked_at if ledger.forgiven == forgiven else 0)
            await client.sleep(client.rng.uniform(0, 0.6))

    async def _produce_once_each(self, client: Client) -> None:
        """One idempotent producer after the other, each with its own ID."""
        run_number = 0
        while not self._stopping:
            run_number += 1
            await self._bursts(client, run_number)
        self._running -= 1

    async def _bursts(self, client: Client, run_number: int) -> None:
        """Bursts of records, with several batches of a partition in flight; some are cancelled early."""
        rng = client.rng
        producer = SimProducer(
            client,
            self._sim.checkers,
            None,
            run_number=run_number,
            batch_bytes=rng.choice((300, 1_500)),
            linger_ms=rng.choice((0, 5)),
            request_timeout_ms=rng.choice((800, 3_000)),
            delivery_timeout_ms=rng.choice((3_000, 10_000, 30_000)),
        )
        await producer.start()
        count, lasts = 0, rng.choice((5, 30, 200))
        while not self._stopping and count < lasts:
            topic, partition = rng.choice(self._places())
            calls = []
            at_once = rng.random() < AT_ONCE
            for _ in range(rng.choice((1, 3, 12))):
                count += 1
                value = f"{producer.name}.{run_number}-{count} ".encode() + b"." * rng.choice((0, 10, 200))
                key = b"key-%d" % rng.randrange(KEYS) if topic in self._keyed else None
                call = producer.enqueue(topic, value, partition, key)
                if at_once:
                    calls.append(client.start(call, f"calls {count}"))
                else:
                    await call
            for each in calls:
                await each
            await client.sleep(rng.uniform(0, 2 * self._pace))
        await producer.stop()

    async def _produce_to_kafka(self, kafka: KafkaClient, number: int) -> None:
        """Bursts of records to one partition after the other, some of which nothing acknowledges. Producers share the
        connections."""
        client, count = kafka.client, 0
        producer = SimKafkaProducer(kafka, self._sim.checkers, number)
        await producer.start()
        while not self._stopping:
            topic, partition = client.rng.choice(self._places())
            burst = []
            for _ in range(client.rng.choice((1, 3, 12))):
                count += 1
                value = f"{client.process.name}.{number}-{count} ".encode() + b"." * client.rng.choice((0, 10, 200))
                key = b"key-%d" % client.rng.randrange(KEYS) if topic in self._keyed else None
                burst.append(Sent(topic, partition, value, -1, key=key))
            if client.rng.random() < UNACKNOWLEDGED:
                await producer.send_unacknowledged(burst.pop())
            if burst:
                await producer.send(burst)
            await client.sleep(client.rng.uniform(0, 6 * self._pace))
        self._running -= 1

    def _read_from_kafka(self, kafka: KafkaClient, *, decided: bool) -> None:
        clean = {topic.name for topic in self._plan.topics if topic.cleaning is not Cleaning.UNCLEAN}
        readings = {place: self._reading(*place, decided=decided) for place in self._places() if place[0] in clean}
        kafka.client.start(SimKafkaReader(kafka, readings, decided=decided).run(), "reads from Kafka's listener")

    async def _churn(self, client: Client, replicas: int) -> None:
        """Create a topic, write a few records to it, delete it. The checkers see each new topic as another
        partition."""
        count = 0
        settings = {"segment.index.bytes": "16384"}
        while not self._stopping:
            try:
                await client.create_topic(CHURNED, 2, replicas, settings)
            except TopicExists:  # the answer to its deletion was lost
                pass
            except InvalidReplicationFactor:  # too few nodes are unfenced now
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
        """Send no new records; every record in flight must get its answer."""
        self._stopping = True
        self._sim.run_until(lambda: self._running == 0, within=within, what="every producer has its answer")

    def all_is_read(self, within: float) -> None:
        """Wait until every reader has reached the end, which no producer moves any more."""
        are_complete = once_each(self._readings, lambda reading: reading.complete)
        self._sim.run_until(are_complete, within=within, what=self._who_lags)

    def _who_lags(self) -> str:
        late = [f"{reading.ledger.name} at {reading.position}" for reading in self._readings if not reading.complete]
        return f"every reader comes to the end: {', '.join(late)}"


class CleaningWatch:
    """Watches the logs of compacted topics once a second: if segments have changed, it compares the whole log with
    what was committed."""

    def __init__(self, sim: Simulation, topics: set[str]) -> None:
        self._sim, self._topics = sim, topics
        self._seen: dict[Log, list[tuple[int, int]]] = {}
        self._look()

    def _look(self) -> None:
        sim = self._sim
        for machine in sim.machines.values():
            for replica in machine.replicas() if self._topics else ():
                log = replica.log
                if replica.name.rpartition("-")[0] not in self._topics or not isinstance(log, Log):
                    continue
                # While it is truncated, its files and its end do not agree, and no part of the node reads it. The next
                # look is a second later.
                if not log.closed and log.damage is None and log.truncation is None:
                    shape = [(int(segment.base_offset), segment.size) for segment in log.segments[:-1]]
                    if self._seen.get(log) != shape:
                        self._seen[log] = shape
                        sim.checkers.look_again(machine.name, replica)
        sim.loop.call_world_later_us(MICROS, self._look)


def _settings(coordinators: CoordinatorPlan) -> CoordinatorSettings:
    return coordinator_settings(partitions=coordinators.partitions, segment_bytes=coordinators.segment_bytes)


def run(plan: Plan, *, show: Callable[[str], None] | None = None) -> Outcome:
    """Run the world of a plan. A violation is an outcome, not an exception."""
    began = time.perf_counter()  # noqa: TID251 - the report contains the real duration
    failure: str | None = None
    sim = Simulation(plan.seed, show=show)
    try:
        with sim:
            sim.network.has_kafka = plan.has_kafka
            sim.start(
                nodes=plan.nodes,
                topics=(),
                directories=plan.directories,
                voters=plan.voters,
                snapshot_bytes=plan.snapshot_bytes,
                racks=tuple(f"rack-{number % plan.racks}" for number in range(plan.nodes)) if plan.racks else (),
                cleaning=plan.tiered
                or any(topic.cleaning in (Cleaning.COMPACTED, Cleaning.EXPIRING) for topic in plan.topics),
                tiered=plan.tiered,
                sweeping=plan.tiered,
                coordinators=SCRIPTED if plan.coordinators is None else _settings(plan.coordinators),
                replication=EVENS_OUT if plan.rebalances else None,
            )
            for topic in plan.topics:
                sim.create_topic(
                    topic.name,
                    partitions=topic.partitions,
                    replicas=topic.replicas,
                    min_insync=topic.min_insync,
                    configs=dict(topic.configs),
                )
            workload = Workload(sim, plan)
            coordinated = None if plan.coordinators is None else CoordinatedWorkload(sim, plan, plan.coordinators)
            CleaningWatch(sim, {topic.name for topic in plan.topics if topic.cleaning is Cleaning.COMPACTED})
            nemesis = Nemesis(sim, plan, coordinated)
            sim.run_for(plan.seconds)
            nemesis.stop()
            sim.heal_everything()
            if coordinated is not None:
                coordinated.recover()
                coordinated.stop_transactors(within=60)
            workload.stop(within=60)
            if coordinated is not None:
                coordinated.finish(within=60)
            if plan.tiered:
                sim.run_until(lambda: tier_is_known(sim), within=TIER_WITHIN, what="leaders know the remote tier")
            sim.must_heal()
            workload.all_is_read(within=60)
    except (SimulationError, Exception) as error:  # noqa: BLE001 - any error that ends a world is its outcome
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
