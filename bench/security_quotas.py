"""Client quotas: what a flood costs its neighbours, and how exactly a limit is kept.

Three nodes on this machine, three replicas, acks=all. Ten greedy clients in a process of their own send at full speed
to their own topic, while a polite client sends one record at a time to another. They are of two kinds: producers, which
pause when a node tells them, and streams of a foreign client that never pauses. Nodes and clients share the cores, so
without quotas the polite client also waits for the greedy clients' own work.

`python -m bench.security_quotas` prints the figures; `--quick` for a look.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from bench.cluster_load import latencies
from bench.figure import Better, Figure, Run
from node.process.local_cluster import LocalCluster
from node.quotas.client_quotas import SAMPLE_MS, SAMPLES
from tidelog import Admin, Consumer, Producer
from tidelog.errors import TidelogError
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.v1 import admin_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import Record, build_batch
from tidelog.types import Acks, Endpoint, Millis, Offset, QuotaEntity, QuotaType

GREEDY: Final = QuotaEntity(None, "greedy")
CLIENTS: Final = 10
FLOOD_BYTES_PER_SECOND: Final = 500_000
"""Of each node, for all greedy clients together."""
VALUE_BYTES: Final = 10_000
WINDOW_S: Final = SAMPLES * SAMPLE_MS / 1_000
SETTLE_S: Final = 5.0
"""At full speed the clients use up a whole window in this time."""
RATE: Final = 2_000_000
PERCENT: Final = 5.0
_LOCAL: Final = re.compile(
    r'^tidelog_request_phase_seconds_total\{method="Admin.GetMetadata",phase="local"\} (.*)$', re.MULTILINE
)


def figures(run: Run) -> Iterator[Figure]:
    """All figures; takes some five minutes."""
    count, seconds = (200, 5.0) if run.quick else (2_000, 20.0)
    with asyncio.Runner() as runner, LocalCluster(run.scratch / "cluster", nodes=3) as cluster:
        cluster.wait_healthy()
        for topic, partitions in (("polite", 1), ("greedy", 3), ("exact", 1)):
            cluster.create_topic(topic, partitions, 3, min_insync_replicas="2", durability="page-cache")
        yield from _accuracy(run, runner, cluster, seconds)
        yield from _polite(run, runner, cluster, count)


def _polite(run: Run, runner: asyncio.Runner, cluster: LocalCluster, count: int) -> Iterator[Figure]:
    def p99(what: str, count: int = count) -> float:
        run.say(f"{count} records of a polite client, {what}")
        found = runner.run(latencies(cluster.bootstrap, "polite", 100, count))
        run.say(f"  p50 {quantiles(found, n=100)[49]:.2f} ms")
        return quantiles(found, n=100)[98]

    alone = p99("alone")
    yield Figure("p99 of a polite producer, alone", alone, "ms", better=Better.LESS)
    for limit in (FLOOD_BYTES_PER_SECOND, None):  # without a quota last: the pages that it dirties are written for long
        _limit(runner, cluster, {QuotaType.PRODUCER_BYTE_RATE: limit})
        for kind in ("producers", "streams"):
            with _flood(cluster, kind):
                time.sleep(SETTLE_S)
                quota = "without quota" if limit is None else f"quota {limit / 1e6:g} MB/s a node"
                what = f"beside {CLIENTS} greedy {kind}, {quota}"
                few = count if limit is not None else count // 10  # they take long
                yield Figure(f"p99 {what}, against alone", p99(what, few), "ms", alone, better=Better.LESS)


def _accuracy(run: Run, runner: asyncio.Runner, cluster: LocalCluster, seconds: float) -> Iterator[Figure]:
    """How far the average is from the limit, after the first window. Target: 10 %."""
    for quota, limit, measure in (
        (QuotaType.PRODUCER_BYTE_RATE, RATE, _produced),
        (QuotaType.CONSUMER_BYTE_RATE, RATE, _consumed),
        (QuotaType.REQUEST_PERCENTAGE, PERCENT, _worked),
    ):
        run.say(f"{quota.value}={limit:g} for {seconds:g} s")
        _limit(runner, cluster, dict.fromkeys(QuotaType))
        if quota is QuotaType.CONSUMER_BYTE_RATE:
            runner.run(_fill(cluster.bootstrap, int(RATE * (WINDOW_S + 2 * SETTLE_S + seconds))))
        _limit(runner, cluster, {quota: limit})
        found = runner.run(measure(cluster, seconds))
        run.say(f"  {found:,.2f}")
        off = abs(found / limit - 1) * 100
        yield Figure(f"deviation from {quota.value}={limit:g}", off, "%", target=10.0, better=Better.LESS)


def _limit(runner: asyncio.Runner, cluster: LocalCluster, limits: dict[QuotaType, float | None]) -> None:
    async def change() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.alter_client_quotas({GREEDY: {quota.value: limit for quota, limit in limits.items()}})

    runner.run(change())


async def _rate(seconds: float, count: Callable[[], float]) -> float:
    """The increase of the count in a second, from SETTLE_S on."""
    await asyncio.sleep(SETTLE_S)
    began, before = time.perf_counter(), count()
    await asyncio.sleep(seconds)
    return (count() - before) / (time.perf_counter() - began)


async def _beside(work: Callable[[], Awaitable[None]], tasks: int, measured: Awaitable[float]) -> float:
    """Measure while so many tasks do that work again and again."""

    async def repeat() -> None:
        while True:
            await work()

    working = [asyncio.ensure_future(repeat()) for _ in range(tasks)]
    try:
        return await measured
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)


async def _produced(cluster: LocalCluster, seconds: float) -> float:
    sent, value = 0, os.urandom(VALUE_BYTES)
    async with Producer(cluster.bootstrap, client_id="greedy") as producer:

        async def send() -> None:
            nonlocal sent
            await producer.send("exact", value)
            sent += VALUE_BYTES

        return await _beside(send, 200, _rate(seconds, lambda: sent))


async def _consumed(cluster: LocalCluster, seconds: float) -> float:
    read = 0
    async with Consumer(cluster.bootstrap, client_id="greedy", buffer_bytes=1 << 20) as consumer:
        consumer.assign([("exact", 0)])

        async def poll() -> None:
            nonlocal read
            read += sum(len(record.value or b"") for record in await consumer.poll())

        return await _beside(poll, 1, _rate(seconds, lambda: read))


async def _worked(cluster: LocalCluster, seconds: float) -> float:
    """Percent of the event loop of the first node."""
    node, transport = cluster.nodes[0], GrpcTransport(client_id="greedy")
    request = admin_pb2.GetMetadataRequest(all_topics=True)

    async def ask() -> None:
        await transport.call(node.address, methods.ADMIN_GET_METADATA, request, timeout_ms=30_000)

    def percent() -> float:
        with urllib.request.urlopen(f"http://{node.metrics}/metrics") as answer:
            found = _LOCAL.search(answer.read().decode())
        return 0.0 if found is None else float(found[1]) * 100

    try:
        return await _beside(ask, 20, _rate(seconds, percent))
    finally:
        await transport.close()


async def _fill(bootstrap: str, size: int) -> None:
    value = os.urandom(VALUE_BYTES)
    async with Producer(bootstrap) as producer:
        for _ in range(size // VALUE_BYTES):
            await producer.enqueue("exact", value)
        await producer.flush()


@contextmanager
def _flood(cluster: LocalCluster, kind: str) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.security_quotas", "--flood", kind, cluster.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.kill()


async def _flood_with_producers(bootstrap: str) -> None:
    value = os.urandom(VALUE_BYTES)

    async def send() -> None:
        async with Producer(bootstrap, client_id="greedy", buffer_bytes=4 << 20) as producer:
            while True:
                await producer.enqueue("greedy", value)

    await asyncio.gather(*(send() for _ in range(CLIENTS)))


async def _flood_with_streams(bootstrap: str) -> None:
    """Streams that send messages of 100 kB for as long as the connection takes them."""
    async with Admin(bootstrap) as admin:
        topic = await admin.describe_topic("greedy")
        nodes = {node.node_id: node for node in (await admin.describe_cluster()).nodes}
    records = build_batch([Record(Offset(0), Millis(1), None, os.urandom(VALUE_BYTES * 10))])
    entries: list[tuple[Endpoint, ProduceRequest]] = []
    for partition in topic.partitions:
        entry = ProduceBatch(
            correlation_id=1,
            topic_id=topic.topic_id.bytes,
            partition=partition.partition,
            records=records,
        )
        node = nodes[partition.leader]
        request = ProduceRequest(acks=Acks.ALL, timeout_ms=30_000, partitions=[entry])
        entries.append((node.endpoint, request))

    async def send(number: int) -> None:
        transport = GrpcTransport(client_id="greedy")
        address, request = entries[number % len(entries)]
        stream: Any = await transport.open_stream(address, methods.DATA_PRODUCE_STREAM)

        async def read() -> None:
            while await stream.receive() is not None:
                pass

        reading = asyncio.ensure_future(read())
        while not reading.done():
            await stream.send(request)

    await asyncio.gather(*(send(number) for number in range(CLIENTS)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Figures about client quotas.")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--flood", nargs=2, metavar=("KIND", "BOOTSTRAP"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        kind, bootstrap = arguments.flood
        with suppress(TidelogError):
            asyncio.run(_flood_with_producers(bootstrap) if kind == "producers" else _flood_with_streams(bootstrap))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        for figure in figures(Run(Path(scratch), quick=arguments.quick)):
            print(figure.to_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
