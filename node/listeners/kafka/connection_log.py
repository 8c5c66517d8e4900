"""Log lines about connections that a listener closes: in each minute one for each address and cause, and a limited
number of them. The others are counted, and reported when the minute is over. A warning is never one of the others only
because there were many lines: it says what the operator must do.

Health checks, port scans and programs with a wrong address connect again and again: they must not fill the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from math import inf
from typing import Final

_log = logging.getLogger("node.requests")

LINES_MAX: Final = 20
"""Lines of one window."""

WINDOW_S: Final = 60.0


class ConnectionLog:
    """Of one listener."""

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._named: set[tuple[str, str]] = set()
        """Causes with addresses that have a line in this window."""
        self._others = Counter[str]()
        """Connections without a line, by cause."""
        self._window_ends = -inf

    def closed(
        self, cause: str, host: str, text: str, *, logger: logging.Logger = _log, level: int = logging.INFO
    ) -> None:
        """A connection is closed. cause: one of few. host: the address of the client; empty in warnings. text: what the
        line says."""
        self.turn()
        if (cause, host) in self._named or (len(self._named) >= LINES_MAX and level < logging.WARNING):
            self._others[cause] += 1
            return
        self._named.add((cause, host))
        logger.log(level, "listener %r: %s", self._listener, text)

    def turn(self) -> None:
        """Begin another window if this one is over, and report what had no line. Call it now and then."""
        now = asyncio.get_running_loop().time()
        if now < self._window_ends:
            return
        self._named.clear()
        self._window_ends = now + WINDOW_S
        if self._others:
            causes = "; ".join(f"{count}: {cause}" for cause, count in self._others.most_common())
            total = self._others.total()
            self._others.clear()
            _log.info("listener %r: %d more connections were closed (%s)", self._listener, total, causes)
