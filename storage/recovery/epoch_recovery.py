"""The leader epochs of a log during recovery: from the epoch file, and from the batches that the file does not cover.

Invariants:
  1. If the file is missing or damaged, it is rebuilt from the batches of format v2. Messages of v0 and v1 contain no
     epoch: if such a log lost its file, that is damage (design section 4, rule 2), and no epoch is invented. Only a
     log that has no file and of which nothing is known to be durable lost nothing: its file becomes durable with its
     first records. A file is replaced as a whole, so one that cannot be read was damaged later.
  2. The entries of a log of v2 reach back to its log start. If the recorded log start is lost, the log begins at its
     first segment, below the first entry: the entries of those batches are added. Without them a follower would find no
     epoch in common and would restart, below what it had committed.
     Messages of v0 and v1 below it have no epoch: if the file of the log starts was damaged, that is damage as in 1.
  3. The epochs of records that are in the remote tier only are in no local batch: without the file they are lost, and
     the replica counts as damaged. Fetched again, it takes them from the tier.
  4. Kafka keeps no epoch file for a log of v0 or v1 until the format is raised: a directory that comes from Kafka gets
     an empty one.
Not here: which batches exist (recovery.py).
Source: Kafka's LeaderEpochFileCache and LogLoader; KIP-101.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from storage.checkpoints.checkpoint_file import read_epochs
from storage.recovery.loaded import Damage
from storage.recovery.loading_site import LoadingSite
from storage.segment.batch_walk import BrokenChain
from storage.segment.epoch_cache import EpochFile, LeaderEpochCache, epoch_due
from storage.segment.segment import LogSegment
from storage.segment.segments import set_aside
from storage.segment.verifier import falling_epoch
from tidelog.epochs import epoch_before
from tidelog.errors import CorruptLog
from tidelog.records.v2.header import BatchHeader
from tidelog.types import INT64_MAX, NO_LEADER_EPOCH, EpochStart, LeaderEpoch, Offset

_V2 = 2


class EpochRecovery:
    """The epochs of one log during recovery. `cache`: the entries of the file, corrected by the batches."""

    def __init__(self, site: LoadingSite) -> None:
        """Reads the epoch file. Raises OSError."""
        self._site, self._damaged = site, False
        try:
            entries = read_epochs(site.files, site.epoch_path)
        except CorruptLog as error:
            site.note(error.message)
            entries, self._damaged = None, True
        self.found = entries
        """The entries of the file; None if there is no readable file."""
        self.lost = entries is None
        self._complete_below = 0 if entries is None else INT64_MAX if site.known.foreign else site.protected
        """The file contains all epochs of lower offsets."""
        self.cache = LeaderEpochCache(entries or ())
        self.file = EpochFile(site.files, site.epoch_path, -1)
        self._has_messages = False
        self._messages_below = False
        """Whether there are messages below the first entry."""
        self._below: list[EpochStart] = []
        """Epochs of batches below the first entry."""

    def begin(self, below: Sequence[LogSegment], log_start: Offset) -> None:
        """Read the epochs of the segments below those that recovery reads: of all if the file is lost, else of those
        below the first entry, if that is above the log start. Raises OSError."""
        if not below:
            return
        until = Offset(INT64_MAX)
        if self.lost:
            self._site.note(f"{self._site.epoch_path} is missing or damaged: it is rebuilt from the batches")
        else:
            until = self.found[0].start_offset if self.found else Offset(0)
            if until <= max(log_start, below[0].base_offset):
                return
        for segment in below:
            if segment.base_offset >= until:
                return
            try:
                for header in takewhile(lambda header: header.base_offset < until, segment.walk()):
                    if (reason := self._contradicted(header)) is not None:
                        raise BrokenChain(header.position, header.base_offset, reason)
                    self.take(header)
            except BrokenChain as error:
                self._site.lose(segment.path, error.position, Offset(error.next_offset), None, error.reason)
            segment.close()

    def _contradicted(self, header: BatchHeader) -> str | None:
        """What is wrong with the leader epoch of a batch that `begin` reads; None if nothing is."""
        if self.lost:
            return falling_epoch(header, self.cache.latest)
        due = epoch_due(self.found or (), header)
        if due != header.leader_epoch:
            return f"the batch has leader epoch {header.leader_epoch}, above the epoch of the batches behind it"
        return falling_epoch(header, self._below[-1].epoch if self._below else NO_LEADER_EPOCH)

    def before(self, offset: Offset) -> int:
        """The lowest epoch allowed for a batch at `offset`; -1 if there is no limit."""
        return epoch_before(self.cache.entries, offset)

    def due(self, header: BatchHeader) -> LeaderEpoch:
        """The leader epoch that a batch must have. No checksum covers it: this is the entry of the file for its offset
        if the file is complete, else the epoch of the batch itself."""
        complete = header.base_offset < self._complete_below
        return epoch_due(self.found or (), header) if complete else header.leader_epoch

    def take(self, header: BatchHeader) -> None:
        """Add a batch, in log order. The entries of the file stay unless a batch contradicts them."""
        if header.magic < _V2:
            self._has_messages = True
            if self.found and header.base_offset < self.found[0].start_offset:
                self._messages_below = True
            return
        epoch, offset = header.leader_epoch, header.base_offset
        if epoch == NO_LEADER_EPOCH or self._agrees(epoch, offset):
            return
        if epoch <= self.cache.latest:
            self.cache.truncate_from_end(offset)
        self.cache.assign(epoch, offset)

    def _agrees(self, epoch: LeaderEpoch, offset: Offset) -> bool:
        """True if `epoch` is the epoch at `offset`. After the log start moved, the first entry is at the new start and
        a batch may begin below it."""
        entries = self.cache.entries
        if not entries:
            return False
        if offset < entries[0].start_offset:
            self._below.append(EpochStart(epoch, offset))
            return epoch <= entries[0].epoch
        return epoch_before(entries, offset + 1) == epoch

    def finish(self, log_start: Offset, log_end: Offset) -> None:
        """Finish after all batches were added. Raises OSError."""
        self.cache.truncate_from_end(Offset(log_end + 1))
        entries = self.cache.entries
        if self._below and (not entries or entries[0].start_offset > log_start):
            self.cache.restore(())
            for entry in [*self._below, *entries]:
                self.cache.assign(entry.epoch, entry.start_offset)
            self.cache.truncate_from_start(log_start)
        known = self._site.known
        if self._messages_below and known.log_start_lost and not known.foreign:
            aside = set_aside(self._site.files, self._site.epoch_path)  # it is missing at the next start too
            self._site.note(f"{self._site.epoch_path} was set aside as {aside}: it begins above the first messages")
            self.lost = self._damaged = True
        if self._site.lacks_remote_epochs(self.cache.entries):
            reason = "the leader epochs of what is in the remote tier are lost; another replica and the tier have them"
            self._site.join(Damage(self._site.epoch_path, 0, log_start, known.needed_from, reason, readable=True))
        if not self.lost or not self._has_messages:
            return
        self.cache.restore(())
        if known.foreign:
            self.file.write(self.cache.version, ())
        elif self._damaged or max(known.recovery_point, known.durable_offset) > 0:
            reason = "the leader epochs of records of format v0 or v1 are lost; no other file contains them"
            self.file.written = self.cache.version  # an empty file would be accepted at the next start
            self._site.join(
                Damage(self._site.epoch_path, 0, log_start, max(log_end, Offset(log_start + 1)), reason, readable=True)
            )
