"""Output of commands: tables and sentences for people, JSON for scripts."""

from __future__ import annotations

import base64
import dataclasses
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import click

from tidelog.cli.declared import Option
from tidelog.errors import Retry, TidelogError
from tidelog.printable import printable
from tidelog.standard_streams import ReaderGone, encodable, json_line, say

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

TableContent: TypeAlias = tuple[str, Sequence[str], Sequence[Sequence[object]]]
"""A title, columns and rows."""
TABLE_LINES: Final = 5
"""Lines of a table besides its rows: title, frame, columns."""

Json = Annotated[bool, Option("--json", help="JSON on standard output, for scripts.", is_global=True)]
WIDTH_OF_FILES = 1 << 20
"""Width of tables in files and pipes, in characters: rows are never broken there. Rich would take 80."""


def plain(value: object) -> Any:
    """Convert a value for JSON: dataclasses to objects, bytes to text (base64 if they are not UTF-8), and all types
    that JSON does not have to text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    with suppress(ReaderGone):  # the exit code may still be read: the command continues
        sys.stdout.write(json_line(plain(value)))
        sys.stdout.flush()


def error_document(error: TidelogError) -> dict[str, object]:
    """An error for scripts, which need not read its sentence: its name, and whether repeating the request can help."""
    return {"error": type(error).__name__, "message": error.message, "retry": error.retry is not Retry.NEVER}


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table; numbers are right-aligned. Cells are broken to fit into a terminal, not in a file or a pipe."""
    from rich.console import Console

    with suppress(ReaderGone):  # as in `print_json`
        Console(width=None if sys.stdout.isatty() else WIDTH_OF_FILES).print(table_of(title, columns, rows))


def table_of(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A table; numbers are right-aligned.

    Nothing in a title or cell is interpreted, neither by Rich nor by a terminal: clients choose their ids freely.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(_shown(title), "bold"), title_justify="left")
    cells = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[index], int) for row in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(_shown(", ".join(map(str, cell)) if isinstance(cell, tuple) else cell)) for cell in row))
    return table


@contextmanager
def whole_screen() -> Iterator[Callable[[str, Sequence[TableContent]], None]]:
    """Yield a function that draws a line and tables on the whole terminal, in place of what it drew before."""
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        yield lambda heading, tables: live.update(drawn(heading, tables, live.console.height), refresh=True)


def drawn(heading: str, tables: Sequence[TableContent], height: int) -> Group:
    """A line and tables that fit on a screen of this height: the first table whole, of the others equally many rows."""
    from rich.console import Group
    from rich.text import Text

    first, *others = tables
    left = height - 1 - len(tables) * TABLE_LINES - len(first[2])
    room = max(1, left // max(1, len(others)))
    cut = [first, *((title, columns, rows[:room]) for title, columns, rows in others)]
    return Group(Text(_shown(heading)), *(table_of(*each) for each in cut))


def _shown(cell: object) -> str:
    return encodable(printable(str(cell)))


def counted(number: int, what: str) -> str:
    """Return `1 record`, `2 records`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def ensure_complete(missing: Sequence[TidelogError]) -> None:
    """End with exit code 1 if parts of a listing are missing, and print why each one is."""
    for error in missing:
        say(f"tidelog: {error.message}")
    if missing:
        raise click.exceptions.Exit(1)


class _Warnings(logging.Handler):
    """Prints warnings of clients as sentences for people."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"tidelog: {record.getMessage()}")


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Within this context, print the warnings of clients: a quota that slows them down, a node that cannot be
    reached."""
    log, handler = logging.getLogger("tidelog.client"), _Warnings(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that displays the number of records; shown if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}: {task.completed:,} records", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda count: progress.update(task, completed=count)
