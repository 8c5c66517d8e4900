"""The inputs and results of loading a log, and the damage found.

Not here: the loading (loading.py, clean_start.py, recovery.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from storage.segment.epoch_cache import EpochFile, LeaderEpochCache
from storage.segment.segment import LogSegment
from tidelog.types import Offset


@dataclass(frozen=True, slots=True)
class Damage:
    """Records that had been durable and cannot be read: offsets from `first_offset` to below `end_offset` may be
    lost."""

    path: str
    """The file, and the byte where the first damage was found."""
    position: int
    first_offset: Offset
    end_offset: Offset
    reason: str
    readable: bool = False
    """True if the records themselves can be read and only data that belongs to them is lost."""
    parts: tuple[Damage, ...] = ()
    """If there are several ranges: each of them, by first offset. Offsets between them are sound."""

    def __str__(self) -> str:
        first = self.parts[0] if self.parts else self
        lost = f"offsets {first.first_offset}..{first.end_offset - 1}"
        text = f"{lost} ({first.path}, byte {first.position}): {first.reason}"
        more = f"; and {len(self.parts) - 1} more, up to offset {self.end_offset - 1}" if self.parts else ""
        return text + more

    def joined(self, other: Damage) -> Damage:
        """The union of both: the range that spans them, with the cause of the first."""
        parts = sorted(
            dict.fromkeys((*(self.parts or (self,)), *(other.parts or (other,)))),  # in order: which cause is first
            key=lambda part: (part.first_offset, part.end_offset),
        )
        if len(parts) == 1:
            return parts[0]
        end = max(part.end_offset for part in parts)
        readable = all(part.readable for part in parts)
        return replace(parts[0], end_offset=end, readable=readable, parts=tuple(parts))

    def at(self, offset: Offset) -> Damage | None:
        """The part of the damage that makes `offset` unreadable; None if it is readable."""
        for part in self.parts or (self,):
            if not part.readable and part.first_offset <= offset < part.end_offset:
                return part
        return None


@dataclass(frozen=True, slots=True)
class Known:
    """What checkpoints, marks and the clean-shutdown marker record about a log, before its files are read."""

    recovery_point: Offset = Offset(0)
    durable_offset: Offset = Offset(0)
    log_start: Offset = Offset(0)
    clean: bool = False
    cleaned: Offset = Offset(0)
    """The cleaner has worked below this offset: offsets may be missing between two segments."""
    foreign: bool = False
    """True if the directory comes from Kafka and is opened here for the first time."""
    local_log_start: Offset = Offset(0)
    """Segments below it may be in the remote tier only."""
    log_start_lost: bool = False
    """True if the file of the log starts was damaged: `log_start` is 0, whatever had been recorded."""

    @property
    def needed_from(self) -> Offset:
        """Every offset from here on must be in the local log, if it was durable."""
        return max(self.log_start, self.local_log_start)

    def start_with(self, first: Offset) -> Offset:
        """The log start, if the first segment begins at `first`: what lies between may be in the remote tier."""
        return self.log_start if first <= self.local_log_start else max(self.log_start, first)


Progress: TypeAlias = Callable[[int, int, int], None]
"""Called after each segment during loading: segments done, segments in total, bytes read of this one."""


@dataclass(slots=True)
class LoadedLog:
    segments: list[LogSegment]
    epochs: LeaderEpochCache
    epoch_file: EpochFile
    log_start: Offset
    log_end: Offset
    recovery_point: Offset
    durable_offset: Offset
    damage: Damage | None = None
    notes: list[str] = field(default_factory=list)
    """What was truncated, rebuilt or set aside, in sentences for the node's log."""
    fresh: bool = False
    """True if the directory may be new: its name and the names in it may not be durable yet."""
    new_names: bool = False
    """True if creations or removals of names in it may not be durable."""
    rebuilt: list[LogSegment] = field(default_factory=list)
    """Closed segments whose indexes were rebuilt and are not durable yet."""
    holes_below: Offset = Offset(0)
    """The cleaner has worked below this offset."""
    local_log_start: Offset = Offset(0)
    """Segments below it may be in the remote tier only."""
    read_from: Offset | None = None
    """Recovery read the batches from here: producer snapshots above are rewritten. None after a clean stop."""
