"""`tidelog.testing.LocalCluster`: processes that a user's test kills, pauses, cuts off, slows and fills."""

from __future__ import annotations

import gc
from time import perf_counter
from typing import cast

import pytest

import tidelog
from tidelog.errors import DiskFull, InvalidConfig, TidelogError
from tidelog.sync import Admin, Producer
from tidelog.testing import InProcessNode, LocalCluster

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
        tidelog.Producer(tidelog_cluster.bootstrap, delivery_timeout_ms=1_500) as impatient,
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


def test_a_node_is_started_and_not_waited_for(tidelog_cluster: LocalCluster) -> None:
    tidelog_cluster.kill(0)
    tidelog_cluster.start(0)
    assert not tidelog_cluster.is_disturbed


def test_the_test_after_it_has_a_healthy_cluster_too(tidelog_cluster: LocalCluster) -> None:
    tidelog_cluster.wait_healthy(within=0)


async def test_a_wait_in_vain_says_what_is_missing(tidelog_cluster: LocalCluster) -> None:
    tidelog_cluster.kill(0)
    tidelog_cluster.pause(1)
    with pytest.raises(
        TimeoutError, match=r"not within 2\.5 s: .* \(node 2 .*nodes \[0, 1\] do not run, or are paused"
    ):
        await tidelog_cluster.healthy(within=2.5)


def test_a_topic_is_created_while_another_controller_takes_over(tidelog_cluster: LocalCluster) -> None:
    """The request that waits at the paused one ends without an answer."""
    with Admin(tidelog_cluster.bootstrap) as admin:
        tidelog_cluster.pause(admin.describe_cluster().controller_id)
    tidelog_cluster.create_topic(replicas=2)


def test_arguments_that_cannot_be_are_refused(tidelog_cluster: LocalCluster) -> None:
    with pytest.raises(ValueError, match="sync_ms must be 0 or more, not -5"):
        tidelog_cluster.slow_disk(0, -5)
    with pytest.raises(ValueError, match=r"there is no node 1\.0"):
        tidelog_cluster.kill(cast("int", 1.0))
    with pytest.raises(TypeError, match=r'the value of retention_ms must be a str, not 5: retention_ms="5"'):
        tidelog_cluster.create_topic(retention_ms=cast("str", 5))
    assert not tidelog_cluster.is_disturbed


@pytest.mark.parametrize("kind", [LocalCluster, InProcessNode])
def test_settings_by_which_nodes_find_each_other_are_refused(kind: type[LocalCluster | InProcessNode]) -> None:
    """With another number, the first node of a cluster was waited for in vain."""
    with pytest.raises(InvalidConfig, match=r"listeners, node\.id is chosen by tidelog\.testing"):
        kind(settings={"node.id": 5, "listeners": "GRPC://127.0.0.1:1"})


def test_a_cluster_that_is_closed_says_so() -> None:
    cluster = LocalCluster(nodes=1)
    cluster.close()
    for call in (cluster.__enter__, cluster.heal, cluster.wait_healthy, cluster.create_topic, lambda: cluster.kill(0)):
        with pytest.raises(RuntimeError, match="this cluster is closed"):
            call()


def test_a_cluster_that_was_never_started_leaves_no_directory() -> None:
    cluster = LocalCluster(nodes=1)
    home = cluster.directory
    assert home.is_dir()
    del cluster
    gc.collect()
    assert not home.exists()


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
