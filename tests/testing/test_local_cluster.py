"""`tidelog.testing.LocalCluster`: processes that a user's test kills, pauses, cuts off, slows and fills."""

from __future__ import annotations

from time import perf_counter

import pytest

import tidelog
from tidelog.errors import DiskFull, TidelogError
from tidelog.sync import Producer
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.integration


async def values_of(cluster: LocalCluster, topic: str) -> list[bytes | None]:
    """Everything that is committed in a topic with one partition."""
    async with tidelog.Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        end = (await consumer.end_offsets([(topic, 0)]))[tidelog.TopicPartition(topic, 0)]
        found: list[bytes | None] = []
        while len(found) < end:
            found += [record.value for record in await consumer.poll()]
        return found


async def test_what_is_acknowledged_outlives_its_leader(tidelog_cluster: LocalCluster, tidelog_topic: str) -> None:
    async with tidelog.Producer(tidelog_cluster.bootstrap, acks="all") as producer:
        await producer.send(tidelog_topic, b"before")
        leader = tidelog_cluster.leader(tidelog_topic)
        tidelog_cluster.kill(leader)
        await producer.send(tidelog_topic, b"after")
    await tidelog_cluster.healthy()
    assert tidelog_cluster.leader(tidelog_topic) not in (leader, -1)
    assert await values_of(tidelog_cluster, tidelog_topic) == [b"before", b"after"]


async def test_a_leader_that_is_cut_off_is_replaced(tidelog_cluster: LocalCluster, tidelog_topic: str) -> None:
    """The test before killed a node: the fixture has healed the cluster since."""
    assert not tidelog_cluster.is_disturbed
    old = tidelog_cluster.leader(tidelog_topic)
    tidelog_cluster.cut_off(old)
    await tidelog_cluster.healthy()
    assert tidelog_cluster.leader(tidelog_topic) not in (old, -1)
    async with tidelog.Producer(tidelog_cluster.bootstrap, acks="all") as producer:
        await producer.send(tidelog_topic, b"by the others")
    tidelog_cluster.reconnect(old)
    await tidelog_cluster.healthy()
    assert await values_of(tidelog_cluster, tidelog_topic) == [b"by the others"]


async def test_a_paused_node_is_left_behind_and_comes_back(tidelog_cluster: LocalCluster, tidelog_topic: str) -> None:
    follower = next(node for node in tidelog_cluster.nodes if node != tidelog_cluster.leader(tidelog_topic))
    tidelog_cluster.pause(follower)
    await tidelog_cluster.healthy()
    async with tidelog.Producer(tidelog_cluster.bootstrap, acks="all") as producer:
        await producer.send(tidelog_topic, b"without it")
    tidelog_cluster.resume(follower)
    await tidelog_cluster.healthy()


async def test_a_cluster_that_starts_again_is_not_healthy_by_what_it_knew_before(tidelog_cluster: LocalCluster) -> None:
    for node in tidelog_cluster.nodes:
        tidelog_cluster.kill(node)
    with pytest.raises(TimeoutError, match="no node runs"):
        tidelog_cluster.create_topic()
    tidelog_cluster.heal()
    await tidelog_cluster.healthy()
    tidelog_cluster.create_topic(replicas=3)


def test_a_node_that_there_is_not_is_no_other_one(tidelog_cluster: LocalCluster) -> None:
    for call in (tidelog_cluster.kill, tidelog_cluster.start, tidelog_cluster.cut_off, tidelog_cluster.fill_disk):
        for node in (-1, 3):
            with pytest.raises(ValueError, match=f"there is no node {node}: the nodes are 0, 1, 2"):
                call(node)
    assert not tidelog_cluster.is_disturbed


def test_a_node_that_is_stopped_hands_its_leaderships_over(tidelog_cluster: LocalCluster, tidelog_topic: str) -> None:
    old = tidelog_cluster.leader(tidelog_topic)
    tidelog_cluster.stop(old)
    with pytest.raises(ValueError, match="does not run"):
        tidelog_cluster.pause(old)
    with Producer(tidelog_cluster.bootstrap, acks="all") as producer:
        producer.send(tidelog_topic, b"by another leader")
    assert tidelog_cluster.leader(tidelog_topic) not in (old, -1)
    tidelog_cluster.start(old)
    tidelog_cluster.wait_healthy()


async def test_a_full_disk_refuses_and_a_slow_one_delays(tidelog_cluster: LocalCluster) -> None:
    """With one replica, the disk of its leader decides alone."""
    topic = tidelog_cluster.create_topic(replicas=1, durability="fsync")
    leader = tidelog_cluster.leader(topic)
    async with (
        tidelog.Producer(tidelog_cluster.bootstrap) as producer,
        tidelog.Producer(tidelog_cluster.bootstrap, delivery_timeout_ms=500) as impatient,
    ):
        await producer.send(topic, b"fits")
        tidelog_cluster.slow_disk(leader, 200)
        begun = perf_counter()
        await producer.send(topic, b"late")
        assert perf_counter() - begun >= 0.2
        tidelog_cluster.slow_disk(leader, 0)
        tidelog_cluster.fill_disk(leader)
        with pytest.raises(TidelogError) as refused:
            await impatient.send(topic, b"too much")
        assert isinstance(refused.value, DiskFull) or isinstance(refused.value.__cause__, DiskFull)
        tidelog_cluster.free_disk(leader)
        await producer.send(topic, b"fits again")
    assert await values_of(tidelog_cluster, topic) == [b"fits", b"late", b"fits again"]


def test_a_directory_that_was_given_is_kept_and_a_temporary_one_is_not(tmp_path: object) -> None:
    cluster = LocalCluster(nodes=1)
    home = cluster.directory
    assert (home / "node-0" / "tidelog.toml").is_file()
    cluster.close()
    assert not home.exists()
    kept = LocalCluster(nodes=1, directory=str(tmp_path))
    kept.close()
    with pytest.raises(ValueError, match="has a cluster already"):
        LocalCluster(directory=kept.directory)
    assert (kept.directory / "node-0" / "tidelog.toml").is_file()
