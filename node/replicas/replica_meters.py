"""What the replicas of a node count for its metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from node.replicas.isr_changes import IsrChanges
from node.runtime.disk_times import APPEND, DiskTimes
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaMeters:
    """The counters of one node."""

    now_ns: Callable[[], int] = lambda: 0
    """Monotonic time."""
    isr_changes: IsrChanges = field(default_factory=IsrChanges)
    disk_times: DiskTimes = field(default_factory=DiskTimes)

    def appended_since(self, directory: str, began_ns: int) -> None:
        """Count an append to a log of this directory that began then."""
        self.disk_times.of(directory, APPEND).observe((self.now_ns() - began_ns) * 1e-9)
