"""Clients that take many records at once (`enqueue_many`, `enqueue_arrow`, `poll_arrow`) beside those of one record.

`python -m bench.client_many` starts three nodes and prints the processor time of a record, of the client and of the
nodes apart: on a machine that others use it says more than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop

from bench.cluster_load import WARM_UP_SECONDS, Meter, Throughput, consume, produce
from bench.raw_limits import cpu_seconds
from node.process.local_cluster import LocalCluster
from tidelog import BatchDelivery, Consumer, Producer

CALL_BYTES: Final = 8 * 1024 * 1024
"""Values of one call: some milliseconds of work."""
KEYS: Final = 5_000


async def enqueue_many(
    bootstrap: str, topic: str, value_bytes: int, seconds: float, pids: list[int], *, keyed: bool = False
) -> Throughput:
    """Send lists of records, acks=all, at the producer's full speed; counted from the first to the last
    acknowledgement. keyed: with one of KEYS keys each."""
    values, keys = _values(value_bytes), None
    if keyed:
        keys = [b"key %d" % (number % KEYS) for number in range(len(values))]
    async with Producer(bootstrap) as producer:
        await producer.partitions(topic)
        return await _measured(partial(producer.enqueue_many, topic, values, keys=keys), value_bytes, seconds, pids)


async def enqueue_arrow(bootstrap: str, topic: str, value_bytes: int, seconds: float, pids: list[int]) -> Throughput:
    """Send Arrow tables of records without keys, acks=all, at the producer's full speed."""
    import pyarrow as pa

    table = pa.table({"value": pa.array(_values(value_bytes), pa.binary())})
    async with Producer(bootstrap) as producer:
        await producer.partitions(topic)
        return await _measured(partial(producer.enqueue_arrow, topic, table), value_bytes, seconds, pids)


async def poll_arrow(bootstrap: str, topic: str, seconds: float, pids: list[int]) -> Throughput:
    """Poll all partitions from the start as Arrow batches with all columns, for `seconds` or until the end."""
    async with Consumer(bootstrap) as consumer:
        partitions = await consumer.partitions(topic)
        left: int = sum((await consumer.end_offsets(partitions)).values())
        consumer.assign(partitions)
        left -= (await consumer.poll_arrow(max_records=1_000, timeout=10)).num_rows
        meter, records, size = Meter(pids), 0, 0
        deadline = time.perf_counter() + seconds
        while records < left and time.perf_counter() < deadline:
            found = await consumer.poll_arrow(timeout=10)
            records += found.num_rows
            _, ends, _ = found["value"].buffers()
            size += memoryview(ends).cast("i")[found.num_rows] if ends is not None else 0
        return meter.stop(records, size)


def _values(value_bytes: int) -> list[bytes]:
    """Different values, as many as one call sends."""
    count = max(1, CALL_BYTES // value_bytes)
    content = os.urandom(count + value_bytes)
    return [content[begin : begin + value_bytes] for begin in range(count)]


async def _measured(call: Any, value_bytes: int, seconds: float, pids: list[int]) -> Throughput:
    await _fill(call, WARM_UP_SECONDS if seconds > 1 else 0)
    meter = Meter(pids)
    sent = await _fill(call, seconds)
    return meter.stop(sent, sent * value_bytes)


async def _fill(call: Any, seconds: float) -> int:
    """Call until the time is over. Returns the number of acknowledged records; raises the error of any other."""
    deadline = time.perf_counter() + seconds
    waiting: list[BatchDelivery] = []
    sent = 0
    while True:
        delivery: BatchDelivery = await call()
        waiting.append(delivery)
        sent += len(delivery)
        while waiting and waiting[0].done():
            await waiting.pop(0)
        if time.perf_counter() >= deadline:
            break
    for delivery in waiting:
        await delivery
    return sent


def _print(name: str, nodes: list[psutil.Process], value_bytes: int, runner: asyncio.Runner, work: Any) -> None:
    used = sum(map(cpu_seconds, nodes))
    began = time.perf_counter()
    found: Throughput = runner.run(_as_coroutine(work))
    share = (sum(map(cpu_seconds, nodes)) - used) / (time.perf_counter() - began)
    both = found.cpu_ms_per_megabyte * value_bytes / 1_000
    print(
        f"{name:<32} {found.records_per_second:>11,.0f} records/s, {both:6.2f} us of processor a record: "
        f"two cores carry {2e6 / both:>11,.0f}/s; nodes took {share:.2f} cores",
        flush=True,
    )


async def _as_coroutine(work: Coroutine[Any, Any, Throughput]) -> Throughput:
    return await work


def main() -> None:
    """Print all figures; takes a minute or two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="duration of each measurement")
    parser.add_argument("--partitions", type=int, default=6)
    seconds, partitions = (options := parser.parse_args()).seconds, options.partitions
    with (
        tempfile.TemporaryDirectory() as scratch,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        LocalCluster(Path(scratch) / "cluster", 3) as cluster,
    ):
        cluster.wait_healthy()
        bootstrap, pids = cluster.bootstrap, [node.pid for node in cluster.nodes]
        nodes = [psutil.Process(pid) for pid in pids]
        for size, value_bytes in {"100 B": 100, "1 KiB": 1024}.items():
            topic = f"many-{value_bytes}"
            cluster.create_topic(topic, partitions, 3, durability="page-cache", min_insync_replicas="2")
            show = partial(_print, nodes=nodes, value_bytes=value_bytes, runner=runner)
            show(f"enqueue {size}", work=produce(bootstrap, topic, value_bytes, seconds, pids))
            show(f"enqueue_many {size}", work=enqueue_many(bootstrap, topic, value_bytes, seconds, pids))
            keyed = enqueue_many(bootstrap, topic, value_bytes, seconds, pids, keyed=True)
            show(f"enqueue_many {size}, keyed", work=keyed)
            show(f"enqueue_arrow {size}", work=enqueue_arrow(bootstrap, topic, value_bytes, seconds, pids))
            show(f"poll {size}", work=consume(bootstrap, topic, seconds, pids))
            show(f"poll_arrow {size}", work=poll_arrow(bootstrap, topic, seconds, pids))


if __name__ == "__main__":
    main()
