"""Groups and transactions through Tidelog's own client, with its defaults."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Final

from bench.loads import tidelog_load
from bench.loads.coordination import Shares, Tally, Watch, ids
from bench.loads.job import Gate, Job
from tidelog import Admin, Consumer, Producer
from tidelog.errors import TidelogError, TransactionAborted
from tidelog.types import TopicPartition

create_topic = tidelog_load.create_topic
delete_topic = tidelog_load.delete_topic

_BURST: Final = 200
_POLL_SECONDS: Final = 5.0
_ADMIN_CALLS: Final = 50


async def commits(job: Job, gate: Gate) -> dict[str, Any]:
    """Each of `consumers` simple consumers commits one offset after the other."""
    consumers = [Consumer(job.bootstrap, group=name, auto_commit=False) for name in ids("bench", job.consumers)]
    tally = Tally()

    async def one(consumer: Consumer) -> None:
        number = 0
        while time.perf_counter() < tally.deadline:
            number += 1
            began = time.perf_counter()
            await consumer.commit({(job.topic, 0): number})
            tally.done(began)

    for consumer in consumers:
        await consumer.start()
        await consumer.commit({(job.topic, 0): 0})
    await gate.wait_async()
    tally.begin(job.seconds)
    await asyncio.gather(*map(one, consumers))
    tally.end()
    await asyncio.gather(*(consumer.close() for consumer in consumers))
    return tally.result()


async def rebalance(job: Job, gate: Gate) -> dict[str, Any]:
    """Seconds until `consumers` members that join at once share all partitions, and until the others have those of one
    that left."""
    (group,) = ids("rebalance", 1)
    shares = Shares(job.partitions)
    stop = [asyncio.Event() for _ in range(job.consumers)]

    async def one(number: int) -> None:
        has: set[int] = set()

        def assigned(partitions: list[TopicPartition]) -> None:
            has.update(int(each.partition) for each in partitions)
            shares.has(number, frozenset(has))

        def revoked(partitions: list[TopicPartition]) -> None:
            has.difference_update(int(each.partition) for each in partitions)
            shares.has(number, frozenset(has))

        consumer = Consumer(
            job.bootstrap,
            group=group,
            topics=[job.topic],
            auto_commit=False,
            on_assigned=assigned,
            on_revoked=revoked,
            on_lost=revoked,
        )
        async with consumer:
            polling = asyncio.create_task(_poll(consumer))
            try:
                await stop[number].wait()
            finally:
                polling.cancel()

    await gate.wait_async()
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(job.consumers):
            tasks.create_task(one(number))
        joined = await asyncio.to_thread(shares.wait_shared, job.consumers, job.seconds) - began
        left_at = time.perf_counter()
        stop[0].set()
        left = await asyncio.to_thread(shares.wait_shared, job.consumers - 1, job.seconds) - left_at
        for each in stop:
            each.set()
    return {"seconds": joined, "left_seconds": left}


async def _poll(consumer: Consumer) -> None:
    while True:
        await consumer.poll(timeout=_POLL_SECONDS)


async def transactions(job: Job, gate: Gate) -> dict[str, Any]:
    """One transaction after the other, each of `batch_records` records."""
    value = os.urandom(job.value_bytes)
    tally = Tally()
    async with Producer(job.bootstrap, transactional_id=ids("transactions", 1)[0]) as producer:

        async def once() -> None:
            async with producer.transaction() as txn:
                for number in range(job.batch_records):
                    await txn.enqueue(job.topic, value, partition=number % job.partitions)

        await once()
        await gate.wait_async()
        tally.begin(job.seconds)
        while time.perf_counter() < tally.deadline:
            began = time.perf_counter()
            await once()
            tally.done(began)
        tally.end()
    return tally.result()


async def throughput(job: Job, gate: Gate) -> dict[str, Any]:
    """Records at full speed in transactions of `rate` milliseconds."""
    value = os.urandom(job.value_bytes)
    records = 0
    async with Producer(job.bootstrap, transactional_id=ids("throughput", 1)[0]) as producer:

        async def once(seconds: float) -> int:
            sent, ends = 0, time.perf_counter() + seconds
            async with producer.transaction() as txn:
                while time.perf_counter() < ends:
                    for _ in range(_BURST):
                        await txn.enqueue(job.topic, value)
                    sent += _BURST
            return sent

        await once(0.2)
        await gate.wait_async()
        began = time.perf_counter()
        while time.perf_counter() < began + job.seconds:
            records += await once(job.rate / 1000)
        ended = time.perf_counter()
    return {"records": records, "bytes": records * job.value_bytes, "began": began, "ended": ended, "p99_ms": 0.0}


async def coordinator_failover(job: Job, gate: Gate) -> dict[str, Any]:
    """Seconds from kill -9 of the process `pid` until each of `consumers` groups and transactional ids, spread over the
    coordinators, has committed again."""
    watch = Watch(job.consumers * 2)

    async def group(number: int, name: str) -> None:
        async with Consumer(job.bootstrap, group=name, auto_commit=False) as consumer:
            while not watch.complete:
                began = time.perf_counter()
                try:
                    await consumer.commit({(job.topic, 0): 1})
                except TidelogError:
                    await asyncio.sleep(0.02)
                    continue
                watch.committed(number, began)
                await asyncio.sleep(0.02)

    async def transactional(number: int, name: str) -> None:
        async with Producer(job.bootstrap, transactional_id=name) as producer:
            while not watch.complete:
                began = time.perf_counter()
                try:
                    async with producer.transaction() as txn:
                        await txn.enqueue(job.topic, b"x", partition=number % job.partitions)
                except TransactionAborted:
                    continue
                watch.committed(number, began)
                await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as tasks:
        for number, name in enumerate(ids("failover-g", job.consumers)):
            tasks.create_task(group(number, name))
        for number, name in enumerate(ids("failover-t", job.consumers), job.consumers):
            tasks.create_task(transactional(number, name))
        await asyncio.to_thread(watch.wait_all_committed, 60)
        await gate.wait_async()
        return {"seconds": await asyncio.to_thread(watch.kill, job.pid, job.seconds)}


async def many_groups(job: Job, _gate: Gate) -> dict[str, Any]:
    """`repeats` groups, each with one committed offset."""
    async with Admin(job.bootstrap) as admin:
        names = ids("memory", job.repeats)
        for start in range(0, len(names), _ADMIN_CALLS):
            await asyncio.gather(
                *(admin.alter_group_offsets(name, {(job.topic, 0): 1}) for name in names[start : start + _ADMIN_CALLS])
            )
    return {}


async def many_transactional_ids(job: Job, _gate: Gate) -> dict[str, Any]:
    """`repeats` transactional ids with a producer id each."""
    for name in ids("memory", job.repeats):
        async with Producer(job.bootstrap, transactional_id=name) as producer, producer.transaction():
            pass
    return {}
