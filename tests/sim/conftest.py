"""The world of a story: `sim`, once for each of a few seeds; a failing story shows its last events."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sim.world import Simulation

STORY_SEEDS = (1, 2, 3)


@pytest.fixture(params=STORY_SEEDS, ids=lambda seed: f"seed={seed}")
def sim(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    """A world that has not begun: `sim.start(...)` makes its cluster."""
    from tests.sim.world import Simulation

    with Simulation(request.param) as world:
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
