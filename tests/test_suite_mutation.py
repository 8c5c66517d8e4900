"""The tool that changes lines of the product: what it changes, and whether tests notice."""

from __future__ import annotations

from pathlib import Path

from tests.changed import direct_users
from tests.durations import REST, Durations, Entry
from tests.mutation import Copy, Mutation, chosen, mutations_of, summary, users_of

SOURCE = '''\
"""Numbers."""
LIMIT: int = 7


def clamp(value: int) -> int:
    """At most the limit."""
    if value > LIMIT and value:
        note("é", value)
        return LIMIT
    return value


def note(text: str, value: int) -> None:
    if not text:
        raise ValueError(f"{1 + value}")
'''
TEST = """\
from storage.numbers import clamp

def test_clamp() -> None:
    assert clamp(9) == 7
"""
FILES = {
    "storage/__init__.py": "",
    "storage/numbers.py": SOURCE,
    "tests/test_numbers.py": TEST,
    "pytest.ini": "[pytest]\nmarkers =\n    deep\n    containers\n    interop\n    k8s\n",
}


def test_each_kind_of_change_is_made_and_texts_and_types_stay() -> None:
    assert [(each.line, each.what) for each in mutations_of("storage/numbers.py", SOURCE)] == [
        (2, "7 becomes 8"),
        (7, "value > LIMIT becomes (value >= LIMIT)"),
        (7, "value > LIMIT and value becomes (value > LIMIT or value)"),
        (8, "note('é', value) becomes pass"),
        (9, "return LIMIT becomes return None"),
        (10, "return value becomes return None"),
        (14, "not text becomes (text)"),
        (15, "raise ValueError(f'{1 + value}') becomes pass"),
    ]


def test_a_seed_chooses_the_same_lines_again() -> None:
    sources = {"storage/numbers.py": SOURCE, "tests/test_numbers.py": TEST, "tidelog/protocol/v1/made_pb2.py": SOURCE}
    first = chosen(sources, 4, seed=3)
    assert first == chosen(sources, 4, seed=3) != chosen(sources, 4, seed=4)
    assert {each.file for each in first} == {"storage/numbers.py"}
    assert len({each.line for each in first}) == 4
    assert len(chosen(sources, 100, seed=3)) == 7, "each line once"


def test_the_tests_of_the_area_come_first_then_the_nearest_then_the_shortest() -> None:
    sources = {
        "storage/numbers.py": "",
        "storage/uses.py": "import storage.numbers",
        "tests/storage/test_far.py": "import storage.uses",
        "tests/node/test_long.py": "import storage.numbers",
        "tests/node/test_short.py": "import storage.numbers",
        "tests/node/test_other.py": "",
    }
    record = Durations()
    record.tiers["test"] = {"tests/node/test_long.py": {REST: Entry(9.0, 1)}}
    assert users_of("storage/numbers.py", direct_users(sources), record) == [
        "tests/storage/test_far.py",
        "tests/node/test_short.py",
        "tests/node/test_long.py",
    ]


def test_a_change_is_noticed_or_survives_and_the_checkout_stays_as_it_was(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name, text in FILES.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text, encoding="utf-8")
    copy = Copy(checkout, tmp_path)
    by_what = {each.what: each for each in mutations_of("storage/numbers.py", SOURCE)}

    def outcome(mutation: Mutation, *, limit_s: float = 60) -> tuple[str, bool]:
        found = copy.outcome(mutation, ["tests/test_numbers.py"], limit_s)
        return found.noticed_by, found.in_time

    assert outcome(by_what["7 becomes 8"]) == ("tests/test_numbers.py::test_clamp", True)
    assert outcome(by_what["note('é', value) becomes pass"]) == ("", True)
    assert outcome(by_what["7 becomes 8"], limit_s=0) == ("", False)
    assert (checkout / "storage/numbers.py").read_text(encoding="utf-8") == SOURCE
    assert copy.outcome(by_what["return value becomes return None"], [], 60).noticed_by == ""
    noticed = copy.outcome(by_what["return LIMIT becomes return None"], ["tests/test_numbers.py"], 60)
    assert summary([noticed, noticed]).startswith("2 of 2 changed lines were noticed (100%), 0 survived")
