"""Three real nodes that authenticate to each other with the secret of the cluster, in sessions of two seconds: what
clients do goes on and is kept when nodes are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.integration.load import Load

pytestmark = pytest.mark.integration

TOPIC, PARTITIONS = "orders", 3
SECRET = "0123456789abcdef" * 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Clients use the listener GRPC, nodes the listener INNER, which requires SASL."""
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    settings = {
        "listener.security.protocol.map": ["INNER:GRPC_SASL_PLAINTEXT"],
        "cluster.secret.file": str(secret),
        "connections.max.reauth.ms": 2_000,
        "authorizer.class.name": "none",
    }
    cluster = LocalCluster(tmp_path / "cluster", settings=settings, inner=True)
    with cluster:
        cluster.wait_healthy()
        cluster.create_topic(TOPIC, PARTITIONS, min_insync_replicas="2")
        yield cluster


def leader_of(cluster: LocalCluster) -> int:
    (topic,) = cluster.metadata(0, TOPIC).topics
    return next(state.leader for state in topic.partitions)


@pytest.mark.deep
async def test_nodes_that_are_killed_come_back_and_nothing_is_lost(cluster: LocalCluster) -> None:
    """Two nodes are killed and restarted under load."""
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
    async with load.running():
        for _ in range(2):
            victim = leader_of(cluster)
            cluster.kill(victim)
            await load.wait_for_new_records()
            cluster.start_node(victim)
            await asyncio.to_thread(cluster.wait_healthy, 60)
            await load.wait_for_new_records()
    assert await load.check() >= len(load.acknowledged)
    logs = "".join(node.log.read_text() for node in cluster.nodes)
    assert "authentication failed" not in logs
    assert SECRET not in logs
