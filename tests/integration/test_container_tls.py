"""Three containers as the overlay for production starts them: mutual TLS from a Secret that is mounted as Kubernetes
mounts it, and replaced under load."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from docker.models.containers import Container

from tests.certificates import Authority
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
KAFKA, CLIENT, NODES = 9092, 9192, 9193
AGE_SECONDS = 1
STREAM_GRACE_SECONDS = 10
SECRET, FORMER = "/tls", "/former"
"""Where the client's container has its Secret, and its first version."""
FILES = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}
"""The keys of a Secret, by the ends of the variables of the command line."""

SERIAL = """
import socket, ssl, sys
host, port, files = sys.argv[1:]
context = ssl.create_default_context(cafile=f"{files}/ca.crt")
context.load_cert_chain(f"{files}/tls.crt", f"{files}/tls.key")
with context.wrap_socket(socket.create_connection((host, int(port)), timeout=10), server_hostname=host) as connection:
    print(int(connection.getpeercert()["serialNumber"], 16))
"""


class Secret:
    """A mounted Secret as the kubelet writes it: each key is a link through `..data`, which names the directory of the
    present version. A new version is written beside it, and one rename replaces all keys at once."""

    def __init__(self, directory: Path, contents: Mapping[str, bytes]) -> None:
        self.directory = directory
        self._versions = 0
        directory.mkdir()
        self.replace(contents)
        for key in contents:
            (directory / key).symlink_to(Path("..data", key))

    def replace(self, contents: Mapping[str, bytes]) -> None:
        self._versions += 1
        version = self.directory / f"..2026_11_24_00_00_00.{self._versions}"
        version.mkdir()
        for key, value in contents.items():
            (version / key).write_bytes(value)
        data, link = self.directory / "..data", self.directory / "..data_tmp"
        former = data.resolve() if data.exists() else None
        link.symlink_to(version.name)
        link.replace(data)
        if former is not None:
            shutil.rmtree(former)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM form."""

    certificate: bytes
    key: bytes

    @property
    def serial(self) -> int:
        return x509.load_pem_x509_certificate(self.certificate).serial_number


def contents_of(pair: Pair, *authorities: Authority) -> dict[str, bytes]:
    """The keys that cert-manager writes."""
    trusted = b"".join(Path(each.ca).read_bytes() for each in authorities)
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": trusted}


def node_pair(authority: Authority) -> Pair:
    """With the names that the certificate of the component for cert-manager has."""
    made = authority.node("node", *manifest.the("Certificate", overlay=manifest.CERT_MANAGER)["spec"]["dnsNames"])
    return Pair(Path(made.certificate_file).read_bytes(), Path(made.key_file).read_bytes())


def client_pair(authority: Authority) -> Pair:
    """Of the administrator whom the overlay names."""
    made = authority.client("admin")
    assert made.certificate is not None
    assert made.key is not None
    return Pair(Path(made.certificate).read_bytes(), Path(made.key).read_bytes())


@dataclass
class Secured:
    """The cluster, and the Secrets of each node and of the client."""

    cluster: Cluster
    client: Container
    nodes: list[Secret]
    alice: Secret
    authority: Authority

    def replace_all(self, node: Pair, client: Pair, *authorities: Authority) -> None:
        """A new version of each Secret: they change one after the other, as on different machines."""
        for secret in self.nodes:
            secret.replace(contents_of(node, *authorities))
        self.alice.replace(contents_of(client, *authorities))

    def probe(self, node: Container, probe: str) -> tuple[int, str]:
        """Exit code and output of a probe of the manifest, in the container, as the kubelet executes it."""
        return execute(node, manifest.container(manifest.PROD)[probe]["exec"]["command"])

    def status(self, files: str | None) -> tuple[int, str]:
        """Exit code and output of `tidelog cluster status` with the Secret at this path; None: in plain text."""
        tls = {f"TIDELOG_TLS_{name}": f"{files}/{file}" for name, file in FILES.items()} if files else {}
        environment = {"TIDELOG_BOOTSTRAP": bootstrap(), **tls}
        return execute(self.client, ["tidelog", "cluster", "status", "--json"], environment)

    def served(self, pod: manifest.Pod, port: int) -> int:
        """The serial number of the certificate at this port, which the client must trust."""
        exit_code, output = execute(self.client, ["python", "-c", SERIAL, pod.host_names[-1], str(port), SECRET])
        assert exit_code == 0, output
        return int(output)


def execute(container: Container, command: list[str], environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and output, of both kinds, of a command in the container."""
    done = container.exec_run(command, environment=environment)
    assert isinstance(done.output, bytes)
    assert done.exit_code is not None
    return done.exit_code, done.output.decode()


