"""Pods of the Kubernetes manifest as plain containers on a real Docker engine, and a client inside their network."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.models.containers import Container

os.environ["TESTCONTAINERS_RYUK_DISABLED"] = (
    "true"  # its image cannot be pulled everywhere; our label finds what is ours
)

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.integration import manifest, progress
from tests.integration.progress import Load, Workload

LABEL = "org.tidelog.test"


@dataclass
class Cluster:
    nodes: list[Container]
    client: Workload
    partitions: int = 6

    def load(self, topic: str, seconds: float) -> Load:
        self.client.run("create", topic, self.partitions)
        return Load(self.client.start("load", topic, self.partitions, seconds))

    def leaders(self, topic: str) -> list[progress.Partition]:
        return progress.partitions(self.client.run("describe", topic))

    def wait_all(self) -> None:
        self.client.run("wait", len(self.nodes))


@contextmanager
def labelled() -> Iterator[dict[str, str]]:
    """Marks everything of this run, and removes it, whatever happened to the objects that held it."""
    mine = {LABEL: uuid.uuid4().hex}
    try:
        yield mine
    finally:
        engine = docker.from_env()
        chosen: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={mine[LABEL]}"}
        for container in engine.containers.list(all=True, filters=chosen):
            container.remove(force=True, v=True)
        for network in engine.networks.list(filters=chosen):
            network.remove()
        for volume in engine.volumes.list(filters=chosen):
            volume.remove(force=True)
        engine.close()


@contextmanager
def network_of(label: dict[str, str]) -> Iterator[Network]:
    with Network(docker_network_kw={"labels": label}) as network:
        yield network


def start_pod(
    pod: manifest.Pod,
    sources: Mapping[str, Path],
    network: Network,
    label: dict[str, str],
    environment: Mapping[str, str] | None = None,
    data: Path | None = None,
    image: str | None = None,
) -> Container:
    """A container with the image, arguments, environment, host name, user, mounts and limits of that pod.

    sources: the directory for each volume that the pod mounts read-only. environment: more variables. data: the
    directory of its data; None: a new volume. image: another one than the pod's.
    """
    storage = str(data) if data is not None else docker.from_env().volumes.create(labels=label).name
    container = (
        DockerContainer(image or pod.image, env={**pod.environment, **(environment or {})})
        .with_command(pod.arguments)
        .with_network(network)
        .with_network_aliases(pod.name, *pod.host_names)
        .with_volume_mapping(storage, pod.mount("data"), "rw")
        .with_kwargs(
            hostname=pod.name,
            user=pod.user,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit=pod.memory,
            labels=label,
        )
    )
    for name, directory in sources.items():
        container.with_volume_mapping(str(directory), pod.mount(name), "ro")
    container.tmpfs = {pod.mount("tmp"): "rw"}
    return container.start().get_wrapped_container()


def start_client(network: Network, label: dict[str, str], sources: Mapping[str, Path] | None = None) -> Container:
    """Where the workload runs: inside the network, since only there the advertised names mean something.

    sources: directories by the path at which the client has them.
    """
    idle = ["python", "-c", "import signal; signal.pause()"]
    client = DockerContainer(manifest.Pod(0).image).with_network(network)
    for path, directory in (sources or {}).items():
        client.with_volume_mapping(str(directory), path, "ro")
    return client.with_kwargs(entrypoint=idle, init=True, labels=label).start().get_wrapped_container()


def workload_in(client: Container, *options: str) -> Workload:
    """options: those of the workload's program that all of its commands have."""
    return Workload("docker", "exec", "-i", str(client.id), options=options)


def config_directory(directory: Path, overlay: Path) -> Path:
    """A directory with the configuration, which the user of the pod may read."""
    directory.chmod(0o755)
    (directory / "tidelog.toml").write_text(manifest.config_text(overlay))
    return directory
