"""A volume fills up: typed refusals, while reads and the partitions of other leaders go on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration import progress
from tests.integration.progress import Workload
from tests.k8s.cluster import Namespace, begin_load, plain_cluster, wait_until

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6
SMALL = [
    {"op": "remove", "path": "/spec/volumeClaimTemplates"},
    {
        "op": "add",
        "path": "/spec/template/spec/volumes/-",
        "value": {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "128Mi"}},
    },
    # Indexes of the usual size would fill it.
    {
        "op": "add",
        "path": "/spec/template/spec/containers/0/env/-",
        "value": {"name": "TIDELOG_LOG_INDEX_SIZE_MAX_BYTES", "value": "16384"},
    },
]
"""A volume whose size every cluster enforces; it lasts as long as its pod does."""
BALLAST = "/var/lib/tidelog/ballast"
FILL = f"""
import os
volume = os.statvfs("/var/lib/tidelog")
with open("{BALLAST}", "wb") as ballast:
    os.posix_fallocate(ballast.fileno(), 0, volume.f_bavail * volume.f_frsize - (4 << 20))
"""
"""What is left is less than a tenth, which is reserved for the node."""

REFUSES = "rejecting writes: the leader's disk is full"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    patches = [{"target": {"kind": "StatefulSet", "name": "tidelog"}, "patch": json.dumps(SMALL)}]
    with plain_cluster(tmp_path_factory.mktemp("small"), fields={"patches": patches}) as namespace:
        yield namespace


def produce(cluster: Namespace, partition: int, value: str, timeout: int = 60) -> str:
    """What a command complains of that writes one record; nothing if it is acknowledged."""
    options = ("filling", "--partition", partition, "--timeout", timeout)
    done = cluster.attempt_tidelog("produce", *options, stdin=f"{value}\n")
    return done.stdout + done.stderr if done.returncode else ""


def leaders(client: Workload) -> dict[int, int]:
    return {each.partition: each.leader for each in progress.partitions(client.run("describe", "filling"))}


def test_a_full_volume_refuses_what_its_node_leads_and_nothing_else(small: Namespace) -> None:
    """Goal: a full disk costs the writes to the partitions that its node leads, until there is room. Method: fill the
    volume of a node that leads some; write to every partition, read all; make room, write again."""
    client = small.workload()
    small.wait_healthy()
    load = begin_load(client, "filling", PARTITIONS)
    small.end_load(load)
    led = leaders(client)
    full = led[0]
    small.kubectl("exec", f"tidelog-{full}", "--", "python", "-c", FILL)
    # The node looks at its disk from time to time, and before it might be full by its own writes.
    wait_until(lambda: REFUSES in small.attempt_tidelog("cluster", "status").stderr, f"cluster status: {REFUSES}")

    refused = {partition for partition, leader in led.items() if leader == full}
    complaints = {each: produce(small, each, "in need", 10 if each in refused else 60) for each in led}
    assert {partition for partition, complaint in complaints.items() if complaint} == refused, complaints
    assert "full" in complaints[0]
    assert "were not written" in complaints[0]
    progress.check_nothing_lost(load, client.run("read", "filling", PARTITIONS))

    small.kubectl("exec", f"tidelog-{full}", "--", "rm", BALLAST)
    small.wait_healthy()
    assert [produce(small, partition, "with room") for partition in led] == [""] * PARTITIONS
    stored = client.run("read", "filling", PARTITIONS)
    progress.check_nothing_lost(load, stored)
    written = {value: {line[1] for line in stored if line[2] == value} for value in ("in need", "with room")}
    assert written == {"in need": set(led) - refused, "with room": set(led)}, "what was refused was not written"
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in small.pods().values()} == {0}
