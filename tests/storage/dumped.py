"""Helpers of the dump tests: dumps as lists."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import TypeVar

from storage.dump.dump_events import DumpFinding, Event, Severity
from storage.dump.walk import dump
from storage.files.os_files import OsFiles
from tidelog.cli.app import run

T = TypeVar("T")


def events(path: Path | str, *, records: bool = False) -> list[Event]:
    """All events of a dump."""
    return list(dump(OsFiles(), str(path), records=records))


def of(kind: type[T], found: list[Event]) -> list[T]:
    """The events of one kind."""
    return [event for event in found if isinstance(event, kind)]


def damage(found: list[Event]) -> list[DumpFinding]:
    """The findings of damage."""
    return [finding for finding in of(DumpFinding, found) if finding.severity is Severity.DAMAGE]


def command(*arguments: Path | str) -> tuple[int, str]:
    """The command's exit code and output."""
    with redirect_stdout(io.StringIO()) as out:
        code = run(["log", "dump", *map(str, arguments)])
    return code, out.getvalue()
