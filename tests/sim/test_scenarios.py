"""The design's scenarios, on the product as it is: each story ends well, whatever the seed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim import (
    controller_stories,
    late_stories,
    log_stories,
    producer_stories,
    quorum_stories,
    reader_stories,
    remade_stories,
    replication_stories,
    stories,
)
from tests.sim.world import Simulation

STORIES = [
    *stories.ALL,
    *replication_stories.ALL,
    *late_stories.ALL,
    *log_stories.ALL,
    *reader_stories.ALL,
    *quorum_stories.ALL,
    *producer_stories.ALL,
    *controller_stories.ALL,
    *remade_stories.ALL,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(sim: Simulation, story: Callable[[Simulation], None]) -> None:
    story(sim)
