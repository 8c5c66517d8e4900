"""Makes log lines of what others write to standard error: gRPC's own lines, and those of the interpreter.

A program that collects JSON lines from a process must find no other lines among them. File descriptor 2 becomes a pipe;
a thread reads it, and logs each line. The log itself goes to a copy of the former descriptor.

Invariants:
  1. Writing to the pipe never waits for the event loop: the thread reads it whatever the loop does.
  2. A process that dies from a signal leaves the traceback of its threads on the former standard error, as text: there
     is nobody to make JSON of it.
Not here: the form of lines (logs.py).
"""

from __future__ import annotations

import faulthandler
import io
import logging
import os
import re
import threading
from typing import Final, TextIO

_GRPC: Final = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ +(\S+?)\] (.*)")
"""A line of gRPC (Abseil's format): severity, month and day, time, thread, file and line, text."""

_SEVERITIES: Final = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}

_END: Final = b"\x00end of standard error\n"
"""Written to the pipe by `close`."""

LINE_BYTES_MAX: Final = 64 << 10
"""A longer line is logged in pieces."""

STDERR: Final = 2


class StderrLines:
    """Standard error of this process, from `start` on."""

    def __init__(self) -> None:
        self._reader: threading.Thread | None = None

    def start(self) -> TextIO:
        """Redirect standard error. Returns a stream that leads to where it went before, for the log."""
        former = os.dup(STDERR)
        receiving, sending = os.pipe()
        os.dup2(sending, STDERR)
        os.close(sending)
        stream = io.TextIOWrapper(io.FileIO(former, "wb"), encoding="utf-8", write_through=True)
        faulthandler.enable(stream)
        pipe = io.BufferedReader(io.FileIO(receiving, "rb"))
        self._reader = threading.Thread(target=_read, args=(pipe,), name="stderr", daemon=True)
        self._reader.start()
        return stream

    def close(self) -> None:
        """Log what was written until now. What comes later, from libraries that end with the process, is discarded."""
        if self._reader is None:
            return
        os.write(STDERR, _END)
        self._reader.join()
        self._reader = None


def _read(pipe: io.BufferedReader) -> None:
    with pipe:
        while line := pipe.readline(LINE_BYTES_MAX):
            if line == _END:
                return
            log_line(line.decode("utf-8", "backslashreplace").rstrip("\n"))


def log_line(text: str) -> None:
    """Log a line that was found on standard error."""
    if not text.strip():
        return
    found = _GRPC.fullmatch(text)
    if found is None:
        logging.getLogger("stderr").warning("%s", text)
    else:
        logging.getLogger("grpc").log(_SEVERITIES[found[1]], "%s", found[3], extra={"source": found[2]})
