"""A node that lost its log, with a remote tier and without: how long it takes until its replicas are in sync again.

Three nodes, each of two topics as large as the other; of the one with the tier a twentieth is on the nodes. One node is
stopped, its directories of one topic are removed, and it is started again: the same for the other topic.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from typing import Final

import uvloop

from bench.figure import Better, Figure, Run
from node.process.local_cluster import LocalCluster
from tidelog import Producer

NODES: Final = 3
PARTITIONS: Final = 6
REPLACED: Final = 2
PLAIN: Final = "plain"
TIERED: Final = "tiered"
VALUE: Final = bytes(16 << 10)
LOCAL_SHARE: Final = 20
"""A part of so many is on the nodes."""
SEGMENTS: Final = 64
"""Of a partition."""
BYTES_QUICK: Final = 120_000_000
WAIT_S_MAX: Final = 900.0
_SETTINGS: Final = {"log.retention.check.interval.ms": 1_000}


def figures(run: Run) -> Iterator[Figure]:
    """Raises ClusterFailed if segments are not copied, or the node does not come back."""
    size = BYTES_QUICK if run.quick else int(run.gigabytes * 1e9)
    segment = size // PARTITIONS // SEGMENTS
    local = size // LOCAL_SHARE
    with LocalCluster(run.scratch / "replaced", NODES, settings=_SETTINGS, tiered=True) as cluster:
        cluster.wait_healthy(60)
        common = {"segment_bytes": str(segment), "file_delete_delay_ms": "0"}
        tier = {"remote_storage_enable": "true", "local_retention_bytes": str(local // PARTITIONS)}
        cluster.create_topic(PLAIN, PARTITIONS, NODES, **common)
        cluster.create_topic(TIERED, PARTITIONS, NODES, **common, **tier)
        run.say(f"writes {size / 1e9:g} GB to each of two topics")
        for topic in (PLAIN, TIERED):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_fill(cluster.bootstrap, topic, size))
        most = local + 3 * PARTITIONS * segment
        cluster.wait_until(
            lambda: all(_local_bytes(cluster, number) <= most for number in range(NODES)),
            within_s=WAIT_S_MAX,
            what=lambda: f"copied segments leave the nodes: {[_local_bytes(cluster, each) for each in range(NODES)]}",
        )
        left = _local_bytes(cluster, REPLACED)
        seconds = {topic: _replaced(cluster, topic) for topic in (PLAIN, TIERED)}
    what = f"a node is back, {size / 1e9:g} GB of which {left / 1e9:.2g} local, against all local"
    yield Figure(what, seconds[TIERED], "s", seconds[PLAIN], better=Better.LESS)


def _replaced(cluster: LocalCluster, topic: str) -> float:
    """Seconds from the start of the node without its logs of a topic until all replicas are in sync."""
    cluster.stop_node(REPLACED)
    for directory in cluster.nodes[REPLACED].data.glob(f"{topic}-[0-9]*"):
        shutil.rmtree(directory)
    began = time.perf_counter()
    cluster.start_node(REPLACED)
    cluster.wait_healthy(WAIT_S_MAX)
    return time.perf_counter() - began


async def _fill(bootstrap: str, topic: str, size: int) -> None:
    async with Producer(bootstrap, acks="all", linger_ms=20) as producer:
        for number in range(size // len(VALUE)):
            await producer.enqueue(topic, VALUE, partition=number % PARTITIONS)
        await producer.flush()


def _local_bytes(cluster: LocalCluster, number: int) -> int:
    data = cluster.nodes[number].data
    found = 0
    for path in data.glob(f"{TIERED}-[0-9]*/*.log"):
        try:
            found += path.stat().st_size
        except FileNotFoundError:  # it has just left
            continue
    return found
