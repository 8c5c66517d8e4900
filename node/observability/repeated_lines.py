"""Limits how often the same line is logged: the first ones are written, the others counted.

Lines are the same if they come from the same statement; of statements that log a finished text, if the texts differ in
numbers only. The count follows when the window of the line has ended, with the next line or at the next `take_ended`.

Not limited: level debug, which is switched on to see everything, critical lines, and the audit log.
"""

from __future__ import annotations

import logging
import re
from typing import Final, TypeAlias

from tidelog.values import dataclass

LINES_MAX: Final = 10
"""Lines in one window."""

WINDOW_S: Final = 10.0

KINDS_MAX: Final = 1_000
"""Limit of kinds of lines that are counted at once; further ones are written."""

EXEMPT: Final = ("node.audit",)
"""Loggers whose lines are all needed."""

_Kind: TypeAlias = tuple[str, int, str]

_NUMBER: Final = re.compile(r"\d+")
_TEXT_MAX: Final = 200
"""Characters of a finished text that tell it from others."""


@dataclass(slots=True)
class _Window:
    ends_s: float
    lines: int = 0
    left_out: int = 0
    last: str = ""
    """The last line that was left out."""


class RepeatedLines:
    """The lines of one process. Times are those of the lines."""

    def __init__(self) -> None:
        self._windows: dict[_Kind, _Window] = {}
        self._first_ends_s = 0.0
        """No window ends earlier."""

    def admits(self, line: logging.LogRecord) -> bool:
        """True if the line is to be written. Otherwise it is counted."""
        if line.levelno <= logging.DEBUG or line.levelno >= logging.CRITICAL or line.name in EXEMPT:
            return True
        kind = _kind_of(line)
        window = self._windows.get(kind)
        if window is None:
            if len(self._windows) >= KINDS_MAX:
                return True
            window = self._windows[kind] = _Window(line.created + WINDOW_S)
            self._first_ends_s = min(self._first_ends_s, window.ends_s) if len(self._windows) > 1 else window.ends_s
        window.lines += 1
        if window.lines <= LINES_MAX:
            return True
        window.left_out += 1
        window.last = line.getMessage()
        return False

    def take_ended(self, now_s: float) -> list[logging.LogRecord]:
        """A line for each window that has ended by now and left lines out. now_s: seconds since 1970."""
        # A clock that was set back must not keep a window open for long.
        if now_s < self._first_ends_s and now_s > self._first_ends_s - 2 * WINDOW_S:
            return []
        ended = [
            kind
            for kind, window in self._windows.items()
            if now_s >= window.ends_s or now_s <= window.ends_s - 2 * WINDOW_S
        ]
        lines = [_summary(kind, window, now_s) for kind in ended if (window := self._windows.pop(kind)).left_out]
        self._first_ends_s = min((window.ends_s for window in self._windows.values()), default=0.0)
        return lines

    def take_all(self, now_s: float) -> list[logging.LogRecord]:
        """A line for each window that has left lines out; the process ends."""
        windows, self._windows = self._windows, {}
        return [_summary(kind, window, now_s) for kind, window in windows.items() if window.left_out]


def _kind_of(line: logging.LogRecord) -> _Kind:
    text = str(line.msg)
    if text == "%s":
        text = _NUMBER.sub("#", line.getMessage()[:_TEXT_MAX])
    return line.name, line.levelno, text


def _summary(kind: _Kind, window: _Window, now_s: float) -> logging.LogRecord:
    name, level, _ = kind
    line = logging.makeLogRecord(
        {
            "name": name,
            "levelno": level,
            "levelname": logging.getLevelName(level),
            "msg": "%d more lines like this one: %s",
            "args": (window.left_out, window.last),
            "repeated": window.left_out,
        }
    )
    line.created = now_s
    return line
