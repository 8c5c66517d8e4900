"""The tables of docs/configuration.md, generated from the declarations of the settings.

`python -m tests.node.configuration_document` writes them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import MISSING
from itertools import pairwise
from pathlib import Path
from typing import Any

from node.config import SETTINGS
from tidelog.settings import Setting
from tidelog.types import INT64_MAX

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "configuration.md"


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


def _meanings() -> dict[str, str]:
    """The docstring below each declaration, by the name that comes first in the declaration."""
    found = {}
    for module in (
        "node/config.py",
        "node/coordinator_settings.py",
        "node/quotas/quota_config.py",
        "node/replication_settings.py",
        "node/tiering_settings.py",
        "node/topic_defaults.py",
        "node/http_settings.py",
        "node/listener_settings.py",
        "node/listener_addresses.py",
        "node/security/security_settings.py",
        "node/security/sasl_settings.py",
        "replication/coordination/groups/group_config.py",
        "replication/coordination/transactions/transaction_config.py",
        "storage/log_config.py",
        "storage/directory/maintenance_config.py",
    ):
        tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
        for body in (tree.body, *(each.body for each in tree.body if isinstance(each, ast.ClassDef))):
            for statement, below in pairwise(body):
                match statement, below:
                    case ast.AnnAssign(value=ast.Call(args=[ast.Constant(str(name)), *_])), ast.Expr(
                        ast.Constant(str(text))
                    ):
                        found[name] = " ".join(text.split())
    return found


MEANINGS = _meanings()
DERIVED = {"authorizer.class.name", "default.replication.factor"}
"""Settings that depend on others if they are not set; the meaning says how."""


def _meaning(declared: Setting[Any]) -> str:
    return MEANINGS.get(declared.topic or "") or MEANINGS[declared.name]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))


def _of_node(declared: Setting[Any]) -> tuple[str, ...]:
    return f"`{declared.name}`", _default(declared), _allowed(declared), _meaning(declared)


def _of_topic(declared: Setting[Any]) -> tuple[str, ...]:
    node = "the same" if declared.name == declared.topic else f"`{declared.name}`"
    return f"`{declared.topic}`", node, _default(declared), _allowed(declared), _meaning(declared)


def _default(declared: Setting[Any]) -> str:
    if declared.name in DERIVED:
        return "not set"
    if declared.default is MISSING:
        return "required"
    if declared.default == INT64_MAX:
        return "no limit"
    shown = "" if declared.default in (None, {}) and declared.topic is None else declared.kind.show(declared.default)
    return f"`{shown}`" if shown else "none"


def _allowed(declared: Setting[Any]) -> str:
    """What is allowed. The bounds of 64 bits are left out."""
    wanted = declared.kind.expected.removesuffix(" in quotes").replace("a number from ", "")
    wanted = wanted.replace(f"from {-INT64_MAX - 1} to {INT64_MAX}", "any").replace(f" to {INT64_MAX}", " or more")
    unit = f"{declared.kind.unit}, " if declared.kind.unit else ""
    return unit + wanted.replace("a whole number from ", "").replace("a whole number ", "")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
