"""The kustomize base on a real cluster: applied, ready, written to, its leader's pod deleted under load, all read back.

`make k8s-test` runs it on whatever cluster KUBECONFIG names, in a namespace of its own that it removes. IMAGE_LOAD is a
command that takes the image's name and brings it to the cluster's nodes, where they cannot pull it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration import manifest, progress
from tests.integration.progress import Load, Workload
from tests.k8s.cluster import Namespace, client_pod, new_namespace, overlay_of

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    overlay = tmp_path_factory.mktemp("overlay")
    with new_namespace() as namespace:
        kustomization = overlay_of(manifest.BASE, overlay, namespace.name)
        (overlay / "kustomization.yaml").write_text(json.dumps(kustomization))
        namespace.kubectl("apply", "--kustomize", str(overlay))
        namespace.kubectl("apply", "--filename=-", stdin=json.dumps(client_pod()))
        namespace.wait_ready()
        namespace.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
        yield namespace


@pytest.fixture(scope="module")
def client(cluster: Namespace) -> Workload:
    return cluster.workload()


def test_deleting_the_leaders_pod_under_load_loses_nothing(cluster: Namespace, client: Workload) -> None:
    """Goal: what was acknowledged is read. Method: delete the pod that leads most, while writing."""
    client.run("wait", 3)
    client.run("create", "deleted", PARTITIONS)
    load = Load(client.start("load", "deleted", PARTITIONS, 60))
    load.wait_acked_everywhere(PARTITIONS)
    described = progress.partitions(client.run("describe", "deleted"))
    pod = f"tidelog-{progress.most_leading(described)}"
    first_uid = cluster.uid(pod)

    cluster.kubectl("delete", "pod", pod, "--wait=true")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_ready()
    assert cluster.uid(pod) != first_uid
    client.run("wait", 3)

    load.finish(timeout=120)
    progress.check_nothing_lost(load, client.run("read", "deleted", PARTITIONS))


def test_losing_the_active_controllers_pod_under_load_loses_nothing(cluster: Namespace, client: Workload) -> None:
    """Goal: three pods vote, and two of them continue. Method: end the controller's pod without any grace."""
    before = progress.quorum(client)
    assert before.voters == [0, 1, 2]
    client.run("create", "decapitated", PARTITIONS)
    load = Load(client.start("load", "decapitated", PARTITIONS, 60))
    load.wait_acked_everywhere(PARTITIONS)
    pod = f"tidelog-{before.controller}"
    first_uid = cluster.uid(pod)

    cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_ready()
    assert cluster.uid(pod) != first_uid
    client.run("wait", 3)
    assert progress.quorum(client).voters == [0, 1, 2]

    load.finish(timeout=120)
    progress.check_nothing_lost(load, client.run("read", "decapitated", PARTITIONS))


def test_a_rolling_restart_under_load_loses_nothing(cluster: Namespace, client: Workload) -> None:
    client.run("create", "rolled", PARTITIONS)
    load = Load(client.start("load", "rolled", PARTITIONS, 90))
    load.wait_acked_everywhere(PARTITIONS)

    cluster.kubectl("rollout", "restart", "statefulset/tidelog")
    cluster.wait_ready()
    load.wait_acked_everywhere(PARTITIONS, timeout=60)

    load.finish(timeout=180)
    progress.check_nothing_lost(load, client.run("read", "rolled", PARTITIONS))


def test_programs_that_use_kafka_survive_the_loss_of_a_leaders_pod(cluster: Namespace, client: Workload) -> None:
    """Goal: a client of Kafka begins at the Service and follows the advertised addresses, also those of a new pod.
    Method: delete the pod that leads most, while writing; read all back in a group, and by Tidelog's own client."""
    kafka_client = cluster.kafka_workload()
    client.run("wait", 3)
    client.run("create", "kafka", PARTITIONS)
    load = Load(kafka_client.start("load", "kafka", PARTITIONS, 60))
    load.wait_acked_everywhere(PARTITIONS)
    pod = f"tidelog-{progress.most_leading(progress.partitions(client.run('describe', 'kafka')))}"
    first_uid = cluster.uid(pod)

    cluster.kubectl("delete", "pod", pod, "--wait=true")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_ready()
    assert cluster.uid(pod) != first_uid
    client.run("wait", 3)

    load.finish(timeout=120)
    assert not load.refused
    progress.check_nothing_lost(load, kafka_client.run("read", "kafka", PARTITIONS))
    progress.check_nothing_lost(load, client.run("read", "kafka", PARTITIONS))
