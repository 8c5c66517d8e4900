"""The CronJob of deploy/components/archive: Kubernetes itself starts `tidelog job archive`, again and again.

IMAGE_JOBS names the image of `make jobs-image`, which has Java and Spark.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration import manifest
from tests.integration.progress import Load
from tests.k8s.cluster import CLIENT_TLS, Namespace, begin_load, bring_to_machines, wait_until
from tests.k8s.production import Production

IMAGE_JOBS = os.environ.get("IMAGE_JOBS", "")

pytestmark = [
    pytest.mark.k8s,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IMAGE_JOBS, reason="IMAGE_JOBS names no image with Java and Spark"),
]

PARTITIONS = 3
CRONJOB = "tidelog-archive"
VERIFY = "archive-verify"


def apply_cronjob(cluster: Namespace, home: Path) -> dict[str, Any]:
    """The objects of the component, with a schedule of each minute. Returns the CronJob."""
    name, _, tag = IMAGE_JOBS.rpartition(":")
    schedule = [{"op": "replace", "path": "/spec/schedule", "value": "* * * * *"}]
    fields = {
        "images": [{"name": "tidelog-jobs", "newName": name, "newTag": tag}],
        "patches": [{"target": {"kind": "CronJob"}, "patch": json.dumps(schedule)}],
    }
    objects = cluster.apply_component(home, manifest.ARCHIVE, CRONJOB, fields)
    assert objects.keys() == {"CronJob", "PersistentVolumeClaim"}
    return objects["CronJob"]


def jobs(cluster: Namespace) -> dict[str, dict[str, Any]]:
    """Those that Kubernetes has made of the CronJob, by their names, which grow with time."""
    found = json.loads(cluster.kubectl("get", "jobs", "--output=json"))["items"]
    names = {each["metadata"]["name"]: each for each in found}
    return {name: each for name, each in sorted(names.items()) if name.startswith(f"{CRONJOB}-")}


def wait_archived(cluster: Namespace) -> None:
    """Until a Job has succeeded that did not exist yet."""
    before = jobs(cluster).keys()

    def has_succeeded() -> bool:
        return any(each["status"].get("succeeded") for name, each in jobs(cluster).items() if name not in before)

    try:
        wait_until(has_succeeded, "another Job of the CronJob has succeeded", timeout=360)
    except AssertionError:
        print(cluster.kubectl("get", "jobs,pods,events", "--output=wide"))
        for name in jobs(cluster):
            print(cluster.kubectl("logs", f"job/{name}", "--tail=40"))
        raise


def verified(cluster: Namespace, cronjob: dict[str, Any]) -> dict[str, Any]:
    """What the job's own check says of the archive, in a pod of the same kind."""
    (container,) = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    command = container["command"]
    target = command[command.index("--to") + 1]
    container["command"] = ["tidelog", "--json", "job", "archive", "--to", target, "--verify"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": VERIFY}, **cronjob["spec"]["jobTemplate"]}
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(job))
    try:
        cluster.kubectl("wait", "--for=condition=Complete", f"job/{VERIFY}", "--timeout=230s")
    finally:
        said = cluster.kubectl("logs", f"job/{VERIFY}")
    found = json.loads(said[said.index("{") :])
    assert isinstance(found, dict)
    return found


def offsets_by_partition(report: dict[str, Any], topic: str) -> dict[int, tuple[int, int]]:
    """First and last offset of each partition, of which none is absent and none there twice."""
    found = {}
    for each in report["partitions"]:
        if each["topic"] == topic:
            first, last = each["first_offset"], each["last_offset"]
            assert (each["records"], each["repeated"]) == (last - first + 1, 0), each
            found[each["partition"]] = (first, last)
    return found


def check_archived(report: dict[str, Any], topic: str, load: Load) -> None:
    last = dict(sorted(load.acked))
    assert offsets_by_partition(report, topic) == {partition: (0, last[partition]) for partition in range(PARTITIONS)}


def test_a_cronjob_archives_what_was_written_since_its_last_run(production: Production, tmp_path: Path) -> None:
    """Goal: Kubernetes runs the archive without a hand, and each record is in it once. Method: write, let the schedule
    start a Job; write to another topic, let it start the next; then the job's own check reads all files."""
    bring_to_machines(IMAGE_JOBS)
    cluster = production.namespace
    client = cluster.workload(f"--bootstrap=tidelog.{cluster.name}.svc:9192", f"--tls={CLIENT_TLS}")
    client.run("wait", 3)
    loads = {"hourly": begin_load(client, "hourly", PARTITIONS)}
    cluster.end_load(loads["hourly"])
    cronjob = apply_cronjob(cluster, tmp_path)
    wait_archived(cluster)

    loads["later"] = begin_load(client, "later", PARTITIONS)
    cluster.end_load(loads["later"])
    wait_archived(cluster)
    cluster.kubectl("patch", "cronjob", CRONJOB, "--patch", json.dumps({"spec": {"suspend": True}}))
    wait_until(lambda: not any(each["status"].get("active") for each in jobs(cluster).values()), "no Job runs")

    report = verified(cluster, cronjob)
    assert report["good"], report
    for topic, load in loads.items():
        check_archived(report, topic, load)
