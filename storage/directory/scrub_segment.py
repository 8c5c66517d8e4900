"""The check of one closed segment: reads it completely and compares it with its indexes and the epoch cache.

    create (owner's thread) -> `step` repeatedly (any thread: own handle, own copies) -> `confirms` (owner's thread)

It checks: checksums; the chain of offsets and epochs, up to the base offset of the next segment; the epoch of every
batch against the epoch cache; the indexes (scrub_indexes.py).
Wrong indexes are rebuilt as files of another name, which the owner installs. A wrong `.txnindex` is only reported: the
next start compares it with the batches before it is used (aborted_transactions.py).

Invariants: the log itself is never written.
Not here: the order and the rate of the checks (scrub.py).
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
"""Suffix of rebuilt indexes before they replace the wrong ones."""
_V2: Final = 2


class FindingKind(Enum):
    """The part of a segment that is wrong."""

    LOG = "log"
    HEADER = "header"
    """The leader epoch of a batch whose checksum is correct: its records can be read."""
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"


@dataclass(frozen=True, slots=True)
class Finding:
    """An error in a closed segment. path, position: the file and the byte. Offsets from `first_offset` to below
    `end_offset` are affected. repaired: True if it was repaired."""

    kind: FindingKind
    path: str
    position: int
    first_offset: Offset
    end_offset: Offset
    reason: str
    repaired: bool

    def __str__(self) -> str:
        outcome = "repaired" if self.repaired else "not repaired"
        where = f"{self.path}, byte {self.position}, offsets {self.first_offset}..{self.end_offset - 1}"
        return f"corrupt {self.kind.value} ({where}): {self.reason}; {outcome}"


class SegmentCheck:
    """The check of one segment. Created and closed on the owner's thread; `step` runs elsewhere."""

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
        """end_offset: base offset of the next segment. Raises OSError."""
        self.segment, self.size, self.end_offset = segment, segment.size, end_offset
        self.findings: list[Finding] = []
        self.rebuilt: LogSegment | None = None
        """Has the rebuilt indexes to be installed."""
        self._files, self._config, self._now = files, config, now
        self._path = segment.path
        self._epochs = epochs
        self._handle: File = segment.file.share()
        self._link = Link(0, self.size, segment.base_offset)
        self._indexes: IndexCheck | None = None
        self._transactions: TransactionCheck | None = None
        self._odd_epoch: Link | None = None
        """The chain before the first batch whose epoch differs from the epoch cache."""
        self._breaks: dict[int, Link] = {}
        """The chain before each damage, by its byte."""

    @property
    def done(self) -> bool:
        """True if the whole segment was read."""
        return self._link.position >= self.size

    def confirms(self, finding: Finding) -> bool:
        """True if the damage is still in the segment. On the owner's thread. Raises OSError."""
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
        """Close the file."""
        self._handle.close()

    def step(self, byte_count: int) -> int:
        """Check the next `byte_count` bytes, at least one batch. Returns the bytes read. Raises OSError."""
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
        """Report a batch that claims offsets of the next segment: no checksum covers its base offset. It follows the
        previous batch, so its records are at the next offset or later."""
        first = Offset(self._link.next_offset)
        end = Offset(min(first + header.last_offset_delta + 1, self.end_offset))
        reason = f"the batch ends at offset {header.last_offset}, but the next segment begins at {self.end_offset}"
        self._breaks[header.position] = self._link
        self._add(FindingKind.LOG, header.position, first, end, reason)
        self._link = self._link.behind(header)._replace(next_offset=end)

    def _compare_epoch(self, header: BatchHeader) -> None:
        """Report the first batch of the segment whose leader epoch differs from the epoch cache."""
        epoch, due = header.leader_epoch, self._epoch_due(header)
        if epoch != due and self._odd_epoch is None:
            self._odd_epoch = self._link
            reason = f"the batch has leader epoch {epoch}, but the epoch cache has {due} for its offset"
            self._add(FindingKind.HEADER, header.position, header.base_offset, Offset(header.last_offset + 1), reason)

    def _epoch_due(self, header: BatchHeader) -> LeaderEpoch:
        """The leader epoch that a batch must have; its own if the cache has no entry for it."""
        found = bisect_right(self._epochs, header.base_offset, key=lambda entry: entry.start_offset)
        return self._epochs[found - 1].epoch if header.magic == _V2 and found else header.leader_epoch

    def _broken(self, broken: BrokenChain) -> None:
        """Report damage, and continue after it if possible."""
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
            return  # a damaged log cannot rebuild its indexes
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
        """Rebuild both indexes under another name."""
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
