"""One closed segment read again from its first byte to its last, and compared with its indexes and the epoch cache.

    plan (owner's thread) -> `step` again and again (elsewhere: own handle, own copies) -> judge (owner's thread)

What is checked: checksums; the chain of offsets and epochs, up to the next segment's base; every batch's epoch against
the epoch cache; the indexes (scrub_indexes.py).
Wrong indexes are built again, as files of another name, which the owner puts in place. A wrong `.txnindex` is only
reported: the next start compares it with the batches before it is believed (aborted_transactions.py).

Kept true: nothing is written to the log itself.
Left to others: which segment when, and how fast (scrub.py).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum
from typing import Final

from storage.config import LogConfig
from storage.directory.scrub_indexes import IndexCheck, TransactionCheck
from storage.files.file_system import File, Files
from storage.segment.batch_walk import BrokenChain, Link, scan_file, walk_file
from storage.segment.segment import INDEX_SUFFIX, LogSegment, segment_path
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX
from tidelog.records.v2.header import BatchHeader
from tidelog.types import EpochStart, LeaderEpoch, Millis, Offset

REBUILT_SUFFIX: Final = ".rebuilt"
"""Behind the names of indexes that wait to be put in place of wrong ones."""
_V2: Final = 2


class FindingKind(Enum):
    """What was found wrong."""

    LOG = "log"
    HEADER = "header"
    """The leader epoch of a batch whose checksum agrees: its records can be read."""
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in a closed segment. path, position: the file and the byte; offsets from `first_offset` to below
    `end_offset` are concerned. repaired: it is right again."""

    kind: FindingKind
    path: str
    position: int
    first_offset: Offset
    end_offset: Offset
    reason: str
    repaired: bool

    def __str__(self) -> str:
        outcome = "put right" if self.repaired else "not repaired"
        where = f"{self.path}, byte {self.position}, offsets {self.first_offset}..{self.end_offset - 1}"
        return f"rot in a {self.kind.value} ({where}): {self.reason}; {outcome}"


