"""Replicas of a real node move between its log directories under load, and the node is killed meanwhile (KIP-113)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster, LocalNode
from tests.integration.load import Load
from tidelog.client.admin import Admin
from tidelog.types import NodeId, PartitionIndex, TopicPartition

pytestmark = pytest.mark.integration

TOPIC, PARTITIONS, ROUNDS = "orders", 4, 2
RATE = '"replica.alter.log.dirs.io.max.bytes.per.second" = '
SLOW, FAST = "50000", "0"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Each partition has one replica: what its log loses is lost."""
    settings = {"log.dirs": ["data", "more"], "replica.alter.log.dirs.io.max.bytes.per.second": int(SLOW)}
    with LocalCluster(tmp_path, 1, settings=settings) as cluster:
        cluster.wait_healthy()
        cluster.create_topic(TOPIC, PARTITIONS, replicas=1, segment_bytes="50000")
        yield cluster


def names(directory: Path) -> list[str]:
    """The logs of the topic there, their copies, and what is to be deleted."""
    return sorted(path.name for path in directory.glob(f"{TOPIC}-*"))


def kill_and_start(cluster: LocalCluster, rate: str) -> None:
    """Kill the node; from its next start on, it copies at this rate."""
    cluster.kill(0)
    config = cluster.nodes[0].config
    lines = [RATE + rate if line.startswith(RATE) else line for line in config.read_text().splitlines()]
    assert RATE + rate in lines
    config.write_text("\n".join(lines))
    cluster.start_node(0)
    cluster.wait_healthy(60)


async def test_a_node_killed_while_its_replicas_move_loses_nothing_and_moves_them(cluster: LocalCluster) -> None:
    """The node is killed when copies exist, and again when all have taken the place of their logs. After a start it
    goes on by itself, and all that was acknowledged is read at the end, once and in order."""
    (node,) = cluster.nodes
    paths = "data", "more"  # where the node runs
    directories = [node.directory / path for path in paths]
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS)

    async def until(reached: object, what: str) -> None:
        assert callable(reached)
        await asyncio.to_thread(cluster.wait_until, reached, within_s=60, what=what)

    async with load.running(), Admin(cluster.bootstrap) as admin:
        await load.wait_more(1_000)
        for number in range(ROUNDS):
            target = directories[number % 2]
            places = [TopicPartition(TOPIC, PartitionIndex(index)) for index in range(PARTITIONS)]
            outcomes = await admin.move_replicas(0, dict.fromkeys(places, paths[number % 2]))
            assert [each.error for each in outcomes] == [None] * PARTITIONS
            await until(lambda at=target: any(name.endswith("-future") for name in names(at)), "a copy has begun")
            await load.wait_more()
            await asyncio.to_thread(kill_and_start, cluster, FAST)
            expected = [str(place) for place in places]
            await until(lambda at=target, logs=expected: names(at) == logs, f"all logs are in {target}")
            await load.wait_more()
            await asyncio.to_thread(kill_and_start, cluster, SLOW)
            await until(lambda at=directories[1 - number % 2]: not names(at), "nothing is left of them elsewhere")
            await until(lambda at=target: not [*at.glob("*/moved-from.metadata")], "the metadata name the directory")
            await load.wait_more()
    await load.check()
    described = await described_logs(cluster, node)
    assert described == {paths[(ROUNDS - 1) % 2]: PARTITIONS}


async def described_logs(cluster: LocalCluster, node: LocalNode) -> dict[str, int]:
    async with Admin(cluster.bootstrap) as admin:
        found = (await admin.describe_log_dirs())[NodeId(node.node_id)]
    assert isinstance(found, list)
    return {each.path: len(each.logs) for each in found if each.logs}
