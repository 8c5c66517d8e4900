"""All pods of a cluster are killed at once, as a power failure does."""

from __future__ import annotations

import pytest

from tests.integration import progress
from tests.integration.progress import Workload
from tests.k8s.cluster import PODS, Namespace, begin_load

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6


def test_all_pods_killed_at_once_under_load_lose_nothing(cluster: Namespace, client: Workload) -> None:
    """Goal: the volumes alone bring the cluster back, with every acknowledged record. Method: delete all pods without
    their grace, while writing; no node is left that another one could fetch from."""
    client.run("wait", 3)
    load = begin_load(client, "darkened", PARTITIONS)
    former = cluster.pods()

    cluster.kubectl("delete", "pod", PODS, "--grace-period=0", "--force", "--wait=false")
    cluster.wait_replaced(former)
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_healthy()

    cluster.end_load(load)
    progress.check_nothing_lost(load, client.run("read", "darkened", PARTITIONS))
    assert progress.quorum(client).voters == [0, 1, 2]
