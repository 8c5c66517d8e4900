"""Shared by all commands: common options, queries to the cluster, tables for people, JSON for scripts."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table

from tidelog.client.admin import Admin

Answer = TypeVar("Answer")
Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="TIDELOG_BOOTSTRAP", help="Addresses of some nodes: host:port,host:port."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output, for scripts.")]

ValidateOnly = Annotated[bool, typer.Option("--validate-only", help="Check only, change nothing.")]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
"""Default address of the first node of `tidelog up`."""

PATIENCE_MS = 2_000
"""How long commands retry: a person at a terminal can repeat the command, and a restarting node gets this long."""


def query(bootstrap: str, call: Callable[[Admin], Awaitable[Answer]]) -> Answer:
    """Return the answer of one or more calls of an Admin client."""

    async def work() -> Answer:
        async with Admin(bootstrap, patience_ms=PATIENCE_MS) as admin:
            return await call(admin)

    return asyncio.run(work())


def plain(value: object) -> Any:
    """Convert a value for JSON: records to objects, ids to text, bytes to UTF-8 text or else base64."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    return value


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table; numbers are right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold")
    cells = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[index], int) for row in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(", ".join(str(x) for x in cell) if isinstance(cell, tuple) else str(cell) for cell in row))
    Console().print(table)


def counted(number: int, what: str) -> str:
    """Return `1 record`, `2 records`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def say(text: str) -> None:
    """Print a sentence for people on standard error; standard output is for results."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def report(document: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Print the result of a change: the document for scripts, or the sentence for people."""
    if as_json:
        print_json(document)
    else:
        say(text)
