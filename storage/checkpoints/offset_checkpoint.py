"""One …-offset-checkpoint file of a log directory, written in the background and, by truncations, synchronously.

Invariants: older contents never replace newer ones. `may_claim` is never less than what the file may contain, including
a write in progress and a failed write. Format: checkpoint_file.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from storage.checkpoints.checkpoint_file import encode_offsets
from storage.files.file_system import Files, write_file
from tidelog.types import Offset, TopicPartition


class OffsetCheckpoint:
    """The file, and the bounds of its possible contents."""

    def __init__(self, files: Files, path: str, claimed: Mapping[TopicPartition, Offset]) -> None:
        self._files = files
        self._path = path
        self._lock = Lock()
        self._written = 0
        self._version = 0
        self.claimed: dict[TopicPartition, Offset] = dict(claimed)
        """The contents of the last write, whether finished, in progress or failed."""
        self._upper_bounds: dict[TopicPartition, Offset] = dict(claimed)
        """Upper bounds of the offsets that the file may contain apart from `claimed`."""

    def may_claim(self, tp: TopicPartition) -> Offset:
        """The largest offset that the file may contain for a log, 0 for none."""
        return max(self.claimed.get(tp, Offset(0)), self._upper_bounds.get(tp, Offset(0)))

    def prepare(self, offsets: Mapping[TopicPartition, Offset]) -> int | None:
        """Set the contents of the next write; on the owner's thread. Returns the version for `write`, None if the file
        has these contents already."""
        if offsets == self.claimed and self._written == self._version:
            return None
        self.claimed = dict(offsets)
        self._version += 1
        return self._version

    def write(self, version: int, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Write and fsync the offsets, unless a newer version has been written. Any thread. Raises OSError."""
        with self._lock:
            if version > self._written:
                try:
                    write_file(self._files, self._path, encode_offsets(offsets))
                except OSError:
                    before = self._upper_bounds
                    either = {tp: max(before.get(tp, Offset(0)), offset) for tp, offset in offsets.items()}
                    self._upper_bounds = {**before, **either}
                    raise
                self._written = version
                self._upper_bounds = dict(offsets)
