"""Clients of Kafka's protocol at the listener of simulated nodes: connections are cut, and leaders change beside them.

What the answers say, in which order they come, and what is read is judged throughout (kafka_client.py).
"""

from __future__ import annotations

import itertools
from contextlib import suppress

from testbed.sim.loop import MICROS
from testbed.sim.workload import Fate, Sent
from testbed.sim.world import Simulation
from tests.sim.kafka_client import KafkaClient, SimKafkaProducer, SimKafkaReader
from tests.sim.stories import TOPIC
from tidelog.errors import ElectionNotNeeded

PARTITIONS = 3
BURSTS = 24
"""Of each producer, at least."""

PAUSE_S = 0.05
"""Limit of the time between two bursts."""

SIZES = (0, 50, 600)


class KafkaClients:
    """Two producers that share their connections, and a reader."""

    def __init__(self, sim: Simulation) -> None:
        self.sim, self._is_stopping = sim, False
        sim.network.has_kafka = True
        sim.start(partitions=PARTITIONS, min_insync=2)
        self.sent: list[Sent] = []
        kafka, reading = KafkaClient(sim.client()), KafkaClient(sim.client())
        places = [(TOPIC, number) for number in range(PARTITIONS)]
        self.readings = {place: sim.checkers.reading(sim.ledger(*place)) for place in places}
        reading.client.start(SimKafkaReader(reading, self.readings, decided=False).run(), "reads")
        self._producers = [
            kafka.client.start(
                self._produce(SimKafkaProducer(kafka, sim.checkers, number), number), f"produces {number}"
            )
            for number in range(2)
        ]

    async def _produce(self, producer: SimKafkaProducer, number: int) -> None:
        rng = self.sim.clients[0].rng
        await producer.start()
        for burst in itertools.count():
            if self._is_stopping and burst >= BURSTS:
                return
            await self.sim.clients[0].sleep(rng.uniform(0, PAUSE_S))
            name = f"{number}-{burst}"
            partition = (burst + number * (burst % 2)) % PARTITIONS  # with the other one, or beside it
            records = [
                Sent(TOPIC, partition, f"{name}-{each} ".encode() + b"." * rng.choice(SIZES), -1) for each in range(12)
            ]
            if burst % 3 == 2:
                await producer.send_unacknowledged(Sent(TOPIC, partition, f"{name} lonely".encode(), 0))
            self.sent += records
            await producer.send(records)

    def must_finish(self) -> None:
        """Everything is acknowledged, and read."""
        self._is_stopping = True
        self.sim.run_until(
            lambda: all(each.done() for each in self._producers), within=120, what="every burst has its outcome"
        )
        for each in self._producers:
            each.result()
        assert all(each.fate is Fate.ACKNOWLEDGED for each in self.sent), "nothing is left uncertain"
        self.sim.run_until(
            lambda: all(each.complete for each in self.readings.values()), within=60, what="the reader has everything"
        )
        assert sum(each.count for each in self.readings.values()) >= len(self.sent)


def kafka_clients_are_answered_in_order(sim: Simulation) -> None:
    """Goal: each request of a connection has its answer, in order, and no other. Method: two producers share a
    connection to each leader and send ahead; nothing else happens."""
    clients = KafkaClients(sim)
    sim.network.calm_since = sim.loop.time()
    clients.must_finish()


def kafka_client_reads_late(sim: Simulation) -> None:
    """Goal: a client that does not read has one answer in the memory of the node, and has all answers once it reads.
    Method: ask three times for more than the system takes, and read seconds later; others are served meanwhile."""
    clients = KafkaClients(sim)
    sim.network.calm_since = sim.loop.time()
    place = (TOPIC, 0)
    sim.run_until(lambda: clients.readings[place].count >= 3 * BURSTS, within=30, what="there are records")
    late = sim.client()
    reading = late.start(KafkaClient(late).read_late(place, requests=3, after_s=5), "reads late")
    clients.must_finish()
    sim.run_until(reading.done, within=30, what="the late client has its answers")
    reading.result()


def connections_of_kafka_clients_are_cut(sim: Simulation) -> None:
    """Goal: what is sent again is written once, and a request that came in part leaves nothing. Method: cut
    connections again and again, some while requests and answers are on their way."""
    clients = KafkaClients(sim)
    for _ in range(15):
        sim.run_for(sim.rng.uniform(0.05, 0.5))
        sim.network.cut_byte_streams(0.7, MICROS // 2)
    clients.must_finish()


def leaders_of_kafka_clients_change(sim: Simulation) -> None:
    """Goal: an error of a partition reaches its client, which finds the leader. Method: move partitions between nodes
    while records are sent to them; kill a node at last."""
    clients = KafkaClients(sim)
    for turn in range(2):
        for partition in range(PARTITIONS):
            replicas = [(partition + turn + each) % 3 for each in range(3)]
            sim.reassign(TOPIC, partition, *replicas)
            with suppress(ElectionNotNeeded):  # the controller may have been quicker
                sim.elect(TOPIC, partition)
            sim.run_for(0.1)
    sim.restart(sim.kill(sim.leader(TOPIC)), after=5)
    clients.must_finish()


ALL = [
    kafka_clients_are_answered_in_order,
    kafka_client_reads_late,
    connections_of_kafka_clients_are_cut,
    leaders_of_kafka_clients_change,
]
