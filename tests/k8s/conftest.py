"""What scenarios begin with: three nodes in a namespace of their own, ready, and a client beside them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.progress import Workload
from tests.k8s.cluster import Namespace, kill_loads, machines, plain_cluster
from tests.k8s.production import Production, production_cluster


@pytest.fixture(autouse=True)
def no_load_is_left() -> Iterator[None]:
    yield
    kill_loads()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """Of the base. Each file has its own."""
    with plain_cluster(tmp_path_factory.mktemp("overlay")) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def client(cluster: Namespace) -> Workload:
    return cluster.workload()


@pytest.fixture(scope="session")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    """Of the overlay for production: its nodes count as available after a minute, so that all files share one."""
    if len(machines()) < 3:
        pytest.skip("the cluster has fewer than three machines")
    with production_cluster(tmp_path_factory.mktemp("production")) as found:
        yield found
