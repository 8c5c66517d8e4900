"""The overlay for production: clients with certificates write and read, also when a pod is deleted."""

from __future__ import annotations

import pytest

from tests.integration import progress
from tests.k8s.cluster import CLIENT_TLS, begin_load, leading_pod
from tests.k8s.production import Production

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 3


def test_programs_that_use_kafka_with_certificates_survive_the_loss_of_a_leaders_pod(production: Production) -> None:
    """Goal: the advertised names are those of the certificate. Method: as for the base, with librdkafka by mutual TLS,
    which checks the names."""
    cluster = production.namespace
    client = cluster.workload(f"--bootstrap=tidelog.{cluster.name}.svc:9192", f"--tls={CLIENT_TLS}")
    kafka_client = cluster.kafka_workload(f"--bootstrap=tidelog.{cluster.name}.svc:9092", f"--tls={CLIENT_TLS}")
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
