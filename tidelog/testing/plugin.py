"""The fixtures that pytest finds by itself in an environment with Tidelog.

`tidelog_cluster`: a healthy cluster of three processes, which all tests of a run share; a test that disturbs it leaves
it healed to the next one. `tidelog_topic`: a new topic there. `tidelog_node`: a node in the process of the tests.
`tidelog_simulation`: a simulated cluster; a test that asks for it runs once for each seed of `--tidelog-seeds`, or with
the one of `--tidelog-seed`. A project that wants other nodes overrides `tidelog_cluster_options`. Nothing else of
Tidelog is imported until a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from tidelog.testing.in_process import InProcessNode
    from tidelog.testing.process_cluster import LocalCluster
    from tidelog.testing.simulation import Simulation

SEEDS: Final = 10
SEED: Final = "tidelog_seed"
WORLD: Final = "tidelog_simulation"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of simulated tests."""
    group = parser.getgroup("tidelog")
    group.addoption("--tidelog-seeds", type=int, default=SEEDS, help=f"seeds of each simulated test; default {SEEDS}")
    group.addoption("--tidelog-seed", type=int, help="the only seed of simulated tests: plays a failure again")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a number of seeds with which simulated tests would be skipped, as if they had passed."""
    if (seeds := config.getoption("--tidelog-seeds")) < 1:
        raise pytest.UsageError(f"--tidelog-seeds {seeds}: a simulated test needs 1 or more seeds")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a simulated test once for each seed, unless it names its seeds itself."""
    named = any(SEED in str(each.args[0]) for each in metafunc.definition.iter_markers("parametrize"))
    if SEED in metafunc.fixturenames and not named:
        only = metafunc.config.getoption("--tidelog-seed")
        metafunc.parametrize(SEED, range(metafunc.config.getoption("--tidelog-seeds")) if only is None else [only])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed simulated test what happened last, and how to play it again."""
    report = yield
    world: Simulation | None = getattr(item, "funcargs", {}).get(WORLD)
    if report.failed and world is not None:
        again = f"to play it again: pytest --tidelog-seed {world.seed} {item.nodeid.partition('[')[0]}"
        report.sections.append((f"the world of seed {world.seed}", f"{world.last_events()}\n{again}"))
    return report


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
    tidelog_session_cluster.settle()


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


@pytest.fixture
def tidelog_simulation(tidelog_seed: int) -> Iterator[Simulation]:
    """A simulated cluster of three nodes."""
    from tidelog.testing.simulation import Simulation

    with Simulation(tidelog_seed) as world:
        yield world
