"""The cluster that KUBECONFIG names: namespaces of tests in it, nodes of an overlay, and a pod in which clients run.

`make k8s-test` runs every test on whatever cluster that is, in namespaces of its own that it removes. IMAGE_LOAD is a
command that takes the image's name and brings it to the cluster's machines, where they cannot pull it.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import yaml

from tests.integration import manifest, progress
from tests.integration.progress import Load, Workload
from tests.k8s.kept_logs import kept_logs

os.environ.setdefault("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")
# By WebSockets `kubectl exec` discards what a program tells at its very beginning ("Unknown stream id 1").

IMAGE = os.environ.get("IMAGE", "tidelog:dev")
CLIENT_TLS = "/etc/client-tls"
"""Where the pod of the client has its Secret."""
KAFKA_WORKLOAD = Path(__file__).with_name("kafka_workload.py")
PODS = "--selector=app.kubernetes.io/name=tidelog"
"""Chooses the pods of the nodes."""
_PACKAGES = "/opt/packages"
_LOAD_S_MAX = 600
GRACEFUL_PAUSE_S = 8.0
"""No partition is without an acknowledgement for longer while nodes stop one after the other, by SIGTERM. On two cores
that others keep busy it was up to 3 s (docs/deploy.md)."""
_loads: list[Load] = []
"""Those that were begun and may run."""
_END_LOADS = """
import contextlib, os, signal
for process in filter(str.isdigit, os.listdir("/proc")):
    with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline") as command:
        if "load" in command.read().split("\\0"):
            os.kill(int(process), signal.SIGTERM)
"""


def attempt(*command: str, stdin: str = "", timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """A command that may fail."""
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)


def run(*command: str, stdin: str = "", timeout: float = 240) -> str:
    done = attempt(*command, stdin=stdin, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def wait_until(holds: Callable[[], bool], what: str, timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.3)


def machines() -> list[str]:
    """The names of the cluster's machines, which it calls nodes."""
    return run("kubectl", "get", "nodes", "--output=jsonpath={.items[*].metadata.name}").split()


