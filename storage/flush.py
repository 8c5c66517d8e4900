"""One round of making a log durable: taken on the owner's thread, run anywhere, finished on the owner's thread.

Kept true:
  1. A ticket syncs everything below `up_to` that was not durable when it was taken: bytes of every segment, indexes of
     closed segments, names in the folder, epoch entries.
  2. A truncation lowers `up_to` of the tickets under way: what was cut, and whatever took its place, they do not cover.
Left to others: what to take (log.py), when (group_commit.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.epoch_cache import EpochFile
from storage.files import File, Files
from tidelog.types import EpochStart, Offset


@dataclass(slots=True, eq=False)
class FlushTicket:
    """What to sync, and up to where that makes the log durable.

    handles: files, each with a user more for as long as this ticket lives. folders: whose names to sync, innermost
    first.
    """

    up_to: Offset
    handles: list[File]
    folders: list[str]
    files: Files
    epoch_file: EpochFile
    epoch_version: int
    epochs: tuple[EpochStart, ...]
    closed_bases: list[int] = field(default_factory=list)
    """Base offsets of closed segments whose indexes this ticket syncs."""
    new_names: bool = False
    """Does it sync names that were new in the log's folder?"""
    new_folder: bool = False
    """Does it sync the name of the folder itself, and its partition.metadata?"""

    def run(self) -> None:
        """Sync. May run on another thread: touches handles and folder names only. Raises OSError."""
        for handle in self.handles:
            handle.sync()
        for folder in self.folders:
            self.files.sync_folder(folder)
        self.epoch_file.write(self.epoch_version, self.epochs)

    def release(self) -> None:
        """Let go of the handles."""
        for handle in self.handles:
            handle.close()
        self.handles.clear()
