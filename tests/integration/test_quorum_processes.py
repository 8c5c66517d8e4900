"""Three voters as real processes under load: the active controller is killed, alone and together with a leader."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.integration.load import Load
from tidelog.client.admin import Admin

pytestmark = pytest.mark.integration

TOPIC, PARTITIONS = "orders", 3
FIRST_VERSION = Path(__file__).parent.parent / "vectors" / "tidelog-one-voter.tar.xz"

WRITES_AGAIN_S = 5.0
"""With default times: a session of 2 s, quorum fetch timeouts of 1 to 2 s."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path) as cluster:
        cluster.wait_healthy()
        yield cluster


def controller(cluster: LocalCluster) -> int:
    running = next(node.node_id for node in cluster.nodes if node.running)
    return cluster.describe(running).controller_id


async def a_topic_led_elsewhere(cluster: LocalCluster, active: int) -> tuple[str, int]:
    """A topic of one partition that the controller holds no replica of and no voter leads: its name, and its leader."""
    voters = {voter.node_id for voter in cluster.describe(0).voters}
    observers = [node.node_id for node in cluster.nodes if node.node_id not in voters]
    replicas = [*observers, min(voters - {active})]
    cluster.create_topic(TOPIC, 1, min_insync_replicas="2")

    def placed() -> bool:
        (topic,) = cluster.metadata(0, TOPIC).topics
        (state,) = topic.partitions
        return list(state.replicas) == replicas and set(state.isr) == set(replicas)

    async with Admin(cluster.bootstrap) as admin:
        (outcome,) = await admin.reassign({(TOPIC, 0): replicas})
        assert outcome.error is None
        await asyncio.to_thread(cluster.wait_until, placed, within_s=30, what="the reassignment")
        await admin.elect_leaders()
    await healthy(cluster)
    (topic,) = cluster.metadata(0, TOPIC).topics
    assert topic.partitions[0].leader == replicas[0]
    return TOPIC, replicas[0]


async def healthy(cluster: LocalCluster) -> None:
    await asyncio.to_thread(cluster.wait_healthy, 60)


async def let_preferred_leaders_lead(cluster: LocalCluster) -> None:
    """So that each of three nodes leads one of three partitions."""
    async with Admin(cluster.bootstrap) as admin:
        await admin.elect_leaders()
    await healthy(cluster)


def leads(cluster: LocalCluster, node: int) -> int:
    """How many partitions the node leads."""
    running = next(other.node_id for other in cluster.nodes if other.running)
    (topic,) = cluster.metadata(running, TOPIC).topics
    return sum(state.leader == node for state in topic.partitions)


@pytest.mark.deep
async def test_the_active_controller_is_killed_under_load_again_and_again(cluster: LocalCluster) -> None:
    """Each time it also leads a partition: the leader and the controller are one node, and die together."""
    cluster.create_topic(TOPIC, PARTITIONS, min_insync_replicas="2")
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
    async with load.running():
        for _ in range(3):
            await let_preferred_leaders_lead(cluster)
            await load.wait_more()
            active = controller(cluster)
            assert leads(cluster, active) == 1
            await asyncio.to_thread(cluster.kill, active)
            assert await load.wait_for_new_records() < WRITES_AGAIN_S
            assert controller(cluster) not in (active, -1)
            cluster.start_node(active)
            await healthy(cluster)
    await load.check()


@pytest.mark.deep
def test_a_leader_and_the_controller_are_killed_together(tmp_path: Path) -> None:
    """Five nodes, of which two are killed and come back."""
    with LocalCluster(tmp_path, 5) as cluster:
        cluster.wait_healthy()
        active = controller(cluster)

        async def story() -> None:
            name, leader = await a_topic_led_elsewhere(cluster, active)
            load = Load(cluster.bootstrap, name, 1)
            async with load.running():
                await load.wait_more()
                for node in (leader, active):
                    await asyncio.to_thread(cluster.kill, node)
                assert await load.wait_for_new_records() < WRITES_AGAIN_S
                for node in (leader, active):
                    cluster.start_node(node)
                await healthy(cluster)
            await load.check()

        asyncio.run(story())


@pytest.mark.deep
def test_directories_of_the_first_version_open_and_one_voter_is_grown_to_three(tmp_path: Path) -> None:
    """Three nodes were killed under that version, in which node 0 alone voted: all that they held is there, and node 0
    may be lost now."""
    with tarfile.open(FIRST_VERSION) as tar:
        tar.extractall(tmp_path, filter="data")
    with LocalCluster(tmp_path, settings={"log.retention.ms": -1}) as cluster:
        cluster.wait_healthy()
        cluster.wait_until(
            lambda: [voter.node_id for voter in cluster.describe(1).voters] == [0, 1, 2],
            within_s=20,
            what="three voters",
        )
        load = Load(cluster.bootstrap, TOPIC, PARTITIONS)

        async def story() -> None:
            old = await load.read_all()
            assert sorted(old.values()) == sorted(b"old %d" % number for number in range(60))
            load.acknowledged.update(old)
            async with load.running():
                await load.wait_more()
                await asyncio.to_thread(cluster.kill, 0)
                assert await load.wait_for_new_records() < WRITES_AGAIN_S
                assert controller(cluster) in (1, 2)
                cluster.start_node(0)
                await healthy(cluster)
            found = await load.read_all()
            assert {place: found.get(place) for place in load.acknowledged} == load.acknowledged

        asyncio.run(story())
