"""The kustomize base on a real cluster: pods are deleted and replaced under load, and all is read back."""

from __future__ import annotations

import pytest

from tests.integration import progress
from tests.integration.progress import Workload
from tests.k8s.cluster import GRACEFUL_PAUSE_S, Namespace, begin_load, leading_pod

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6


def test_deleting_the_leaders_pod_under_load_loses_nothing(cluster: Namespace, client: Workload) -> None:
    """Goal: what was acknowledged is read. Method: delete the pod that leads most, while writing."""
    client.run("wait", 3)
    load = begin_load(client, "deleted", PARTITIONS)
    former = leading_pod(cluster, client, "deleted")

    cluster.kubectl("delete", "pod", *former, "--wait=true")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_replaced(former)
    client.run("wait", 3)

    cluster.end_load(load)
    assert load.longest.seconds < GRACEFUL_PAUSE_S, load.longest
    progress.check_nothing_lost(load, client.run("read", "deleted", PARTITIONS))


def test_losing_the_active_controllers_pod_under_load_loses_nothing(cluster: Namespace, client: Workload) -> None:
    """Goal: three pods vote, and two of them continue. Method: end the controller's pod without any grace."""
    before = progress.quorum(client)
    assert before.voters == [0, 1, 2]
    load = begin_load(client, "decapitated", PARTITIONS)
    pod = f"tidelog-{before.controller}"
    former = {pod: cluster.pods()[pod]}

    cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_replaced(former)
    client.run("wait", 3)
    assert progress.quorum(client).voters == [0, 1, 2]

    cluster.end_load(load)
    progress.check_nothing_lost(load, client.run("read", "decapitated", PARTITIONS))


def test_a_rolling_restart_under_load_loses_nothing(cluster: Namespace, client: Workload) -> None:
    """Goal: a change reaches all pods while clients write. Method: let the StatefulSet replace every one."""
    cluster.wait_healthy()
    load = begin_load(client, "rolled", PARTITIONS)
    former = cluster.pods()

    cluster.kubectl("rollout", "restart", "statefulset/tidelog")
    cluster.wait_ready()
    cluster.wait_replaced(former)
    load.wait_acked_everywhere(PARTITIONS, timeout=60)

    cluster.end_load(load)
    assert load.longest.seconds < GRACEFUL_PAUSE_S, load.longest
    progress.check_nothing_lost(load, client.run("read", "rolled", PARTITIONS))


def test_programs_that_use_kafka_survive_the_loss_of_a_leaders_pod(cluster: Namespace, client: Workload) -> None:
    """Goal: a client of Kafka begins at the Service and follows the advertised addresses, also those of a new pod.
    Method: delete the pod that leads most, while writing; read all back in a group, and by Tidelog's own client."""
    kafka_client = cluster.kafka_workload()
    client.run("wait", 3)
    load = begin_load(client, "kafka", PARTITIONS, writer=kafka_client)
    former = leading_pod(cluster, client, "kafka")

    cluster.kubectl("delete", "pod", *former, "--wait=true")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_replaced(former)
    client.run("wait", 3)

    cluster.end_load(load)
    assert not load.refused
    progress.check_nothing_lost(load, kafka_client.run("read", "kafka", PARTITIONS))
    progress.check_nothing_lost(load, client.run("read", "kafka", PARTITIONS))
