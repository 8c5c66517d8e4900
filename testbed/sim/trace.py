"""The events of a world, one per line: for people, and as a digest that two runs of a seed must share."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable

from testbed.sim.process import CURRENT


class Trace:
    """Lines with the virtual time in front. `show` is called with each new line."""

    def __init__(self, now_us: Callable[[], int], show: Callable[[str], None] | None = None) -> None:
        self.lines: list[str] = []
        self._now_us = now_us
        self._show = show
        self._digest = hashlib.sha256()

    def note(self, words: str) -> None:
        line = f"{self._now_us() / 1e6:11.6f}  {words}"
        self.lines.append(line)
        self._digest.update(line.encode() + b"\n")
        if self._show is not None:
            self._show(line)

    def digest(self) -> str:
        return self._digest.hexdigest()


class TraceHandler(logging.Handler):
    """Adds the log lines of the nodes to the trace, with the name of the process that logged them."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT.get()
        who = "world" if process is None else f"{process.name}.{process.run_number}"
        self._trace.note(f"{who} {record.levelname.lower()}: {record.getMessage()}")
