"""Loads a partition directory: checks the end after a clean stop, otherwise recovers the data on the disk.

Steps: finish interrupted cleanings and deletions; find the segments; accept the clean stop, or recover the log with its
indexes and epochs.

Invariants: only files of an unfinished truncation, roll, cleaning or deletion are removed. Files that fit nowhere are
set aside.
Not here: which directories are logs and which marks exist (log_directory.py), the checks after a clean stop
(clean_start.py), torn writes and damage (recovery.py), producer state (log_producers.py).
Source: Kafka's LogLoader; design section 3.
"""

from __future__ import annotations

import random
from functools import partial

from storage.files.file_system import Files
from storage.log_config import LogConfig
from storage.recovery.clean_start import load_clean
from storage.recovery.epoch_recovery import EpochRecovery
from storage.recovery.interrupted import finish_interrupted
from storage.recovery.loaded import Known, LoadedLog, Progress
from storage.recovery.loading_site import LoadingSite
from storage.recovery.recovery import Recovery
from storage.segment.segment import LOG_SUFFIX, SEGMENT_FILE, LogSegment
from storage.segment.segments import make_segment
from tidelog.types import Offset, WallClock


def load_log(
    files: Files,
    directory: str,
    config: LogConfig,
    clock: WallClock,
    rng: random.Random,
    known: Known,
    progress: Progress | None = None,
) -> LoadedLog:
    """Load a partition directory. On a thread that may wait for the disk. progress: called after each segment. Raises
    only OSError, if the disk fails."""
    site = LoadingSite(files, directory, config, known, progress)
    make = partial(make_segment, files, directory, config=config, rng=rng, now=clock.wall_ms())
    site.notes.extend(finish_interrupted(files, directory))
    segments = [make(base) for base in _find_segments(site)]
    loaded = load_clean(site, segments) if segments and known.clean else None
    if loaded is None and segments:
        loaded = Recovery(site).run(segments)
    if loaded is None:
        loaded = _empty(site, make(known.needed_from, fresh=True))
    loaded.notes.extend(site.notes)
    loaded.holes_below, loaded.local_log_start = known.cleaned, known.local_log_start
    return loaded


def _find_segments(site: LoadingSite) -> list[Offset]:
    found: dict[int, set[str]] = {}
    for name in site.files.list(site.directory):
        match = SEGMENT_FILE.fullmatch(name)
        if match is not None:
            found.setdefault(int(match[1]), set()).add(match[2])
    for base, suffixes in found.items():
        if LOG_SUFFIX not in suffixes:
            site.set_aside(base, sorted(suffixes), "it is an index without a .log file")
    return [Offset(base) for base in sorted(found) if LOG_SUFFIX in found[base]]


def _empty(site: LoadingSite, segment: LogSegment) -> LoadedLog:
    """A log without segments: new, interrupted while it was emptied, or lost. segment: its new, only one."""
    start = segment.base_offset
    if site.protected > start:
        site.lose(segment.path, 0, start, site.protected, "the files of the log are missing")
    epochs = EpochRecovery(site)
    epochs.cache.truncate_from_end(start)
    log_start = site.known.start_with(start)  # not `start`: what only the remote tier has would count as deleted
    return LoadedLog([segment], epochs.cache, epochs.file, log_start, start, start, start, site.damage, fresh=True)
