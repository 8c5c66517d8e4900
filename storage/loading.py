"""Opening a partition's folder: believe a clean stop after a look, else recover what the disk has.

Kept true:
  1. Damage below what was durable (the recovery point, or the held mark) is never cut away: it is reported, with file,
     byte and offsets, and the bytes stay. Above it, a batch that is not whole is a torn write, and is cut.
     So is what lies behind offsets that are missing between two segments: a closed segment may have lost its last
     batches whole, and a roll leaves no hole there (log.py).
  2. What recovery keeps above the recovery point of an fsync log is written again in place and fsynced before it
     counts as held: after a failed fsync the kernel calls such pages clean without their being on the disk.
  3. A clean stop is believed only where the last segment's headers, its indexes and the recovery point agree.
  4. Nothing is removed here but what a truncation or a roll had not finished; files that fit nowhere are set aside.
Left to others: which folders are logs, and which marks there are (data_folder.py).
Source: Kafka's LogLoader and LogSegment.recover, less what the vectors' README calls fragile.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from storage.batch_walk import BrokenChain, scan_file
from storage.checkpoints import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, read_epochs
from storage.clock import WallClock
from storage.config import INT32_MAX, LogConfig
from storage.epoch_cache import EpochFile, LeaderEpochCache
from storage.files import Files, folder_of, read_file, sync_all, write_file
from storage.index import CorruptIndex
from storage.segment import INDEX_SUFFIX, LOG_SUFFIX, SUFFIXES, TIME_INDEX_SUFFIX, LogSegment, segment_path
from storage.segments import make_segment, set_aside
from tidelog.errors import CorruptLog
from tidelog.records.header import BatchHeader
from tidelog.types import NO_LEADER_EPOCH, Durability, Offset

_REWRITE_BYTES: Final = 1 << 20
_SEGMENT_FILE: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex)")


@dataclass(frozen=True, slots=True)
class Damage:
    """Records that had been durable and cannot be read: offsets from `first_offset` to below `end_offset` may be gone.

    path, position: the file and the byte where the first of it was met.
    """

    path: str
    position: int
    first_offset: Offset
    end_offset: Offset
    reason: str

    def __str__(self) -> str:
        return f"offsets {self.first_offset}..{self.end_offset - 1} ({self.path}, byte {self.position}): {self.reason}"

    def joined(self, other: Damage) -> Damage:
        """Both, told as the range that spans them and the cause of the first."""
        first, second = (self, other) if self.first_offset <= other.first_offset else (other, self)
        end = max(first.end_offset, second.end_offset)
        return Damage(first.path, first.position, first.first_offset, end, first.reason)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a log before its files are looked at: from the checkpoints, the held marks and the clean
    marker."""

    recovery_point: Offset = Offset(0)
    held: Offset = Offset(0)
    log_start: Offset = Offset(0)
    clean: bool = False


@dataclass(slots=True)
class LoadedLog:
    """A log as loading leaves it."""

    segments: list[LogSegment]
    epochs: LeaderEpochCache
    epoch_file: EpochFile
    log_start: Offset
    log_end: Offset
    recovery_point: Offset
    held: Offset
    damage: Damage | None = None
    notes: list[str] = field(default_factory=list)
    """What was cut, rebuilt or set aside, in sentences for the node's log."""
    fresh: bool = False
    """The folder was made just now: its names are not durable yet."""


