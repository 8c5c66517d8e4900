"""The Job of deploy/components/apply: topics and permissions from files, shown before they are made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration import manifest
from tests.k8s.cluster import Namespace, wait_until
from tests.k8s.production import Production

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

STATE = """
[topics.invoices]
partitions = 4
replication-factor = 3
configs.retention.ms = 86_400_000

[[acls]]
allow = "User:CN=alice"
operations = ["read"]
topic = "invoices"
"""
DIFF = [
    {"op": "add", "path": "/spec/template/spec/containers/0/command/-", "value": "--diff"},
    {"op": "replace", "path": "/spec/backoffLimit", "value": 0},
]


def run_job(cluster: Namespace, home: Path, *, diff: bool) -> tuple[int, str]:
    """Its exit code and what it says; 0 if one of its attempts succeeded."""
    (home / "state.toml").write_text(STATE)
    fields: dict[str, object] = {"configMapGenerator": [{"name": "tidelog-apply", "files": ["state.toml"]}]}
    if diff:
        fields["patches"] = [{"target": {"kind": "Job", "name": "tidelog-apply"}, "patch": json.dumps(DIFF)}]
    objects = cluster.apply_component(home, manifest.APPLY, "tidelog-apply", fields)
    assert objects.keys() == {"ConfigMap", "Job"}
    return ended_job(cluster)


def ended_job(cluster: Namespace) -> tuple[int, str]:
    """Once its pod has ended; it is removed then, as Kubernetes does five minutes later."""

    def has_ended() -> bool:
        job = json.loads(cluster.kubectl("get", "job", "tidelog-apply", "--output=json"))
        return any(each["type"] in {"Complete", "Failed"} for each in job["status"].get("conditions", ()))

    wait_until(has_ended, "the Job has ended")
    chosen = "--selector=batch.kubernetes.io/job-name=tidelog-apply"
    pods = json.loads(cluster.kubectl("get", "pods", chosen, "--output=json"))["items"]
    codes = [pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for pod in pods]
    said = cluster.kubectl("logs", chosen, "--tail=-1")
    cluster.kubectl("delete", "job", "tidelog-apply", "--cascade=foreground")
    return min(codes), said


def test_a_job_shows_what_would_change_and_another_one_makes_it(production: Production, tmp_path: Path) -> None:
    """Goal: a review sees the change, the Job makes it, and the same files again change nothing. Method: three Jobs
    with the same files, the first and the last with --diff."""
    cluster = production.namespace
    code, said = run_job(cluster, tmp_path, diff=True)
    assert code == 1, said
    assert "invoices" in said
    assert "invoices" not in cluster.tidelog("--json", "topic", "list"), "a review changes nothing"

    code, said = run_job(cluster, tmp_path, diff=False)
    assert code == 0, said
    topic = json.loads(cluster.tidelog("--json", "topic", "describe", "invoices"))
    assert len(topic["partitions"]) == 4
    assert "User:CN=alice" in cluster.tidelog("--json", "acl", "list")

    code, said = run_job(cluster, tmp_path, diff=True)
    assert code == 0, said
