"""The room of a log directory's file system that appends leave alone: for checkpoints, deletions, and the metadata log.

Kept true:
  1. Below the reserve, appends and new logs are refused by name and whole; a write of what makes room is never refused.
  2. They are taken again only once a quarter of the reserve more is free than that, so that a directory at its limit
     does not flap.
  3. An append costs an addition and a comparison: the file system is asked when half of the room seen last has been
     appended, for each append that would be refused, and whenever the owner finds it time (`look`).
Left to others: the error's way to the producer (log.py), when to look (log_manager.py).
"""

from __future__ import annotations

from typing import Final

from storage.files.file_system import Files
from tidelog.errors import DiskFull

AUTOMATIC: Final = -1
"""As a reserve: a tenth of the file system, at most `AUTOMATIC_MAX`."""
AUTOMATIC_MAX: Final = 64 << 20
"""Bytes. Some hundred times what all checkpoints of a large node take, and little of any disk."""
FULL_BYTES: Final = 4_096
"""With less than a block free a disk without a reserve counts as full."""
_LOOK_BYTES_MIN: Final = 64 << 10
"""Near the limit it is looked no more often than this many appended bytes."""


class Reserve:
    """The watermark of one log directory. `low`: is it below? `free`, `wanted`: bytes, as of the last look."""

    __slots__ = ("_files", "_path", "_setting", "_spent", "_until", "free", "low", "wanted")

    def __init__(self, files: Files, path: str, setting: int) -> None:
        """setting: bytes, 0 for none, or AUTOMATIC. Raises OSError."""
        self._files, self._path, self._setting = files, path, setting
        self._spent = self._until = 0
        self.free = self.wanted = 0
        self.low = False
        self.look()

    @property
    def enough(self) -> int:
        """Bytes that must be free before appends are taken again."""
        return self.wanted + self.wanted // 4

    def look(self) -> None:
        """Ask the file system. Raises OSError."""
        room = self._files.room(self._path)
        self.free = room.free
        self.wanted = min(room.total // 10, AUTOMATIC_MAX) if self._setting == AUTOMATIC else self._setting
        self.low = room.free < (self.enough if self.low else self.wanted)
        self._spent = 0
        self._until = max((room.free - self.wanted) // 2, _LOOK_BYTES_MIN)

    @property
    def refusal(self) -> str | None:
        """Why there is no room for appends, as of the last look; None where there is."""
        if self.low:
            return (
                f"the disk of {self._path} is full but for its reserve: {self.free} bytes are free, "
                f"log.reserve.bytes keeps {self.wanted}; appends go on once {self.enough} are free"
            )
        if self.free < FULL_BYTES:
            return f"the disk of {self._path} is full: {self.free} bytes are free"
        return None

    def take(self, size: int) -> None:
        """So many bytes are about to be appended. Raises DiskFull, OSError."""
        self._spent += size
        if self._setting and (self.low or self._spent > self._until):
            self.look()
        if self.low:
            raise DiskFull(
                f"{self.refusal}: delete topics, lower retention.ms or retention.bytes, or make the disk larger"
            )