def bootstrap() -> str:
    return ",".join(f"{pod.host_names[-1]}:{CLIENT}" for pod in manifest.pods(manifest.PROD))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    config = config_directory(tmp_path_factory.mktemp("config"), manifest.PROD)
    secrets = tmp_path_factory.mktemp("secrets")
    for directory in (secrets, config.parent):
        directory.chmod(0o755)
    authority = Authority(tmp_path_factory.mktemp("authority"))
    node, client_own = node_pair(authority), client_pair(authority)
    pods = manifest.pods(manifest.PROD)
    mounted = [Secret(secrets / pod.name, contents_of(node, authority)) for pod in pods]
    alice = Secret(secrets / "alice", contents_of(client_own, authority))
    former = Secret(secrets / "former", contents_of(client_own, authority))
    age = {"TIDELOG_SSL_CONNECTION_MAX_AGE_MS": str(AGE_SECONDS * 1000)}
    with labelled() as label, network_of(label) as network:
        nodes = [
            start_pod(pod, {"config": config, "tls": secret.directory}, network, label, age)
            for pod, secret in zip(pods, mounted, strict=True)
        ]
        client = start_client(network, label, {SECRET: alice.directory, FORMER: former.directory})
        workload = workload_in(client, "--bootstrap", bootstrap(), "--tls", SECRET)
        cluster = Cluster(nodes, workload, PARTITIONS)
        cluster.wait_all()
        yield Secured(cluster, client, mounted, alice, authority)
        for container in (client, *nodes):
            container.remove(force=True, v=True)


def test_probes_and_command_line_use_the_mounted_secrets(secured: Secured) -> None:
    for node in secured.cluster.nodes:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert secured.probe(node, probe)[0] == 0, secured.probe(node, probe)[1]
    exit_code, output = secured.status(SECRET)
    assert exit_code == 0, output
    assert len(json.loads(output)["nodes"]) == len(secured.cluster.nodes)
    exit_code, output = secured.status(None)
    assert exit_code != 0
    assert "TLS" in output, "the error says what is missing"


def test_replaced_secrets_and_a_new_authority_are_used_under_load_without_a_restart(
    secured: Secured, tmp_path: Path
) -> None:
    """Both authorities are trusted, then all certificates are of the new one, then only that one is trusted, until the
    last stream with a former certificate has ended."""
    cluster = secured.cluster
    former, renewed = secured.authority, Authority(tmp_path / "renewed")
    node, client = node_pair(renewed), client_pair(renewed)
    started = [container.attrs["State"]["StartedAt"] for container in reloaded(cluster)]
    load = cluster.load("rotated", seconds=24)
    load.wait_acked_everywhere(PARTITIONS)

    secured.replace_all(node_pair(former), client_pair(former), former, renewed)
    load.wait_acked_everywhere(PARTITIONS)
    secured.replace_all(node, client, former, renewed)
    load.wait_acked_everywhere(PARTITIONS)
    secured.replace_all(node, client, renewed)
    ends = time.monotonic() + AGE_SECONDS + STREAM_GRACE_SECONDS
    while time.monotonic() < ends:
        load.wait_acked_everywhere(PARTITIONS)

    for pod in manifest.pods(manifest.PROD):
        assert {secured.served(pod, port) for port in (KAFKA, CLIENT, NODES)} == {node.serial}
    exit_code, output = secured.status(FORMER)
    assert exit_code != 0, "the former certificate and its authority are out of use"
    assert "certificate" in output
    for container in cluster.nodes:
        assert secured.probe(container, "readinessProbe")[0] == 0
    assert [container.attrs["State"]["StartedAt"] for container in reloaded(cluster)] == started

    load.finish(timeout=60)
    progress.check_nothing_lost(load, cluster.client.run("read", "rotated", PARTITIONS))


def reloaded(cluster: Cluster) -> list[Container]:
    """The nodes, with the state that the engine has now."""
    for container in cluster.nodes:
        container.reload()
    return cluster.nodes


def test_a_node_that_is_killed_finds_the_others_by_the_replaced_secrets(secured: Secured) -> None:
    """Runs after the rotation: the others were never restarted, and the killed node has only the new certificate."""
    cluster = secured.cluster
    load = cluster.load("killed", seconds=12)
    load.wait_acked_everywhere(PARTITIONS)
    victim = progress.most_leading(cluster.leaders("killed"))
    cluster.nodes[victim].kill("SIGKILL")
    load.wait_acked_everywhere(PARTITIONS)
    cluster.nodes[victim].start()
    cluster.wait_all()
    load.finish(timeout=60)
    progress.check_nothing_lost(load, cluster.client.run("read", "killed", PARTITIONS))
