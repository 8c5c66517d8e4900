"""Loads for measurements of a cluster: produce at full speed, produce one record at a time, consume, kill a leader."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import psutil

from bench.raw_limits import cpu_seconds
from tidelog import Consumer, Delivery, Producer, Tls

WARM_UP_SECONDS: Final = 1.0
_BURST: Final = 200
"""Records between two reads of the clock."""


class Throughput(NamedTuple):
    """The throughput, and the processor time of all processes together."""

    records_per_second: float
    megabytes_per_second: float
    cpu_ms_per_megabyte: float
    cores_taken_by_others: float
    """Processor time of all other programs of the machine meanwhile, in cores."""


class Meter:
    """Measures time and processor time of this process and the nodes, from `start` to `stop`."""

    def __init__(self, pids: list[int]) -> None:
        self._processes = [psutil.Process(), *map(psutil.Process, pids)]
        self.start()

    def start(self) -> None:
        self._began, self._used, self._busy = time.perf_counter(), self._cpu(), _busy_seconds()

    def stop(self, records: int, value_bytes: int) -> Throughput:
        took = time.perf_counter() - self._began
        used, busy, megabytes = self._cpu() - self._used, _busy_seconds() - self._busy, value_bytes / 1e6
        others = max(0.0, busy - used) / took
        return Throughput(records / took, megabytes / took, used * 1000 / megabytes, others)

    def _cpu(self) -> float:
        return sum(map(cpu_seconds, self._processes))


def _busy_seconds() -> float:
    """Processor time that the whole machine has used so far."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq


async def produce(
    bootstrap: str, topic: str, value_bytes: int, seconds: float, pids: list[int], tls: Tls | None = None
) -> Throughput:
    """Send records without keys, acks=all, at the producer's full speed; counted from the first to the last
    acknowledgement."""
    value = os.urandom(value_bytes)
    async with Producer(bootstrap, tls=tls) as producer:
        await producer.partitions(topic)
        await _fill(producer, topic, value, WARM_UP_SECONDS)
        meter = Meter(pids)
        sent = await _fill(producer, topic, value, seconds)
        return meter.stop(sent, sent * value_bytes)


async def _fill(producer: Producer, topic: str, value: bytes, seconds: float) -> int:
    """Returns the number of acknowledged records. Raises the error of any record that was not acknowledged."""
    sent = 0
    deadline = time.perf_counter() + seconds
    samples: deque[Delivery] = deque()
    while time.perf_counter() < deadline:
        for _ in range(_BURST):
            delivery = await producer.enqueue(topic, value)
        samples.append(delivery)
        sent += _BURST
        while samples and samples[0].done():
            samples.popleft().result()
    await producer.flush()
    for delivery in samples:
        delivery.result()
    return sent


async def latencies(bootstrap: str, topic: str, value_bytes: int, count: int, tls: Tls | None = None) -> list[float]:
    """Milliseconds from `send` to its result: one record at a time to one partition, acks=all, linger 0."""
    value = os.urandom(value_bytes)
    found = []
    async with Producer(bootstrap, linger_ms=0, tls=tls) as producer:
        for _ in range(20):
            await producer.send(topic, value, partition=0)
        for _ in range(count):
            began = time.perf_counter()
            await producer.send(topic, value, partition=0)
            found.append((time.perf_counter() - began) * 1000)
    return found


async def consume(bootstrap: str, topic: str, seconds: float, pids: list[int], tls: Tls | None = None) -> Throughput:
    """Poll all partitions from the start, for `seconds` or until the end."""
    async with Consumer(bootstrap, tls=tls) as consumer:
        partitions = await consumer.partitions(topic)
        left: int = sum((await consumer.end_offsets(partitions)).values())
        consumer.assign(partitions)
        left -= len(await consumer.poll(max_records=1_000, timeout=10))
        meter, records, size = Meter(pids), 0, 0
        deadline = time.perf_counter() + seconds
        while records < left and time.perf_counter() < deadline:
            found = await consumer.poll(max_records=10_000, timeout=10)
            records += len(found)
            size += sum(len(record.value or b"") for record in found)
        return meter.stop(records, size)


class _Acknowledged:
    """By partition: when it first acknowledged a record that was sent after the kill."""

    def __init__(self, partitions: int) -> None:
        self.killed_at: float | None = None
        self.first: list[float | None] = [None] * partitions

    def note(self, partition: int, sent_at: float, delivery: Delivery) -> None:
        after = self.killed_at is not None and sent_at > self.killed_at
        if after and delivery.exception() is None and self.first[partition] is None:
            self.first[partition] = time.perf_counter()


async def failover(
    bootstrap: str, topic: str, kill: Callable[[], object], *, per_second: int = 40, give_up_seconds: float = 60
) -> float:
    """Seconds from `kill` until every partition has acknowledged (acks=all) a record that was sent after it.

    Load: `per_second` records per partition, before and after the kill. Raises TimeoutError.
    """
    async with Producer(bootstrap, linger_ms=0) as producer:
        partitions = await producer.partitions(topic)
        seen = _Acknowledged(partitions)
        began = time.perf_counter()
        while None in seen.first:
            for partition in range(partitions):
                sent_at = time.perf_counter()
                delivery = await producer.enqueue(topic, b"x" * 100, partition=partition)
                delivery.add_done_callback(lambda done, at=sent_at, to=partition: seen.note(to, at, done))  # type: ignore[misc]
            await asyncio.sleep(1 / per_second)
            now = time.perf_counter()
            if seen.killed_at is None and now - began > 1:
                await asyncio.to_thread(kill)
                seen.killed_at = now
            if now - began > give_up_seconds:
                raise TimeoutError(f"partitions of {topic} accepted no records within {give_up_seconds:g} s")
        return max(at for at in seen.first if at is not None) - (seen.killed_at or began)
