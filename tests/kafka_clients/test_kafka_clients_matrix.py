"""The reports of drivers and the form of the table; `make kafka-clients` runs the drivers themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.kafka_clients.matrix import (
    BEGIN,
    END,
    FEATURES,
    BadReport,
    Outcome,
    Result,
    Row,
    outcomes_of,
    replace_table,
    table_of,
)

HERE = Path(__file__).parent


def report(feature: str, result: str = "passed", note: str = "") -> str:
    return json.dumps({"feature": feature, "result": result, "note": note})


def test_a_feature_that_a_driver_does_not_report_has_failed() -> None:
    lines = ["a diagnostic", report("codecs"), report("acks", "unsupported", "no  acks |\n at <all>")]
    outcomes = outcomes_of(lines, "the driver ended with 3")
    assert list(outcomes) == list(FEATURES)
    assert outcomes.pop("codecs") == Outcome(Result.PASSED)
    assert outcomes.pop("acks") == Outcome(Result.UNSUPPORTED, "no acks / at (all)"), "fits a cell of a table"
    assert set(outcomes.values()) == {Outcome(Result.FAILED, "the driver ended with 3")}


@pytest.mark.parametrize(
    "lines",
    [
        ["{"],
        ["{}"],
        [report("unknown")],
        [report("acks", "perhaps")],
        [report("acks")] * 2,
        ['{"feature": 1, "result": 2}'],
    ],
)
def test_a_line_that_is_no_report_is_refused(lines: list[str]) -> None:
    with pytest.raises(BadReport):
        outcomes_of(lines, "")


def test_the_table_has_a_row_for_each_client_and_each_note_once() -> None:
    passed = {name: Outcome(Result.PASSED) for name in FEATURES}
    lacking = {**passed, "consumer": Outcome(Result.UNSUPPORTED, "not yet"), "admin": Outcome(Result.FAILED, "broken")}
    rows = [Row("one", "1.0", passed), Row("two", "2.0", lacking), Row("three", "3.0", lacking)]
    lines = table_of([*rows, Row("four", "4.0", absent="no compiler")]).splitlines()
    table, notes = lines[:6], lines[7:]
    assert {line.count("|") for line in table} == {len(FEATURES) + 3}
    assert table[2] == f"| one | 1.0 |{' yes |' * len(FEATURES)}"
    assert table[3].count("– (1)") == table[4].count("– (1)") == table[3].count("**no** (2)") == 1
    assert table[5].startswith("| four | 4.0 | not to be had (3) | ")
    assert notes == ["1. not yet", "2. broken", "3. no compiler"]
    assert [row.has_failed for row in rows] == [False, True, True]


def test_the_table_replaces_the_former_one_and_nothing_else() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = replace_table(document, "| new |")
    assert once == f"before\n{BEGIN}\n| new |\n\n{END}\nafter\n"
    assert replace_table(once, "| new |") == once
    for broken in ("none", f"{END}\n{BEGIN}", BEGIN):
        with pytest.raises(ValueError, match="markers"):
            replace_table(broken, "")


def test_the_document_has_the_columns_of_the_features() -> None:
    """A feature that is added needs another run of `make kafka-clients`."""
    document = (HERE.parent.parent / "docs/kafka.md").read_text(encoding="utf-8")
    table = document.partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    assert table[:2] == table_of([]).splitlines()[:2]
    assert "**no**" not in "".join(table), "a client that fails is a defect of the listener, or its driver says why not"


def test_drivers_report_every_feature() -> None:
    drivers = [
        path for path in HERE.rglob("*") if re.search(r"(driver\.(py|js)|Driver\.java|main\.(go|rs))$", path.name)
    ]
    assert len(drivers) >= 9
    for path in drivers:
        text = path.read_text(encoding="utf-8")
        assert [name for name in FEATURES if f'"{name}"' not in text] == [], path
