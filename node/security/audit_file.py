"""The file of the audit log: lines are appended on a thread, and full files are renamed.

Invariants:
  1. The files together have at most `files_max * bytes_max` bytes. FILE is the current one, FILE.1 the latest full one.
  2. At most `PENDING_MAX` lines wait in memory for the disk. Lines that cannot be written go to the node's log.
  3. A line begins at the beginning of a line of the file, even after a crash during a write.

Lines are not synced: a power failure loses the last seconds.
"""

from __future__ import annotations

import logging
from typing import Final

from node.runtime.work import run_in
from storage.files.disk_executor import Executor
from storage.files.file_system import File, Files
from tidelog.errors import InvalidConfig

_log = logging.getLogger("node.audit")

PENDING_MAX: Final = 1_000
"""At most 8 MiB. Administrative changes come one by one, and a flood of denials makes 20 lines in a second."""


def write_to_log(line: str) -> None:
    """Write a line of the audit log to the node's log."""
    _log.info("%s", line)


class AuditFile:
    """Appends lines to the file `path`."""

    def __init__(self, path: str, files: Files, executor: Executor, *, bytes_max: int, files_max: int) -> None:
        """executor: has one worker. files_max: how many files are kept, the current one included."""
        self._path, self._files, self._executor = path, files, executor
        self._bytes_max, self._files_max = bytes_max, files_max
        self._file: File | None = None
        self._pending: list[str] = []
        self._writing = False

    async def open(self) -> None:
        """Make the file if it is missing. Raises InvalidConfig if it cannot be written."""
        try:
            await run_in(self._executor, self._opened)
        except OSError as error:
            raise InvalidConfig(
                f"audit.log.file = {self._path!r}: it cannot be written ({error.strerror or error}). Make its "
                "directory, let the node write there, or name another file"
            ) from None

    def write(self, line: str) -> None:
        """Append a line soon."""
        if len(self._pending) >= PENDING_MAX:
            write_to_log(line)
            return
        self._pending.append(line)
        self._write_pending()

    async def settle(self) -> None:
        """Wait until all lines are written."""
        while self._writing:
            await run_in(self._executor, lambda: None)

    def _write_pending(self) -> None:
        if self._writing or not self._pending:
            return
        lines, self._pending, self._writing = self._pending, [], True

        def done(result: object) -> None:
            self._writing = False
            if isinstance(result, Exception):
                _log.error("the audit log %s cannot be written, its lines follow here: %s", self._path, result)
                for line in lines:
                    write_to_log(line)
            self._write_pending()

        self._executor.submit(lambda: self._append(lines), done)

    def _append(self, lines: list[str]) -> None:
        """Called on the executor. Raises OSError."""
        try:
            for line in lines:
                data = line.encode() + b"\n"
                file, size = self._opened()
                if size and size + len(data) > self._bytes_max:
                    self._rotate()
                    file, size = self._opened()
                file.pwritev([data], size)
        except OSError:
            self._close()
            raise

    def _opened(self) -> tuple[File, int]:
        """The current file and its size."""
        file = self._file
        if file is not None:
            return file, file.size()
        file = self._file = self._files.open(self._path, create=True)
        size = file.size()
        if size and file.pread(1, size - 1) != b"\n":
            file.pwritev([b"\n"], size)
            size += 1
        return file, size

    def _rotate(self) -> None:
        self._close()
        names = [self._path, *(f"{self._path}.{number}" for number in range(1, self._files_max))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            if self._files.size(newer) is not None:
                self._files.rename(newer, older)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
