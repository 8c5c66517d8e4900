"""A volume is lost: the steps of docs/operations.md, "Lost volume"."""

from __future__ import annotations

import pytest

from tests.integration import progress
from tests.integration.progress import Workload
from tests.k8s.cluster import Namespace, begin_load

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6


def volume_of(cluster: Namespace, pod: str) -> str:
    return cluster.kubectl("get", "pvc", f"data-{pod}", "--output=jsonpath={.spec.volumeName}")


def test_a_wiped_volume_is_filled_again_under_load(cluster: Namespace, client: Workload) -> None:
    """Goal: a node whose volume is gone fetches every replica again, and votes again. Method: delete claim and pod of
    the active controller, while writing; compare the replicas of all nodes at the end."""
    cluster.wait_healthy()
    controller = progress.quorum(client).controller
    pod = f"tidelog-{controller}"
    load = begin_load(client, "refilled", PARTITIONS)
    lost = volume_of(cluster, pod)
    former = {pod: cluster.pods()[pod]}

    cluster.tidelog("node", "safe-to-restart", controller)
    cluster.kubectl("delete", "pvc", f"data-{pod}", "--wait=false")
    cluster.kubectl("delete", "pod", pod)
    cluster.wait_replaced(former)
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_healthy()
    assert volume_of(cluster, pod) != lost

    cluster.end_load(load)
    progress.check_nothing_lost(load, client.run("read", "refilled", PARTITIONS))
    cluster.tidelog("job", "audit", "refilled")
    assert progress.quorum(client).voters == [0, 1, 2]
