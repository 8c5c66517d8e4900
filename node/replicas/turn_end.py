"""The work that is done once at the end of a turn of the loop, however often it was requested in that turn.

Not here: the work. The first request of a turn schedules one callback for all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class TurnEnd:
    """Functions to call after the callbacks that are ready now."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """call_soon: of the event loop."""
        self._call_soon = call_soon
        self._due: deque[Callable[[], None]] = deque()

    def add(self, work: Callable[[], None]) -> None:
        """Call this at the end of the turn."""
        if not self._due:
            self._call_soon(self._run)
        self._due.append(work)

    def _run(self) -> None:
        try:
            while self._due:
                self._due.popleft()()
        finally:
            if self._due:  # a defect in one of them does not concern the others
                self._call_soon(self._run)
