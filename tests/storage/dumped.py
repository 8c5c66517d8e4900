"""What the dump's tests share: Kafka's folders unpacked once, what its tools said of them, and dumps as lists."""

from __future__ import annotations

import json
import lzma
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from storage.dump import main
from storage.dump_events import Event, Finding, Severity
from storage.dump_folder import dump
from storage.os_files import OsFiles

VECTORS = Path(__file__).parent.parent / "vectors"
ROOTS = {"cluster": "node1", "unclean": "killed", "old": "broker0"}
T = TypeVar("T")


@cache
def told(name: str) -> dict[str, Any]:
    """The JSON of one collection of vectors."""
    with lzma.open(VECTORS / f"{name}.json.xz") as file:
        found: dict[str, Any] = json.load(file)
    return found


def unpack(name: str, into: Path) -> Path:
    """The data folder of one collection, fresh."""
    with tarfile.open(VECTORS / f"{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")
    return into / ROOTS[name]


def events(path: Path | str, *, records: bool = False) -> list[Event]:
    """All that a dump tells."""
    return list(dump(OsFiles(), str(path), records=records))


def of(kind: type[T], found: list[Event]) -> list[T]:
    """The events of one kind."""
    return [event for event in found if isinstance(event, kind)]


def damage(found: list[Event]) -> list[Finding]:
    """The findings of damage."""
    return [finding for finding in of(Finding, found) if finding.severity is Severity.DAMAGE]


def command(*arguments: Path | str) -> tuple[int, str]:
    """The command's exit code and what it wrote."""
    lines: list[str] = []
    code = main([str(argument) for argument in arguments], lines.append)
    return code, "".join(lines)
