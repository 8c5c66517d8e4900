"""The free space that appends leave on the disk of a log directory: for checkpoints, deletions and the metadata log.

Invariants:
  1. Below the reserve, appends and new logs are rejected completely, with the reason. A write that frees space is never
     rejected.
  2. Appends resume only when a quarter more than the reserve is free, so that a directory at its limit does not
     alternate between the two states.
  3. An append costs one addition and one comparison. The file system is queried when half of the free space last seen
     has been appended, for each append that would be rejected, and when the owner calls `query`.
Not here: how the error reaches the producer (log.py), when to call `query` (log_manager.py).
"""

from __future__ import annotations

from typing import Final

from storage.files.file_system import Files
from tidelog.errors import DiskFull

AUTOMATIC: Final = -1
"""As a setting: a tenth of the file system, at most `AUTOMATIC_MAX`."""
AUTOMATIC_MAX: Final = 64 << 20
"""Bytes. Some hundred times the size of all checkpoints of a large node, and little of any disk."""
FULL_BYTES: Final = 4_096
"""With less than one block free, a disk without a reserve counts as full."""
_QUERY_BYTES_MIN: Final = 64 << 10
"""Near the limit the file system is queried at most once per this many appended bytes."""


class Reserve:
    """The reserve of one log directory. `low`: True if appends are rejected. `free`, `total`, `required`: free bytes,
    those of the whole file system, and the reserve in bytes, as of the last query."""

    __slots__ = ("_files", "_path", "_setting", "_spent", "_until", "free", "low", "required", "total")

    def __init__(self, files: Files, path: str, setting: int) -> None:
        """setting: bytes, 0 for none, or AUTOMATIC. Raises OSError."""
        self._files, self._path, self._setting = files, path, setting
        self._spent = self._until = 0
        self.free = self.total = self.required = 0
        self.low = False
        self.query()

    @property
    def enough(self) -> int:
        """Bytes that must be free before appends resume."""
        return self.required + self.required // 4

    def query(self) -> None:
        """Query the file system. Raises OSError."""
        space = self._files.space(self._path)
        self.free, self.total = space.free, space.total
        self.required = min(space.total // 10, AUTOMATIC_MAX) if self._setting == AUTOMATIC else self._setting
        self.low = space.free < (self.enough if self.low else self.required)
        self._spent = 0
        self._until = max((space.free - self.required) // 2, _QUERY_BYTES_MIN)

    @property
    def rejection(self) -> str | None:
        """Why appends are rejected, as of the last query; None if they are not."""
        if self.low:
            return (
                f"the disk of {self._path} is full but for its reserve: {self.free} bytes are free, "
                f"log.reserve.bytes keeps {self.required}; appends resume when {self.enough} are free"
            )
        if self.free < FULL_BYTES:
            return f"the disk of {self._path} is full: {self.free} bytes are free"
        return None

    def take(self, size: int) -> None:
        """Account for an append of `size` bytes. Raises DiskFull, OSError."""
        self._spent += size
        if self._setting and (self.low or self._spent > self._until):
            self.query()
        if self.low:
            raise DiskFull(
                f"{self.rejection}: delete topics, lower retention.ms or retention.bytes, or make the disk larger"
            )
