"""Finds suites: every module `bench/suite_NAME.py` with a function `figures(run)` is the suite NAME."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from bench.figure import Suite


def names() -> list[str]:
    """The names of all suites, sorted; imports nothing."""
    return sorted(path.stem.removeprefix("suite_") for path in Path(__file__).parent.glob("suite_*.py"))


def load(wanted: str) -> Mapping[str, Suite]:
    """The suite of that name, or all of them for `all`. Raises LookupError with the valid names."""
    known = names()
    if wanted != "all" and wanted not in known:
        raise LookupError(f"unknown suite {wanted!r}; valid suites: {', '.join(['all', *known])}")
    chosen = known if wanted == "all" else [wanted]
    return {name: importlib.import_module(f"bench.suite_{name}").figures for name in chosen}