class SegmentCheck:
    """The checking of one segment. Made on the owner's thread, which closes it; `step` runs elsewhere."""

    def __init__(
        self,
        files: Files,
        segment: LogSegment,
        epochs: tuple[EpochStart, ...],
        config: LogConfig,
        *,
        end_offset: Offset,
        now: Millis,
    ) -> None:
        """end_offset: where the next segment begins. Raises OSError."""
        self.segment, self.size, self.end_offset = segment, segment.size, end_offset
        self.findings: list[Finding] = []
        self.rebuilt: LogSegment | None = None
        """Carries the indexes that wait to be put in place."""
        self._files, self._config, self._now = files, config, now
        self._path = segment.path
        self._epochs = epochs
        self._handle: File = segment.file.share()
        self._link = Link(0, self.size, segment.base_offset)
        self._indexes: IndexCheck | None = None
        self._transactions: TransactionCheck | None = None
        self._odd_epoch: Link | None = None
        """The chain before the first batch whose epoch the cache does not have there."""
        self._breaks: dict[int, Link] = {}
        """Damage by its byte: the chain as it was before it."""

    @property
    def done(self) -> bool:
        """Has all of it been read?"""
        return self._link.position >= self.size

    def confirms(self, finding: Finding) -> bool:
        """On the owner's thread, of damage: is it there in the segment as it is now? Raises OSError."""
        link = self._odd_epoch if finding.kind is FindingKind.HEADER else self._breaks.get(finding.position)
        if link is None:
            return True
        try:
            found = next(scan_file(self.segment.file, link.position, self.size, link.next_offset), None)
        except BrokenChain:
            return True
        if found is None:
            return False
        header = found.batch.header
        return header.last_offset >= self.end_offset or header.leader_epoch != self._epoch_due(header)

    def close(self) -> None:
        """Let go of the file."""
        self._handle.close()

    def step(self, byte_count: int) -> int:
        """Check so many bytes more, at least one batch. Returns how many were read. Raises OSError."""
        if self._indexes is None:
            self._indexes = IndexCheck(self._files, self.segment, self.size)
            self._transactions = TransactionCheck(
                self._files, self.segment, self.end_offset, cleaned=self._config.compact
            )
        began = self._link.position
        try:
            link = self._link
            for batch, position in scan_file(self._handle, began, self.size, link.next_offset):
                header = batch.header._replace(position=position)
                if header.last_offset >= self.end_offset:
                    self._reaches_beyond(header)
                    break
                self._indexes.take(header)
                if header.magic == _V2 and batch.is_control and self._transactions is not None:
                    self._transactions.take(batch)
                self._compare_epoch(header)
                self._link = self._link.behind(header)
                if self._link.position - began >= byte_count:
                    break
        except BrokenChain as broken:
            self._broken(broken)
        if self.done:
            self._finish(self._indexes)
        return self._link.position - began

    def _reaches_beyond(self, header: BatchHeader) -> None:
        """Into the next segment: no checksum covers where a batch begins. It follows the one before it, so its records
        are at the next offset or later."""
        first = Offset(self._link.next_offset)
        end = Offset(min(first + header.last_offset_delta + 1, self.end_offset))
        reason = f"the batch reaches to offset {header.last_offset}, the next segment begins at {self.end_offset}"
        self._breaks[header.position] = self._link
        self._add(FindingKind.LOG, header.position, first, end, reason)
        self._link = self._link.behind(header)._replace(next_offset=end)

    def _compare_epoch(self, header: BatchHeader) -> None:
        """Report the first batch of the segment whose leader epoch is not the one that the epoch cache has."""
        epoch, due = header.leader_epoch, self._epoch_due(header)
        if epoch != due and self._odd_epoch is None:
            self._odd_epoch = self._link
            reason = f"the batch has leader epoch {epoch}, the epoch cache has {due} for its offset"
            self._add(FindingKind.HEADER, header.position, header.base_offset, Offset(header.last_offset + 1), reason)

    def _epoch_due(self, header: BatchHeader) -> LeaderEpoch:
        """The leader epoch that a batch must have; its own where the cache has none for it."""
        found = bisect_right(self._epochs, header.base_offset, key=lambda entry: entry.start_offset)
        return self._epochs[found - 1].epoch if header.magic == _V2 and found else header.leader_epoch

    def _broken(self, broken: BrokenChain) -> None:
        """That is damage; what it leads on to is still looked at."""
        link = Link(broken.position, self.size, broken.next_offset)
        self._breaks[broken.position] = link
        header = broken.header
        end = self.end_offset if header is None else Offset(header.last_offset + 1)
        self._add(FindingKind.LOG, broken.position, Offset(broken.next_offset), end, broken.reason)
        if header is None:
            self._link = link._replace(position=self.size)
        else:
            self._link = link.behind(header)

    def _finish(self, indexes: IndexCheck) -> None:
        if self._breaks:
            return  # a wrong entry is no news then, and there is nothing to rebuild it from
        base = self.segment.base_offset
        for suffix, (reason, position) in indexes.wrong():
            kind = FindingKind.OFFSET_INDEX if suffix == INDEX_SUFFIX else FindingKind.TIME_INDEX
            path = segment_path(self.segment.directory, base, suffix)
            self._rebuild()
            self.findings.append(Finding(kind, path, position, base, self.end_offset, reason, repaired=True))
        wrong = None if self._transactions is None else self._transactions.wrong()
        if wrong is not None:
            path = segment_path(self.segment.directory, base, TRANSACTION_INDEX_SUFFIX)
            kind = FindingKind.TRANSACTION_INDEX
            self.findings.append(Finding(kind, path, 0, base, self.end_offset, wrong, repaired=False))

    def _rebuild(self) -> None:
        """Write both indexes anew, under another name."""
        if self.rebuilt is not None:
            return
        segment = self.segment
        rebuilt = LogSegment(
            self._files,
            segment.directory,
            segment.base_offset,
            self._config,
            created_ms=self._now,
            suffix=REBUILT_SUFFIX,
        )
        rebuilt.start_rebuild()
        for header in walk_file(self._handle, 0, self.size, segment.base_offset):
            rebuilt.index_batch(header, header.position)
        rebuilt.size = self.size
        rebuilt.become_inactive()
        rebuilt.close()
        self.rebuilt = rebuilt

    def _add(
        self, kind: FindingKind, position: int, first: Offset, end: Offset, reason: str, *, repaired: bool = False
    ) -> None:
        self.findings.append(Finding(kind, self._path, position, first, end, reason, repaired))
