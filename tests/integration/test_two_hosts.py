"""Six nodes on two machines: `broker.rack` names the machine, and replicas keep apart (docs/decisions/0016)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from node.process.local_cluster import LocalCluster
from tidelog import Consumer, Producer

pytestmark = pytest.mark.integration

PARTITIONS = 12


def host_of(node_id: int) -> str:
    return f"host-{node_id // 3}"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path_factory.mktemp("hosts"), nodes=6)
    for node in cluster.nodes:
        node.wrapper = ("env", f"TIDELOG_BROKER_RACK={host_of(node.node_id)}")
    with cluster:
        cluster.wait_healthy()
        yield cluster


@pytest.mark.deep
def test_six_nodes_on_two_hosts_keep_replicas_apart_and_share_the_leaders(cluster: LocalCluster) -> None:
    """Two replicas of a partition lie on two hosts, of three replicas at most two on one; each node leads as often as
    every other one; when a host has lost two of its nodes, every partition of two replicas still has its records."""
    cluster.create_topic("pairs", PARTITIONS, 2)
    cluster.create_topic("triples", PARTITIONS, 3)
    for topic, most in (("pairs", 1), ("triples", 2)):
        (placed,) = cluster.metadata(0, topic).topics
        for state in placed.partitions:
            hosts = Counter(host_of(node) for node in state.replicas)
            assert len(hosts) == 2 and max(hosts.values()) == most, f"{topic}-{state.partition}: {state.replicas}"
        leaders = Counter(state.leader for state in placed.partitions)
        assert leaders == dict.fromkeys(range(6), PARTITIONS // 6)

    async def write() -> None:
        async with Producer(cluster.bootstrap) as producer:
            for number in range(PARTITIONS):
                await producer.send("pairs", b"%d" % number, partition=number)

    async def read() -> set[bytes | None]:
        found: set[bytes | None] = set()
        async with Consumer(cluster.bootstrap) as consumer, asyncio.timeout(60):
            consumer.assign(await consumer.partitions("pairs"))
            while len(found) < PARTITIONS:
                found.update(record.value for record in await consumer.poll(timeout=1))
        return found

    asyncio.run(write())
    for node_id in (4, 5):  # of the host with one voter at most
        cluster.kill(node_id)
    assert asyncio.run(read()) == {b"%d" % number for number in range(PARTITIONS)}
