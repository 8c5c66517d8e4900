"""Every story of groups whose members change their protocol one by one."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.replication import migration_stories

STORIES = [
    each
    for each in vars(migration_stories).values()
    if inspect.isfunction(each)
    and each.__module__ == migration_stories.__name__
    and not inspect.signature(each).parameters
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_migration_ends_well(story: Callable[[], None]) -> None:
    story()
