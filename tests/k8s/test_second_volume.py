"""The component deploy/components/second-volume: each node has two log directories, on volumes of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.integration import manifest, progress
from tests.k8s.cluster import PODS, Namespace, begin_load, plain_cluster

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6
DIRECTORIES = ("/var/lib/tidelog/data", "/var/lib/tidelog-second/data")


@pytest.fixture(scope="module")
def doubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    home = tmp_path_factory.mktemp("doubled")
    components = [os.path.relpath(manifest.SECOND_VOLUME, home.resolve())]
    with plain_cluster(home, fields={"components": components}) as namespace:
        yield namespace


def replicas(cluster: Namespace) -> dict[tuple[int, str], int]:
    """How many logs of the topic are in each directory of each node."""
    found = json.loads(cluster.tidelog("--json", "log-dirs", "--topic", "doubled"))
    return {(each["node"], each["path"]): len(each["logs"]) for each in found}


def test_replicas_are_in_both_log_directories_and_survive_the_pods(doubled: Namespace) -> None:
    """Goal: both volumes are used, and come back. Method: six partitions on three nodes; all pods are killed at once
    while a client writes."""
    client = doubled.workload()
    doubled.wait_healthy()
    load = begin_load(client, "doubled", PARTITIONS)
    halves = {(number, path): PARTITIONS // 2 for number in range(3) for path in DIRECTORIES}
    assert replicas(doubled) == halves

    former = doubled.pods()
    doubled.kubectl("delete", "pod", PODS, "--grace-period=0", "--force", "--wait=false")
    doubled.wait_replaced(former)
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    doubled.wait_healthy()

    assert replicas(doubled) == halves
    doubled.end_load(load)
    progress.check_nothing_lost(load, client.run("read", "doubled", PARTITIONS))
