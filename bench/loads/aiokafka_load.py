"""The load through aiokafka: acks=all and a linger of 5 ms, defaults otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from functools import partial
from itertools import cycle
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.loads.job import DRAIN_SECONDS, STRIDE, TICK_SECONDS, Count, Gate, Job, Pace, keys

_BURST: Final = 50


async def produce(job: Job, gate: Gate) -> dict[str, Any]:
    """Records at full speed, or at a pace."""
    producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap, acks="all", linger_ms=5)
    await producer.start()
    try:
        await producer.partitions_for(job.topic)
        count = Count()
        if job.warm_up_seconds:
            await _send(producer, job._replace(seconds=job.warm_up_seconds), count)
        await gate.wait_async()
        count.begin()
        await _send(producer, job, count)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(producer.flush(), DRAIN_SECONDS)
        count.end()
    finally:
        await producer.stop()
    return count.result(job.value_bytes)


async def _send(producer: AIOKafkaProducer, job: Job, count: Count) -> None:
    value = os.urandom(job.value_bytes)
    chosen = cycle(keys() if job.keyed else [None])
    pace = Pace(job.rate, job.seconds, 1 if job.rate else _BURST)
    number = 0
    while (due := pace.due()) >= 0:
        if not due:
            await asyncio.sleep(TICK_SECONDS)
        for _ in range(due):
            number += 1
            sent_at = time.perf_counter()
            delivery = await producer.send(job.topic, value, next(chosen))
            if not number % STRIDE:
                delivery.add_done_callback(partial(_note, count, sent_at))


def _note(count: Count, sent_at: float, delivery: asyncio.Future[Any]) -> None:
    error = delivery.exception()
    if error is None:
        count.acknowledged(sent_at)
    else:
        count.failure(error)


async def consume(job: Job, gate: Gate) -> dict[str, Any]:
    """Record objects of all partitions from the start, until the end of the log or of the time."""
    consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
        consumer.assign(partitions)
        left = sum((await consumer.end_offsets(partitions)).values())
        await consumer.seek_to_beginning(*partitions)
        left -= sum(map(len, (await consumer.getmany(timeout_ms=10_000, max_records=1_000)).values()))
        await gate.wait_async()
        began, records, size = time.perf_counter(), 0, 0
        while records < left and time.perf_counter() < began + job.seconds:
            for found in (await consumer.getmany(timeout_ms=500)).values():
                records += len(found)
                size += sum(len(record.value or b"") for record in found)
        ended = time.perf_counter()
    finally:
        await consumer.stop()
    return {"records": records, "bytes": size, "began": began, "ended": ended}
