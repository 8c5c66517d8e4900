"""The load through Tidelog's own client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from functools import partial
from itertools import cycle
from typing import Any, Final

from bench import cluster_load
from bench.loads.job import DRAIN_SECONDS, STRIDE, TICK_SECONDS, Count, Gate, Job, Pace, keys
from tidelog import Admin, Consumer, Delivery, Producer

_BURST: Final = 200
"""Records between two reads of the clock."""
_RECORD_BYTES: Final = 24
_HEADER_BYTES: Final = 61
"""What the producer counts for a record beside its value, and for a batch."""


async def create_topic(job: Job, _gate: Gate) -> dict[str, Any]:
    """Create a topic; answers once each partition has a leader and all replicas are in sync."""
    configs = {
        "min.insync.replicas": str(min(2, job.replicas)),
        "durability": "fsync" if job.fsync else "page-cache",
        "file.delete.delay.ms": "0",
    }
    async with Admin(job.bootstrap) as admin:
        await admin.create_topic(job.topic, partitions=job.partitions, replication_factor=job.replicas, configs=configs)
        deadline = time.perf_counter() + 120
        while True:
            topic = await admin.describe_topic(job.topic)
            led = [each for each in topic.partitions if each.leader >= 0 and len(each.isr) == len(each.replicas)]
            if len(led) == job.partitions:
                break
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{job.topic}: {len(led)} of {job.partitions} partitions are in sync after 120 s")
            await asyncio.sleep(0.1)
    async with Consumer(job.bootstrap) as consumer:  # answered by the leaders: they serve their partitions
        await consumer.end_offsets(await consumer.partitions(job.topic))
    return {}


async def delete_topic(job: Job, _gate: Gate) -> dict[str, Any]:
    async with Admin(job.bootstrap) as admin:
        await admin.delete_topic(job.topic)
    return {}


async def produce(job: Job, gate: Gate) -> dict[str, Any]:
    """acks=all, the client's defaults: linger 5 ms, idempotent."""
    batch_bytes = 256 * 1024
    if job.batch_records:
        batch_bytes = job.batch_records * (job.value_bytes + _RECORD_BYTES) + _HEADER_BYTES
    producer = Producer(job.bootstrap, batch_bytes=batch_bytes)
    async with producer:
        await producer.partitions(job.topic)
        count = Count()
        if job.warm_up_seconds:
            await _send(producer, job._replace(seconds=job.warm_up_seconds), count)
        await gate.wait_async()
        count.begin()
        await _send(producer, job, count)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(producer.flush(), DRAIN_SECONDS)
        count.end()
        await producer.close(flush=False)
    return count.result(job.value_bytes, job.batch_records or STRIDE)


async def _send(producer: Producer, job: Job, count: Count) -> None:
    value = os.urandom(job.value_bytes)
    chosen = cycle(keys() if job.keyed else [None])
    targets = cycle(range(job.partitions))
    pace = Pace(job.rate, job.seconds, job.batch_records or (1 if job.rate else _BURST))
    number = 0
    while (due := pace.due()) >= 0:
        if not due:
            await asyncio.sleep(TICK_SECONDS)
        if job.batch_records:
            for _ in range(due // job.batch_records):
                await _send_batch(producer, job, value, next(targets), count)
            continue
        for _ in range(due):
            number += 1
            if number % STRIDE:
                await producer.enqueue(job.topic, value, next(chosen))
            else:
                sent_at = time.perf_counter()
                delivery = await producer.enqueue(job.topic, value, next(chosen))
                delivery.add_done_callback(partial(_note, count, sent_at))


async def _send_batch(producer: Producer, job: Job, value: bytes, partition: int, count: Count) -> None:
    sent_at = time.perf_counter()
    for _ in range(job.batch_records):
        delivery = await producer.enqueue(job.topic, value, partition=partition)
    delivery.add_done_callback(partial(_note, count, sent_at))


def _note(count: Count, sent_at: float, delivery: Delivery) -> None:
    error = delivery.exception()
    if error is None:
        count.acknowledged(sent_at)
    else:
        count.failure(error)


async def latencies(job: Job, gate: Gate) -> dict[str, Any]:
    """One record at a time to partition 0, linger 0."""
    value = os.urandom(job.value_bytes)
    found = []
    async with Producer(job.bootstrap, linger_ms=0) as producer:
        for _ in range(50):
            await producer.send(job.topic, value, partition=0)
        await gate.wait_async()
        for _ in range(job.repeats):
            began = time.perf_counter()
            await producer.send(job.topic, value, partition=0)
            found.append((time.perf_counter() - began) * 1000)
    return {"latencies_ms": found}


async def consume(job: Job, gate: Gate) -> dict[str, Any]:
    """Record objects of all partitions from the start, until the end of the log or of the time."""
    async with Consumer(job.bootstrap) as consumer:
        partitions = await consumer.partitions(job.topic)
        left: int = sum((await consumer.end_offsets(partitions)).values())
        consumer.assign(partitions)
        left -= len(await consumer.poll(max_records=1_000, timeout=10))
        await gate.wait_async()
        began, records, size = time.perf_counter(), 0, 0
        while records < left and time.perf_counter() < began + job.seconds:
            found = await consumer.poll(max_records=10_000, timeout=1)
            records += len(found)
            size += sum(len(record.value or b"") for record in found)
        return {"records": records, "bytes": size, "began": began, "ended": time.perf_counter()}


async def tail(job: Job, gate: Gate) -> dict[str, Any]:
    """Many consumers of partition 0 at its end: records of each, and the age of every record when it is polled."""
    ages: list[float] = []
    counts = [0] * job.consumers
    began = asyncio.Event()

    async def one(number: int, ready: asyncio.Semaphore) -> None:
        async with Consumer(job.bootstrap) as consumer:
            (partition, *_) = await consumer.partitions(job.topic)
            consumer.assign([partition], start="latest")
            await consumer.poll(timeout=0.1)
            ready.release()
            await began.wait()
            deadline = time.perf_counter() + job.seconds
            while (left := deadline - time.perf_counter()) > 0:
                for record in await consumer.poll(timeout=left):
                    ages.append(time.perf_counter() - float((record.value or b"0")[:20]))
                    counts[number] += 1

    ready = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as tasks:
        for number in range(job.consumers):
            tasks.create_task(one(number, ready))
        for _ in range(job.consumers):
            await ready.acquire()
        await gate.wait_async()
        began.set()
    return {"counts": counts, "ages_ms": [age * 1000 for age in ages]}


async def feed(job: Job, gate: Gate) -> dict[str, Any]:
    """Records to partition 0 that carry the time at which they were sent, for `tail`."""
    async with Producer(job.bootstrap, linger_ms=0) as producer:
        await producer.partitions(job.topic)
        await gate.wait_async()
        pace = Pace(job.rate, job.seconds, 1)
        sent = 0
        while (due := pace.due()) >= 0:
            for _ in range(due):
                await producer.enqueue(job.topic, b"%020.9f" % time.perf_counter() + bytes(80), partition=0)
            sent += due
            await asyncio.sleep(TICK_SECONDS)
    return {"records": sent}


async def failover(job: Job, gate: Gate) -> dict[str, Any]:
    """Seconds from kill -9 of the process `pid` until each partition has acknowledged a record sent after it."""
    await gate.wait_async()
    return {"seconds": await cluster_load.failover(job.bootstrap, job.topic, partial(os.kill, job.pid, signal.SIGKILL))}
