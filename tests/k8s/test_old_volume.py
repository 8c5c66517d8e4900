"""A volume comes back as it was: from a snapshot that is older than what the cluster has done since."""

from __future__ import annotations

import json

import pytest

from tests.integration import progress
from tests.integration.progress import Workload
from tests.k8s.cluster import Namespace, begin_load, client_pod, wait_until

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6
VOLUME = "/volume"


def repairer(claim: str) -> dict[str, object]:
    """A pod of an operator, which has the volume of a node that does not run."""
    pod = client_pod()
    pod["metadata"] = {"name": "repairer"}
    spec = pod["spec"]
    assert isinstance(spec, dict)
    (container,) = spec["containers"]
    spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": claim}})
    container["volumeMounts"].append({"name": "data", "mountPath": VOLUME})
    return pod


def change_volume(cluster: Namespace, command: str) -> None:
    """While the third node does not run, a command of the shell in its volume."""
    cluster.kubectl("scale", "statefulset/tidelog", "--replicas=2")
    cluster.kubectl("wait", "--for=delete", "pod/tidelog-2", "--timeout=120s")
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(repairer("data-tidelog-2")))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/repairer", "--timeout=60s")
    cluster.kubectl("exec", "repairer", "--", "sh", "-ec", f"cd {VOLUME}; {command}")
    cluster.kubectl("delete", "pod", "repairer", "--grace-period=1")
    cluster.kubectl("scale", "statefulset/tidelog", "--replicas=3")
    cluster.wait_healthy()


def test_an_old_volume_is_fetched_again_and_never_merged(cluster: Namespace, client: Workload) -> None:
    """Goal: no node is believed that has forgotten what it once confirmed. Method: keep a copy of a voter's volume,
    write on, and give the copy back; its replicas are then compared record by record with the others, and lead."""
    cluster.wait_healthy()
    before = begin_load(client, "older", PARTITIONS)
    cluster.end_load(before)
    change_volume(cluster, "cp -a data copy")

    load = begin_load(client, "newer", PARTITIONS)
    change_volume(cluster, "rm -r data; mv copy data")
    load.wait_acked_everywhere(PARTITIONS, timeout=60)
    cluster.end_load(load)

    cluster.wait_healthy()
    cluster.tidelog("job", "audit", "older")
    cluster.tidelog("job", "audit", "newer")
    assert progress.quorum(client).voters == [0, 1, 2]
    for topic, written in (("older", before), ("newer", load)):
        lead_from_the_restored_node(cluster, client, topic)
        progress.check_nothing_lost(written, client.run("read", topic, PARTITIONS))


def lead_from_the_restored_node(cluster: Namespace, client: Workload, topic: str) -> None:
    for partition in range(PARTITIONS):
        cluster.tidelog("partition", "reassign", f"{topic}-{partition}", "--replicas", "2,0,1")
    cluster.tidelog("partition", "elect", *(f"{topic}-{partition}" for partition in range(PARTITIONS)))
    # The node that is asked learns of it a moment later.
    wait_until(lambda: leaders(client, topic) == {2}, f"node 2 leads {topic}")


def leaders(client: Workload, topic: str) -> set[int]:
    return {each.leader for each in progress.partitions(client.run("describe", topic))}
