"""The cluster that KUBECONFIG names: namespaces of tests in it, and a pod in which clients run."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import tarfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.integration import manifest
from tests.integration.progress import Workload

IMAGE = os.environ.get("IMAGE", "tidelog:dev")
CLIENT_TLS = "/etc/client-tls"
"""Where the pod of the client has its Secret."""
_KAFKA_WORKLOAD = Path(__file__).with_name("kafka_workload.py")
_PACKAGES = "/opt/packages"


def run(*command: str, stdin: str | None = None, timeout: float = 240) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def nodes() -> int:
    """The machines of the cluster."""
    return len(run("kubectl", "get", "nodes", "--output=name").split())


class Namespace:
    """kubectl in one namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 240) -> str:
        return run("kubectl", "--namespace", self.name, *arguments, stdin=stdin, timeout=timeout)

    def wait_ready(self) -> None:
        """Until all pods of the StatefulSet are ready; where they are not, their logs say why."""
        try:
            self.kubectl("rollout", "status", "statefulset/tidelog", "--timeout=180s")
        except AssertionError:
            print(self.kubectl("get", "pods,events", "--output=wide"))
            print(self.kubectl("logs", "--selector=app.kubernetes.io/name=tidelog", "--prefix", "--tail=40"))
            raise

    def uid(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "--output=jsonpath={.metadata.uid}")

    def in_client(self, *command: str) -> tuple[str, ...]:
        """The command that runs another one in the pod of the client."""
        return ("kubectl", "--namespace", self.name, "exec", "--stdin", "client", "--", *command)

    def workload(self, *options: str) -> Workload:
        """Tidelog's own client in that pod."""
        return Workload(*self.in_client(), options=options)

    def kafka_workload(self, *options: str) -> Workload:
        """A program that uses Kafka, in that pod. The image has no client of Kafka: it is given this checkout's."""
        packages = io.BytesIO()
        home = Path(confluent_kafka.__file__).parent
        with tarfile.open(fileobj=packages, mode="w") as archive:
            for part in (home, home.with_name("confluent_kafka.libs")):
                archive.add(part, part.name)
        unpack = f"import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|').extractall({_PACKAGES!r})"
        done = subprocess.run(
            self.in_client("python", "-c", unpack),
            input=packages.getvalue(),
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        return Workload(*self.in_client("env", f"PYTHONPATH={_PACKAGES}"), options=options, script=_KAFKA_WORKLOAD)


@contextmanager
def new_namespace() -> Iterator[Namespace]:
    """A namespace that admits only restricted pods; it is removed at the end."""
    if load := os.environ.get("IMAGE_LOAD"):
        run(*shlex.split(load), IMAGE, timeout=300)
    name = f"tidelog-test-{uuid.uuid4().hex[:8]}"
    run("kubectl", "create", "namespace", name)
    run("kubectl", "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    try:
        yield Namespace(name)
    finally:
        run("kubectl", "delete", "namespace", name, "--timeout=180s")


def overlay_of(base: Path, directory: Path, namespace: str) -> dict[str, object]:
    """A kustomization of the base, in a directory, for this namespace and image."""
    name, _, tag = IMAGE.rpartition(":")
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": namespace,
        "resources": [os.path.relpath(base, directory.resolve())],
        "images": [{"name": "tidelog", "newName": name, "newTag": tag}],
    }


def client_pod(secret: str = "", labels: Mapping[str, str] | None = None) -> dict[str, object]:
    """A pod that waits; workloads run in it by `kubectl exec`. secret: is mounted at CLIENT_TLS."""
    pod = manifest.the("StatefulSet")["spec"]["template"]["spec"]
    volumes: list[dict[str, Any]] = [{"name": "packages", "emptyDir": {}}]
    mounts: list[dict[str, Any]] = [{"name": "packages", "mountPath": _PACKAGES}]
    if secret:
        volumes.append({"name": "tls", "secret": {"secretName": secret, "defaultMode": 0o440}})
        mounts.append({"name": "tls", "mountPath": CLIENT_TLS, "readOnly": True})
    container = {
        "name": "client",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", "import signal; signal.signal(15, lambda *_: exit()); signal.pause()"],
        "securityContext": manifest.container()["securityContext"],
        "volumeMounts": mounts,
    }
    spec = {
        "securityContext": pod["securityContext"],
        "containers": [container],
        "volumes": volumes,
        "enableServiceLinks": False,
    }
    metadata = {"name": "client", "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
