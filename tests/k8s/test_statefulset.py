"""The kustomize base on a real cluster: applied, ready, written to, its leader's pod deleted under load, all read back.

`make k8s-test` runs it on whatever cluster KUBECONFIG names, in a namespace of its own that it removes. IMAGE_LOAD is a
command that takes the image's name and brings it to the cluster's nodes, where they cannot pull it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import manifest, progress
from tests.integration.progress import Load, Workload

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6
IMAGE = os.environ.get("IMAGE", "tidelog:dev")


def run(*command: str, stdin: str | None = None, timeout: float = 240) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


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


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    if load := os.environ.get("IMAGE_LOAD"):
        run(*shlex.split(load), IMAGE, timeout=300)
    name = f"tidelog-test-{uuid.uuid4().hex[:8]}"
    run("kubectl", "create", "namespace", name)
    run("kubectl", "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    try:
        yield Namespace(name)
    finally:
        run("kubectl", "delete", "namespace", name, "--timeout=180s")


@pytest.fixture(scope="module")
def cluster(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Namespace:
    overlay = tmp_path_factory.mktemp("overlay")
    (overlay / "kustomization.yaml").write_text(overlay_of_base(overlay, namespace.name))
    namespace.kubectl("apply", "--kustomize", str(overlay))
    namespace.kubectl("apply", "--filename=-", stdin=json.dumps(client_pod()))
    namespace.wait_ready()
    namespace.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
    return namespace


def overlay_of_base(directory: Path, namespace: str) -> str:
    name, _, tag = IMAGE.rpartition(":")
    return json.dumps(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": namespace,
            "resources": [os.path.relpath(manifest.BASE, directory.resolve())],
            "images": [{"name": "tidelog", "newName": name, "newTag": tag}],
        }
    )


def client_pod() -> dict[str, object]:
    """A pod that waits; the workload runs in it by `kubectl exec`."""
    pod = manifest.the("StatefulSet")["spec"]["template"]["spec"]
    container = {
        "name": "client",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", "import signal; signal.signal(15, lambda *_: exit()); signal.pause()"],
        "securityContext": manifest.container()["securityContext"],
    }
    spec = {"securityContext": pod["securityContext"], "containers": [container], "enableServiceLinks": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec}


@pytest.fixture(scope="module")
def client(cluster: Namespace) -> Workload:
    shell = ("kubectl", "--namespace", cluster.name, "exec", "--stdin", "client", "--")
    return Workload(*shell)


def test_deleting_the_leaders_pod_under_load_loses_nothing(cluster: Namespace, client: Workload) -> None:
    """Goal: what was acknowledged is read. Method: delete the pod that leads most, while writing."""
    client.run("wait", 3)
    client.run("create", "deleted", PARTITIONS)
    load = Load(client.start("load", "deleted", PARTITIONS, 60))
    load.wait_acked_everywhere(PARTITIONS)
    described = progress.partitions(client.run("describe", "deleted"))
    pod = f"tidelog-{progress.most_leading(described)}"
    first_uid = cluster.uid(pod)

    cluster.kubectl("delete", "pod", pod, "--wait=true")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_ready()
    assert cluster.uid(pod) != first_uid
    client.run("wait", 3)

    load.finish(timeout=120)
    progress.check_nothing_lost(load, client.run("read", "deleted", PARTITIONS))


def test_losing_the_active_controllers_pod_under_load_loses_nothing(cluster: Namespace, client: Workload) -> None:
    """Goal: three pods vote, and two of them continue. Method: end the controller's pod without any grace."""
    before = progress.quorum(client)
    assert before.voters == [0, 1, 2]
    client.run("create", "decapitated", PARTITIONS)
    load = Load(client.start("load", "decapitated", PARTITIONS, 60))
    load.wait_acked_everywhere(PARTITIONS)
    pod = f"tidelog-{before.controller}"
    first_uid = cluster.uid(pod)

    cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.wait_ready()
    assert cluster.uid(pod) != first_uid
    client.run("wait", 3)
    assert progress.quorum(client).voters == [0, 1, 2]

    load.finish(timeout=120)
    progress.check_nothing_lost(load, client.run("read", "decapitated", PARTITIONS))


def test_a_rolling_restart_under_load_loses_nothing(cluster: Namespace, client: Workload) -> None:
    client.run("create", "rolled", PARTITIONS)
    load = Load(client.start("load", "rolled", PARTITIONS, 90))
    load.wait_acked_everywhere(PARTITIONS)

    cluster.kubectl("rollout", "restart", "statefulset/tidelog")
    cluster.wait_ready()
    load.wait_acked_everywhere(PARTITIONS, timeout=60)

    load.finish(timeout=180)
    progress.check_nothing_lost(load, client.run("read", "rolled", PARTITIONS))
