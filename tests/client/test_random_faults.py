"""Producer and consumer with random faults: streams break, nodes reject, do not answer and stop, leaders move."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.client.memory_cluster import CLOCK, SILENCE, MemoryCluster, memory_cluster, start
from tidelog.client.consumer import Consumer
from tidelog.client.delivery import Delivery
from tidelog.client.producer import Producer
from tidelog.errors import FencedLeaderEpoch, KafkaStorageError, LeadershipLost, NotEnoughReplicas, RequestTimedOut
from tidelog.types import PartitionIndex, TopicPartition

PARTITIONS = 3
RECORDS = 600


class Weather:
    """What goes wrong, drawn by lot until it clears."""

    def __init__(self, cluster: MemoryCluster, rng: random.Random) -> None:
        self._cluster, self._rng = cluster, rng
        self.clear = False
        for node in cluster.nodes:
            node.on_produce = self._on_produce
            node.on_fetch = self._on_fetch

    def _on_produce(self, entry: Any) -> object:
        if self.clear or self._rng.random() < 0.85:
            return None
        return self._rng.choice(
            [
                "break",
                "lose",
                SILENCE,
                NotEnoughReplicas("one replica in sync, two needed"),
                FencedLeaderEpoch("an older epoch"),
                LeadershipLost("stopped leading"),
                KafkaStorageError("the disk refused"),
                RequestTimedOut("no acks in time"),
            ]
        )

    def _on_fetch(self, entry: Any) -> object:
        if self.clear or self._rng.random() < 0.8:
            return None
        return self._rng.choice(["break", SILENCE, FencedLeaderEpoch("an older epoch")])

    async def blow(self) -> None:
        """Leaders move, nodes stop and come back."""
        for _ in range(15):
            await CLOCK.sleep_ms(self._rng.randrange(10, 120))
            if self._rng.random() < 0.3:
                node = self._rng.choice(self._cluster.nodes[1:])
                await node.stop()
                await CLOCK.sleep_ms(self._rng.randrange(10, 150))
                await node.start()
            else:
                self._cluster.lead("orders", self._rng.randrange(PARTITIONS), self._rng.choice([-1, 0, 1, 2]))
        for partition in range(PARTITIONS):
            self._cluster.lead("orders", partition, self._rng.randrange(3))
        self.clear = True


async def write(producer: Producer, rng: random.Random) -> list[tuple[int, int, Delivery]]:
    """Numbers from 0 into each partition: (partition, number, delivery) of each record."""
    sent = []
    numbers = [0] * PARTITIONS
    for _ in range(RECORDS):
        partition = rng.randrange(PARTITIONS)
        delivery = await producer.enqueue("orders", str(numbers[partition]).encode(), partition=partition)
        sent.append((partition, numbers[partition], delivery))
        numbers[partition] += 1
        if rng.random() < 0.05:
            await CLOCK.sleep_ms(rng.randrange(40))
    await producer.flush()
    return sent


async def read(consumer: Consumer, cluster: MemoryCluster, done: asyncio.Event) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    consumer.assign([("orders", partition) for partition in range(PARTITIONS)])
    while not done.is_set() or any(
        len(found[partition]) < cluster.topics["orders"].partitions[partition].end for partition in found
    ):
        for record in await consumer.poll(timeout=0.1):
            assert record.offset == len(found[record.partition]), "each offset once, none left out"
            found[record.partition].append(int(record.value or b""))
    assert await consumer.position(TopicPartition("orders", PartitionIndex(0))) == len(found[0])
    return found


@pytest.mark.parametrize("kind", ["raise", "resend", "idempotent"])
@pytest.mark.parametrize("seed", range(3))
async def test_reported_outcomes_match_the_log(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    async with memory_cluster(3) as cluster:
        cluster.create("orders", PARTITIONS)
        done = asyncio.Event()
        async with (
            Producer(
                cluster.bootstrap,
                linger_ms=1,
                batch_bytes=300,
                request_timeout_ms=400,
                delivery_timeout_ms=2_000,
                retry_backoff_ms=20,
                retry_backoff_ms_max=100,
                enable_idempotence=kind == "idempotent",
                on_unknown="resend" if kind == "resend" else "raise",
                rng=rng,
            ) as producer,
            Consumer(cluster.bootstrap, max_wait_ms=50, request_timeout_ms=500, rng=rng) as consumer,
        ):
            await producer.partitions("orders")
            weather = Weather(cluster, rng)
            reading = start(read(consumer, cluster, done))
            blowing = start(weather.blow())
            sent = await write(producer, rng)
            await blowing
            last = await producer.send("orders", b"1000000", partition=0)
            done.set()
            found = await reading
        logs = {
            partition: [int(value or b"") for value in cluster.values("orders", partition)]
            for partition in range(PARTITIONS)
        }
        assert found == logs
        assert logs[0][last.offset] == 1_000_000, "without faults everything works"
        judge(sent, logs, kind)


def judge(sent: list[tuple[int, int, Delivery]], logs: dict[int, list[int]], kind: str) -> None:
    outcomes = {"acknowledged": 0, "unknown": 0, "not written": 0}
    for partition, number, delivery in sent:
        copies = logs[partition].count(number)
        error = delivery.exception()
        if error is None:
            outcomes["acknowledged"] += 1
            assert logs[partition][delivery.result().offset] == number
            assert copies == 1 or kind == "resend"
        elif error.written is None:
            outcomes["unknown"] += 1
            assert copies <= 1 or kind == "resend"
        else:
            outcomes["not written"] += 1
            assert copies == 0, f"it is written, despite {error!r}"
    for log in logs.values():
        firsts = list(dict.fromkeys(log))
        assert firsts == sorted(firsts), "in the order of the calls"
        assert kind == "resend" or firsts == log, "once"
    assert outcomes["acknowledged"] > 0
