"""What the docs say of rules, stories and planted bugs is what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replication import quorum_tales
from tests.sim.checkers import Checkers
from tests.sim.durability import Safety
from tests.sim.mutants import MUTANTS
from tests.sim.test_mutants import IN_CORES
from tests.sim.test_scenarios import STORIES

ROOT = Path(__file__).resolve().parents[2]
STORY_NAMES = {story.__name__ for story in STORIES} | {"leader_that_removed_itself", "voter_that_lost_its_log"}
PLANT_NAMES = {mutant.name for mutant in MUTANTS} | {planted.plant.__name__ for planted in IN_CORES}
CAUGHT = {(mutant.story.__name__, mutant.name) for mutant in MUTANTS} | {
    (planted.tale.__name__, planted.plant.__name__) for planted in IN_CORES
}


def rows(page: str, *columns: str) -> Iterator[dict[str, list[str]]]:
    """The names in the named columns of every table of a page that has them all."""
    wanted: list[str] = []
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            wanted = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not wanted:
            wanted = cells if set(columns) <= set(cells) else [""]
        elif wanted != [""] and not set(line) <= set("|-"):
            yield {name: re.findall(r"`([^`]+)`", cell) for name, cell in zip(wanted, cells, strict=True)}


@pytest.mark.parametrize("page", ["simulator.md", "replication.md", "quorum.md"])
def test_stories_and_planted_bugs_are_there_and_each_bug_is_caught_beside_it(page: str) -> None:
    found = list(rows(page, "story", "planted bug"))
    assert found
    for row in found:
        assert set(row["story"]) <= STORY_NAMES, sorted(set(row["story"]) - STORY_NAMES)
        assert set(row["planted bug"]) <= PLANT_NAMES, sorted(set(row["planted bug"]) - PLANT_NAMES)
        for plant in row["planted bug"]:
            beside = [story for story in row["story"] if (story, plant) in CAUGHT]
            assert beside, f"{plant} is caught by none of {row['story']}"


def test_every_rule_has_the_file_that_keeps_it_and_the_checker_that_watches() -> None:
    files = {path.name for folder in ("node", "replication", "storage") for path in (ROOT / folder).glob("*.py")}
    for row in rows("replication.md", "rule", "kept by", "checker"):
        assert row["kept by"]
        assert set(row["kept by"]) <= files, row
        assert row["checker"]
        assert all(hasattr(Checkers, name) or hasattr(Safety, name) for name in row["checker"]), row


def test_no_story_and_no_planted_bug_is_left_out() -> None:
    told = list(rows("simulator.md", "story", "planted bug"))
    assert sorted(STORY_NAMES - {name for row in told for name in row["story"]}) == []
    assert sorted(PLANT_NAMES - {name for row in told for name in row["planted bug"]}) == []


def test_the_tale_on_cores_is_there() -> None:
    assert quorum_tales.leader_that_removed_itself.__name__ in STORY_NAMES
    assert quorum_tales.voter_that_lost_its_log.__name__ in STORY_NAMES
