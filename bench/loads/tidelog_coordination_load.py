"""Groups and transactions through Tidelog's own client, with its defaults.

The members of a large group live in several client processes (job `members`). What the parent says to them while they
run is documented in bench/large_group.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
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
_REPORT_SECONDS: Final = 0.05
_BEHIND_NODES: Final = 10
_LONG_WAIT_MS: Final = 5_000
"""How long a fetch of an idle member waits. With the default of 500 ms, a thousand members send 2,000 fetches a second,
which on two cores leaves no room for anything else."""
_DESCRIBE_SECONDS: Final = 0.1


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
    await gate.wait_async()
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(job.consumers):
            tasks.create_task(_member(job, group, stop[number], partial(shares.has, number)))
        joined = await asyncio.to_thread(shares.wait_shared, job.consumers, job.seconds) - began
        left_at = time.perf_counter()
        stop[0].set()
        left = await asyncio.to_thread(shares.wait_shared, job.consumers - 1, job.seconds) - left_at
        for each in stop:
            each.set()
    return {"seconds": joined, "left_seconds": left}


async def _member(
    job: Job,
    group: str,
    stop: asyncio.Event,
    changed: Callable[[frozenset[int]], None],
    lost: Callable[[], None] = lambda: None,
    **settings: Any,
) -> None:
    """A member until `stop` is set. changed: told the partitions that it has. lost: called when it is fenced. settings:
    of the consumer."""
    has: set[int] = set()

    def on_assigned(partitions: list[TopicPartition]) -> None:
        has.update(int(each.partition) for each in partitions)
        changed(frozenset(has))

    def on_revoked(partitions: list[TopicPartition]) -> None:
        has.difference_update(int(each.partition) for each in partitions)
        changed(frozenset(has))

    def on_lost(partitions: list[TopicPartition]) -> None:
        lost()
        on_revoked(partitions)

    consumer = Consumer(
        job.bootstrap,
        group=group,
        topics=[job.topic],
        auto_commit=False,
        on_assigned=on_assigned,
        on_revoked=on_revoked,
        on_lost=on_lost,
        **settings,
    )
    async with consumer, asyncio.TaskGroup() as tasks:
        polling = tasks.create_task(_poll(consumer))
        await stop.wait()
        polling.cancel()


async def _poll(consumer: Consumer) -> None:
    while True:
        await consumer.poll(timeout=_POLL_SECONDS)


async def members(job: Job, gate: Gate) -> dict[str, Any]:
    """`consumers` members of `group`, until the parent says `end`; see bench/large_group.py.

    The process takes what the nodes leave of the processor. With the same claim to it, many busy client processes on
    few cores delay the nodes' own heartbeats until the nodes take each other for dead."""
    os.nice(_BEHIND_NODES)
    stop = [asyncio.Event() for _ in range(job.consumers)]
    changes: dict[int, list[int]] = {}
    lost = 0
    changed_at = 0.0

    def changed(number: int, has: frozenset[int]) -> None:
        nonlocal changed_at
        changes[number], changed_at = sorted(has), time.perf_counter()

    def on_lost() -> None:
        nonlocal lost
        lost += 1

    async def report() -> None:
        while True:
            if changes:
                print(json.dumps({"at": changed_at, "has": changes}), flush=True)
                changes.clear()
            await asyncio.sleep(_REPORT_SECONDS)

    await gate.wait_async()
    async with asyncio.TaskGroup() as tasks:
        for number in range(job.consumers):
            told = partial(changed, number)
            tasks.create_task(_member(job, job.group, stop[number], told, on_lost, max_wait_ms=_LONG_WAIT_MS))
        reporting = tasks.create_task(report())
        while (command := (await asyncio.to_thread(sys.stdin.readline)).strip()) == "leave":
            stop[0].set()
        reporting.cancel()
        if command != "end":  # the parent has ended
            raise SystemExit(0)
        for each in stop:
            each.set()
    return {"lost": lost}


async def wait_stable(job: Job, _gate: Gate) -> dict[str, Any]:
    """When `group` was first described as stable, with `consumers` members that have what they are to have."""
    async with Admin(job.bootstrap) as admin:
        deadline = time.perf_counter() + job.seconds
        while time.perf_counter() < deadline:
            found = (await admin.describe_groups([job.group]))[job.group]
            if isinstance(found, TidelogError):
                raise found
            settled = sum(member.assignment == member.target != () for member in found.members)
            if found.state == "Stable" and settled == len(found.members) == job.consumers:
                return {"at": time.perf_counter()}
            await asyncio.sleep(_DESCRIBE_SECONDS)
    raise TimeoutError(f"group {job.group} is not stable with {job.consumers} members after {job.seconds:g} s")


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
