"""Start offset of each leader epoch of one log. Followers use it to find where two logs diverge (KIP-101, KIP-279).

Invariants:
  1. Epochs and start offsets both grow from entry to entry.
  2. Older entries never replace newer ones in the file: each write carries the version of its entries, so that a flush
     that began before a truncation cannot restore truncated entries.
Not here: when entries must be durable (flush.py), the end of a log (log.py).
Source: Kafka's LeaderEpochFileCache; answers for unknown epochs are Tidelog's own (design section 4, rule 2).
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from threading import Lock

from storage.checkpoints.checkpoint_file import encode_epochs
from storage.files.file_system import Files, write_file
from tidelog.epochs import start_of
from tidelog.errors import CorruptRecord
from tidelog.records.v2.header import BatchHeader
from tidelog.types import NO_LEADER_EPOCH, EpochStart, LeaderEpoch, Offset


class LeaderEpochCache:
    """The (epoch, start offset) entries of one log, in memory."""

    __slots__ = ("entries", "version")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self.entries = tuple(entries)
        """Replaced by every change, never modified: flushes on other threads keep using the tuple that they got."""
        self.version = 0
        """Incremented by every change."""

    @property
    def latest(self) -> LeaderEpoch:
        """The largest known epoch, with or without records; -1 for none."""
        return self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Record that `epoch` begins at `start_offset`. Entries with the same or a later epoch or start offset are
        removed. The latest epoch keeps its earlier start offset."""
        if self.entries and self.entries[-1].epoch == epoch and start_offset >= self.entries[-1].start_offset:
            return
        kept = (entry for entry in self.entries if entry.epoch < epoch and entry.start_offset < start_offset)
        self.restore((*kept, EpochStart(epoch, start_offset)))

    def over(self, start: Offset, end: Offset) -> tuple[EpochStart, ...]:
        """The entries for offsets in [start, end): the entry that covers `start`, and the later ones."""
        entries = self.entries
        if start >= end or not entries:
            return ()
        if entries[-1].start_offset <= start:
            return (entries[-1],)
        first = max(bisect_right(entries, start, key=start_of) - 1, 0)
        return tuple(entry for entry in entries[first:] if entry.start_offset < end)

    def below(self, end_offset: Offset) -> tuple[EpochStart, ...]:
        return tuple(entry for entry in self.entries if entry.start_offset < end_offset)

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Remove epochs that begin at or above `end_offset`."""
        kept = self.below(end_offset)
        if len(kept) < len(self.entries):
            self.restore(kept)

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Set the log start to `start_offset`: remove epochs that ended below it; the epoch that covers it begins
        there."""
        over = bisect_right(self.entries, start_offset, key=start_of)
        if over > 1 or (over == 1 and self.entries[0].start_offset < start_offset):
            self.restore((EpochStart(self.entries[over - 1].epoch, start_offset), *self.entries[over:]))

    def restore(self, entries: tuple[EpochStart, ...]) -> None:
        """Replace all entries."""
        self.entries = entries
        self.version += 1


class EpochFile:
    """The leader-epoch-checkpoint of one log. Flushes write it on another thread, truncations on the owner's thread."""

    __slots__ = ("_files", "_lock", "_path", "written")

    def __init__(self, files: Files, path: str, written: int) -> None:
        self._files = files
        self._path = path
        self._lock = Lock()
        self.written = written
        """Version of the entries that are durable in the file."""

    def write(self, version: int, entries: tuple[EpochStart, ...]) -> None:
        """Write the entries and fsync the file, unless it has the same or a newer version. Raises OSError."""
        with self._lock:
            if version <= self.written:
                return
            write_file(self._files, self._path, encode_epochs(entries))
            self.written = version

    def retire(self) -> None:
        """Ignore later writes: the log is closed, and another log may be created at its path."""
        with self._lock:
            self.written = sys.maxsize


def ensure_agreed(headers: Iterable[BatchHeader], epochs: Sequence[EpochStart]) -> None:
    """Raise CorruptRecord for a batch whose leader epoch differs from that of its offset in `epochs`, which is
    ascending. No checksum covers the leader epoch: a wrong one would spread to the epoch cache of the next replica."""
    for header in headers:
        found = bisect_right(epochs, header.base_offset, key=start_of) if header.magic == 2 else 0
        if found and epochs[found - 1].epoch != header.leader_epoch:
            raise CorruptRecord(
                f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, but the epoch there "
                f"is {epochs[found - 1].epoch}: the field, which no checksum covers, was corrupted in transit or on "
                "disk; fetch the batch again"
            )


def epoch_due(entries: Sequence[EpochStart], header: BatchHeader) -> LeaderEpoch:
    """The leader epoch that a stored batch must have; its own for v0 and v1. Entries below the log start are gone while
    the batch that contains it may remain: that batch may have any epoch up to the first entry."""
    if header.magic != 2:
        return header.leader_epoch
    at = bisect_right(entries, header.base_offset, key=start_of)
    if at == 0 and (not entries or header.leader_epoch <= entries[0].epoch):
        return header.leader_epoch
    return entries[at - 1].epoch if at else NO_LEADER_EPOCH
