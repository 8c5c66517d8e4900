"""The check of one closed segment: reads it completely and compares it with its indexes and the epoch cache.

    create (owner's thread) -> `step` repeatedly (any thread: own handle, own copies) -> `confirms` (owner's thread)

It checks: checksums; the chain of offsets and epochs, up to the base offset of the next segment, where only compaction
leaves a hole; the epoch of every batch against the epoch cache (verifier.py); the indexes (index_check.py).
Wrong indexes are rebuilt as files of another name, which the owner installs. A wrong `.txnindex` is only reported: the
next start compares it with the batches before it is used (aborted_transactions.py).

Invariants: the log itself is never written.
Not here: the order and the rate of the checks (scrub.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from storage.files.file_system import File, Files, read_file
from storage.log.log import Log
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain, Hole, Link, walk_file
from storage.segment.epoch_cache import epoch_due
from storage.segment.index_check import EntryFault, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from storage.segment.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment, segment_path
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX, AbortedTransaction, TransactionIndex
from storage.segment.verifier import Checked, Fault, FaultKind, SegmentRules, verify
from tidelog.errors import TidelogError
from tidelog.records import EndTxnMarker, decode_control
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.header import BatchHeader
from tidelog.types import Offset

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


_SUFFIXES: Final = {
    FindingKind.OFFSET_INDEX: INDEX_SUFFIX,
    FindingKind.TIME_INDEX: TIME_INDEX_SUFFIX,
    FindingKind.TRANSACTION_INDEX: TRANSACTION_INDEX_SUFFIX,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """An error in a closed segment."""

    kind: FindingKind
    path: str
    """The file; `position` is the byte in it. Offsets from `first_offset` to below `end_offset` are affected."""
    position: int
    first_offset: Offset
    end_offset: Offset
    reason: str
    repaired: bool
    """True if it was repaired."""

    def __str__(self) -> str:
        outcome = "repaired" if self.repaired else "not repaired"
        where = f"{self.path}, byte {self.position}, offsets {self.first_offset}..{self.end_offset - 1}"
        return f"corrupt {self.kind.value} ({where}): {self.reason}; {outcome}"


class _Indexes:
    """The three indexes of a closed segment, compared with its batches. faults: the first one of each index."""

    def __init__(self, files: Files, segment: LogSegment, end_offset: Offset, *, cleaned: bool) -> None:
        """end_offset: base offset of the next segment. cleaned: compaction may have removed markers. Raises OSError."""
        base, self.faults = segment.base_offset, dict[FindingKind, EntryFault]()
        paths = [segment_path(segment.directory, base, suffix) for suffix in _SUFFIXES.values()]
        self._offsets = OffsetIndexCheck(read_file(files, paths[0]) or b"", base, closed=True)
        self._times = TimeIndexCheck(read_file(files, paths[1]) or b"", base, closed=True)
        self._note(FindingKind.OFFSET_INDEX, self._offsets.shape())
        self._note(FindingKind.TIME_INDEX, self._times.shape())
        entries: Sequence[AbortedTransaction] = ()
        try:
            entries = TransactionIndex(files, paths[2], base).entries
        except CorruptIndex as error:
            self.faults[FindingKind.TRANSACTION_INDEX] = EntryFault(None, None, None, str(error))
        missing = range(base, end_offset) if cleaned else range(0)
        self._transactions = TransactionIndexCheck(entries, present=True, cleaned=missing)

    def take(self, batch: RecordBatch, header: BatchHeader) -> None:
        self._note(FindingKind.OFFSET_INDEX, self._offsets.batch(header))
        self._note(FindingKind.TIME_INDEX, self._times.batch(header))
        if header.magic == _V2 and batch.is_control:
            for record in batch.record_list():
                with suppress(TidelogError):
                    marker = decode_control(record)
                    if isinstance(marker, EndTxnMarker) and not marker.committed:
                        found = self._transactions.aborted(record.offset, batch.producer_id)
                        self._note(FindingKind.TRANSACTION_INDEX, found)

    def end(self, size: int) -> None:
        self._note(FindingKind.OFFSET_INDEX, self._offsets.end(size))
        self._note(FindingKind.TIME_INDEX, self._times.end())
        self._note(FindingKind.TRANSACTION_INDEX, self._transactions.end())

    def _note(self, kind: FindingKind, faults: Iterable[EntryFault]) -> None:
        for fault in faults:
            self.faults.setdefault(kind, fault)


class SegmentCheck:
    """The check of one segment. Created and closed on the owner's thread; `step` runs elsewhere."""

    def __init__(self, log: Log, segment: LogSegment, *, end_offset: Offset, holes: bool) -> None:
        """end_offset: base offset of the next segment. holes: offsets may be missing below it. Raises OSError."""
        files, epochs = log.files, log.epochs.entries
        self.segment, self.size, self.end_offset = segment, segment.size, end_offset
        self._holes = holes
        self.findings: list[Finding] = []
        self.rebuilt: LogSegment | None = None
        """The segment with the rebuilt indexes, which the owner installs; None if none are wrong."""
        self._files, self._config, self._now = files, log.config, log.directory.clock.wall_ms()
        self._path = segment.path
        self._rules = SegmentRules(segment.base_offset, end_offset, partial(epoch_due, epochs))
        self._handle: File = files.open(self._path, read_only=True)
        """A separate handle, opened by name: the handle of the segment would hide that the file was removed."""
        self._link = Link(0, self.size, segment.base_offset)
        self._indexes: _Indexes | None = None
        self._faults: dict[int, Link] = {}
        """The position in the chain before each batch with a finding, by the byte of the batch."""

    @property
    def done(self) -> bool:
        return self._link.position >= self.size

    @property
    def _is_damaged(self) -> bool:
        return any(finding.kind is FindingKind.LOG for finding in self.findings)

    def confirms(self, finding: Finding) -> bool:
        """True if the damage is still in the segment. On the owner's thread. Raises OSError."""
        link = self._faults.get(finding.position)
        if finding.kind not in (FindingKind.LOG, FindingKind.HEADER) or link is None:
            return True
        try:
            if link.position >= self.size:
                return self.segment.find(Offset(self.end_offset - 1)) is None
            found = next(verify(self.segment.file, link, self._rules), None)
        except BrokenChain:  # the file was removed or truncated meanwhile
            return True
        return found is not None and found.fault is not None

    def close(self) -> None:
        self._handle.close()

    def step(self, byte_count: int) -> int:
        """Check the next `byte_count` bytes, at least one batch. Returns the bytes read. Raises OSError."""
        if self._indexes is None:
            self._indexes = _Indexes(self._files, self.segment, self.end_offset, cleaned=self._config.compact)
        began = self._link.position
        for step in verify(self._handle, self._link, self._rules):
            self._link = step.after
            if step.fault is not None:
                self._report(step, step.fault)
            if step.fault is not None and step.fault.kind is not FaultKind.EPOCH:
                break
            assert step.batch is not None
            assert step.header is not None
            self._indexes.take(step.batch, step.header)
            if self._link.position - began >= byte_count:
                break
        if self.done:
            self._finish(self._indexes)
        return self._link.position - began

    def _report(self, step: Checked, fault: Fault) -> None:
        """Report a fault, of the leader epochs only the first: the epoch cache may be wrong for the whole segment."""
        kind, first, end = FindingKind.LOG, Offset(fault.next_offset), Offset(step.after.next_offset)
        if fault.kind is FaultKind.EPOCH:
            assert step.header is not None
            kind, first = FindingKind.HEADER, step.header.base_offset
            if any(finding.kind is kind for finding in self.findings):
                return
        elif fault.kind in (FaultKind.NO_BATCH, FaultKind.HEADER):  # nothing after it can be located
            end, self._link = self.end_offset, step.after._replace(position=self.size)
        self._faults[fault.position] = step.link
        self.findings.append(Finding(kind, self._path, fault.position, first, end, fault.reason, repaired=False))

    def _finish(self, indexes: _Indexes) -> None:
        if not self._is_damaged and not self._holes and self._link.next_offset < self.end_offset:
            hole = Hole(self.size, self._link.next_offset, self.end_offset)
            first, end = Offset(hole.next_offset), self.end_offset
            self._faults[self.size] = self._link
            self.findings.append(
                Finding(FindingKind.LOG, self._path, self.size, first, end, hole.reason, repaired=False)
            )
        if self._is_damaged:
            return  # a damaged log cannot rebuild its indexes
        indexes.end(self.size)
        base = self.segment.base_offset
        for kind, suffix in _SUFFIXES.items():
            if (fault := indexes.faults.get(kind)) is not None:
                path = segment_path(self.segment.directory, base, suffix)
                repaired = kind is not FindingKind.TRANSACTION_INDEX
                if repaired:
                    self._rebuild()
                self.findings.append(
                    Finding(kind, path, fault.position or 0, base, self.end_offset, fault.reason, repaired)
                )

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
