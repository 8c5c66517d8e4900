"""How long a node's event loop is blocked: the longest callback of operations on many partitions at once.

    deletion of 1,000 partitions                     three nodes, a replica on each
    failover of 1,000 led partitions                 the node that led all of them ends without a drain
    an image with one change in 10,000 partitions    one node that leads them all
    a changed setting of a topic of 10,000           the same
    a metrics scrape at 10,000 partitions            generated figures, served over HTTP

The first two, and the creation before them, run real nodes, real files and gRPC on loopback, all on one event loop: the
longest callback of any node counts. Each partition has a record, and checkpoints are written twice a second. 10,000
logs would need 30,000 open files in one process, so the others run the node's own classes on a disk in memory.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from bench.figure import Better, Figure, Run
from bench.loop_nodes import HOST, Callbacks, Nodes
from node.observability.metric_sources import HostedPartition, MetricSources
from node.observability.metrics import metrics_text
from node.observability.metrics_server import MetricsServer
from node.replicas.replica import Replica
from replication.controller.image import PartitionState, apply
from replication.controller.metadata_records import PartitionChangeRecord, TopicConfigsRecord
from tests.node.wires import TOPIC, Cluster
from tidelog import Producer
from tidelog.client.admin import Admin
from tidelog.types import Endpoint, NodeId, PartitionIndex, TopicPartition

TARGET_MS = 50.0
MOVED, MANY = 1_000, 10_000
NAME = "t"


def figures(run: Run) -> Iterator[Figure]:
    moved, many = (50, 200) if run.quick else (MOVED, MANY)
    yield from asyncio.run(_three_nodes(run.scratch / "three", moved))
    gc.collect()
    yield from _one_node(many)
    yield from asyncio.run(_scrape(many))


async def _longest(name: str, doing: Callable[[], Awaitable[object]]) -> list[Figure]:
    gc.collect()
    callbacks = Callbacks()
    with callbacks.watched():
        await doing()
        await asyncio.sleep(0.5)  # the effects of the change
    print(f"{name}: {callbacks.longest_s * 1e3:.1f} ms: {callbacks.which}", file=sys.stderr)
    return [
        Figure(name, callbacks.longest_s * 1e3, "ms", target=TARGET_MS, better=Better.LESS),
        Figure(f"{name}, processor time", callbacks.busiest_s * 1e3, "ms", target=TARGET_MS, better=Better.LESS),
    ]


async def _three_nodes(directory: Path, count: int) -> list[Figure]:
    nodes = Nodes(directory, 3)
    found: list[Figure] = []
    async with nodes.running(), Admin(nodes.bootstrap, request_timeout_ms=120_000) as admin:

        async def create() -> None:
            await admin.create_topic(NAME, partitions=count, replication_factor=3)
            await nodes.until(lambda: sum(map(nodes.led, range(3))) == count)
            await nodes.until(lambda: all(nodes.logs(number) == count for number in range(3)))

        found.extend(await _longest(f"creation of {count} partitions", create))
        async with Producer(nodes.bootstrap) as producer:
            await asyncio.gather(*(producer.send(NAME, b"x", partition=index) for index in range(count)))
        await admin.reassign({(NAME, index): (2, 0, 1) for index in range(count)})
        while nodes.led(2) < count:
            await nodes.until(nodes.in_sync)
            await admin.elect_leaders()
            await asyncio.sleep(0.5)
        await nodes.until(nodes.in_sync)

        async def fail_over() -> None:
            await nodes.end(2)
            await nodes.until(lambda: nodes.led(0) == count)

        found.extend(await _longest(f"failover of {count} led partitions", fail_over))
        await asyncio.sleep(2)
        began = time.perf_counter()

        async def delete() -> None:
            await admin.delete_topic(NAME)
            await nodes.until(lambda: nodes.logs(0) == nodes.logs(1) == 0)

        found.extend(await _longest(f"deletion of {count} partitions", delete))
        print(f"deleted within {time.perf_counter() - began:.2f} s", file=sys.stderr)
    return found


def _one_node(count: int) -> Iterator[Figure]:
    cluster = Cluster(1, partitions=count, durability="page-cache", segment_index_bytes="1024")
    try:
        for index in range(count):
            cluster.set(index, publish=False, leader=NodeId(1))
        cluster.publish()
        cluster.until(
            lambda: sum(each.leader is not None for each in cluster.manager(1).partitions()) == count, within=60
        )
        cluster.run(1)

        def change() -> None:
            topic = cluster.image.topics[TOPIC]
            record = PartitionChangeRecord(TOPIC, topic.partitions[count // 2].partition, isr=(NodeId(1),))
            cluster.image = apply(cluster.image, [(cluster.image.offset, record)])
            cluster.publish()

        yield _longest_here(cluster, f"an image with one change in {count} partitions", change)

        def alter() -> None:
            record = TopicConfigsRecord(TOPIC, {**cluster.configs, "retention.ms": "3600000"})
            cluster.image = apply(cluster.image, [(cluster.image.offset, record)])
            cluster.publish()

        yield _longest_here(cluster, f"a changed setting of a topic of {count} partitions", alter)
    finally:
        cluster.close()


def _longest_here(cluster: Cluster, name: str, doing: Callable[[], object]) -> Figure:
    """Like `_longest`, on a simulated loop; the construction of the image counts as a callback."""
    loop, longest = cluster.loop, 0.0
    step, began = loop.step, time.perf_counter()

    def timed() -> bool:
        nonlocal longest, began
        longest, began = max(longest, time.perf_counter() - began), time.perf_counter()
        return step()

    gc.collect()
    loop.step = timed  # type: ignore[method-assign]
    try:
        began = time.perf_counter()
        doing()
        loop.step()
    finally:
        loop.step = step  # type: ignore[method-assign]
    print(f"{name}: {longest * 1e3:.1f} ms", file=sys.stderr)
    return Figure(name, longest * 1e3, "ms", target=TARGET_MS, better=Better.LESS)


async def _scrape(count: int) -> list[Figure]:
    """One scrape of the figures of a node with that many partitions."""
    log = SimpleNamespace(
        log_start_offset=0,
        log_end_offset=9,
        high_watermark=9,
        durable_offset=9,
        last_stable_offset=9,
        size=0,
        segments=(None,),
    )
    positions = dict.fromkeys((1, 2), SimpleNamespace(log_end=9))
    in_sync = SimpleNamespace(is_enough=True, min_insync=2, positions=positions.get)
    leader = SimpleNamespace(core=SimpleNamespace(in_sync=in_sync))
    replica = SimpleNamespace(name=TopicPartition("t", PartitionIndex(0)), leader=leader, offline=None, log=log)
    state = SimpleNamespace(isr=range(3), replicas=range(3), adding=(), leader=0)
    partition = HostedPartition(cast("Replica", replica), cast("PartitionState", state))
    sources = MetricSources(partitions=[partition] * count)
    server = MetricsServer(lambda: metrics_text(sources, lambda: asyncio.sleep(0)))
    address = await server.start(Endpoint(HOST, 0))

    async def scrape() -> None:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        size = 0
        while data := await reader.read(1 << 20):
            size += len(data)
        writer.close()
        assert size > count, "the scrape has every partition"

    found = await _longest(f"a metrics scrape at {count} partitions", scrape)
    await server.stop()
    return found
