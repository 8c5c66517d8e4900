"""What is known of a log before it is loaded, what loading leaves, and what it found to be lost.

Left to others: the loading (loading.py, clean_start.py, recovery.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from storage.segment.epoch_cache import EpochFile, LeaderEpochCache
from storage.segment.segment import LogSegment
from tidelog.types import Offset


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
    readable: bool = False
    """The records are there: what is lost is what belongs to them."""
    parts: tuple[Damage, ...] = ()
    """Where this tells of several: each of them, by first offset. What lies between them is sound."""

    def __str__(self) -> str:
        first = self.parts[0] if self.parts else self
        lost = f"offsets {first.first_offset}..{first.end_offset - 1}"
        told = f"{lost} ({first.path}, byte {first.position}): {first.reason}"
        more = f"; and {len(self.parts) - 1} more, up to offset {self.end_offset - 1}" if self.parts else ""
        return told + more

    def joined(self, other: Damage) -> Damage:
        """Both, told as the range that spans them and the cause of the first."""
        parts = sorted(
            {*(self.parts or (self,)), *(other.parts or (other,))},
            key=lambda part: (part.first_offset, part.end_offset),
        )
        if len(parts) == 1:
            return parts[0]
        end = max(part.end_offset for part in parts)
        readable = all(part.readable for part in parts)
        return replace(parts[0], end_offset=end, readable=readable, parts=tuple(parts))

    def at(self, offset: Offset) -> Damage | None:
        """What of it keeps `offset` from being read, None where nothing does."""
        for part in self.parts or (self,):
            if not part.readable and part.first_offset <= offset < part.end_offset:
                return part
        return None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a log before its files are looked at: from the checkpoints, the held marks and the clean
    marker."""

    recovery_point: Offset = Offset(0)
    durable_offset: Offset = Offset(0)
    log_start: Offset = Offset(0)
    clean: bool = False
    cleaned: Offset = Offset(0)
    """Below it the cleaner has been: offsets may be missing between two segments."""
    foreign: bool = False
    """The directory comes from Kafka and is opened here for the first time."""


class Progress(Protocol):
    """Told after each segment of a log that is loaded: segments done and in all, bytes read of that segment."""

    def __call__(self, done: int, total: int, size: int) -> None: ...


@dataclass(slots=True)
class LoadedLog:
    """A log as loading leaves it."""

    segments: list[LogSegment]
    epochs: LeaderEpochCache
    epoch_file: EpochFile
    log_start: Offset
    log_end: Offset
    recovery_point: Offset
    durable_offset: Offset
    damage: Damage | None = None
    notes: list[str] = field(default_factory=list)
    """What was cut, rebuilt or set aside, in sentences for the node's log."""
    fresh: bool = False
    """The directory may have been made just now: neither its names nor its own need be durable yet."""
    new_names: bool = False
    """Names in it may be neither durable nor durably gone."""
    rebuilt: list[LogSegment] = field(default_factory=list)
    """Closed segments whose indexes were built anew and are not durable yet."""
    holes_below: Offset = Offset(0)
    """Below it the cleaner has been."""
    read_from: Offset | None = None
    """Recovery read the batches from here on: producer snapshots above are written anew. None after a clean stop."""
