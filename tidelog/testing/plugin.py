"""The fixtures that pytest finds by itself in an environment with Tidelog.

`tidelog_cluster`: a healthy cluster of three processes, which all tests of a run share; a test that disturbs it leaves
it healed to the next one. `tidelog_topic`: a new topic there. `tidelog_node`: a node in the process of the tests. A
project that wants other nodes overrides `tidelog_cluster_options`. Nothing else of Tidelog is imported until a test
uses a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.testing.process_cluster import LocalCluster
    from tidelog.testing.in_process import InProcessNode


@pytest.fixture(scope="session")
def tidelog_cluster_options() -> Mapping[str, Any]:
    """Arguments of `tidelog.testing.LocalCluster` for the cluster of this run; to be overridden."""
    return {}


@pytest.fixture(scope="session")
def tidelog_session_cluster(tidelog_cluster_options: Mapping[str, Any]) -> Iterator[LocalCluster]:
    """The cluster that all tests of a run share; under pytest-xdist each worker has one."""
    from tidelog.testing.process_cluster import LocalCluster

    with LocalCluster(**tidelog_cluster_options) as cluster:
        yield cluster


@pytest.fixture
def tidelog_cluster(tidelog_session_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster of this run, healthy. What a test has disturbed is healed after it."""
    yield tidelog_session_cluster
    if tidelog_session_cluster.is_disturbed:
        tidelog_session_cluster.heal()
        tidelog_session_cluster.wait_healthy()


@pytest.fixture
def tidelog_topic(tidelog_session_cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, on as many nodes as there are, at most three."""
    from tidelog.testing.unique_names import unique_name

    return tidelog_session_cluster.create_topic(unique_name(request.node.name))


@pytest.fixture(scope="session")
def tidelog_node() -> Iterator[InProcessNode]:
    """A node in this process, which all tests of a run share: for unit tests, each with topics of its own."""
    from tidelog.testing.in_process import InProcessNode

    with InProcessNode() as node:
        yield node
