"""What a person sees while the demo works: steps, a line that moves, tables. Plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Final, Self

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

PLAIN_SECONDS: Final = 5.0
"""Without a terminal the moving line is printed this often."""
PLAIN_WIDTH: Final = 110


class Progress:
    """Use it inside `with`: leaving it gives the terminal back. `clock` is the seconds since the demo began."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(
            width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False, soft_wrap=not sys.stdout.isatty()
        )
        self._began = time.monotonic()
        self._status: Status | None = None
        self._printed_at = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._began

    def step(self, text: str, *, style: str = "") -> None:
        """Something happened that is worth a line."""
        self._console.print(f"[dim]{self.seconds:6.1f} s[/dim]  {_styled(text, style)}")
        if self._status is not None:
            self._status.update(escape(text))

    def live(self, text: str) -> None:
        """How things stand now: replaces the moving line, or prints it every few seconds."""
        if self._status is not None:
            self._status.update(escape(text))
        elif self.seconds - self._printed_at >= PLAIN_SECONDS:
            self._printed_at = self.seconds
            self._console.print(f"{self.seconds:6.1f} s    {escape(text)}")

    def say(self, text: str, *, style: str = "") -> None:
        """A line of its own, without the time."""
        self._console.print(_styled(text, style))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A small table; columns whose name starts with ">" are numbers."""
        table = Table(title=escape(title), title_justify="left", title_style="bold", box=SIMPLE, pad_edge=False)
        table.show_header = any(column.removeprefix(">") for column in columns)
        for column in columns:
            table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
        for row in rows:
            table.add_row(*(escape(str(cell)) for cell in row))
        self._console.print(table)


def _styled(text: str, style: str) -> str:
    return f"[{style}]{escape(text)}[/{style}]" if style else escape(text)