class Namespace:
    """kubectl in one namespace."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._connection: tuple[str, ...] = ("TIDELOG_BOOTSTRAP=tidelog:9192",)
        """The variables of commands in the pod of the client."""

    def kubectl(self, *arguments: str, stdin: str = "", timeout: float = 240) -> str:
        return run("kubectl", "--namespace", self.name, *arguments, stdin=stdin, timeout=timeout)

    def wait_ready(self) -> None:
        """Until all pods of the StatefulSet are ready; where they are not, their logs say why."""
        try:
            self.kubectl("rollout", "status", "statefulset/tidelog", "--timeout=180s")
        except AssertionError:
            print(self.kubectl("get", "pods,events", "--output=wide"))
            print(self.kubectl("logs", PODS, "--prefix", "--tail=40"))
            raise

    def apply(
        self, home: Path, base: Path = manifest.BASE, fields: Mapping[str, object] | None = None, image: str = IMAGE
    ) -> None:
        """Apply an overlay of the base, made in a directory, with this image. fields: more of the kustomization."""
        overlay = overlay_of(base, home, self.name, image) | dict(fields or {})
        (home / "kustomization.yaml").write_text(json.dumps(overlay))
        self.kubectl("apply", "--kustomize", str(home))

    def apply_component(
        self, home: Path, component: Path, objects: str, fields: Mapping[str, object]
    ) -> dict[str, dict[str, Any]]:
        """Apply what a component adds to the overlay for production, and nothing else: the nodes stay as they are.
        objects: how the names of its objects begin. Returns these by their kinds. fields: more of the kustomization."""
        overlay = overlay_of(manifest.PROD, home, self.name) | {
            "components": [os.path.relpath(component, home.resolve())]
        }
        (home / "kustomization.yaml").write_text(json.dumps(overlay | dict(fields)))
        rendered = yaml.safe_load_all(run("kubectl", "kustomize", str(home)))
        added = {each["kind"]: each for each in rendered if each["metadata"]["name"].startswith(objects)}
        items = {"apiVersion": "v1", "kind": "List", "items": list(added.values())}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(items))
        return added

    def start_client(self, secret: str = "") -> None:
        """The pod in which clients run, with the label that the network policy admits. secret: its certificate."""
        if secret:
            files = {"CA": "ca.crt", "CERT": "tls.crt", "KEY": "tls.key"}
            tls = (f"TIDELOG_TLS_{name}={CLIENT_TLS}/{file}" for name, file in files.items())
            self._connection = (f"TIDELOG_BOOTSTRAP=tidelog.{self.name}.svc:9192", *tls)
        pod = client_pod(secret, {"tidelog-client": "true"})
        self.kubectl("apply", "--filename=-", stdin=json.dumps(pod))
        self.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods of the nodes by their names, those that are being deleted too."""
        found = json.loads(self.kubectl("get", "pods", PODS, "--output=json"))["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def wait_replaced(self, former: Mapping[str, Mapping[str, Any]]) -> None:
        """Until each of these pods has a successor that is ready."""

        def replaced() -> bool:
            now = self.pods()
            return all(
                name in now and now[name]["metadata"]["uid"] != pod["metadata"]["uid"] and is_ready(now[name])
                for name, pod in former.items()
            )

        wait_until(replaced, f"other pods are ready in the place of {', '.join(former)}")

    def tidelog(self, *arguments: object, stdin: str = "", timeout: float = 240) -> str:
        """What a command prints that must succeed, in the pod of the client."""
        return run(*self._command(*arguments), stdin=stdin, timeout=timeout)

    def attempt_tidelog(self, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command that may fail."""
        return attempt(*self._command(*arguments), stdin=stdin)

    def _command(self, *arguments: object) -> tuple[str, ...]:
        return self.in_client("env", *self._connection, "tidelog", *map(str, arguments))

    def end_load(self, load: Load) -> None:
        """Until the load has written what it began to write; it must have succeeded."""
        run(*self.in_client("python", "-c", _END_LOADS))
        load.finish(timeout=180)
        refused = sum(load.refused.values())
        print(f"{len(load.acked)} records acknowledged, {refused} refused, the longest pause {load.longest}")
        print(*load.complaints, sep="", end="")

    def status(self) -> dict[str, Any]:
        """`tidelog cluster status`, whatever it finds."""
        done = self.attempt_tidelog("--json", "cluster", "status")
        return dict(json.loads(done.stdout)) if done.stdout else {"healthy": False, "problems": [done.stderr]}

    def wait_healthy(self, nodes: int = 3) -> None:
        """Until so many nodes are registered, and nothing is wrong: every replica is in sync."""
        seen: dict[str, Any] = {}

        def healthy() -> bool:
            seen.update(self.status())
            return bool(seen["healthy"]) and len(seen["nodes"]) == nodes

        try:
            wait_until(healthy, f"{nodes} nodes and nothing wrong")
        except AssertionError as late:
            raise AssertionError(f"{late}; the cluster says {seen.get('problems')}, {seen.get('nodes')}") from None

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
        return Workload(*self.in_client("env", f"PYTHONPATH={_PACKAGES}"), options=options, script=KAFKA_WORKLOAD)


def is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def begin_load(client: Workload, topic: str, partitions: int, writer: Workload | None = None) -> Load:
    """A new topic, and a load, by the same client or another one, once each partition has acknowledged a record of it.
    Namespace.end_load ends it."""
    client.run("create", topic, partitions)
    load = Load((writer or client).start("load", topic, partitions, _LOAD_S_MAX))
    _loads.append(load)
    load.wait_acked_everywhere(partitions)
    return load


def kill_loads() -> None:
    """Those that a failed test has left."""
    while _loads:
        _loads.pop().kill()


def leading_pod(cluster: Namespace, client: Workload, topic: str) -> dict[str, dict[str, Any]]:
    """The pod that leads most partitions of a topic, by its name."""
    name = f"tidelog-{progress.most_leading(progress.partitions(client.run('describe', topic)))}"
    return {name: cluster.pods()[name]}


def bring_to_machines(image: str) -> None:
    if load := os.environ.get("IMAGE_LOAD"):
        run(*shlex.split(load), image, timeout=300)


@contextmanager
def plain_cluster(
    home: Path, base: Path = manifest.BASE, fields: Mapping[str, object] | None = None
) -> Iterator[Namespace]:
    """The nodes of a base in plain text, ready, and a client beside them. home, fields: as for Namespace.apply."""
    with new_namespace() as namespace:
        namespace.apply(home, base, fields)
        namespace.start_client()
        namespace.wait_ready()
        yield namespace


@contextmanager
def new_namespace() -> Iterator[Namespace]:
    """A namespace that admits only restricted pods; it is removed at the end."""
    bring_to_machines(IMAGE)
    name = f"tidelog-test-{uuid.uuid4().hex[:8]}"
    run("kubectl", "create", "namespace", name)
    run("kubectl", "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    with kept_logs(name):
        try:
            yield Namespace(name)
        finally:
            run("kubectl", "delete", "namespace", name, "--wait=false")
            # Nothing of it is used any more: nodes that are all asked to stop would wait for each other, a minute.
            attempt("kubectl", "--namespace", name, "delete", "pods", "--all", "--grace-period=1", "--wait=false")
            run("kubectl", "wait", "--for=delete", f"namespace/{name}", "--timeout=180s")


def overlay_of(base: Path, directory: Path, namespace: str, image: str = IMAGE) -> dict[str, object]:
    """A kustomization of the base, in a directory, for this namespace and image."""
    name, _, tag = image.rpartition(":")
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
