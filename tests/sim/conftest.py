"""The `sim` fixture: a world with the seed and the voters that a test requests. A failed story shows its last
events."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testbed.sim.world import Simulation


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    """A world without a cluster; `sim.start(...)` creates one. Its parameter: the seed and the number of voters."""
    from testbed.sim.world import Simulation

    seed, voters = request.param
    with Simulation(seed, voters=voters) as world:
        yield world


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    world = getattr(item, "funcargs", {}).get("sim")
    if report.failed and world is not None:
        report.sections.append((f"the last events of seed {world.seed}", world.last_events()))
    return report
