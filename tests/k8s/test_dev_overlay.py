"""The overlay for trying things out: small nodes take what clients of both protocols write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration import manifest, progress
from tests.k8s.cluster import Namespace, begin_load, plain_cluster

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with plain_cluster(tmp_path_factory.mktemp("dev"), manifest.DEV) as namespace:
        yield namespace


def test_small_nodes_take_what_clients_of_both_protocols_write(small: Namespace) -> None:
    """Goal: 256 MiB are enough for a node. Method: write with both protocols at once, read each with the other."""
    own, kafka = small.workload(), small.kafka_workload()
    small.wait_healthy()
    first = begin_load(own, "own", PARTITIONS)
    second = begin_load(own, "theirs", PARTITIONS, writer=kafka)
    small.end_load(first)
    small.end_load(second)

    progress.check_nothing_lost(first, kafka.run("read", "own", PARTITIONS))
    progress.check_nothing_lost(second, own.run("read", "theirs", PARTITIONS))
    containers = [pod["status"]["containerStatuses"][0] for pod in small.pods().values()]
    assert [each["restartCount"] for each in containers] == [0, 0, 0]
