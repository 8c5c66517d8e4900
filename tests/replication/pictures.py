"""State diagrams of the docs, drawn from the transition tables of the code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"

Way = tuple[Enum, Enum, Enum]
"""From a state, by a cause, to a state."""


def picture(ways: Iterable[Way]) -> str:
    """As Mermaid draws it: an arrow for each two states, with all that leads from the one to the other."""
    causes: dict[tuple[Enum, Enum], list[str]] = defaultdict(list)
    for source, cause, target in ways:
        causes[source, target].append(cause.name)
    order = {state: number for number, state in enumerate(type(next(iter(causes))[0]))}
    lines = [
        f"    {source.name} --> {target.name}: {', '.join(sorted(names))}"
        for (source, target), names in sorted(causes.items(), key=lambda way: (order[way[0][0]], order[way[0][1]]))
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def is_drawn(page: str, ways: Iterable[Way]) -> None:
    """The page has that picture."""
    wanted = picture(ways)
    assert wanted in (DOCS / page).read_text(encoding="utf-8"), f"docs/{page} should have:\n{wanted}"
