"""One …-offset-checkpoint file of a data folder, written in the background and, by truncations, at once.

Kept true: an older content never replaces a newer one; `claimed` is never less than what the file may say, including a
write that is still under way. Format: checkpoints.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from storage.checkpoints import encode_offsets
from storage.files import Files, write_file
from tidelog.types import Offset, TopicPartition


class OffsetCheckpoint:
    """The file and what it may claim."""

    def __init__(self, files: Files, path: str, claimed: Mapping[TopicPartition, Offset]) -> None:
        """claimed: what the file says now."""
        self._files = files
        self._path = path
        self._lock = Lock()
        self._written = 0
        self._version = 0
        self.claimed: dict[TopicPartition, Offset] = dict(claimed)

    def prepare(self, offsets: Mapping[TopicPartition, Offset]) -> int | None:
        """On the owner's thread: the content of the next write. Returns its version for `write`; None where the
        file says just that already."""
        if offsets == self.claimed:
            return None
        self.claimed = dict(offsets)
        self._version += 1
        return self._version

    def write(self, version: int, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Write and fsync, unless something newer has been written. Any thread. Raises OSError."""
        with self._lock:
            if version > self._written:
                write_file(self._files, self._path, encode_offsets(offsets))
                self._written = version
