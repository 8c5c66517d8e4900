"""One segment: its .log file batch by batch, with its indexes; or one of these files alone.

Invariants: batches are streamed; indexes are kept in memory as bytes only.
Not here: the rules between batches (chain.py), the rules for index entries (indexes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from storage.dump.chain import LogChain
from storage.dump.events import BatchFound, Events, FileFound, Finding, Severity
from storage.dump.indexes import (
    IndexBytes,
    OffsetIndexCheck,
    TimeIndexCheck,
    TransactionIndexCheck,
    check_shape,
    missing,
    offset_entries,
    time_entries,
)
from storage.dump.log_file import Gap, LogReader, Read
from storage.dump.small_files import aborted, kind_of
from storage.files.file_system import Files, read_file
from storage.segment.abstract_index import AbstractIndex
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex
from storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
_ALL: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_KINDS: Final[dict[str, type[AbstractIndex]]] = {INDEX_SUFFIX: OffsetIndex, TIME_INDEX_SUFFIX: TimeIndex}
_FINDINGS_HELD: Final = 1000
_CUT: Final = "nothing: the next start truncates the log before it, and the index with it"


def dump_segment(files: Files, path: str, names: Sequence[str], chain: LogChain, *, records: bool) -> Events:
    """A .log file and its indexes. names: of all files in the directory. records: yield them too. Raises OSError."""
    base = int(path[-24:-4])
    checks = SegmentChecks(files, path.removesuffix(LOG_SUFFIX), base, names)
    file = files.open(path, read_only=True)
    try:
        reader = LogReader(file, path, records=records)
        yield FileFound(path, "log", reader.size)
        yield from chain.begin_segment(path, base)
        for step in reader.walk():
            yield from _step(step, path, chain)
            if isinstance(step, Read):
                checks.batch(step.batch, chain.transaction(step.batch))
        yield from chain.end_segment(path)
        yield from checks.end(reader.size, _ALL, chain.torn_from)
    finally:
        file.close()


def dump_log_alone(files: Files, path: str, chain: LogChain, *, records: bool) -> Events:
    """A .log file, or a snapshot of the metadata log, without the files beside it. Raises OSError."""
    digits = path.rpartition("/")[2][:20]
    file = files.open(path, read_only=True)
    try:
        reader = LogReader(file, path, records=records)
        yield FileFound(path, "log", reader.size)
        yield from chain.begin_segment(path, int(digits) if digits.isdigit() and LOG_SUFFIX in path[-24:] else 0)
        for step in reader.walk():
            yield from _step(step, path, chain)
        yield from chain.end_segment(path)
    finally:
        file.close()


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
    file = files.open(log, read_only=True)
    try:
        reader = LogReader(file, log, records=False)
        for step in reader.walk():
            if isinstance(step, Read):
                checks.batch(step.batch, None)
        yield from checks.end(reader.size, (suffix,), None)
    finally:
        file.close()


def _step(step: Read | Gap, path: str, chain: LogChain) -> Events:
    if isinstance(step, Gap):
        yield from chain.gap(path, step)
        return
    yield step.batch
    yield from step.records
    yield from chain.batch(step)


def _unchecked(files: Files, path: str, suffix: str, base: int) -> Events:
    if suffix == TRANSACTION_INDEX_SUFFIX:
        yield FileFound(path, "txnindex", files.size(path) or 0)
        entries, findings = aborted(files, path, base)
        yield from entries
        yield from findings
    else:
        yield from _index(IndexBytes(path, base, read_file(files, path) or b""), suffix)


def _index(index: IndexBytes, suffix: str) -> Events:
    yield FileFound(index.path, suffix[1:], len(index.data))
    yield from offset_entries(index) if suffix == INDEX_SUFFIX else time_entries(index)
    yield from check_shape(index, _KINDS[suffix].ENTRY)


class SegmentChecks:
    """The three indexes of one segment, checked with its batches and reported after them."""

    def __init__(self, files: Files, stem: str, base: int, names: Sequence[str]) -> None:
        """stem: the path without a suffix. names: of the directory's files. Raises OSError."""
        self._files = files
        self._stem = stem
        name = stem.rpartition("/")[2]
        self._here = {suffix for suffix in _ALL if f"{name}{suffix}" in names}
        self._bytes = {
            suffix: IndexBytes(f"{stem}{suffix}", base, read_file(files, f"{stem}{suffix}") or b"") for suffix in _KINDS
        }
        self._offsets = OffsetIndexCheck(self._bytes[INDEX_SUFFIX])
        self._times = TimeIndexCheck(self._bytes[TIME_INDEX_SUFFIX])
        self._txn_path = f"{stem}{TRANSACTION_INDEX_SUFFIX}"
        self._aborted, txn_findings = aborted(files, self._txn_path, base)
        self._transactions = TransactionIndexCheck(
            self._txn_path, self._aborted, present=TRANSACTION_INDEX_SUFFIX in self._here
        )
        self._found: dict[str, list[Finding]] = {suffix: [] for suffix in _ALL}
        self._add(TRANSACTION_INDEX_SUFFIX, txn_findings)

    def batch(self, batch: BatchFound, aborts_from: int | None) -> None:
        """Add the next batch of the segment. aborts_from: see TransactionIndexCheck.batch."""
        self._add(INDEX_SUFFIX, self._offsets.batch(batch))
        self._add(TIME_INDEX_SUFFIX, self._times.batch(batch))
        self._add(TRANSACTION_INDEX_SUFFIX, self._transactions.batch(batch, aborts_from))

    def end(self, size: int, suffixes: Iterable[str], torn_from: int | None) -> Events:
        """End the segment, which has `size` bytes: yields the entries of these indexes, and their findings.

        torn_from: the next start truncates the log at this offset, and its indexes with it.
        """
        self._add(INDEX_SUFFIX, self._offsets.end(size))
        self._add(TIME_INDEX_SUFFIX, self._times.end())
        self._add(TRANSACTION_INDEX_SUFFIX, self._transactions.end())
        for suffix in suffixes:
            here = suffix in self._here
            if suffix == TRANSACTION_INDEX_SUFFIX:
                if here:
                    yield FileFound(self._txn_path, "txnindex", self._files.size(self._txn_path) or 0)
                    yield from self._aborted
            elif here:
                yield from _index(self._bytes[suffix], suffix)
            else:
                yield missing(self._bytes[suffix].path)
            for finding in self._found[suffix]:
                cut = torn_from is not None and (finding.first_offset or 0) >= torn_from
                yield replace(finding, severity=Severity.NOTE, next_step=_CUT) if cut else finding

    def _add(self, suffix: str, findings: Iterable[object]) -> None:
        """Keep findings for the end, up to a limit."""
        found = self._found[suffix]
        found.extend(finding for finding in findings if isinstance(finding, Finding) and len(found) < _FINDINGS_HELD)
