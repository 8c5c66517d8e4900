"""Three real nodes on loopback under load: no failure loses an acknowledged record, and the cluster recovers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from node.process.local_cluster import LocalCluster
from node.process.probe import main as probe
from tests.integration.load import Load

pytestmark = pytest.mark.integration

PARTITIONS = 3


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: LocalCluster) -> LocalCluster:
    """One cluster for all tests of this file, healthy again; each has a topic of its own."""
    started.start()
    started.wait_healthy(60)
    return started


@pytest.fixture(params=["fsync", pytest.param("page-cache", marks=pytest.mark.deep)])
def load(cluster: LocalCluster, request: pytest.FixtureRequest) -> Load:
    topic = f"{request.node.originalname}-{request.param}"
    cluster.create_topic(topic, PARTITIONS, durability=request.param, min_insync_replicas="2")
    return Load(cluster.bootstrap, topic, PARTITIONS)


def leader_beside_the_first(cluster: LocalCluster, name: str) -> int:
    (topic,) = cluster.metadata(0, name).topics
    return next(state.leader for state in topic.partitions if state.leader > 0)


async def healthy(cluster: LocalCluster, *, in_sync: bool = True) -> None:
    await asyncio.to_thread(cluster.wait_healthy, 60, in_sync=in_sync)


async def test_a_cluster_forms_serves_and_stops_clean(cluster: LocalCluster) -> None:
    """Three nodes are stopped one after the other, which moves leaders, and start again."""
    cluster.create_topic("orders", PARTITIONS, min_insync_replicas="2")
    load = Load(cluster.bootstrap, "orders", PARTITIONS)
    async with load.running():
        await load.wait_more(1000)
    assert await load.check() == len(load.acknowledged)
    assert probe(["--ready", str(cluster.nodes[1].address)]) == 0
    at = str(cluster.nodes[1].address)
    cluster.wait_until(lambda: probe(["--caught-up", at]) == 0, within_s=10, what="the node has caught up")
    assert [cluster.stop_node(node) for node in (2, 1, 0)] == [0, 0, 0]
    assert probe([str(cluster.nodes[1].address)]) == 1
    for node in cluster.nodes:
        assert (node.data / ".kafka_cleanshutdown").exists()
    cluster.start()
    cluster.wait_healthy()
    await load.check()
    load.acknowledged[0, 1_000_000] = b"0-1000000-never sent"
    with pytest.raises(AssertionError, match=r"1 of \d+ acknowledged records are gone"):
        await load.check()


async def test_a_leader_is_killed_under_load(cluster: LocalCluster, load: Load) -> None:
    """Waits for the election, the restart and the in-sync sets."""
    async with load.running():
        await load.wait_more()
        victim = leader_beside_the_first(cluster, load.topic)
        await asyncio.to_thread(cluster.kill, victim)
        await load.wait_more(500)
        await healthy(cluster)
        cluster.start_node(victim)
        await load.wait_more(500)
        await healthy(cluster)
        await load.wait_more()
    await load.check()


async def test_a_follower_is_killed_under_load(cluster: LocalCluster, load: Load) -> None:
    """Waits for the restart and the in-sync sets."""
    async with load.running():
        await load.wait_more()
        victim = 3 - leader_beside_the_first(cluster, load.topic)  # it leads one partition, follows two
        await asyncio.to_thread(cluster.kill, victim)
        cluster.start_node(victim)
        await load.wait_more(500)
        await healthy(cluster)
    await load.check()


async def test_all_nodes_are_killed_at_once(cluster: LocalCluster, load: Load) -> None:
    """Waits for three restarts and recoveries."""
    async with load.running():
        await load.wait_more(500)
        await asyncio.to_thread(cluster.kill_all)
        cluster.start()
        await load.wait_more(500)
        await healthy(cluster)
    await load.check()


@pytest.mark.deep
async def test_a_torn_tail_is_truncated_and_fetched_again(cluster: LocalCluster, load: Load) -> None:
    """Four restarts, and each copy serves alone."""
    async with load.running():
        await load.wait_more(500)
        victim = leader_beside_the_first(cluster, load.topic)
        await asyncio.to_thread(cluster.kill, victim)
        for log in cluster.nodes[victim].data.glob(f"{load.topic}-*/*.log"):
            with log.open("ab") as file:  # what a crash in the middle of an append leaves
                file.write(random.Random(1).randbytes(700))
        cluster.start_node(victim)
        await load.wait_more(500)
        await healthy(cluster)
    await load.check()
    for victim in range(3):  # every copy serves alone what all had acknowledged
        await asyncio.to_thread(cluster.stop_node, victim)
        await healthy(cluster, in_sync=False) if victim else None
        cluster.start_node(victim)
        await healthy(cluster)
    await load.check()


async def test_a_graceful_stop_moves_leaderships(cluster: LocalCluster, load: Load) -> None:
    """Two nodes are stopped and restarted under load."""
    async with load.running():
        await load.wait_more()
        for node in (1, 2):
            assert await asyncio.to_thread(cluster.stop_node, node) == 0
            await load.wait_more()
            cluster.start_node(node)
            await healthy(cluster)
    await load.check()
