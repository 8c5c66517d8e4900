"""The progress of loading the logs of a directory: after each log, and within one after each recovered segment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from storage.recovery.loaded import Progress


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Progress of loading a directory's logs."""

    directory: str
    log: str
    """The log that was loaded last."""
    done: int
    total: int
    bytes: int
    """Size of all logs that were loaded."""
    segment: int = 0
    """Segments recovered of the log in recovery, out of `segments`; 0 between two logs."""
    segments: int = 0

    def __str__(self) -> str:
        within = f" (segment {self.segment} of {self.segments})" if self.segment < self.segments else ""
        return (
            f"{self.directory}: {self.done} of {self.total} logs, {self.bytes >> 20} MiB, the last one "
            f"{self.log}{within}"
        )


def segment_by_segment(so_far: LoadProgress, progress: Callable[[LoadProgress], None]) -> Progress:
    """The callback that reports each recovered segment of one log."""

    def report(done: int, total: int, size: int) -> None:
        nonlocal so_far
        so_far = replace(so_far, bytes=so_far.bytes + size, segment=done, segments=total)
        progress(so_far)

    return report
