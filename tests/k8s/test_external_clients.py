"""Clients outside of the cluster: the component deploy/components/external, behind node ports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.integration import progress
from tests.integration.progress import WORKLOAD, Load, Workload
from tests.k8s.cluster import KAFKA_WORKLOAD
from tests.k8s.production import GRPC_PORT, KAFKA_PORT, NODE_ADDRESS, START, Production

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6


def outside(production: Production, port: int, script: Path) -> Workload:
    """A client on the machine of the test, which knows the address where clients begin, and a certificate."""
    path = f"PATH={Path(sys.executable).parent}"
    options = (f"--bootstrap={NODE_ADDRESS}:{port + START}", f"--tls={production.files}")
    return Workload("env", path, options=options, script=script)


def test_clients_of_both_protocols_write_and_read_from_outside(production: Production) -> None:
    """Goal: each listener advertises what its own clients reach, and the certificate has that name. Method: librdkafka
    and Tidelog's client, both outside of the cluster, write to every leader and read what the other one wrote."""
    own = outside(production, GRPC_PORT, WORKLOAD)
    kafka = outside(production, KAFKA_PORT, KAFKA_WORKLOAD)
    own.run("wait", 3)
    loads = {}
    for topic, client in (("from-own", own), ("from-kafka", kafka)):
        own.run("create", topic, PARTITIONS)
        loads[topic] = Load(client.start("load", topic, PARTITIONS, 20))
    for load in loads.values():
        load.finish(timeout=90)
        print(f"{len(load.acked)} records acknowledged")
        assert not load.refused

    leaders = {each.leader for each in progress.partitions(own.run("describe", "from-own"))}
    assert leaders == {0, 1, 2}, "every node was asked"
    progress.check_nothing_lost(loads["from-own"], kafka.run("read", "from-own", PARTITIONS))
    progress.check_nothing_lost(loads["from-kafka"], own.run("read", "from-kafka", PARTITIONS))
