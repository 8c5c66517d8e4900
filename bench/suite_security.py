"""What security costs. Each part is a module `bench/security_*.py` with a function `figures(run)`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, Run


def parts() -> list[str]:
    """The names of the modules, sorted; imports nothing."""
    return sorted(path.stem for path in Path(__file__).parent.glob("security_*.py"))


def figures(run: Run) -> Iterator[Figure]:
    """The figures of all parts, one after the other."""
    for part in parts():
        yield from importlib.import_module(f"bench.{part}").figures(run)
