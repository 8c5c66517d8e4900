"""How long the event loop of a node stands still: the longest callback in what touches many partitions at once.

    deletion of 1,000 partitions                     three nodes, a replica on each
    failover of 1,000 led partitions                 the node that led all of them ends without a word
    an image with one change in 10,000 partitions    one node; a partition is added to their topic
    a metrics scrape at 10,000 partitions            one node
    a topic setting of 10,000 partitions changes     one node

Real nodes, real files, gRPC on loopback, all on one loop: the longest callback of any of them counts. The deletion also
says how long the nodes took to be rid of all logs.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from bench.figure import Better, Figure, Run
from bench.loop_nodes import HOST, Callbacks, Nodes
from node.metrics_server import MetricsServer
from tidelog.admin import Admin
from tidelog.types import Endpoint

TARGET_MS = 50.0
MOVED, MANY = 1_000, 10_000
TOPIC = "t"


def figures(run: Run) -> Iterator[Figure]:
    moved, many = (50, 200) if run.quick else (MOVED, MANY)
    yield from asyncio.run(_three_nodes(run.scratch / "three", moved))
    gc.collect()
    yield from asyncio.run(_one_node(run.scratch / "one", many))


async def _longest(name: str, doing: Callable[[], Awaitable[object]]) -> Figure:
    gc.collect()
    callbacks = Callbacks()
    with callbacks.watched():
        await doing()
        await asyncio.sleep(0.5)  # what follows from it
    print(f"{name}: {callbacks.longest_s * 1e3:.1f} ms: {callbacks.which}", file=sys.stderr)
    return Figure(name, callbacks.longest_s * 1e3, "ms", target=TARGET_MS, better=Better.LESS)


async def _three_nodes(folder: Path, count: int) -> list[Figure]:
    nodes = Nodes(folder, 3)
    found = []
    async with nodes.running(), Admin(nodes.bootstrap) as admin:

        async def create() -> None:
            await admin.create_topic(TOPIC, partitions=count, replication_factor=3)
            await nodes.until(lambda: sum(map(nodes.led, range(3))) == count)
            await nodes.until(lambda: all(nodes.logs(number) == count for number in range(3)))

        found.append(await _longest(f"creation of {count} partitions", create))
        await asyncio.sleep(2)
        await admin.reassign({(TOPIC, index): (2, 0, 1) for index in range(count)})
        await admin.elect_leaders()
        await nodes.until(lambda: nodes.led(2) == count)
        await asyncio.sleep(2)

        async def fail_over() -> None:
            await nodes.end(2)
            await nodes.until(lambda: nodes.led(0) == count)

        found.append(await _longest(f"failover of {count} led partitions", fail_over))
        await asyncio.sleep(2)
        began = time.perf_counter()

        async def delete() -> None:
            await admin.delete_topic(TOPIC)
            await nodes.until(lambda: nodes.logs(0) == nodes.logs(1) == 0)

        found.append(await _longest(f"deletion of {count} partitions", delete))
        print(f"deleted within {time.perf_counter() - began:.2f} s", file=sys.stderr)
    return found


async def _one_node(folder: Path, count: int) -> list[Figure]:
    nodes = Nodes(folder, 1)
    found = []
    async with nodes.running(), Admin(nodes.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=count)
        await nodes.until(lambda: nodes.led(0) == count)
        await asyncio.sleep(2)

        async def add_one() -> None:
            await admin.create_partitions(TOPIC, count + 1)
            await nodes.until(lambda: nodes.led(0) == count + 1)

        found.append(await _longest(f"an image with one change in {count} partitions", add_one))
        server = MetricsServer(nodes.processes[0].metrics)
        address = await server.start(Endpoint(HOST, 0))

        async def scrape() -> None:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            size = 0
            while data := await reader.read(1 << 20):
                size += len(data)
            writer.close()
            assert size > count, "every partition is in it"

        found.append(await _longest(f"a metrics scrape at {count} partitions", scrape))
        await server.stop()

        async def alter() -> None:
            await admin.alter_topic(TOPIC, {"retention.ms": "3600000"})

        found.append(await _longest(f"a setting of a topic of {count} partitions changes", alter))
    return found
