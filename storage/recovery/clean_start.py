"""Loading a log after a clean stop: only the end of its last segment is checked.

Invariants: the clean-shutdown marker is accepted only if the headers of the last segment, its indexes, the epoch file,
the recovery point, the durable-offset mark and the names of the producer snapshots agree. It is rejected for a torn
log, a log that ends in zeros, and a log that lacks a segment.
Not here: recovery if the marker is rejected (recovery.py); closed segments, which are checked at first use (segment.py)
and by the scrub.
Source: design section 3; Kafka's LogLoader accepts the marker unconditionally.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from storage.checkpoints.checkpoint_file import read_epochs
from storage.producers.snapshot_files import snapshot_offset
from storage.recovery.loaded import LoadedLog
from storage.recovery.loading_site import LoadingSite
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain
from storage.segment.epoch_cache import EpochFile, LeaderEpochCache
from storage.segment.segment import LogSegment
from tidelog.errors import CorruptLog
from tidelog.types import EpochStart, Offset


def load_clean(site: LoadingSite, segments: Sequence[LogSegment]) -> LoadedLog | None:
    """The log as a clean stop left it; None if its files contradict the marker. Raises OSError."""
    known, active = site.known, segments[-1]
    log_end, entries = Offset(0), None
    try:
        log_end = active.check_tail()
        log_end = max(log_end, known.needed_from) if active.size == 0 else log_end
        entries = _epochs(site, active)
        problem = _snapshot_problem(site, segments, log_end)
        if problem is None and entries is not None and site.epochs_begin_late(segments, entries):
            problem = f"the leader epochs begin at offset {entries[0].start_offset}, above the log start"
        if problem is None and entries is not None and site.lacks_remote_epochs(entries):
            problem = "the leader epochs of what is in the remote tier are missing"
    except (BrokenChain, CorruptIndex, CorruptLog) as error:
        problem = str(error)
    wrong_end = log_end != known.recovery_point or log_end < site.protected or log_end < known.needed_from
    if problem is None and (wrong_end or entries is None):
        problem = (
            f"log end {log_end}, recovery point {known.recovery_point}, durable-offset mark {known.durable_offset}, "
            f"leader epochs {'missing' if entries is None else 'present'}"
        )
    elif problem is None and site.missing_start(segments[0].base_offset, entries) is not None:
        problem = "the first segment is missing"
    if problem is not None or entries is None:
        site.note(f"{site.directory}: clean-shutdown marker rejected: {problem}")
        return None
    for segment in segments[:-1]:
        site.ensure_indexes(segment)
    active.close()  # an idle log needs no open file
    cache = LeaderEpochCache(entries)
    cache.truncate_from_end(Offset(log_end + 1))
    start = known.start_with(segments[0].base_offset)
    file = EpochFile(site.files, site.epoch_path, cache.version)
    return LoadedLog(list(segments), cache, file, start, log_end, log_end, log_end)


def _snapshot_problem(site: LoadingSite, segments: Sequence[LogSegment], log_end: Offset) -> str | None:
    """How the names of the producer snapshots contradict the marker; None if they do not. A clean stop leaves a
    snapshot at the log end. Every other one is at the base offset of a segment, or where a recovery found the log end.
    Raises BrokenChain, CorruptIndex, OSError."""
    names = site.files.list(site.directory)
    found = {offset for name in names if (offset := snapshot_offset(name)) is not None}
    if log_end > 0 and log_end not in found:
        return f"there is no producer snapshot at the log end {log_end}"
    bases = [segment.base_offset for segment in segments]
    for offset in sorted(found.difference(bases)):
        holder = bisect_right(bases, offset) - 1
        if not 0 <= holder < len(segments) - 1 or site.may_lack(bases[holder + 1]):
            continue
        if segments[holder].check_tail() <= offset:
            return f"the producer snapshot at offset {offset} has no segment"
    return None


def _epochs(site: LoadingSite, active: LogSegment) -> tuple[EpochStart, ...] | None:
    """The entries of the epoch file; None if it is missing. A log of v0 or v1 written by Kafka has no such file and
    gets an empty one. Raises CorruptLog, BrokenChain, OSError."""
    entries = read_epochs(site.files, site.epoch_path)
    if entries is None and site.known.foreign:
        first = next(active.walk(), None)
        if first is not None and first.magic < 2:
            EpochFile(site.files, site.epoch_path, -1).write(0, ())
            return ()
    return entries
