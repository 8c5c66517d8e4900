"""Log lines about what coordinators decided by themselves: removed members, aborted transactions. At most `LINES_MAX`
in `WINDOW_MS`; the next line says how many were left out."""

from __future__ import annotations

import logging
from typing import Final

from tidelog.types import Millis

_log = logging.getLogger("node.coordinators")

LINES_MAX: Final = 20
WINDOW_MS: Final = 10_000


class NoticeLog:
    """The lines about the coordinators of one kind."""

    def __init__(self) -> None:
        self._window_ends = Millis(0)
        self._lines = 0
        self._left_out = 0

    def write(self, coordinator: object, notice: str, now: Millis) -> None:
        """Write a line, unless there were too many. now: monotonic time."""
        if now >= self._window_ends:
            self._window_ends, self._lines = Millis(now + WINDOW_MS), 0
        if self._lines == LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        more = f"; {left_out} earlier lines of this kind were left out" if left_out else ""
        _log.info("%s: %s%s", coordinator, notice, more)
