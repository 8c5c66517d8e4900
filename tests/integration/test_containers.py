"""Three containers, started as the Kubernetes manifest says, on a real Docker engine; their leaders die under load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration import manifest, progress
from tests.integration.containers import (
    Cluster,
    config_directory,
    labelled,
    network_of,
    start_client,
    start_pod,
    workload_in,
)

pytestmark = [pytest.mark.containers, pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = config_directory(tmp_path_factory.mktemp("config"), manifest.BASE)
    with labelled() as label, network_of(label) as network:
        nodes = [start_pod(pod, {"config": config}, network, label) for pod in manifest.pods()]
        client = start_client(network, label)
        cluster = Cluster(nodes, workload_in(client), PARTITIONS)
        cluster.wait_all()
        yield cluster
        for container in (client, *nodes):
            container.remove(force=True, v=True)


def test_killing_the_container_of_a_leader_under_load_loses_nothing(cluster: Cluster) -> None:
    """Goal: what was acknowledged is read. Method: SIGKILL the node that leads most; restart it."""
    load = cluster.load("killed", seconds=25)
    load.wait_acked_everywhere(PARTITIONS)
    victim = progress.most_leading(cluster.leaders("killed"))

    cluster.nodes[victim].kill("SIGKILL")
    load.wait_acked_everywhere(PARTITIONS)  # others lead now
    assert all(partition.leader != victim for partition in cluster.leaders("killed"))
    cluster.nodes[victim].start()
    cluster.wait_all()

    load.finish(timeout=60)
    progress.check_nothing_lost(load, cluster.client.run("read", "killed", PARTITIONS))


def test_killing_the_container_of_the_active_controller_under_load_loses_nothing(cluster: Cluster) -> None:
    """All three vote; the two that are left elect another controller, which lets others lead what the dead one led."""
    before = progress.quorum(cluster.client)
    assert before.voters == [0, 1, 2]
    load = cluster.load("decapitated", seconds=25)
    load.wait_acked_everywhere(PARTITIONS)

    cluster.nodes[before.controller].kill("SIGKILL")
    load.wait_acked_everywhere(PARTITIONS)
    assert progress.quorum(cluster.client).controller != before.controller
    cluster.nodes[before.controller].start()
    cluster.wait_all()

    load.finish(timeout=60)
    assert progress.quorum(cluster.client).voters == [0, 1, 2]
    progress.check_nothing_lost(load, cluster.client.run("read", "decapitated", PARTITIONS))


def test_sigterm_drains_and_ends_a_node(cluster: Cluster) -> None:
    """Goal: a stop that was asked for costs no acknowledged record, and ends before Kubernetes would kill."""
    load = cluster.load("drained", seconds=25)
    load.wait_acked_everywhere(PARTITIONS)
    leaving = progress.most_leading(cluster.leaders("drained"))
    node = cluster.nodes[leaving]

    node.kill("SIGTERM")
    assert node.wait(timeout=40)["StatusCode"] == 0, node.logs(tail=30).decode()
    load.wait_acked_everywhere(PARTITIONS)
    node.start()
    cluster.wait_all()

    load.finish(timeout=60)
    progress.check_nothing_lost(load, cluster.client.run("read", "drained", PARTITIONS))


def test_all_containers_killed_at_once_come_back_by_themselves(cluster: Cluster) -> None:
    """Above 10 s: Docker starts them again after a pause of its own."""
    load = cluster.load("dark", seconds=5)
    load.wait_acked_everywhere(PARTITIONS)
    load.finish(timeout=60)

    for node in cluster.nodes:
        node.kill("SIGKILL")
    for node in cluster.nodes:
        node.start()
    cluster.wait_all()
    progress.check_nothing_lost(load, cluster.client.run("read", "dark", PARTITIONS))


def test_a_node_runs_without_root_and_writes_only_to_its_volume(cluster: Cluster) -> None:
    done = cluster.nodes[0].exec_run(["python", "-c", "import os; print(os.getuid()); open('/opt/x', 'w')"], demux=True)
    assert isinstance(done.output, tuple)
    output_bytes, error = done.output
    assert done.exit_code != 0
    assert output_bytes == b"10001\n"
    assert b"Read-only file system" in error
