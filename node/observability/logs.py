"""Log output of the process: one line per event, to standard error, as text or JSON.

`text`: time, level, logger, message, then `key=value` for the fields given by `extra={...}`. `json`: the same as one
object per line.
Invariant: one event is one line of printable characters, whatever the message contains: names that a caller chose can
neither forge a line nor control a terminal. A traceback is a field of the line in JSON; in text it
follows the line, indented.
Lines that are repeated too often are counted (repeated_lines.py).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from node.observability.repeated_lines import RepeatedLines
from tidelog.printable import printable

MESSAGE_LENGTH_MAX: Final = 8_000
"""Limit of the characters of one message, since a message may quote what a caller sent; the rest is left out."""

# Attributes of every LogRecord; all others were passed by `extra`.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(*, style: str, level: str, node_id: int | None = None, stream: TextIO | None = None) -> None:
    """Send all logging of this process to `stream` (default: standard error). style: `text` or `json`. node_id: added
    to each line, because the lines of several nodes are often collected in one place."""
    handler = LimitedHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(node_id) if style == "json" else TextLines(node_id))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def write_repeated() -> None:
    """Write how often lines were repeated, where their time has passed. Without further lines nothing else does."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LimitedHandler):
            handler.write_repeated()


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines, but counts those that are repeated too often (repeated_lines.py)."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._repeated = RepeatedLines()

    def emit(self, record: logging.LogRecord) -> None:
        """Write or count a line. Called with the handler's lock."""
        for line in self._repeated.take_ended(record.created):
            super().emit(line)
        if self._repeated.admits(record):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Leave out a line that cannot be written: its reader has ended, or the disk is full. A report of that would
        itself become lines of the log, by stderr_lines.py, and so on."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def write_repeated(self) -> None:
        """Write the counts whose time has passed."""
        with self._locked():
            for line in self._repeated.take_ended(_now_s()):
                super().emit(line)

    def close(self) -> None:
        """Write all counts: the process ends."""
        with self._locked():
            for line in self._repeated.take_all(_now_s()):
                super().emit(line)
        super().close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()


def _now_s() -> float:
    """The time as a line has it, in seconds since 1970."""
    return logging.makeLogRecord({}).created


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the caller passed by `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class TextLines(logging.Formatter):
    """Formats records as text."""

    def __init__(self, node_id: int | None = None) -> None:
        super().__init__()
        self._node = "" if node_id is None else f" node={node_id}"

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6]
        fields = "".join(f" {key}={_short(value)}" for key, value in fields_of(record).items())
        message = _message_of(record)
        line = printable(f"{at} {record.levelname.lower():<7} {record.name}{self._node}: {message}{fields}")
        if record.exc_info:
            parts = self.formatException(record.exc_info).splitlines()
            line += "\n" + "\n".join(f"    {printable(part)}" for part in parts)
        return line


class JsonLines(logging.Formatter):
    """Formats records as JSON."""

    def __init__(self, node_id: int | None = None) -> None:
        super().__init__()
        self._node = {} if node_id is None else {"node": node_id}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._node,
            "message": _message_of(record),
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return printable(json.dumps(line, default=str, ensure_ascii=False))


def _message_of(record: logging.LogRecord) -> str:
    message = record.getMessage()
    return message if len(message) <= MESSAGE_LENGTH_MAX else message[:MESSAGE_LENGTH_MAX] + "…"


def _short(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or "=" in text or "\n" in text or not text else text
