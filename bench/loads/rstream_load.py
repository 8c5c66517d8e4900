"""The load through rstream: batches of 100 records, up to 20,000 records unconfirmed.

The client has no linger below half a second of its own, so batches are built here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import zlib
from itertools import cycle
from typing import Any, Final

from rstream import Producer

from bench.loads.job import DRAIN_SECONDS, TICK_SECONDS, Count, Gate, Job, Pace, keys

_BATCH: Final = 100
_UNCONFIRMED_MAX: Final = 20_000


def _connect(job: Job) -> Producer:
    host, _, port = job.bootstrap.split(",")[0].rpartition(":")
    return Producer(host, int(port), username="guest", password="guest")  # noqa: S106  (the default user, on loopback)


def _stream(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


async def create_topic(job: Job, _gate: Gate) -> dict[str, Any]:
    """One stream for each partition; its replicas are as many as there are nodes."""
    async with _connect(job) as producer:
        for number in range(job.partitions):
            await producer.create_stream(_stream(job.topic, number))
    return {}


async def delete_topic(job: Job, _gate: Gate) -> dict[str, Any]:
    async with _connect(job) as producer:
        for number in range(job.partitions):
            await producer.delete_stream(_stream(job.topic, number))
    return {}


class _Window:
    """Batches that are not confirmed yet."""

    def __init__(self, count: Count) -> None:
        self.count, self.unconfirmed = count, 0
        self._room = asyncio.Event()

    async def wait_room(self, most: int = _UNCONFIRMED_MAX, seconds: float = 30) -> None:
        """Wait until fewer than `most` are unconfirmed. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while self.unconfirmed >= most:
                self._room.clear()
                await self._room.wait()

    def confirmed(self) -> None:
        self.unconfirmed -= 1
        self._room.set()


class _Batch:
    """Receives the confirmation of each record of a batch."""

    def __init__(self, window: _Window, records: int) -> None:
        self._window, self._left, self._sent_at = window, records, time.perf_counter()
        window.unconfirmed += records

    def __call__(self, status: Any) -> None:
        self._window.confirmed()
        self._left -= 1
        if not status.is_confirmed:
            self._window.count.failure(f"refused with code {status.response_code}")
        elif not self._left:
            self._window.count.acknowledged(self._sent_at)


async def produce(job: Job, gate: Gate) -> dict[str, Any]:
    """Records at full speed, or at a pace; those without a key take one partition after the other."""
    async with _connect(job) as producer:
        for number in range(job.partitions):  # connects to the leader of each stream
            await producer.send_wait(_stream(job.topic, number), b"first")
        count = Count()
        window = _Window(count)
        if job.warm_up_seconds:
            await _send(producer, job._replace(seconds=job.warm_up_seconds), window)
        await gate.wait_async()
        count.begin()
        await _send(producer, job, window)
        with contextlib.suppress(TimeoutError):
            await window.wait_room(1, DRAIN_SECONDS)
        count.end()
    return count.result(job.value_bytes, _BATCH)


async def _send(producer: Producer, job: Job, window: _Window) -> None:
    value = os.urandom(job.value_bytes)
    streams = [_stream(job.topic, number) for number in range(job.partitions)]
    keyed = cycle([streams[zlib.crc32(key) % job.partitions] for key in keys()])
    whole = cycle(streams)
    waiting: dict[str, list[bytes]] = {name: [] for name in streams}
    pace = Pace(job.rate, job.seconds, _BATCH)
    while (due := pace.due()) >= 0:
        if not due:
            await asyncio.sleep(TICK_SECONDS)
        if not job.keyed:
            for _ in range(due // _BATCH):
                await window.wait_room()
                await producer.send_batch(next(whole), [value] * _BATCH, on_publish_confirm=_Batch(window, _BATCH))
            continue
        for _ in range(due):
            name = next(keyed)
            waiting[name].append(value)
            if len(waiting[name]) == _BATCH:
                batch, waiting[name] = waiting[name], []
                await window.wait_room()
                await producer.send_batch(name, batch, on_publish_confirm=_Batch(window, _BATCH))


async def latencies(job: Job, gate: Gate) -> dict[str, Any]:
    """One record at a time to partition 0."""
    value, stream = os.urandom(job.value_bytes), _stream(job.topic, 0)
    found = []
    async with _connect(job) as producer:
        for _ in range(50):
            await producer.send_wait(stream, value)
        await gate.wait_async()
        for _ in range(job.repeats):
            began = time.perf_counter()
            await producer.send_wait(stream, value)
            found.append((time.perf_counter() - began) * 1000)
    return {"latencies_ms": found}
