"""A real node loses one of its two log directories while it runs (KIP-858). Other nodes lead its partitions, the node's
other directory stays in use, and no acknowledged record is lost, whether the directory comes back unchanged or empty.

The test moves the directory away and puts a file in its place: open files continue to work, and the next roll in it
fails with an error other than "disk full", also for root.
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster, LocalNode
from tests.integration.load import Load

pytestmark = pytest.mark.integration

TOPIC, PARTITIONS = "orders", 6
WRITES_AGAIN_S = 5.0
LAG_S = 5.0
"""After so long a leader takes a silent follower out by itself."""
VICTIM = 1
"""Node 0 is asked for the metadata."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    directories = {"log.dirs": ["data", "more"]}  # in each node's own directory, where it runs
    with LocalCluster(tmp_path, settings=directories) as cluster:
        cluster.wait_healthy()
        cluster.create_topic(TOPIC, PARTITIONS, min_insync_replicas="2", segment_bytes="50000")
        cluster.wait_healthy()
        yield cluster


def more(node: LocalNode) -> Path:
    """The directory that fails."""
    return node.directory / "more"


def inside(directory: Path) -> set[int]:
    """The partitions whose replicas lie there."""
    return {int(path.name.rpartition("-")[2]) for path in directory.glob(f"{TOPIC}-[0-9]")}


def leaders(cluster: LocalCluster) -> dict[int, int]:
    (topic,) = cluster.metadata(0, TOPIC).topics
    return {int(state.partition): int(state.leader) for state in topic.partitions}


def in_sync(cluster: LocalCluster, node: LocalNode) -> set[int]:
    """The partitions that have the node's replica in their in-sync set."""
    (topic,) = cluster.metadata(0, TOPIC).topics
    return {int(state.partition) for state in topic.partitions if node.node_id in state.isr}


def says_offline(node: LocalNode) -> list[str]:
    """The directories that a node's metrics call offline."""
    with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if line.startswith("tidelog_directory_offline{") and line.endswith(" 1.0")]


def content(node: LocalNode, partition: int) -> bytes:
    """All batches of a replica, of a node that is down."""
    (directory,) = (path for path in (node.data, more(node)) if partition in inside(path))
    return b"".join(log.read_bytes() for log in sorted((directory / f"{TOPIC}-{partition}").glob("*.log")))


@pytest.mark.parametrize("comes_back", ["empty", pytest.param("as it was", marks=pytest.mark.deep)])
async def test_a_log_directory_fails_under_load(cluster: LocalCluster, comes_back: str) -> None:
    """A cluster of its own, whose directory fails; a node is restarted on it under load."""
    node = cluster.nodes[VICTIM]
    gone, kept = inside(more(node)), inside(node.data)
    led = {partition for partition, leader in leaders(cluster).items() if leader == VICTIM}
    assert gone & led and kept & led and gone | kept == set(range(PARTITIONS)), "it leads in both directories"
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
    away = node.directory / "more.away"

    async def until(reached: Callable[[], object], within_s: float, what: str) -> None:
        await asyncio.to_thread(cluster.wait_until, reached, within_s=within_s, what=what)

    async with load.running():
        await load.wait_more()
        more(node).rename(away)
        more(node).write_text("a file where a directory is expected")
        await until(lambda: says_offline(node), 20, "a new segment is to be made there")
        assert await load.wait_for_new_records() < WRITES_AGAIN_S
        await until(lambda: in_sync(cluster, node) == kept, LAG_S / 2, "what lies there is out of its sets")
        now = await asyncio.to_thread(leaders, cluster)
        assert {partition for partition, leader in now.items() if leader == VICTIM} == kept & led
        assert set(now.values()) <= {0, 1, 2}, "each partition is led"
        await load.wait_more(1000)
        assert await asyncio.to_thread(in_sync, cluster, node) == kept, "its other directory serves on"

        more(node).unlink()
        away.rename(more(node)) if comes_back == "as it was" else more(node).mkdir()
        assert await asyncio.to_thread(cluster.stop_node, VICTIM) == 0
        cluster.start_node(VICTIM)
        await asyncio.to_thread(cluster.wait_healthy, 60)
        await load.wait_more()
    await load.check()
    assert says_offline(node) == []
    cluster.stop()
    if comes_back == "as it was":
        assert inside(more(node)) == gone, "it continues with the files that it has open there"
    for partition in range(PARTITIONS):
        assert len({content(each, partition) for each in cluster.nodes}) == 1, "the replicas are alike"
