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

from storage.config import LogConfig
from storage.files.clock import WallClock
from storage.files.file_system import Files
from storage.recovery.clean_start import believe_clean
from storage.recovery.epoch_recovery import EpochRecovery
from storage.recovery.interrupted import finish_interrupted
from storage.recovery.loaded import Damage, Known, LoadedLog, Progress
from storage.recovery.loading_site import LoadingSite
from storage.recovery.recovery import Recovery
from storage.segment.segment import LOG_SUFFIX, SEGMENT_FILE, LogSegment
from storage.segment.segments import make_segment
from tidelog.types import Offset

__all__ = ["Damage", "Known", "LoadedLog", "LogLoader"]


class LogLoader:
    """Loads one partition directory. Used once, on a thread that may wait for the disk."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        clock: WallClock,
        rng: random.Random,
        known: Known,
        progress: Progress | None = None,
    ) -> None:
        self._site = LoadingSite(files, directory, config, known, progress)
        self._clock, self._rng = clock, rng

    def load(self) -> LoadedLog:
        """Load the log. Raises only OSError, if the disk fails."""
        site = self._site
        site.notes.extend(finish_interrupted(site.files, site.directory))
        segments = self._find_segments()
        loaded = believe_clean(site, segments) if segments and site.known.clean else None
        if loaded is None and segments:
            loaded = Recovery(site).run(segments)
        if loaded is None:
            loaded = self._empty()
        loaded.notes.extend(site.notes)
        loaded.holes_below = site.known.cleaned
        return loaded

    def _segment(self, base: Offset, *, fresh: bool = False) -> LogSegment:
        site, now = self._site, self._clock.wall_ms()
        return make_segment(site.files, site.directory, base, site.config, self._rng, now, fresh=fresh)

    def _find_segments(self) -> list[LogSegment]:
        found: dict[int, set[str]] = {}
        for name in self._site.files.list(self._site.directory):
            match = SEGMENT_FILE.fullmatch(name)
            if match is not None:
                found.setdefault(int(match[1]), set()).add(match[2])
        for base, suffixes in found.items():
            if LOG_SUFFIX not in suffixes:
                self._site.set_aside(base, sorted(suffixes), "it is an index without a .log file")
        return [self._segment(Offset(base)) for base in sorted(found) if LOG_SUFFIX in found[base]]

    def _empty(self) -> LoadedLog:
        """A log without segments: new, interrupted while it was emptied, or lost."""
        site, start = self._site, self._site.known.log_start
        segment = self._segment(start, fresh=True)
        if site.protected > start:
            site.lose(segment.path, 0, start, site.protected, "the files of the log are missing")
        epochs = EpochRecovery(site)
        epochs.cache.truncate_from_end(start)
        return LoadedLog([segment], epochs.cache, epochs.file, start, start, start, start, site.damage, fresh=True)
