"""Counts of durations by bounds, for metrics."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

WORK_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds (seconds) for pieces of work: from a write into the page cache to a disk that hangs."""


class Histogram:
    """Durations of one kind of work."""

    __slots__ = ("bounds", "counts", "total_s")

    def __init__(self, bounds: tuple[float, ...] = WORK_S) -> None:
        """bounds: upper bounds in seconds, increasing."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """How many were above the bound before and not above this one; at the end: above all bounds."""
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds
