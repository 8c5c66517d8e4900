"""The rules, stories and planted bugs that the documents name exist in the code, and the tables are complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.sim.checkers import Checkers
from testbed.sim.durability import Safety
from tests.replication import quorum_core_stories
from tests.sim.all_stories import STORIES
from tests.sim.mutants import MUTANTS
from tests.sim.mutants_in_cores import IN_CORES, IN_GROUPS

ROOT = Path(__file__).resolve().parents[2]
STORY_NAMES = {story.__name__ for story in STORIES} | {"leader_that_removed_itself", "voter_that_lost_its_log"}
PLANT_NAMES = {mutant.name for mutant in MUTANTS} | {planted.plant.__name__ for planted in IN_CORES}
CAUGHT = {(mutant.story.__name__, mutant.name) for mutant in MUTANTS} | {
    (planted.story.__name__, planted.plant.__name__) for planted in IN_CORES
}


def rows(page: str, *columns: str) -> Iterator[dict[str, list[str]]]:
    """The names in the given columns of every table of a page that has all of these columns."""
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


@pytest.mark.parametrize("page", ["simulator.md", "replication.md", "quorum.md", "rules.md"])
def test_documented_stories_and_planted_bugs_exist_and_each_row_catches_its_bugs(page: str) -> None:
    found = list(rows(page, "story", "planted bug"))
    assert found
    for row in found:
        assert set(row["story"]) <= STORY_NAMES, sorted(set(row["story"]) - STORY_NAMES)
        assert set(row["planted bug"]) <= PLANT_NAMES, sorted(set(row["planted bug"]) - PLANT_NAMES)
        for plant in row["planted bug"]:
            catching = [story for story in row["story"] if (story, plant) in CAUGHT]
            assert catching, f"{plant} is caught by none of {row['story']}"


QUOTES = {
    "_compare": ("is not what was committed", "is missing, below", "offset 8 is missing"),
    "_member_has": ("is in the in-sync set and (holds", "holds offsets below 6"),
    "_watermark_moved": ("are in sync, ", "high watermark went back"),
    "_begins_complete": ("ending at",),
    "_epoch_moved": ("is led by node",),
    "_start_moved": ("nothing allows that", "but the committed log ends at"),
    "_stay_deleted": ("was acknowledged",),
    "_answered": ("acknowledged, but",),
    "sets_are_of_present_nodes": ("in the in-sync set", "in its in-sync set"),
    "reading": ("was given offset",),
    "reported_end": ("reports the end",),
    "possible_loss": ("a crash may lose",),
}
"""By checker: parts of its messages that the expected violations of planted bugs contain."""


def checkers_that_fail(stories: list[str], plants: list[str]) -> set[str]:
    """The checkers that detect one of these planted bugs in one of these stories, according to the expected violations
    (test_mutants.py verifies those)."""
    expected = [mutant.says for mutant in MUTANTS if mutant.story.__name__ in stories and mutant.name in plants]
    return {
        checker
        for checker, quotes in QUOTES.items()
        for says in expected
        if any(quote in says for quote in quotes) and not (checker.startswith("sets_") and "(holds" in says)
    }


def test_the_documented_checker_of_a_rule_is_the_one_that_fails() -> None:
    for row in rows("replication.md", "rule", "kept by", "checker"):
        found = checkers_that_fail(row["story"], row["planted bug"])
        assert found <= set(row["checker"]), f"{row['story']}: detected by {sorted(found)}"
        assert bool(found) == bool(row["checker"]), f"{row['checker']} detects none of {row['planted bug']}"


def test_every_rule_names_existing_files_and_checkers() -> None:
    files = {
        path.name
        for directory in ("node", "replication", "storage", "tidelog")
        for path in (ROOT / directory).rglob("*.py")
    }
    for row in rows("replication.md", "rule", "kept by", "checker"):
        assert row["kept by"]
        assert set(row["kept by"]) <= files, row
        assert all(hasattr(Checkers, name) or hasattr(Safety, name) for name in row["checker"]), row


def test_every_story_and_planted_bug_is_documented() -> None:
    documented = list(rows("simulator.md", "story", "planted bug"))
    assert sorted(STORY_NAMES - {name for row in documented for name in row["story"]}) == []
    assert sorted(PLANT_NAMES - {name for row in documented for name in row["planted bug"]}) == []


def test_every_planted_bug_is_documented_with_its_story() -> None:
    documented = {
        (story, plant)
        for row in rows("planted-bugs.md", "planted bug", "noticed by its story")
        for plant in row["planted bug"]
        for story in row["noticed by its story"]
    }
    in_groups = {(planted.story.__name__, planted.plant.__name__) for planted in IN_GROUPS}
    assert documented == in_groups | {(mutant.story.__name__, mutant.name) for mutant in MUTANTS}


def test_the_core_stories_exist() -> None:
    assert quorum_core_stories.leader_that_removed_itself.__name__ in STORY_NAMES
    assert quorum_core_stories.voter_that_lost_its_log.__name__ in STORY_NAMES
