"""The component deploy/monitoring: Prometheus finds the nodes by its ServiceMonitor, and its rules fire.

Prometheus runs beside the test and must reach the addresses of pods. Its operator is not needed: the objects are read
back from the cluster and translated as it does. Nor is the discovery of Prometheus, which Debian leaves out: the test
tells it what the cluster has, with the same labels.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration import manifest
from tests.k8s.cluster import Namespace, attempt, plain_cluster, run, wait_until

pytestmark = [
    pytest.mark.k8s,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus (Debian: apt install prometheus)"),
]

GROUP = "monitoring.coreos.com"
FOUND = "found.json"
KINDS = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}


def definition(kind: str, plural: str) -> dict[str, object]:
    """Of one of the operator's kinds, with any fields: `make k8s-check` compares these."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": anything}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@contextmanager
def operators_kinds() -> Iterator[None]:
    """The cluster knows them; those that it did not have are removed at the end."""
    missing = {
        kind: plural
        for kind, plural in KINDS.items()
        if attempt("kubectl", "get", "crd", f"{plural}.{GROUP}").returncode
    }
    for kind, plural in missing.items():
        run("kubectl", "create", "--filename=-", stdin=json.dumps(definition(kind, plural)))
        run("kubectl", "wait", "--for=condition=Established", f"crd/{plural}.{GROUP}", "--timeout=60s")
    try:
        yield
    finally:
        for plural in missing.values():
            run("kubectl", "delete", "crd", f"{plural}.{GROUP}")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    home = tmp_path_factory.mktemp("watched")
    components = [os.path.relpath(manifest.MONITORING, home.resolve())]
    with operators_kinds(), plain_cluster(home, fields={"components": components}) as namespace:
        yield namespace


def object_of(cluster: Namespace, kind: str) -> dict[str, Any]:
    found = json.loads(cluster.kubectl("get", KINDS[kind], "tidelog", "--output=json"))
    assert isinstance(found, dict)
    return found


def groups_of(cluster: Namespace) -> list[dict[str, Any]]:
    """The groups of rules that the cluster has."""
    return list(object_of(cluster, "PrometheusRule")["spec"]["groups"])


def label(name: str) -> str:
    """How Prometheus calls a label of a Service that it finds."""
    return "__meta_kubernetes_service_label_" + name.replace(".", "_").replace("/", "_")


def scrape_config(monitor: dict[str, Any]) -> dict[str, object]:
    """What the operator makes of a ServiceMonitor; scraped more often than it says."""
    (endpoint,) = monitor["spec"]["endpoints"]
    chosen = [
        {"action": "keep", "source_labels": [label(name)], "regex": value}
        for name, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    port = {"action": "keep", "source_labels": ["__meta_kubernetes_endpoint_port_name"], "regex": endpoint["port"]}
    job = {"source_labels": [label(monitor["spec"]["jobLabel"])], "target_label": "job"}
    own = [
        {"source_labels": each["sourceLabels"], "target_label": each["targetLabel"]} for each in endpoint["relabelings"]
    ]
    return {
        "job_name": "monitor",
        "metrics_path": endpoint["path"],
        "scrape_interval": "5s",
        "file_sd_configs": [{"files": [FOUND]}],
        "relabel_configs": [*chosen, port, job, *own],
    }


def endpoints(cluster: Namespace) -> list[dict[str, object]]:
    """What Prometheus' discovery of the role `endpoints` finds: each port of each address behind each Service."""
    services, found = (
        json.loads(cluster.kubectl("get", kind, "--output=json"))["items"] for kind in ("services", "endpoints")
    )
    labels = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in services}
    return [
        {
            "targets": [f"{address['ip']}:{port['port']}"],
            "labels": {
                **{label(name): value for name, value in labels.get(each["metadata"]["name"], {}).items()},
                "__meta_kubernetes_endpoint_port_name": port["name"],
                "__meta_kubernetes_pod_name": address["targetRef"]["name"],
            },
        }
        for each in found
        for subset in each.get("subsets", ())
        for address in subset.get("addresses", ())
        for port in subset["ports"]
    ]


class Prometheus:
    def __init__(self, address: str, cluster: Namespace, home: Path) -> None:
        self._address = address
        self._cluster = cluster
        self._found = home / FOUND

    def discover(self) -> None:
        """Tell it what the cluster has now, as its discovery does all the time."""
        new = self._found.with_suffix(".new")
        new.write_text(json.dumps(endpoints(self._cluster)))
        new.rename(self._found)

    def get(self, what: str) -> list[dict[str, Any]]:
        """The targets that are scraped, the alerts, or the groups of rules; none while it starts."""
        self.discover()
        key = {"targets": "activeTargets", "alerts": "alerts", "rules": "groups"}[what]
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/{what}", timeout=5) as answer:
                return list(json.load(answer)["data"][key])
        except OSError:
            return []

    def up(self) -> set[tuple[str, str]]:
        """Job and instance of each target that answers."""
        healthy = (each["labels"] for each in self.get("targets") if each["health"] == "up")
        return {(labels["job"], labels["instance"]) for labels in healthy}

    def evaluated(self) -> set[str]:
        """The alerts whose rules were evaluated."""
        rules = [rule for group in self.get("rules") for rule in group["rules"]]
        return {rule["name"] for rule in rules if rule["health"] == "ok"}

    def firing(self) -> set[str]:
        return {each["labels"]["alertname"] for each in self.get("alerts") if each["state"] == "firing"}


@contextmanager
def prometheus(cluster: Namespace, home: Path) -> Iterator[Prometheus]:
    rules = {"groups": groups_of(cluster)}
    (home / "rules.yml").write_text(json.dumps(rules))
    config = {
        "global": {"evaluation_interval": "5s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [scrape_config(object_of(cluster, "ServiceMonitor"))],
    }
    (home / "prometheus.yml").write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monitor = Prometheus(address, cluster, home)
    monitor.discover()
    options = (f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}", f"--web.listen-address={address}")
    with (home / "log").open("w") as log:
        process = subprocess.Popen(["prometheus", *options], stdout=log, stderr=log)
    try:
        yield monitor
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_targets_are_up_and_a_lost_majority_fires_its_alert(watched: Namespace, tmp_path: Path) -> None:
    """Goal: somebody is told. Method: Prometheus scrapes what the ServiceMonitor names and evaluates the rules as they
    are in the cluster; two of three nodes go, so that no controller is left, and come back."""
    watched.wait_healthy()
    with prometheus(watched, tmp_path) as monitor:
        nodes = {("tidelog", f"tidelog-{number}") for number in range(3)}
        wait_until(lambda: monitor.up() == nodes, "three targets are up")
        alerts = {rule["alert"] for group in groups_of(watched) for rule in group["rules"]}
        wait_until(lambda: monitor.evaluated() == alerts, "every rule was evaluated")
        assert monitor.firing() == set()

        watched.kubectl("scale", "statefulset/tidelog", "--replicas=1")
        wait_until(lambda: "TidelogNoController" in monitor.firing(), "the alert fires", timeout=180)

        watched.kubectl("scale", "statefulset/tidelog", "--replicas=3")
        wait_until(
            lambda: monitor.up() == nodes and "TidelogNoController" not in monitor.firing(), "it ends", timeout=180
        )
    watched.wait_healthy()
