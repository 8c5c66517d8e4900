"""A node that lost its log, with a remote tier and without: how long it takes until its replicas are in sync again.

A topic of two replicas is filled, so that each of its nodes has all of it; one of them is stopped, its directories of
the topic are removed, and it is started again. This is done once with all on the nodes, and once with a twentieth there
and the rest in a folder as the object store. The first topic is deleted before the second is filled: the disk holds two
logs at most.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Final

import uvloop

from bench.figure import Better, Figure, Run
from node.process.local_cluster import LocalCluster
from tidelog import Producer, sync

NODES: Final = 3
PARTITIONS: Final = 6
REPLACED: Final = 2
HOLDERS: Final = (0, REPLACED)
"""Node 1 is the third voter only."""
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
    tier = {"remote_storage_enable": "true", "local_retention_bytes": str(local // PARTITIONS)}
    with LocalCluster(run.scratch / "replaced", NODES, settings=_SETTINGS, tiered=True) as cluster:
        cluster.wait_healthy(60)
        _fill(run, cluster, PLAIN, size, segment, {})
        all_local_s = _replaced(cluster, PLAIN)
        with sync.Admin(cluster.bootstrap) as admin:
            admin.delete_topic(PLAIN)
        cluster.wait_until(
            lambda: not any(_local_bytes(cluster, number, PLAIN) for number in range(NODES)),
            within_s=WAIT_S_MAX,
            what="the deleted topic has left the disks",
        )
        _fill(run, cluster, TIERED, size, segment, tier)
        most = local + 3 * PARTITIONS * segment
        cluster.wait_until(
            lambda: all(_local_bytes(cluster, number, TIERED) <= most for number in range(NODES)),
            within_s=WAIT_S_MAX,
            what=lambda: (
                f"copied segments leave the nodes, of which {REPLACED} has "
                f"{_local_bytes(cluster, REPLACED, TIERED)} bytes"
            ),
        )
        left = _local_bytes(cluster, REPLACED, TIERED)
        tiered_s = _replaced(cluster, TIERED)
    what = f"a node is back, {size / 1e9:g} GB of which {left / 1e9:.2g} local, against all local"
    yield Figure(what, tiered_s, "s", all_local_s, better=Better.LESS)


def _fill(
    run: Run, cluster: LocalCluster, topic: str, size: int, segment_bytes: int, settings: Mapping[str, str]
) -> None:
    cluster.create_topic(
        topic, PARTITIONS, len(HOLDERS), segment_bytes=str(segment_bytes), file_delete_delay_ms="0", **settings
    )
    run.say(f"writes {size / 1e9:g} GB to {topic}")
    _place(cluster, topic)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_write(cluster.bootstrap, topic, size))
    cluster.wait_healthy(WAIT_S_MAX)


def _place(cluster: LocalCluster, topic: str) -> None:
    """Put all replicas of the topic, which is empty, on the same nodes."""
    with sync.Admin(cluster.bootstrap) as admin:
        admin.reassign({(topic, number): HOLDERS for number in range(PARTITIONS)})
        cluster.wait_until(
            lambda: not admin.list_reassignments(), within_s=60, what=f"{topic} is on the nodes {HOLDERS}"
        )


def _replaced(cluster: LocalCluster, topic: str) -> float:
    """Seconds from the start of the node without its logs of a topic until all replicas are in sync."""
    cluster.stop_node(REPLACED)
    for directory in cluster.nodes[REPLACED].data.glob(f"{topic}-[0-9]*"):
        shutil.rmtree(directory)
    began = time.perf_counter()
    cluster.start_node(REPLACED)
    cluster.wait_healthy(WAIT_S_MAX)
    return time.perf_counter() - began


async def _write(bootstrap: str, topic: str, size: int) -> None:
    async with Producer(bootstrap, acks="all", linger_ms=20) as producer:
        for number in range(size // len(VALUE)):
            await producer.enqueue(topic, VALUE, partition=number % PARTITIONS)
        await producer.flush()


def _local_bytes(cluster: LocalCluster, number: int, topic: str) -> int:
    data = cluster.nodes[number].data
    found = 0
    for path in data.glob(f"{topic}-[0-9]*/*.log"):
        try:
            found += path.stat().st_size
        except FileNotFoundError:  # it has just left
            continue
    return found
