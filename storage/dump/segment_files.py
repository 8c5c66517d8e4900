"""One segment: its .log file batch by batch, with its indexes; or one of these files alone.

Invariants: batches are streamed; indexes are kept in memory as bytes only.
Not here: the rules between batches (log_chain.py), the rules for index entries (segment/index_check.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from storage.dump.dump_events import (
    AbortedFound,
    DumpFinding,
    Events,
    FileFound,
    OffsetEntryFound,
    Severity,
    TimeEntryFound,
    damage,
    note,
)
from storage.dump.log_chain import LogChain
from storage.dump.log_file import Read, read_log
from storage.dump.small_files import aborted, kind_of
from storage.files.file_system import Files, read_file
from storage.segment.index_check import EntryFault, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from storage.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX
from storage.segment.verifier import Gap

_ALL: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_REBUILT: Final = "delete the file while the node is stopped: it is rebuilt from the log"
_BEFORE_KAFKA: Final = (
    "nothing for Tidelog: the file is rebuilt from the log before it is used; before a Kafka broker opens the "
    "directory, start and stop a node with it"
)
_FINDINGS_MAX: Final = 1000
_TRUNCATED: Final = "nothing: the next start truncates the log before it, and the index with it"


def dump_segment(files: Files, path: str, names: Sequence[str] | None, chain: LogChain, *, records: bool) -> Events:
    """A .log file, or a snapshot of the metadata log, with its indexes. names: of all files in the directory; None:
    without the indexes. records: yield them too. Raises OSError."""
    digits = path.rpartition("/")[2][:20]
    base = int(digits) if digits.isdigit() and LOG_SUFFIX in path[-24:] else 0
    checks = None if names is None else SegmentChecks(files, path.removesuffix(LOG_SUFFIX), base, names)
    with closing(files.open(path, read_only=True)) as file:
        size = file.size()
        yield FileFound(path, "log", size)
        yield from chain.begin_segment(path, base)
        for step in read_log(file, path, size, records=records):
            if isinstance(step, Gap):
                yield from chain.gap(path, step)
                continue
            yield step.batch
            yield from step.records
            yield from chain.batch(step)
            if checks is not None:
                checks.batch(step, chain.transaction(step.batch))
        yield from chain.end_segment(path)
        if checks is not None:
            yield from checks.end(size, _ALL, chain.torn_from)


def dump_index_alone(files: Files, path: str) -> Events:
    """An index, checked against the .log file beside it if there is one. Raises OSError."""
    name = path.rpartition("/")[2]
    suffix = f".{kind_of(name)}"
    stem = path[: path.rindex(suffix)]
    base = int(name[:20]) if name[:20].isdigit() else 0
    log = f"{stem}{LOG_SUFFIX}"
    if not path.endswith(suffix) or files.size(log) is None:
        yield from _unchecked(files, path, suffix, base)
        return
    checks = SegmentChecks(files, stem, base, [name])
    with closing(files.open(log, read_only=True)) as file:
        size = file.size()
        for step in read_log(file, log, size, records=False):
            if isinstance(step, Read):
                checks.batch(step, None)
        yield from checks.end(size, (suffix,), None)


def _unchecked(files: Files, path: str, suffix: str, base: int) -> Events:
    if suffix == TRANSACTION_INDEX_SUFFIX:
        yield FileFound(path, "txnindex", files.size(path) or 0)
        entries, finding = aborted(files, path, base)
        yield from (AbortedFound(path, 0, *entry) for entry in entries)
        yield from finding
    else:
        check = OffsetIndexCheck if suffix == INDEX_SUFFIX else TimeIndexCheck
        yield from _index(path, suffix, check(read_file(files, path) or b"", base))


def _index(path: str, suffix: str, check: OffsetIndexCheck | TimeIndexCheck) -> Events:
    yield FileFound(path, suffix[1:], check.size)
    for first, second in check.entries():
        found = OffsetEntryFound if isinstance(check, OffsetIndexCheck) else TimeEntryFound
        yield found(path, first, second)
    yield from (_damage(path, fault) for fault in check.shape())


def _damage(path: str, fault: EntryFault) -> DumpFinding:
    step = _BEFORE_KAFKA if fault.missing else _REBUILT
    return damage(path, fault.reason, step, position=fault.position, first=fault.first_offset, last=fault.last_offset)


class SegmentChecks:
    """The three indexes of one segment, checked with its batches and reported after them."""

    def __init__(self, files: Files, stem: str, base: int, names: Sequence[str]) -> None:
        """stem: the path without a suffix. names: of the directory's files. Raises OSError."""
        self._files = files
        self._stem = stem
        name = stem.rpartition("/")[2]
        self._here = {suffix for suffix in _ALL if f"{name}{suffix}" in names}
        self._offsets = OffsetIndexCheck(read_file(files, f"{stem}{INDEX_SUFFIX}") or b"", base)
        self._times = TimeIndexCheck(read_file(files, f"{stem}{TIME_INDEX_SUFFIX}") or b"", base)
        self._aborted, finding = aborted(files, f"{stem}{TRANSACTION_INDEX_SUFFIX}", base)
        self._transactions = TransactionIndexCheck(self._aborted, present=TRANSACTION_INDEX_SUFFIX in self._here)
        self._found = {INDEX_SUFFIX: list[DumpFinding](), TIME_INDEX_SUFFIX: [], TRANSACTION_INDEX_SUFFIX: finding}

    def batch(self, read: Read, began: int | None) -> None:
        """Add the next batch of the segment. began: first offset of the transaction that it certainly aborts."""
        self._add(INDEX_SUFFIX, self._offsets.batch(read.header))
        self._add(TIME_INDEX_SUFFIX, self._times.batch(read.header))
        batch = read.batch
        if batch.control == ("ABORT",):
            assert batch.producer_id is not None
            found = self._transactions.aborted(batch.last_offset, batch.producer_id, began)
            self._add(TRANSACTION_INDEX_SUFFIX, found)

    def end(self, size: int, suffixes: Iterable[str], torn_from: int | None) -> Events:
        """End the segment, which has `size` bytes: yields the entries of these indexes, and their findings.

        torn_from: the next start truncates the log at this offset, and its indexes with it.
        """
        self._add(INDEX_SUFFIX, self._offsets.end(size))
        self._add(TIME_INDEX_SUFFIX, self._times.end())
        self._add(TRANSACTION_INDEX_SUFFIX, self._transactions.end())
        for suffix in suffixes:
            path = f"{self._stem}{suffix}"
            if suffix == TRANSACTION_INDEX_SUFFIX:
                if suffix in self._here:
                    yield FileFound(path, "txnindex", self._files.size(path) or 0)
                    yield from (AbortedFound(path, 0, *entry) for entry in self._aborted)
            elif suffix in self._here:
                yield from _index(path, suffix, self._offsets if suffix == INDEX_SUFFIX else self._times)
            else:
                yield note(
                    path, "the file is missing", "nothing: it is rebuilt from the log when the log is next opened"
                )
            for finding in self._found[suffix]:
                truncated = torn_from is not None and (finding.first_offset or 0) >= torn_from
                yield replace(finding, severity=Severity.NOTE, next_step=_TRUNCATED) if truncated else finding

    def _add(self, suffix: str, faults: Iterable[EntryFault]) -> None:
        found, path = self._found[suffix], f"{self._stem}{suffix}"
        found.extend(_damage(path, fault) for fault in faults if len(found) < _FINDINGS_MAX)
