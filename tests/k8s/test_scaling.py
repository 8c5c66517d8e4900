"""More nodes and fewer: the steps of docs/operations.md, "Scale"."""

from __future__ import annotations

import json

import pytest

from tests.integration import progress
from tests.integration.progress import Workload
from tests.k8s.cluster import Namespace, begin_load

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 12


def replicas(cluster: Namespace) -> dict[int, int]:
    """How many each node has."""
    return {node["node_id"]: node["replicas"] for node in cluster.status()["nodes"]}


def test_a_cluster_grows_to_five_nodes_and_shrinks_again_under_load(cluster: Namespace, client: Workload) -> None:
    """Goal: new nodes get their share by one command, and are gone without a trace after two. Method: write all the
    time; three nodes, five, rebalance; then drain, scale down and remove, one node at a time."""
    cluster.wait_healthy()
    load = begin_load(client, "moved", PARTITIONS)
    cluster.kubectl("scale", "statefulset/tidelog", "--replicas=5")
    cluster.wait_ready()
    cluster.wait_healthy(nodes=5)

    cluster.tidelog("cluster", "rebalance", "--dry-run")
    moves = json.loads(cluster.tidelog("--json", "cluster", "rebalance", "--status"))
    assert (moves["queued"], moves["running"]) == (0, 0), "a dry run queues nothing"
    assert replicas(cluster) == {0: 12, 1: 12, 2: 12, 3: 0, 4: 0}
    cluster.tidelog("cluster", "rebalance")
    assert set(replicas(cluster).values()) == {7, 8}, "36 replicas on five nodes"
    load.wait_acked_everywhere(PARTITIONS)

    for number in (4, 3):
        cluster.tidelog("node", "drain", number)
        assert replicas(cluster)[number] == 0
        cluster.kubectl("scale", "statefulset/tidelog", f"--replicas={number}")
        cluster.kubectl("wait", "--for=delete", f"pod/tidelog-{number}", "--timeout=120s")
        client.run("wait", number)
        cluster.tidelog("node", "remove", number)
        cluster.kubectl("delete", "pvc", f"data-tidelog-{number}")
        cluster.wait_healthy(nodes=number)
        load.wait_acked_everywhere(PARTITIONS)

    assert replicas(cluster) == {0: 12, 1: 12, 2: 12}
    assert progress.quorum(client).voters == [0, 1, 2]
    cluster.end_load(load)
    progress.check_nothing_lost(load, client.run("read", "moved", PARTITIONS))
    cluster.tidelog("job", "audit", "moved")
