"""Every story of classic groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.replication import classic_stories

STORIES = [
    each
    for each in vars(classic_stories).values()
    if inspect.isfunction(each)
    and each.__module__ == classic_stories.__name__
    and not inspect.signature(each).parameters
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_ends_well(story: Callable[[], None]) -> None:
    """Traps 15 and 19, in the stories that name them."""
    story()
