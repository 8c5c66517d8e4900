"""Standard output and standard error of a command, in a pipe, a file, or a terminal of any encoding.

Invariants: what the encoding does not have is written as an escape. Once the reader of standard output has closed the
pipe, `ReaderGone` is raised once, and later output is discarded. Standard error never ends a command: it is for people,
and what cannot be written is discarded. A descriptor that the parent process closed is the null device, so that no
socket or file of the command gets its number.
"""

from __future__ import annotations

import fcntl
import io
import json
import locale
import os
import select
import stat
import sys
import termios
from typing import Any, NoReturn

from tidelog.printable import printable

STANDARD_OUTPUT = 1
STANDARD_ERROR = 2


class ReaderGone(Exception):
    """The reader of standard output has closed the pipe: it needs no more. Not an OSError, because libraries for
    command lines turn a closed pipe into exit code 1."""


class _StandardStream(io.FileIO):
    """The bytes of standard output or standard error."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "wb", closefd=False)
        self.is_reader_gone = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == STANDARD_OUTPUT and isinstance(error, BrokenPipeError):
                self.lose_reader()
            # What the buffers above still hold is discarded as well: flushing it at exit would fail again.
            _discard(self.fileno())
            if self.fileno() == STANDARD_ERROR:
                return len(data)
            raise OSError(error.errno, error.strerror, "standard output") from None

    def lose_reader(self) -> NoReturn:
        """Discard all further output. Raises ReaderGone."""
        self.is_reader_gone = True
        _discard(self.fileno())
        raise ReaderGone

    def is_read(self) -> bool:
        """Whether the reader has taken all bytes; True if this is no pipe. Raises ReaderGone."""
        if not stat.S_ISFIFO(os.fstat(self.fileno()).st_mode):
            return True
        unread = fcntl.ioctl(self.fileno(), termios.FIONREAD, bytes(4))
        if not any(unread):
            return True
        pipe = select.poll()
        pipe.register(self.fileno(), 0)
        if any(event & select.POLLERR for _, event in pipe.poll(0)):
            self.lose_reader()
        return False


def protect_standard_streams() -> None:
    """Make both streams safe for a command. A stream that a caller replaced is kept, and only gets the escapes."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            _discard(number)
    sys.stdout = _protected(sys.stdout, STANDARD_OUTPUT)
    sys.stderr = _protected(sys.stderr, STANDARD_ERROR)


def end_without_reader() -> None:
    """Raise ReaderGone if the reader of standard output has closed the pipe: for output that would never end."""
    output = _standard_output()
    if output is not None and output.is_reader_gone:
        raise ReaderGone


def is_output_read() -> bool:
    """Whether the reader of a pipe has taken all that was written to standard output; True if that is no pipe. Raises
    ReaderGone."""
    output = _standard_output()
    return output is None or output.is_read()


def _standard_output() -> _StandardStream | None:
    """None if a caller has replaced it."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _StandardStream) else None


def say(text: str) -> None:
    """Print a sentence for people, as one line, on standard error; standard output is for results."""
    sys.stderr.write(f"{printable(text)}\n")
    sys.stderr.flush()


def json_line(document: object) -> str:
    """A document for JSON as one line. ASCII where standard output does not take every character, or the locale is C:
    Python writes UTF-8 there, but what reads it need not expect that."""
    is_utf = (sys.stdout.encoding or "utf-8").lower().replace("_", "-").startswith("utf-")
    is_unicode = is_utf and locale.setlocale(locale.LC_CTYPE) not in ("C", "POSIX")
    return printable(json.dumps(document, ensure_ascii=not is_unicode)) + "\n"


def encodable(text: str) -> str:
    """The text, with escapes for characters that the encoding of standard output does not have."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _protected(stream: Any, number: int) -> Any:
    raw: io.FileIO
    if stream is None:
        raw, encoding, is_line_buffered = io.FileIO(os.devnull, "wb"), "utf-8", False
    elif isinstance(stream, io.TextIOWrapper) and _number_of(stream) == number:
        if isinstance(getattr(stream.buffer, "raw", None), _StandardStream):
            return stream
        raw, encoding, is_line_buffered = _StandardStream(number), stream.encoding, stream.line_buffering
    else:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=is_line_buffered
    )


def _number_of(stream: io.TextIOWrapper) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _discard(number: int) -> None:
    """Connect a descriptor with the null device."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(nowhere, number)
        os.close(nowhere)
