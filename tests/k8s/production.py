"""The overlay for production with its component for clients outside of the cluster, on a real cluster.

It needs three machines: the overlay puts one node on each. The Services get node ports, as docs/deploy.md says for
clusters without load balancers. NODE_ADDRESS (127.0.0.1) is where the machine of the test reaches these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority
from tests.integration import manifest
from tests.k8s.cluster import Namespace, new_namespace

NODE_ADDRESS = os.environ.get("NODE_ADDRESS", "127.0.0.1")
KAFKA_PORT, GRPC_PORT = 31090, 31190
"""Of the first node; the next ones follow."""
START = 9
"""Added to these: the ports where clients begin."""
CLIENT_FILES = ("ca.crt", "tls.crt", "tls.key")


@dataclass(frozen=True)
class Production:
    namespace: Namespace
    files: Path
    """A directory with the certificate of `admin`, as CLIENT_FILES."""


@contextmanager
def production_cluster(home: Path) -> Iterator[Production]:
    """Three nodes, ready, and the pod of a client that is `admin`."""
    authority = Authority(home / "certificates")
    with new_namespace() as namespace:
        add_secrets(namespace, authority)
        components = [os.path.relpath(manifest.EXTERNAL, home.resolve())]
        namespace.apply(home, manifest.PROD, {"components": components, "patches": node_ports()})
        namespace.start_client("admin-tls")
        namespace.wait_ready()
        files = home / "admin"
        files.mkdir()
        for name, source in zip(CLIENT_FILES, sources_of(authority, "admin"), strict=True):
            (files / name).write_bytes(source.read_bytes())
        yield Production(namespace, files)


def sources_of(authority: Authority, name: str) -> tuple[Path, Path, Path]:
    """The files behind CLIENT_FILES."""
    directory = authority.directory
    return Path(authority.ca), directory / f"{name}.pem", directory / f"{name}.key"


def add_secrets(namespace: Namespace, authority: Authority) -> None:
    """The certificate of all nodes, with the names that docs/deploy.md lists, and one for `admin`."""
    hosts = (f"*.tidelog-nodes.{namespace.name}.svc", f"tidelog.{namespace.name}.svc", "localhost", NODE_ADDRESS)
    authority.node("tidelog-node", *hosts)
    authority.client("admin")
    for secret, name in (("tidelog-tls", "tidelog-node"), ("admin-tls", "admin")):
        files = zip(CLIENT_FILES, sources_of(authority, name), strict=True)
        namespace.kubectl("create", "secret", "generic", secret, *(f"--from-file={key}={file}" for key, file in files))


def node_ports() -> list[dict[str, object]]:
    """Patches: a port of its own for each Service of the component, and nodes that advertise theirs."""
    services = [("tidelog-external", START), *((f"tidelog-{number}-external", number) for number in range(3))]
    return [_listeners(), *(_node_port(name, offset) for name, offset in services)]


def _node_port(service: str, offset: int) -> dict[str, object]:
    change = [
        {"op": "replace", "path": "/spec/type", "value": "NodePort"},
        {"op": "add", "path": "/spec/ports/0/nodePort", "value": KAFKA_PORT + offset},
        {"op": "add", "path": "/spec/ports/1/nodePort", "value": GRPC_PORT + offset},
    ]
    return {"target": {"kind": "Service", "name": service}, "patch": json.dumps(change)}


def _listeners() -> dict[str, object]:
    """Inside as before; outside the address of the machines, with the pod's number as the last digit of the port."""
    inside = "$(TIDELOG_POD_NAME).tidelog-nodes.$(TIDELOG_POD_NAMESPACE).svc"
    outside = {"EXTERNAL_KAFKA": KAFKA_PORT // 10, "EXTERNAL_GRPC": GRPC_PORT // 10}
    advertised = [
        *(f"{name}://{inside}:{port}" for name, port in (("KAFKA", 9092), ("GRPC", 9192), ("NODES", 9193))),
        *(f"{name}://{NODE_ADDRESS}:{port}$(TIDELOG_POD_INDEX)" for name, port in outside.items()),
    ]
    fields = {
        "TIDELOG_POD_NAME": "metadata.name",
        "TIDELOG_POD_NAMESPACE": "metadata.namespace",
        "TIDELOG_POD_INDEX": "metadata.labels['apps.kubernetes.io/pod-index']",
    }
    env: list[dict[str, object]] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]
    env.append({"name": "TIDELOG_ADVERTISED_LISTENERS", "value": ",".join(advertised)})
    change = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "tidelog"},
        "spec": {"template": {"spec": {"containers": [{"name": "node", "env": env}]}}},
    }
    return {"patch": json.dumps(change)}
