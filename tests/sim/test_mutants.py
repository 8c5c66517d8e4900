"""The simulator finds bugs: each story must fail with its rule weakened.

`make sim-mutants` plants the same bugs in random worlds too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from tests.replication.quorum_cluster import QuorumCluster
from tests.sim import move_queue_stories, mutants, snapshot_stories, tier_retention_stories, tier_stories
from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.mutants.mutant import Plant, is_caught, violation_of
from tests.sim.mutants_in_cores import IN_CORES, IN_GROUPS, InCores, InGroups
from tidelog.errors import TidelogError

WORLDS = 5
"""In which a planted bug may be caught; nearly all are in the first."""


TAKES_MINUTES = {
    move_queue_stories.queue_outlives_all_nodes,
    snapshot_stories.snapshot_outlives_its_nodes,
    tier_retention_stories.coordinator_dies_while_objects_are_removed,
    tier_retention_stories.segments_of_a_lost_epoch,
    tier_stories.leader_dies_during_an_upload,
    tier_retention_stories.topic_is_deleted_during_an_upload,
}
"""Stories that wait for minutes of virtual time before they say what a planted bug has broken."""


def planted_in_stories() -> Iterator[Any]:
    """Each planted bug in each of its stories. `make test` plants it in the first one, unless that takes minutes."""
    planted: set[Plant] = set()
    for mutant in MUTANTS:
        is_deep = mutant.plant in planted or mutant.story in TAKES_MINUTES
        planted.add(mutant.plant)
        yield pytest.param(mutant, id=str(mutant), marks=[pytest.mark.deep] if is_deep else [])


@pytest.mark.parametrize("mutant", list(planted_in_stories()))
def test_a_planted_bug_is_caught_by_its_story(mutant: Mutant) -> None:
    """In one of a few worlds: each change of the sources draws others, and some bugs need two events to meet."""
    said = None
    for seed in range(mutant.seed, mutant.seed + WORLDS):
        said = violation_of(mutant._replace(seed=seed))
        if is_caught(mutant, said):
            return
    pytest.fail(f"{mutant.story.__name__} ended with: {said or 'all is well'}")


def test_there_are_enough_planted_bugs() -> None:
    assert len({mutant.plant for mutant in MUTANTS}) >= 30
    assert all(mutant.plant.__doc__ for mutant in MUTANTS), "each names the rule that it weakens"
    assert all(re.search(mutant.says, "all is well") is None for mutant in MUTANTS), "each names its violation"


def plants() -> set[Plant]:
    """Every planted bug in the code, registered or not."""
    names = {module.name for module in iter_modules(mutants.__path__)} - {"__main__", "examined", "mutant"}
    modules = [import_module(f"tests.sim.mutants.{name}") for name in names]
    return {
        each
        for module in modules
        for name, each in vars(module).items()
        if inspect.isfunction(each) and each.__module__ == module.__name__ and not name.startswith("_")
    }


def test_no_planted_bug_is_left_without_a_story() -> None:
    used = {mutant.plant for mutant in MUTANTS} | {planted.plant for planted in IN_CORES}
    used |= {planted.plant for planted in IN_GROUPS}
    assert sorted(plant.__name__ for plant in plants() - used) == []


@pytest.mark.parametrize("planted", IN_CORES, ids=lambda planted: planted.plant.__name__)
def test_a_planted_bug_is_caught_by_cores_alone(planted: InCores, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.plant(monkeypatch)
    with pytest.raises(AssertionError, match=planted.says):
        planted.story(QuorumCluster(nodes=planted.nodes, voting=planted.voting))


@pytest.mark.parametrize(
    "planted", IN_GROUPS, ids=lambda planted: f"{planted.plant.__name__}-in-{planted.story.__name__}"
)
def test_a_planted_bug_is_caught_by_a_story_of_classic_groups(
    planted: InGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.plant(monkeypatch)
    with pytest.raises(Exception, match=planted.says) as raised:
        planted.story()
    assert isinstance(raised.value, (AssertionError, TidelogError)), "the story fails, and not the plant"


def test_there_are_enough_planted_bugs_in_classic_groups() -> None:
    assert len({planted.plant for planted in IN_GROUPS}) >= 30
    assert all(planted.plant.__doc__ for planted in IN_GROUPS), "each names the rule that it weakens"
