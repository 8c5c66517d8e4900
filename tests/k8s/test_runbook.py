"""What the documents let an operator type in a cluster: functions that run `tidelog` in a pod, and looking around."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.document_commands import BLOCK
from tests.integration import manifest
from tests.k8s.cluster import Namespace
from tests.k8s.production import Production

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

DOCS = manifest.ROOT / "docs"


def function_of(page: Path, name: str) -> str:
    """A function of the shell, as a block of the page has it."""
    blocks = (body for _indent, _language, body in BLOCK.findall(page.read_text(encoding="utf-8")))
    (block,) = (body for body in blocks if body.startswith(f"{name}() {{"))
    return str(block)[: block.index("\n}\n") + 3]


def status(cluster: Namespace, page: Path, name: str) -> dict[str, object]:
    """What `tidelog cluster status` tells an operator who has typed that function."""
    typed = function_of(page, name).replace("-n tidelog ", f"-n {cluster.name} ")
    assert cluster.name in typed, "it names the namespace"
    command = ["bash", "-ec", f"{typed}\n{name} --json cluster status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout))


def test_an_operator_asks_the_cluster_in_a_pod_of_a_node(cluster: Namespace) -> None:
    """Goal: the function of the runbook works as it is written. Method: read it from the page, and call it."""
    cluster.wait_healthy()
    found = status(cluster, DOCS / "operations.md", "on_node")
    assert found["healthy"], found


def test_with_certificates_the_operator_has_that_of_the_node(production: Production) -> None:
    cluster = production.namespace
    cluster.wait_healthy()
    found = status(cluster, DOCS / "deploy.md", "as_operator")
    assert found["healthy"], found


def test_an_operator_sees_where_pods_run_and_why_one_does_not(cluster: Namespace) -> None:
    """Goal: the steps of "Lost majority" show what they promise. Method: the same commands."""
    shown = cluster.kubectl("get", "pods", "-o", "wide")
    assert all(f"tidelog-{number} " in shown for number in range(3)), shown
    assert "Readiness:" in cluster.kubectl("describe", "pod", "tidelog-1")
