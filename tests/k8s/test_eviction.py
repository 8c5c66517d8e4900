"""Evictions, by which machines are drained: the disruption budget lets one node go at a time."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.integration import progress
from tests.integration.progress import Workload
from tests.k8s.cluster import GRACEFUL_PAUSE_S, Namespace, attempt, begin_load

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6


def evict(cluster: Namespace, pod: str) -> subprocess.CompletedProcess[str]:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": cluster.name},
    }
    path = f"/api/v1/namespaces/{cluster.name}/pods/{pod}/eviction"
    return attempt("kubectl", "create", "--raw", path, "--filename=-", stdin=json.dumps(eviction))


def test_evictions_take_one_node_after_the_other_and_lose_nothing(cluster: Namespace, client: Workload) -> None:
    """Goal: who drains machines cannot stop the writes. Method: evict every node, while writing, and try the next one
    while its predecessor is away."""
    cluster.wait_healthy()
    load = begin_load(client, "evicted", PARTITIONS)
    for pod, following in (("tidelog-0", "tidelog-1"), ("tidelog-1", "tidelog-2"), ("tidelog-2", "tidelog-0")):
        former = {pod: cluster.pods()[pod]}
        cluster.kubectl("wait", "--for=jsonpath={.status.disruptionsAllowed}=1", "pdb/tidelog", "--timeout=60s")

        evicted = evict(cluster, pod)
        assert evicted.returncode == 0, evicted.stderr
        refused = evict(cluster, following)
        assert refused.returncode != 0
        assert "disruption budget" in refused.stderr

        cluster.wait_replaced(former)
        cluster.wait_healthy()
        load.wait_acked_everywhere(PARTITIONS)

    cluster.end_load(load)
    assert load.longest.seconds < GRACEFUL_PAUSE_S, load.longest
    progress.check_nothing_lost(load, client.run("read", "evicted", PARTITIONS))
