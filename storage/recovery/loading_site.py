"""What every step of loading a log works with: its directory, what was known before, and what has been found so far.

Left to others: the steps (loading.py, clean_start.py, recovery.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage.checkpoints.checkpoint_file import LEADER_EPOCH_CHECKPOINT
from storage.config import LogConfig
from storage.files.file_system import Files
from storage.recovery.loaded import Damage, Known, Progress
from storage.segment.batch_walk import BrokenChain
from storage.segment.segment import ALL_SUFFIXES, INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment, segment_path
from storage.segment.segments import set_aside
from tidelog.types import Durability, EpochStart, Offset


def _silent(done: int, total: int, size: int) -> None:
    """Progress that nobody wants to see."""


class LoadingSite:
    """One partition's directory while it is loaded.

    notes: what was cut, rebuilt or set aside, in sentences. damage: what is lost, so far. changed: was anything cut,
    set aside or put right?
    """

    def __init__(
        self, files: Files, directory: str, config: LogConfig, known: Known, progress: Progress | None = None
    ) -> None:
        self.files, self.directory, self.config, self.known = files, directory, config, known
        self.progress: Progress = progress or _silent
        self.notes: list[str] = []
        self.damage: Damage | None = None
        self.changed = False
        self.epoch_path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"

    @property
    def protected(self) -> Offset:
        """Every offset below this one had been durable: what is wrong there is damage."""
        if self.config.durability is Durability.FSYNC:
            return max(self.known.recovery_point, self.known.durable_offset)
        return self.known.recovery_point

    def may_lack(self, end: Offset) -> bool:
        """May offsets that end at `end`, where a segment begins, be in no batch at all?

        The cleaner empties segments, and says how far it came. A follower of Kafka's begins a segment where its leader
        has a batch, so what the leader's cleaner took is missing before it: a compacted log from Kafka is believed.
        """
        return end <= self.known.cleaned or (self.known.foreign and self.config.compact)

    def lost_front(self, first: Offset, epochs: Sequence[EpochStart] | None) -> Offset | None:
        """Where the log must begin though its first segment begins at `first`, None where that is well. epochs: of
        their file, None where it is lost.

        Deletion says where the log starts before it takes a segment, and epochs begin there: it is only believed to
        have forgotten both where nothing was durable. Kafka says it later, and of retention nothing.
        """
        if self.known.foreign or epochs is None:
            return None
        if not epochs:
            return self.known.log_start if self.known.log_start < first and self.protected == 0 else None
        start = max(self.known.log_start, epochs[0].start_offset)
        return start if start < first else None

    def note(self, sentence: str) -> None:
        """Say what was done."""
        self.notes.append(sentence)

    def lose(self, path: str, position: int, first: Offset, end: Offset | None, reason: str) -> None:
        """Offsets from `first` to below `end` are lost; None for all that had been durable."""
        self.join(Damage(path, position, first, max(end or self.protected, Offset(first + 1)), reason))

    def join(self, damage: Damage) -> None:
        """That is lost, too."""
        self.damage = damage if self.damage is None else self.damage.joined(damage)

    def set_aside(self, base: int, suffixes: Iterable[str], why: str) -> None:
        """Give the files of a segment names under which nothing looks for them. Raises OSError."""
        for suffix in suffixes:
            path = segment_path(self.directory, base, suffix)
            if self.files.size(path) is not None:
                self.note(f"{path} was set aside as {set_aside(self.files, path)}: {why}")

    def drop(self, segments: Sequence[LogSegment], why: str) -> None:
        """Set segments aside that are no part of the log. Raises OSError."""
        self.changed |= bool(segments)
        for segment in segments:
            segment.close()
            self.set_aside(segment.base_offset, ALL_SUFFIXES, why)

    def ensure_indexes(self, segment: LogSegment) -> None:
        """Rebuild the indexes of a closed segment where one is missing; a wrong one is found when it is used. Raises
        OSError."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = segment_path(self.directory, segment.base_offset, suffix)
            if self.files.size(path) is None:
                self.rebuild_indexes(segment, f"{path} is missing")
                return

    def rebuild_indexes(self, segment: LogSegment, why: str) -> None:
        """Write the indexes of a closed segment anew. Raises OSError."""
        self.note(f"{why}: both indexes of that segment are rebuilt")
        try:
            segment.rebuild_indexes()
        except BrokenChain as error:
            self.lose(segment.path, error.position, Offset(error.next_offset), None, error.reason)
        segment.become_inactive()
        segment.sync_indexes()
