"""The overlay for production on a real cluster: clients with certificates write and read, also when a pod is deleted.

It needs three machines: the overlay puts one node on each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration import manifest, progress
from tests.integration.progress import Load, Workload
from tests.k8s.cluster import CLIENT_TLS, Namespace, client_pod, new_namespace, nodes, overlay_of

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    if nodes() < 3:
        pytest.skip("the cluster has fewer than three machines")
    home = tmp_path_factory.mktemp("overlay")
    with new_namespace() as namespace:
        add_secrets(namespace, Authority(home / "certificates"))
        kustomization = overlay_of(manifest.PROD, home, namespace.name)
        (home / "kustomization.yaml").write_text(json.dumps(kustomization))
        namespace.kubectl("apply", "--kustomize", str(home))
        pod = client_pod("admin-tls", {"tidelog-client": "true"})
        namespace.kubectl("apply", "--filename=-", stdin=json.dumps(pod))
        namespace.wait_ready()
        namespace.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
        yield namespace


def add_secrets(namespace: Namespace, authority: Authority) -> None:
    """The certificate of all nodes, with the names that docs/deploy.md lists, and one for `admin`."""
    hosts = (f"*.tidelog-nodes.{namespace.name}.svc", f"tidelog.{namespace.name}.svc", "localhost")
    authority.node("tidelog-node", *hosts)
    authority.client("admin")
    for secret, name in (("tidelog-tls", "tidelog-node"), ("admin-tls", "admin")):
        files = {"tls.crt": f"{name}.pem", "tls.key": f"{name}.key", "ca.crt": Path(authority.ca).name}
        sources = [f"--from-file={key}={authority.directory / file}" for key, file in files.items()]
        namespace.kubectl("create", "secret", "generic", secret, *sources)


@pytest.fixture(scope="module")
def client(cluster: Namespace) -> Workload:
    return cluster.workload(f"--bootstrap=tidelog.{cluster.name}.svc:9192", f"--tls={CLIENT_TLS}")


def test_programs_that_use_kafka_with_certificates_survive_the_loss_of_a_leaders_pod(
    cluster: Namespace, client: Workload
) -> None:
    """Goal: the advertised names are those of the certificate. Method: as for the base, with librdkafka by mutual TLS,
    which checks the names."""
    kafka_client = cluster.kafka_workload(f"--bootstrap=tidelog.{cluster.name}.svc:9092", f"--tls={CLIENT_TLS}")
    client.run("wait", 3)
    client.run("create", "kafka", PARTITIONS)
    load = Load(kafka_client.start("load", "kafka", PARTITIONS, 60))
    load.wait_acked_everywhere(PARTITIONS)
    pod = f"tidelog-{progress.most_leading(progress.partitions(client.run('describe', 'kafka')))}"

    cluster.kubectl("delete", "pod", pod, "--wait=true")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_ready()
    client.run("wait", 3)

    load.finish(timeout=120)
    assert not load.refused
    progress.check_nothing_lost(load, kafka_client.run("read", "kafka", PARTITIONS))
