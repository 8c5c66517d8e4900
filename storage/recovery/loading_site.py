"""The shared state of the steps that load a log: its directory, what is recorded about it, and the findings so far.

Not here: the steps (loading.py, clean_start.py, recovery.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage.checkpoints.checkpoint_file import LEADER_EPOCH_CHECKPOINT
from storage.files.file_system import Files
from storage.log_config import LogConfig
from storage.recovery.loaded import Damage, Known, Progress
from storage.segment.batch_walk import BrokenChain
from storage.segment.segment import ALL_SUFFIXES, INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment, segment_path
from storage.segment.segments import set_aside
from tidelog.types import NO_LEADER_EPOCH, Durability, EpochStart, Offset


class LoadingSite:
    """One partition directory during loading.

    notes: what was truncated, rebuilt or set aside, in sentences. damage: the lost records found so far. changed: True
    if anything was truncated, set aside or repaired.
    """

    def __init__(
        self, files: Files, directory: str, config: LogConfig, known: Known, progress: Progress | None = None
    ) -> None:
        self.files, self.directory, self.config, self.known = files, directory, config, known
        self.progress: Progress = progress or (lambda _done, _total, _size: None)
        self.notes: list[str] = []
        self.damage: Damage | None = None
        self.changed = False
        self.epoch_path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"

    @property
    def protected(self) -> Offset:
        """Every offset below this one had been durable: an error there is damage."""
        if self.config.durability is Durability.FSYNC:
            return max(self.known.recovery_point, self.known.durable_offset)
        return self.known.recovery_point

    def may_lack(self, end: Offset) -> bool:
        """True if offsets may be missing before a segment that begins at `end`.

        The cleaner empties segments and records how far it came. A follower in Kafka starts a segment at a batch of its
        leader, so offsets that the leader's cleaner removed are missing before it: a compacted log that comes from
        Kafka is accepted.
        """
        return end <= self.known.cleaned or (self.known.foreign and self.config.compact)

    def missing_start(self, first: Offset, epochs: Sequence[EpochStart] | None) -> Offset | None:
        """The offset at which the log must begin, if its first segment begins later at `first`; None if nothing is
        missing. epochs: the entries of the epoch file, None if it is lost.

        A deletion records the log start, or the local one, before it removes a segment, and the epochs begin at the
        former. Both records may be missing only if nothing was durable. Kafka records the start later, and not at all
        for retention.
        """
        if self.known.foreign or epochs is None:
            return None
        if not epochs:
            return self.known.needed_from if self.known.needed_from < first and self.protected == 0 else None
        start = max(self.known.needed_from, epochs[0].start_offset)
        return start if start < first else None

    def epochs_begin_late(self, segments: Sequence[LogSegment], epochs: Sequence[EpochStart]) -> bool:
        """True if batches with a leader epoch lie between the log start and the first entry of the epoch file, or
        messages, which have none, and the record of the log start is damaged. The log start was at that entry. Raises
        BrokenChain, OSError."""
        start, until = max(self.known.log_start, segments[0].base_offset), epochs[0].start_offset if epochs else 0
        if until <= start:
            return False
        for segment in segments:
            for header in segment.walk():
                if header.base_offset >= until:
                    return False
                has_epoch = header.leader_epoch != NO_LEADER_EPOCH
                if (has_epoch or self.known.log_start_lost) and header.last_offset >= start:
                    return True
            segment.close()
        return False

    def lacks_remote_epochs(self, epochs: Sequence[EpochStart]) -> bool:
        """True if the log has a part in the remote tier, and these epochs do not reach back to its start: the file was
        lost, and no local batch has the epochs of that part. A replica without them could neither lead, because it
        believes no remote segment, nor say where another one diverges."""
        known = self.known
        if known.foreign or known.log_start_lost or known.local_log_start <= known.log_start:
            return False
        return not epochs or epochs[0].start_offset > known.log_start

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def lose(self, path: str, position: int, first: Offset, end: Offset | None, reason: str) -> None:
        """Record that offsets from `first` to below `end` are lost; `end` None: all that had been durable."""
        self.join(Damage(path, position, first, max(end or self.protected, Offset(first + 1)), reason))

    def join(self, damage: Damage) -> None:
        self.damage = damage if self.damage is None else self.damage.joined(damage)

    def set_aside(self, base: int, suffixes: Iterable[str], why: str) -> None:
        """Rename a segment's files so that they are not loaded, with suffix `.stray`. Raises OSError."""
        for suffix in suffixes:
            path = segment_path(self.directory, base, suffix)
            if self.files.size(path) is not None:
                self.note(f"{path} was set aside as {set_aside(self.files, path)}: {why}")

    def drop(self, segments: Sequence[LogSegment], why: str) -> None:
        """Set aside segments that are not part of the log. Raises OSError."""
        self.changed |= bool(segments)
        for segment in segments:
            segment.close()
            self.set_aside(segment.base_offset, ALL_SUFFIXES, why)

    def ensure_indexes(self, segment: LogSegment) -> None:
        """Rebuild missing indexes of a closed segment. A wrong index is found at its first use. Raises OSError."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = segment_path(self.directory, segment.base_offset, suffix)
            if self.files.size(path) is None:
                self.rebuild_indexes(segment, f"{path} is missing")
                return

    def rebuild_indexes(self, segment: LogSegment, why: str) -> None:
        """Rebuild the indexes of a closed segment. Raises OSError."""
        self.note(f"{why}: both indexes of the segment are rebuilt")
        try:
            segment.rebuild_indexes()
        except BrokenChain as error:
            self.lose(segment.path, error.position, Offset(error.next_offset), None, error.reason)
        segment.become_inactive()
        segment.sync_indexes()
