"""A machine is lost for good: the steps of docs/operations.md, "Replace a node".

MACHINE_OFF is a command that takes the name of a machine and switches it off, MACHINE_ON one that switches it on again.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration import progress
from tests.integration.progress import Workload
from tests.k8s.cluster import Namespace, attempt, begin_load, machines, run

MACHINE_OFF, MACHINE_ON = (shlex.split(os.environ.get(name, "")) for name in ("MACHINE_OFF", "MACHINE_ON"))

pytestmark = [
    pytest.mark.k8s,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (MACHINE_OFF and MACHINE_ON), reason="MACHINE_OFF and MACHINE_ON name no commands"),
]

PARTITIONS = 6
OUT = "node.kubernetes.io/out-of-service"


@contextmanager
def off(machine: str) -> Iterator[None]:
    run(*MACHINE_OFF, machine)
    try:
        yield
    finally:
        run(*MACHINE_ON, machine)
        attempt("kubectl", "taint", "node", machine, f"{OUT}-")  # it has none if the test ended before


def test_a_lost_machine_is_replaced_under_load(cluster: Namespace, client: Workload) -> None:
    """Goal: a node moves to another machine, with its volume. Method: switch a machine off while writing, and tell
    Kubernetes that it will not come back."""
    cluster.wait_healthy()
    place = cluster.kubectl("get", "pod", "client", "--output=jsonpath={.spec.nodeName}")
    pods = {name: pod["spec"]["nodeName"] for name, pod in cluster.pods().items()}
    candidates = [machine for machine in machines() if list(pods.values()).count(machine) == 1 and machine != place]
    assert candidates, f"no machine has one node and not the client: {pods}, {place}"
    lost = candidates[0]
    former = {name: pod for name, pod in cluster.pods().items() if pods[name] == lost}
    load = begin_load(client, "relocated", PARTITIONS)

    with off(lost):
        load.wait_acked_everywhere(PARTITIONS, timeout=60)
        run("kubectl", "wait", "--for=condition=Ready=Unknown", f"node/{lost}", "--timeout=120s")
        run("kubectl", "taint", "node", lost, f"{OUT}=nodeshutdown:NoExecute")
        cluster.wait_replaced(former)
        cluster.wait_healthy()
        load.wait_acked_everywhere(PARTITIONS, timeout=60)
    assert lost not in {pod["spec"]["nodeName"] for pod in cluster.pods().values()}

    cluster.end_load(load)
    progress.check_nothing_lost(load, client.run("read", "relocated", PARTITIONS))
