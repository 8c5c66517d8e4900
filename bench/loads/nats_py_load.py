"""The load through nats-py: each record is a message of its own, with up to 4,000 unconfirmed (its default)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import zlib
from functools import partial
from itertools import cycle
from typing import Any, Final

import nats
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig

from bench.loads.job import DRAIN_SECONDS, STRIDE, TICK_SECONDS, Count, Gate, Job, Pace, keys

_BURST: Final = 50


def _stream(topic: str, partition: int) -> str:
    return f"{topic.replace('.', '_')}-{partition}"


async def create_topic(job: Job, _gate: Gate) -> dict[str, Any]:
    """One stream of three replicas for each partition."""
    async with await nats.connect(job.bootstrap.split(",")) as connection:
        manager = connection.jetstream(timeout=30)
        for number in range(job.partitions):
            name = _stream(job.topic, number)
            config = StreamConfig(name=name, subjects=[name], num_replicas=3, storage=StorageType.FILE)
            await manager.add_stream(config)
    return {}


async def delete_topic(job: Job, _gate: Gate) -> dict[str, Any]:
    async with await nats.connect(job.bootstrap.split(",")) as connection:
        manager = connection.jetstream(timeout=30)
        for number in range(job.partitions):
            await manager.delete_stream(_stream(job.topic, number))
    return {}


async def produce(job: Job, gate: Gate) -> dict[str, Any]:
    """Records at full speed, or at a pace; those without a key take one partition after the other."""
    async with await nats.connect(job.bootstrap.split(",")) as connection:
        stream = connection.jetstream(timeout=30)
        count = Count()
        if job.warm_up_seconds:
            await _send(stream, job._replace(seconds=job.warm_up_seconds), count)
        await gate.wait_async()
        count.begin()
        await _send(stream, job, count)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stream.publish_async_completed(), DRAIN_SECONDS)
        count.end()
    return count.result(job.value_bytes)


async def _send(stream: JetStreamContext, job: Job, count: Count) -> None:
    value = os.urandom(job.value_bytes)
    subjects = [_stream(job.topic, number) for number in range(job.partitions)]
    if job.keyed:
        subjects = [subjects[zlib.crc32(key) % job.partitions] for key in keys()]
    chosen = cycle(subjects)
    pace = Pace(job.rate, job.seconds, 1 if job.rate else _BURST)
    number = 0
    while (due := pace.due()) >= 0:
        if not due:
            await asyncio.sleep(TICK_SECONDS)
        for _ in range(due):
            number += 1
            sent_at = time.perf_counter()
            confirmation = await stream.publish_async(next(chosen), value, wait_stall=30)
            if not number % STRIDE:
                confirmation.add_done_callback(partial(_note, count, sent_at))


def _note(count: Count, sent_at: float, confirmation: asyncio.Future[Any]) -> None:
    error = confirmation.exception()
    if error is None:
        count.acknowledged(sent_at)
    else:
        count.failure(error)


async def latencies(job: Job, gate: Gate) -> dict[str, Any]:
    """One record at a time to partition 0."""
    value, subject = os.urandom(job.value_bytes), _stream(job.topic, 0)
    found = []
    async with await nats.connect(job.bootstrap.split(",")) as connection:
        stream = connection.jetstream(timeout=30)
        for _ in range(50):
            await stream.publish(subject, value)
        await gate.wait_async()
        for _ in range(job.repeats):
            began = time.perf_counter()
            await stream.publish(subject, value)
            found.append((time.perf_counter() - began) * 1000)
    return {"latencies_ms": found}