class LogLoader:
    """Loads one partition folder; used once. Runs where it may wait for the disk."""

    def __init__(
        self, files: Files, folder: str, config: LogConfig, clock: WallClock, rng: random.Random, known: Known
    ) -> None:
        self._files, self._folder, self._config, self._known = files, folder, config, known
        self._clock, self._rng = clock, rng
        self._notes: list[str] = []
        self._damage: Damage | None = None
        self._changed = False
        """Was anything cut or set aside?"""
        self._epoch_path = f"{folder}/{LEADER_EPOCH_CHECKPOINT}"

    def load(self) -> LoadedLog:
        """Raises OSError where the disk fails, and nothing else."""
        segments = self._find_segments()
        if not segments:
            return self._empty()
        loaded = self._believe_clean(segments) if self._known.clean else None
        if loaded is None:
            loaded = self._recover(segments)
        loaded.notes.extend(self._notes)
        return loaded

    # --- what is there --------------------------------------------------------------------------------------------

    def _segment(self, base: Offset, *, fresh: bool = False) -> LogSegment:
        now = self._clock.wall_ms()
        return make_segment(self._files, self._folder, base, self._config, self._rng, now, fresh=fresh)

    def _find_segments(self) -> list[LogSegment]:
        found: dict[int, set[str]] = {}
        for name in self._files.list(self._folder):
            match = _SEGMENT_FILE.fullmatch(name)
            if match is not None:
                found.setdefault(int(match[1]), set()).add(match[2])
        for base, suffixes in found.items():
            if LOG_SUFFIX not in suffixes:
                self._set_aside(base, sorted(suffixes), "it is an index without a segment")
        return [self._segment(Offset(base)) for base in sorted(found) if LOG_SUFFIX in found[base]]

    def _set_aside(self, base: int, suffixes: Iterable[str], why: str) -> None:
        for suffix in suffixes:
            path = segment_path(self._folder, base, suffix)
            if self._files.size(path) is not None:
                self._notes.append(f"{path} was set aside as {set_aside(self._files, path)}: {why}")

    def _empty(self) -> LoadedLog:
        """No segment: a log that was just made, was being emptied, or was lost."""
        known = self._known
        start = known.log_start
        segment = self._segment(start, fresh=True)
        protected = self._protected()
        if protected > start:
            self._add_damage(segment.path, 0, start, protected, "the log's files are gone")
        cache, file = self._read_epochs([], Offset(0))
        cache.truncate_from_end(start)
        return LoadedLog([segment], cache, file, start, start, start, start, self._damage, self._notes, fresh=True)

    def _protected(self) -> Offset:
        """Every offset below this one had been durable: what is wrong there is damage."""
        if self._config.durability is Durability.FSYNC:
            return max(self._known.recovery_point, self._known.held)
        return self._known.recovery_point

    # --- a clean stop ---------------------------------------------------------------------------------------------

    def _believe_clean(self, segments: list[LogSegment]) -> LoadedLog | None:
        """The log as a clean stop left it, None where files, indexes and recovery point tell another story."""
        known, active = self._known, segments[-1]
        try:
            log_end = active.check_tail()
            entries = read_epochs(self._files, self._epoch_path)
        except (BrokenChain, CorruptIndex, CorruptLog) as error:
            self._notes.append(f"{self._folder}: the clean-shutdown marker is not believed: {error}")
            return None
        log_end = max(log_end, known.log_start) if active.size == 0 else log_end
        if log_end != known.recovery_point or log_end < self._protected() or entries is None:
            self._notes.append(
                f"{self._folder}: the clean-shutdown marker is not believed: the log ends at {log_end}, the recovery "
                "point is "
                f"{known.recovery_point}, the held mark {known.held}, leader epochs "
                f"{'are' if entries else 'are not'} there"
            )
            return None
        for segment in segments[:-1]:
            self._ensure_indexes(segment)
        active.close()  # an idle log needs no open file
        cache = LeaderEpochCache(entries)
        cache.truncate_from_end(Offset(log_end + 1))
        start = max(known.log_start, segments[0].base_offset)
        file = EpochFile(self._files, self._epoch_path, cache.version)
        return LoadedLog(segments, cache, file, start, log_end, log_end, log_end)

    def _ensure_indexes(self, segment: LogSegment) -> None:
        """Rebuild the indexes of a closed segment where one is missing; a wrong one is found when it is used."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = segment_path(self._folder, segment.base_offset, suffix)
            if self._files.size(path) is None:
                self._notes.append(f"{path} is missing: both indexes of that segment are rebuilt")
                try:
                    segment.rebuild_indexes()
                except BrokenChain as error:
                    self._add_damage(segment.path, error.position, Offset(error.next_offset), None, error.reason)
                segment.index.trim()
                segment.time_index.trim()
                return

    # --- recovery -------------------------------------------------------------------------------------------------

    def _recover(self, segments: list[LogSegment]) -> LoadedLog:
        known, protected = self._known, self._protected()
        first = max((i for i, segment in enumerate(segments) if segment.base_offset <= known.recovery_point), default=0)
        for segment in segments[:first]:
            self._ensure_indexes(segment)
        cache, epoch_file = self._read_epochs(segments[:first], segments[first].base_offset)
        next_offset = segments[first].base_offset
        kept, rewrite_from = segments[:first], 0
        for i in range(first, len(segments)):
            segment = segments[i]
            if segment.base_offset < next_offset and not (i > first and segment.base_offset < protected):
                self._drop(segments[i:], f"it starts below offset {next_offset}, where the log ends")
                break
            if i > first and next_offset < segment.base_offset <= kept[-1].base_offset + INT32_MAX:
                if next_offset >= protected:
                    self._drop(segments[i:], f"offsets {next_offset} to {segment.base_offset - 1} before it are lost")
                    break
                reason = "the offsets before the next segment are lost"
                self._add_damage(kept[-1].path, kept[-1].size, next_offset, segment.base_offset, reason)
            kept.append(segment)
            next_offset = max(next_offset, segment.base_offset)
            behind = segments[i + 1].base_offset if i + 1 < len(segments) else None
            next_offset, from_byte, cut = self._recover_segment(segment, next_offset, cache, protected, behind)
            if i == first:
                rewrite_from = from_byte
            if cut:
                self._drop(segments[i + 1 :], f"the log was cut at offset {next_offset}, before it")
                break
            if i < len(segments) - 1:
                segment.become_inactive()
        log_end = next_offset
        if log_end < protected:
            last = kept[-1]
            self._add_damage(last.path, last.size, log_end, protected, f"the log ends at offset {log_end}")
        cache.truncate_from_end(Offset(log_end + 1))
        loaded = LoadedLog(
            kept,
            cache,
            epoch_file,
            max(known.log_start, kept[0].base_offset),
            log_end,
            min(known.recovery_point, log_end),
            log_end,
            self._damage,
        )
        as_flushed = log_end == known.recovery_point and self._damage is None and not self._changed
        if self._config.durability is Durability.FSYNC and not as_flushed:
            self._make_durable(loaded, first, rewrite_from)
        return loaded

    def _recover_segment(
        self,
        segment: LogSegment,
        next_offset: Offset,
        cache: LeaderEpochCache,
        protected: Offset,
        behind: Offset | None,
    ) -> tuple[Offset, int, bool]:
        """Check a segment from the recovery point on, rebuild its indexes and epoch entries. behind: where the next one
        starts.

        Returns the offset behind it, the byte where offsets at or above the recovery point begin, and whether it was
        cut.
        """
        position, next_offset, epoch = self._walk_below(segment, next_offset, cache)
        rewrite_from = end = segment.size
        while position < end:
            try:
                for batch, at in scan_file(segment.file, position, end, next_offset, epoch):
                    header = batch.header
                    self._take(segment, header, at, cache)
                    if header.last_offset >= self._known.recovery_point:
                        rewrite_from = min(rewrite_from, at)
                    position, next_offset, epoch = at + header.size, batch.next_offset, header.leader_epoch
            except BrokenChain as broken:
                if next_offset >= protected:
                    return self._cut(segment, broken, next_offset), min(rewrite_from, broken.position), True
                header_only = broken.header
                if header_only is None:
                    self._add_damage(segment.path, broken.position, next_offset, behind, broken.reason)
                    segment.size = broken.position
                    return next_offset, min(rewrite_from, broken.position), False
                damaged_end = Offset(header_only.last_offset + 1)
                self._add_damage(segment.path, broken.position, header_only.base_offset, damaged_end, broken.reason)
                self._take(segment, header_only, broken.position, cache)
                position, next_offset, epoch = broken.position + header_only.size, damaged_end, header_only.leader_epoch
        return next_offset, rewrite_from, False

    def _walk_below(self, segment: LogSegment, next_offset: Offset, cache: LeaderEpochCache) -> tuple[int, Offset, int]:
        """Enter the batches below the recovery point by their headers alone: their bytes were durable.

        Returns the byte, the offset and the epoch to go on with. A chain that does not lead there is left to the scan,
        which finds where it broke.
        """
        segment.start_rebuild()
        start, before = next_offset, cache.entries
        position, epoch = 0, int(NO_LEADER_EPOCH)
        try:
            for header in segment.walk(0, next_offset):
                if header.last_offset >= self._known.recovery_point:
                    break
                self._take(segment, header, header.position, cache)
                position, next_offset, epoch = header.end, Offset(header.last_offset + 1), header.leader_epoch
        except BrokenChain:
            if next_offset < self._known.recovery_point:
                segment.start_rebuild()
                cache.restore(before)
                return 0, start, int(NO_LEADER_EPOCH)
        return position, next_offset, epoch

    def _take(self, segment: LogSegment, header: BatchHeader, position: int, cache: LeaderEpochCache) -> None:
        segment.index_batch(header, position)
        if header.leader_epoch != NO_LEADER_EPOCH and header.leader_epoch > cache.latest:
            cache.assign(header.leader_epoch, header.base_offset)

    def _cut(self, segment: LogSegment, broken: BrokenChain, next_offset: Offset) -> Offset:
        self._notes.append(
            f"{segment.path} was cut from {segment.size} to {broken.position} bytes, the log ends at offset "
            f"{next_offset}: "
            f"{broken.reason}"
        )
        segment.file.truncate(broken.position)
        segment.size = broken.position
        self._changed = True
        return next_offset

    def _drop(self, segments: list[LogSegment], why: str) -> None:
        self._changed |= bool(segments)
        for segment in segments:
            segment.close()
            self._set_aside(segment.base_offset, SUFFIXES, why)

    def _add_damage(self, path: str, position: int, first: Offset, end: Offset | None, reason: str) -> None:
        damage = Damage(path, position, first, max(end or self._protected(), Offset(first + 1)), reason)
        self._damage = damage if self._damage is None else self._damage.joined(damage)

    def _read_epochs(self, below: list[LogSegment], start: Offset) -> tuple[LeaderEpochCache, EpochFile]:
        """The epochs of the offsets below `start`: from the file, or from the batches where it is missing or
        damaged."""
        try:
            entries = read_epochs(self._files, self._epoch_path)
        except CorruptLog as error:
            self._notes.append(error.message)
            entries = None
        cache = LeaderEpochCache(entries or ())
        if entries is None and below:
            self._notes.append(f"{self._epoch_path} is rebuilt from the batches")
            for segment in below:
                try:
                    for header in segment.walk():
                        if header.leader_epoch > cache.latest:
                            cache.assign(header.leader_epoch, header.base_offset)
                except BrokenChain as error:
                    self._add_damage(segment.path, error.position, Offset(error.next_offset), None, error.reason)
        cache.truncate_from_end(start)
        return cache, EpochFile(self._files, self._epoch_path, -1)

    def _make_durable(self, loaded: LoadedLog, first: int, rewrite_from: int) -> None:
        """Write what was kept above the recovery point again, and sync it, its names and its epochs."""
        for i, segment in enumerate(loaded.segments[first:]):
            position = rewrite_from if i == 0 else 0
            while position < segment.size:
                data = segment.file.pread(min(_REWRITE_BYTES, segment.size - position), position)
                segment.file.pwritev([data], position)
                position += len(data)
            sync_all([segment.file])
            if segment is not loaded.segments[-1]:
                for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                    index = self._files.open(segment_path(self._folder, segment.base_offset, suffix))
                    index.sync()
                    index.close()
        if self._known.recovery_point == 0:
            self._rewrite_metadata()
        self._files.sync_folder(self._folder)
        loaded.epoch_file.write(loaded.epochs.version, loaded.epochs.entries)
        sound = loaded.log_end if loaded.damage is None else min(loaded.log_end, loaded.damage.first_offset)
        loaded.recovery_point = loaded.held = sound

    def _rewrite_metadata(self) -> None:
        """No flush of this log may ever have ended: neither its metadata nor its folder's name need be durable."""
        path = f"{self._folder}/{PARTITION_METADATA}"
        data = read_file(self._files, path)
        if data is not None:
            write_file(self._files, path, data)
        self._files.sync_folder(folder_of(self._folder))
