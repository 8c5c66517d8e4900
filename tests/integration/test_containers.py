"""Three containers, started as the Kubernetes manifest says, on a real Docker engine; their leaders die under load."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

os.environ["TESTCONTAINERS_RYUK_DISABLED"] = (
    "true"  # its image cannot be pulled everywhere; our label finds what is ours
)

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.integration import manifest, progress
from tests.integration.progress import Load, Workload

pytestmark = [pytest.mark.containers, pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

LABEL = "org.tidelog.test"
PARTITIONS = 6


@dataclass
class Cluster:
    nodes: list[Container]
    client: Workload

    def load(self, topic: str, seconds: float) -> Load:
        self.client.run("create", topic, PARTITIONS)
        return Load(self.client.start("load", topic, PARTITIONS, seconds))

    def leaders(self, topic: str) -> list[progress.Partition]:
        return progress.partitions(self.client.run("describe", topic))

    def wait_all(self) -> None:
        self.client.run("wait", len(self.nodes))


@pytest.fixture(scope="module")
def label() -> Iterator[dict[str, str]]:
    """Marks everything of this run, and removes it, whatever happened to the objects that held it."""
    mine = {LABEL: uuid.uuid4().hex}
    yield mine
    engine = docker.from_env()
    chosen: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={mine[LABEL]}"}
    for container in engine.containers.list(all=True, filters=chosen):
        container.remove(force=True, v=True)
    for network in engine.networks.list(filters=chosen):
        network.remove()
    for volume in engine.volumes.list(filters=chosen):
        volume.remove(force=True)
    engine.close()


@pytest.fixture(scope="module")
def cluster(label: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = tmp_path_factory.mktemp("config")
    config.chmod(0o755)
    (config / "tidelog.toml").write_text(manifest.config_text())
    with Network(docker_network_kw={"labels": label}) as network:
        pods = [start_pod(pod, config, network, label) for pod in manifest.pods()]
        client = start_client(network, label)
        shell = ("docker", "exec", "-i", str(client.get_wrapped_container().id))
        workload = Workload(*shell)
        workload.run("wait", len(pods))
        yield Cluster([pod.get_wrapped_container() for pod in pods], workload)
        for container in (client, *pods):
            container.stop()


def start_pod(pod: manifest.Pod, config: Path, network: Network, label: dict[str, str]) -> DockerContainer:
    """A container with the image, arguments, environment, host name, user, mounts and limits of that pod."""
    volume = docker.from_env().volumes.create(labels=label)
    container = (
        DockerContainer(pod.image, env=pod.environment)
        .with_command(pod.arguments)
        .with_network(network)
        .with_network_aliases(pod.name, pod.host_name)
        .with_volume_mapping(str(config), pod.mount("config"), "ro")
        .with_volume_mapping(volume.name, pod.mount("data"), "rw")
        .with_kwargs(hostname=pod.name, user=pod.user, read_only=True, cap_drop=["ALL"], mem_limit="1g", labels=label)
    )
    container.tmpfs = {pod.mount("tmp"): "rw"}
    return container.start()


def start_client(network: Network, label: dict[str, str]) -> DockerContainer:
    """Where the workload runs: inside the network, since only there the advertised names mean something."""
    idle = ["python", "-c", "import signal; signal.pause()"]
    client = DockerContainer(manifest.Pod(0).image).with_network(network)
    return client.with_kwargs(entrypoint=idle, init=True, labels=label).start()


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
