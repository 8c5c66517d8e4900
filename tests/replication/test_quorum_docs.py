"""The picture of the quorum's roles in the docs is what the table says."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from replication.quorum_roles import TRANSITIONS, Cause, Role

DOCS = Path(__file__).resolve().parents[2] / "docs" / "quorum.md"
EVERYWHERE = {Cause.HIGHER_EPOCH, Cause.LEADER_FOUND}


def picture() -> str:
    """The transitions as Mermaid draws them, less those that lead from everywhere."""
    ways: dict[tuple[Role, Role], list[str]] = defaultdict(list)
    for move in TRANSITIONS:
        if move.cause not in EVERYWHERE:
            ways[move.source, move.target].append(move.cause.name)
    order = {role: number for number, role in enumerate(Role)}
    lines = [
        f"    {source.name} --> {target.name}: {', '.join(sorted(causes))}"
        for (source, target), causes in sorted(ways.items(), key=lambda way: (order[way[0][0]], order[way[0][1]]))
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def test_the_docs_draw_the_table() -> None:
    assert picture() in DOCS.read_text(encoding="utf-8"), f"docs/quorum.md should have:\n{picture()}"
