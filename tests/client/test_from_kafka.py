"""docs/from-kafka.md names what exists: 50 features, at most three of which are missing, with a reason."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path
from typing import Any, Final

import tidelog

PAGE: Final = Path(__file__).resolve().parent.parent.parent / "docs" / "from-kafka.md"
ROW: Final = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAME: Final = re.compile(r"`(Producer|Consumer|Admin|Transaction)(?:\.(\w+))?(?:\((\w+)=\))?`")

ROWS: Final = ROW.findall(PAGE.read_text(encoding="utf-8"))


def test_fifty_features_are_listed_and_at_most_three_are_missing() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 51))
    missing = [here for *_, here in ROWS if here.startswith("no:")]
    assert len(missing) <= 3
    nameless = [here for *_, here in ROWS if not NAME.search(here) and "`tidelog " not in here]
    assert [here for here in nameless if not here.startswith("no:")] == []


def test_every_name_exists() -> None:
    found = 0
    for *_, here in ROWS:
        for client, method, option in NAME.findall(here):
            kind: Any = getattr(tidelog, client)
            call: Any = getattr(kind, method) if method else kind.__init__
            if option:
                assert option in signature(call).parameters, f"{client}.{method}({option}=)"
            found += 1
    assert found > 80
