"""A rolling upgrade: the steps of docs/operations.md, "Upgrade", to the image that IMAGE_NEXT names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration import progress
from tests.integration.progress import Workload
from tests.k8s.cluster import GRACEFUL_PAUSE_S, IMAGE, Namespace, begin_load, bring_to_machines

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6
IMAGE_NEXT = os.environ.get("IMAGE_NEXT", "")


def images(cluster: Namespace) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in cluster.pods().values()}


@pytest.mark.skipif(not IMAGE_NEXT, reason="IMAGE_NEXT names no image to upgrade to")
def test_a_rolling_upgrade_under_load_loses_nothing(cluster: Namespace, client: Workload, tmp_path: Path) -> None:
    """Goal: the manifests with another image replace one node after the other, and nothing that was acknowledged is
    missing. Method: apply them while writing, and ask before and after whether an upgrade may go on."""
    bring_to_machines(IMAGE_NEXT)
    cluster.wait_healthy()
    cluster.tidelog("cluster", "upgrade-check")
    load = begin_load(client, "upgraded", PARTITIONS)
    former = cluster.pods()
    assert images(cluster) == {IMAGE}

    cluster.apply(tmp_path, image=IMAGE_NEXT)
    cluster.wait_ready()
    cluster.wait_replaced(former)
    assert images(cluster) == {IMAGE_NEXT}
    load.wait_acked_everywhere(PARTITIONS, timeout=60)

    cluster.end_load(load)
    assert load.longest.seconds < GRACEFUL_PAUSE_S, load.longest
    progress.check_nothing_lost(load, client.run("read", "upgraded", PARTITIONS))
    cluster.wait_healthy()
    cluster.tidelog("cluster", "upgrade-check")
