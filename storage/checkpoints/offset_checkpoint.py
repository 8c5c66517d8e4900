"""One …-offset-checkpoint file of a log directory, written in the background and, by truncations, at once.

Kept true: an older content never replaces a newer one; `may_claim` is never less than what the file may say, including
a write that is still under way, and one that failed. Format: checkpoint_file.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from storage.checkpoints.checkpoint_file import encode_offsets
from storage.files.file_system import Files, write_file
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
        """What it is to say: the content of the last write, done, under way or failed."""
        self._may_say: dict[TopicPartition, Offset] = dict(claimed)
        """The most that it may say but for that."""

    def may_claim(self, tp: TopicPartition) -> Offset:
        """The most that the file may say of a log, 0 for nothing."""
        return max(self.claimed.get(tp, Offset(0)), self._may_say.get(tp, Offset(0)))

    def prepare(self, offsets: Mapping[TopicPartition, Offset]) -> int | None:
        """On the owner's thread: the content of the next write. Returns its version for `write`; None where the
        file says just that already."""
        if offsets == self.claimed and self._written == self._version:
            return None
        self.claimed = dict(offsets)
        self._version += 1
        return self._version

    def write(self, version: int, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Write and fsync, unless something newer has been written. Any thread. Raises OSError."""
        with self._lock:
            if version > self._written:
                try:
                    write_file(self._files, self._path, encode_offsets(offsets))
                except OSError:
                    before = self._may_say
                    either = {tp: max(before.get(tp, Offset(0)), offset) for tp, offset in offsets.items()}
                    self._may_say = {**before, **either}
                    raise
                self._written = version
                self._may_say = dict(offsets)
