"""The tables of docs/configuration.md, generated from the declarations of the settings.

`python -m tests.node.configuration_document` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from node.config import SETTINGS
from storage.settings import INT64_MAX, Setting

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def document() -> str:
    """The document with current tables between its markers."""
    nodes = (_of_node(each) for each in SETTINGS.values() if each.topic is None)
    topics = (_of_topic(each) for each in SETTINGS.values() if each.topic is not None)
    tables = {
        "nodes": _table(("key", "default", "allowed", "meaning"), nodes),
        "topics": _table(("topic's key", "node's key", "default", "allowed", "meaning"), topics),
    }
    return re.sub(
        r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)",
        lambda found: found[1] + tables[found[2]] + found[3],
        DOCUMENT.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))


def _of_node(declared: Setting[Any]) -> tuple[str, ...]:
    return f"`{declared.name}`", _default(declared), _allowed(declared), declared.text


def _of_topic(declared: Setting[Any]) -> tuple[str, ...]:
    node = "the same" if declared.name == declared.topic else f"`{declared.name}`"
    return f"`{declared.topic}`", node, _default(declared), _allowed(declared), declared.text


def _default(declared: Setting[Any]) -> str:
    if declared.default is MISSING:
        return "required"
    if declared.default == INT64_MAX:
        return "no limit"
    shown = "" if declared.default in (None, {}) and declared.topic is None else declared.kind.show(declared.default)
    return f"`{shown}`" if shown else "none"


def _allowed(declared: Setting[Any]) -> str:
    """What is allowed. The bounds of 64 bits are left out."""
    wanted = declared.kind.wanted.removesuffix(" in quotes").replace("a number from ", "")
    wanted = wanted.replace(f"from {-INT64_MAX - 1} to {INT64_MAX}", "any").replace(f" to {INT64_MAX}", " or more")
    unit = f"{declared.kind.unit}, " if declared.kind.unit else ""
    return unit + wanted.replace("a whole number from ", "").replace("a whole number ", "")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
