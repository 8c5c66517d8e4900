"""Offset commits and transactions through aiokafka, whose single operations take less time than librdkafka's."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.loads.coordination import Tally, ids
from bench.loads.job import Gate, Job


async def commits(job: Job, gate: Gate) -> dict[str, Any]:
    """Each of `consumers` simple consumers commits one offset after the other."""
    consumers = [
        AIOKafkaConsumer(bootstrap_servers=job.bootstrap, group_id=name, enable_auto_commit=False)
        for name in ids("bench", job.consumers)
    ]
    place = TopicPartition(job.topic, 0)
    tally = Tally()

    async def one(consumer: AIOKafkaConsumer) -> None:
        number = 0
        while time.perf_counter() < tally.deadline:
            number += 1
            began = time.perf_counter()
            await consumer.commit({place: number})
            tally.done(began)

    for consumer in consumers:
        await consumer.start()
        consumer.assign([place])
        await consumer.commit({place: 0})
    await gate.wait_async()
    tally.begin(job.seconds)
    await asyncio.gather(*map(one, consumers))
    tally.end()
    await asyncio.gather(*(consumer.stop() for consumer in consumers))
    return tally.result()


async def transactions(job: Job, gate: Gate) -> dict[str, Any]:
    """One transaction after the other, each of `batch_records` records."""
    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap, transactional_id=ids("transactions", 1)[0])
    await producer.start()
    value = os.urandom(job.value_bytes)

    async def once() -> None:
        async with producer.transaction():
            for number in range(job.batch_records):
                await producer.send(job.topic, value, partition=number % job.partitions)

    tally = Tally()
    await once()
    await gate.wait_async()
    tally.begin(job.seconds)
    while time.perf_counter() < tally.deadline:
        began = time.perf_counter()
        await once()
        tally.done(began)
    tally.end()
    await producer.stop()
    return tally.result()
