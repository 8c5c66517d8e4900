"""The leader epochs of a log that is loaded: from their file, and from the batches where the file does not reach.

Kept true:
  1. A file that is missing or damaged is rebuilt from the batches of format v2. Messages of v0 and v1 hold no epoch:
     where such a log lost its file, that is damage (design section 4, rule 2), and no epoch is made up for it.
  2. Kafka keeps no such file for a log of v0 or v1 until the format is raised: a directory of Kafka's gets an empty
  one.
Left to others: which batches there are (recovery.py).
Source: Kafka's LeaderEpochFileCache and LogLoader; KIP-101.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from storage.checkpoints.checkpoint_file import read_epochs
from storage.config import INT64_MAX
from storage.recovery.loaded import Damage
from storage.recovery.loading_site import LoadingSite
from storage.segment.batch_walk import BrokenChain
from storage.segment.epoch_cache import EpochFile, LeaderEpochCache
from storage.segment.segment import LogSegment
from tidelog.errors import CorruptLog
from tidelog.records.v2.header import BatchHeader
from tidelog.types import NO_LEADER_EPOCH, EpochStart, LeaderEpoch, Offset

_V2 = 2


class EpochRecovery:
    """The epochs of one log while it recovers. `cache` grows as batches are met."""

    def __init__(self, site: LoadingSite) -> None:
        """Reads the file. Raises OSError."""
        self._site = site
        try:
            entries = read_epochs(site.files, site.epoch_path)
        except CorruptLog as error:
            site.note(error.message)
            entries = None
        self.found = entries
        """What the file says; None where there is none that can be read."""
        self.lost = entries is None
        self._complete_below = 0 if entries is None else INT64_MAX if site.known.foreign else site.protected
        """All epochs of lower offsets are in the file."""
        self.cache = LeaderEpochCache(entries or ())
        self.file = EpochFile(site.files, site.epoch_path, -1)
        self._has_messages = False
        self._below: list[EpochStart] = []
        """Of batches below the first entry."""

    def begin(self, below: Sequence[LogSegment]) -> None:
        """Know the epochs of these segments, of which no batch is met otherwise. Raises OSError."""
        if self.lost and below:
            self._site.note(f"{self._site.epoch_path} is rebuilt from the batches")
            for segment in below:
                try:
                    for header in segment.walk():
                        self.ensure_grows(header, self.cache.latest)
                        self.take(header)
                except BrokenChain as error:
                    self._site.lose(segment.path, error.position, Offset(error.next_offset), None, error.reason)
                segment.close()

    def before(self, offset: Offset) -> int:
        """The epoch that a batch at `offset` may not go back from; -1 for none."""
        return int(self.cache.last_with_data(offset))

    @staticmethod
    def ensure_grows(header: BatchHeader, before: int) -> None:
        """Raises BrokenChain for a v2 batch whose leader epoch is below the one before it."""
        if header.magic == _V2 and header.leader_epoch < before:
            reason = f"the batch has leader epoch {header.leader_epoch}, but epoch {before} came before it"
            raise BrokenChain(header.position, header.base_offset, reason)

    def due(self, header: BatchHeader) -> LeaderEpoch:
        """The leader epoch that a batch must have, which no checksum covers: the one that the file has for its offset,
        where the file is complete, and its own where nothing is known of it."""
        entries, offset = self.found or (), header.base_offset
        if header.magic < _V2 or offset >= self._complete_below:
            return header.leader_epoch
        at = bisect_right(entries, offset, key=lambda entry: entry.start_offset)
        if at == 0 and (not entries or header.leader_epoch <= entries[0].epoch):
            return header.leader_epoch  # below the log start: its entries went when that moved, the batch may be left
        return entries[at - 1].epoch if at else NO_LEADER_EPOCH

    def take(self, header: BatchHeader) -> None:
        """A batch of the log, in order: what the file says stays, unless batches contradict it."""
        if header.magic < _V2:
            self._has_messages = True
            return
        epoch, offset = header.leader_epoch, header.base_offset
        if epoch == NO_LEADER_EPOCH or self._agrees(epoch, offset):
            return
        if epoch <= self.cache.latest:
            self.cache.truncate_from_end(offset)
        self.cache.assign(epoch, offset)

    def _agrees(self, epoch: LeaderEpoch, offset: Offset) -> bool:
        """Is that the epoch in force there? Where a log was cut from its beginning, the first entry says where it
        starts now, and a batch may begin below it."""
        entries = self.cache.entries
        if not entries:
            return False
        if offset < entries[0].start_offset:
            self._below.append(EpochStart(epoch, offset))
            return epoch <= entries[0].epoch
        return self.cache.last_with_data(Offset(offset + 1)) == epoch

    def finish(self, log_start: Offset, log_end: Offset) -> None:
        """All batches were met. Raises OSError."""
        self.cache.truncate_from_end(Offset(log_end + 1))
        entries = self.cache.entries
        if self._below and (not entries or entries[0].start_offset >= log_end):  # of a log that was here before
            self.cache.clear()
            for entry in [*self._below, *entries]:
                self.cache.assign(entry.epoch, entry.start_offset)
        if not self.lost or not self._has_messages:
            return
        self.cache.clear()
        known = self._site.known
        if known.foreign:
            self.file.write(self.cache.version, ())
        elif max(known.recovery_point, known.durable_offset) > 0:
            reason = "the leader epochs of its records of format v0 or v1 are gone, nothing else holds them"
            self.file.written = self.cache.version  # a file that says "none" would be believed at the next start
            self._site.join(
                Damage(self._site.epoch_path, 0, log_start, max(log_end, Offset(log_start + 1)), reason, readable=True)
            )
